"""The scenarios of `tests.scenarios` on a real API server with real garbage collection."""

from __future__ import annotations

import pytest

from tests.scenarios import SCENARIOS, verdict
from tests.scenarios.servers import RealServer
from tests.scenarios.stage import Scenario, Stage, name_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

RAN: set[Scenario] = set()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_on_a_real_server(stage: Stage, scenario: Scenario) -> None:
    await scenario(stage)
    RAN.add(scenario)


async def test_nobody_was_refused(server: RealServer) -> None:
    found = verdict.refusals(server)
    assert not found, "\n".join(found)


async def test_every_permission_was_needed(server: RealServer) -> None:
    if set(SCENARIOS) != RAN:
        pytest.skip("not all scenarios were run to their end")
    found = verdict.unused(server)
    assert not found, "\n".join(found)
    # Design 02 gives it to them; ours write nothing but the status.
    assert verdict.unused_by_listeners(server) == ["patch ephemeralrunners.actions.github.com"]
