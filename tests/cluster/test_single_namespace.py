"""A manager that looks after one namespace, with what the charts grant to such a one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.envtest.assets import find_assets
from tests.scenarios import changes, deletions, jobs, listeners, networks, pods, processes
from tests.scenarios.charts import single_namespace
from tests.scenarios.runs import Runs, Servers, selected
from tests.scenarios.servers import real_server
from tests.scenarios.stage import Scenario, Stage, clean_up, name_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 2


async def a_scale_set_in_another_namespace_is_none_of_its_business(stage: Stage) -> None:
    elsewhere = await stage.more_runners_without_permissions()
    stage.server.unjudged.discard(elsewhere)  # it must not even try
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", namespace=elsewhere, min_runners=1)
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0)
        other = cluster.get(AutoscalingRunnerSet, "linux", elsewhere)
        assert other is not None
        assert (other.metadata.finalizers, other.status.phase) == ([], "")
        await cluster.delete(AutoscalingRunnerSet, "linux", namespace=elsewhere)
        await clean_up(cluster)


SCENARIOS: list[Scenario] = [
    a_scale_set_in_another_namespace_is_none_of_its_business,
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
    deletions.a_scale_set_deleted_while_it_is_being_registered_leaves_nothing,
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
