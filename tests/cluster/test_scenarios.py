"""The scenarios of `tests.scenarios` on real API servers with real garbage collection."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.scenarios import SCENARIOS
from tests.scenarios.runs import Runs, Servers, selected
from tests.scenarios.stage import Scenario, name_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def runs(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Runs]:
    async with Runs(servers, selected(request)) as runs:
        yield runs


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_on_a_real_server(runs: Runs, scenario: Scenario) -> None:
    await runs.end_of(scenario)


async def test_nobody_was_refused(runs: Runs) -> None:
    found = runs.refusals()
    assert not found, "\n".join(found)


async def test_every_permission_was_needed(runs: Runs) -> None:
    found = runs.unused()
    assert not found, "\n".join(found)
    # Design 02 gives it to them; ours write nothing but the status.
    assert runs.unused_by_listeners() == ["patch ephemeralrunners.actions.github.com"]
