"""Real API servers that several files share: starting one costs seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from arc_controller.testing.envtest import Envtest
from tests.scenarios.runs import Servers
from tests.scenarios.servers import real_server

AT_ONCE = 3


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers() -> AsyncIterator[Servers]:
    async with Servers(real_server, AT_ONCE) as servers:
        yield servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plain() -> AsyncIterator[Envtest]:
    """Without controllers, and without CRDs but those that a test installs. Who uses it leaves what
    is built in as it was."""
    async with Envtest(audit=True) as env:
        yield env
