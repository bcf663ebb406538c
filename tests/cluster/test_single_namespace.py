"""A manager that looks after one namespace, with what the charts grant to such a one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from arc_controller.testing.envtest.assets import find_assets
from tests.scenarios import changes, deletions, jobs, listeners, networks, pods, processes
from tests.scenarios.charts import single_namespace
from tests.scenarios.runs import Runs, Servers, selected
from tests.scenarios.servers import real_server
from tests.scenarios.stage import Scenario, name_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 2
SCENARIOS: list[Scenario] = [
    processes.a_manager_process_that_is_stopped_hands_over_at_once,
    jobs.a_job_is_run_by_a_runner_made_for_it_and_nothing_is_left,
    jobs.the_minimum_is_kept_idle_and_only_idle_runners_are_scaled_down,
    changes.a_new_image_is_used_at_once_and_busy_runners_finish,
    changes.what_somebody_changed_or_deleted_is_put_right,
    changes.what_lost_its_labels_is_found_and_labelled_again,
    changes.secrets_that_somebody_changed_are_right_again_after_a_restart,
    pods.what_container_hooks_left_goes_with_the_runner,
    pods.a_runner_evicted_with_its_job_is_over_and_unregistered,
    pods.a_runner_too_old_parks_its_set_until_the_template_changes,
    listeners.a_scale_set_that_the_service_forgot_is_registered_again,
    networks.a_server_with_its_own_certificate_behind_a_proxy_is_reached_by_everybody,
    deletions.a_scale_set_that_is_deleted_lets_busy_runners_finish,
    deletions.what_a_release_protected_is_let_go_when_its_scale_set_is_gone,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(request: pytest.FixtureRequest) -> AsyncIterator[Runs]:
    assets = find_assets()
    if not assets.has("helm"):
        pytest.skip("no helm to render the charts with: run `make envtest`")
    permissions = await single_namespace(assets.program("helm"))
    async with (
        Servers(partial(real_server, permissions), AT_ONCE) as servers,
        Runs(servers, selected(request), SCENARIOS) as runs,
    ):
        yield runs


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_in_one_namespace(runs: Runs, scenario: Scenario) -> None:
    await runs.end_of(scenario)


async def test_nobody_was_refused(runs: Runs) -> None:
    found = runs.refusals()
    assert not found, "\n".join(found)


async def test_every_permission_was_needed(runs: Runs) -> None:
    found = runs.unused()
    assert not found, "\n".join(found)
