"""A few real API servers for the scenarios and the end-to-end run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.scenarios.runs import Servers
from tests.scenarios.servers import real_server

AT_ONCE = 3


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers() -> AsyncIterator[Servers]:
    async with Servers(real_server, AT_ONCE) as servers:
        yield servers
