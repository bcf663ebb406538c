"""One real API server for all scenarios and the end-to-end run, with namespaces for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest_asyncio

from tests.scenarios.servers import RealServer, real_server
from tests.scenarios.stage import Stage

NUMBERS = count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[RealServer]:
    async with real_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def stage(server: RealServer) -> AsyncIterator[Stage]:
    stage = Stage(server, next(NUMBERS))
    await stage.prepare()
    yield stage
    assert await stage.strike() == []
