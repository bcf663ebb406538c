"""The scenarios of `tests.scenarios` on the embedded API server, over HTTP and in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio

from tests.scenarios import SCENARIOS, verdict
from tests.scenarios.servers import EmbeddedServer, embedded_server
from tests.scenarios.stage import Scenario, Stage, name_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = count(1)
RAN: set[Scenario] = set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[EmbeddedServer]:
    async with embedded_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def stage(server: EmbeddedServer) -> AsyncIterator[Stage]:
    stage = Stage(server, next(NUMBERS))
    await stage.prepare()
    yield stage
    assert await stage.strike() == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_on_the_embedded_server(stage: Stage, scenario: Scenario) -> None:
    await scenario(stage)
    RAN.add(scenario)


async def test_nobody_was_refused(server: EmbeddedServer) -> None:
    found = verdict.refusals(server)
    assert not found, "\n".join(found)


async def test_every_permission_was_needed(server: EmbeddedServer) -> None:
    if set(SCENARIOS) != RAN:
        pytest.skip("not all scenarios were run to their end")
    found = verdict.unused(server)
    assert not found, "\n".join(found)
    # Design 02 gives it to them; ours write nothing but the status.
    assert verdict.unused_by_listeners(server) == ["patch ephemeralrunners.actions.github.com"]
