"""Runners under adversity: hands that delete and edit, and things that happen in the wrong order.

Issue 4, "known troubles of the field", with the variations that only a busy cluster thinks of.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arc_controller.api.core import Pod, Secret
from arc_controller.api.v1alpha1 import (
    Annotation,
    EphemeralRunner,
    EphemeralRunnerSet,
    Phase,
    Reason,
)
from arc_controller.controllers import ephemeral_runner_set
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import Call
from arc_controller.testing.loop import simulated
from tests.integration.runners import (
    FINALIZERS,
    NAMESPACE,
    PAT,
    RUNNER,
    SET,
    URL,
    Cluster,
    cluster,
    exited,
)

NO_SECRET: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "runner",
            "image": "runner:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {
                "waiting": {
                    "reason": "CreateContainerConfigError",
                    "message": f'secret "{RUNNER.name}" not found',
                }
            },
        }
    ],
}


# --- the pod is quicker than we are -------------------------------------------------------------


async def quick_pod(here: Cluster) -> None:
    """A pod has just been created, and the runner's first status patch has not been sent."""
    here.add_runner()
    await here.until(lambda: here.exists(Pod))
    assert (await here.runner()).status.runner_id == 0


@simulated
async def test_a_pod_that_succeeds_before_the_first_status_patch_leaves_nothing() -> None:
    async with cluster() as here:
        await quick_pod(here)
        await here.runner_exits(0)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert not await here.exists(Secret)
        assert here.registered() == {}


@simulated
async def test_a_pod_that_fails_before_the_first_status_patch_is_counted_and_tried_again() -> None:
    async with cluster() as here:
        await quick_pod(here)
        first = (await here.pod()).uid
        await here.runner_exits(1)
        await here.settle(20)
        status = (await here.runner()).status
        assert list(status.failures) == [first]
        assert (await here.pod()).uid != first
        assert here.registered() == {RUNNER.name: status.runner_id}
        assert status.phase == Phase.PENDING


@simulated
async def test_a_pod_refused_as_too_old_before_the_first_status_patch_is_outdated() -> None:
    async with cluster() as here:
        await quick_pod(here)
        await here.runner_exits(7)
        await here.settle()
        assert (await here.runner()).status.phase == Phase.OUTDATED
        assert not await here.exists(Pod)
        assert here.registered() == {}


@simulated
@pytest.mark.parametrize("code", [0, 1])
async def test_a_job_that_starts_and_ends_before_the_first_status_patch_leaves_nothing(
    code: int,
) -> None:
    async with cluster() as here:
        await quick_pod(here)
        await here.job_started()
        await here.runner_exits(code)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_a_job_that_starts_before_the_first_status_patch_keeps_its_phase() -> None:
    async with cluster() as here:
        await quick_pod(here)
        await here.job_started()
        await here.pod_runs()
        await here.settle()
        status = (await here.runner()).status
        assert (status.phase, status.job_id, status.ready) == (Phase.RUNNING, "job-41", True)
        assert here.registered() == {RUNNER.name: status.runner_id}


@simulated
async def test_the_listeners_word_after_the_runner_is_done_changes_no_phase() -> None:
    """Its job fields are written without a lock, and may come at any time."""
    async with cluster() as here:
        await quick_pod(here)
        await here.runner_exits(7)
        await here.settle()
        await here.runner_status(jobRequestId=41, jobId="job-41")
        await here.settle(60)
        status = (await here.runner()).status
        assert (status.phase, status.reason) == (Phase.OUTDATED, Reason.OUTDATED)
        assert not await here.exists(Pod)


# --- hands --------------------------------------------------------------------------------------


@simulated
async def test_a_jit_secret_deleted_before_the_container_starts_is_made_again() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.delete(Secret, RUNNER)
        await here.pod_status(**NO_SECRET)
        await here.settle(120)
        secret, status = await here.secret(), (await here.runner()).status
        assert int(secret.data["runnerId"]) == status.runner_id
        assert here.registered() == {RUNNER.name: status.runner_id}
        await here.pod_runs()
        await here.settle()
        assert (await here.runner()).status.ready


@simulated
async def test_a_pod_that_waits_for_its_jit_secret_starts_once_that_is_there_again() -> None:
    async with cluster(kubelet=True) as here:
        here.slow_down("create", "pods", 1.0)
        here.add_runner()
        await here.until(lambda: here.exists(Secret))
        await here.delete(Secret, RUNNER)
        await here.until(lambda: _is_ready(here))
        assert here.registered() == {RUNNER.name: (await here.runner()).status.runner_id}


@simulated
async def test_a_jit_secret_corrupted_before_the_container_starts_is_made_again() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.admin.patch(Secret, RUNNER, {"data": {"jitToken": None}})
        await here.pod_status(**NO_SECRET)
        await here.settle(120)
        status = (await here.runner()).status
        assert (await here.secret()).data["jitToken"]
        assert here.registered() == {RUNNER.name: status.runner_id}


@simulated
async def test_a_jit_secret_deleted_under_a_running_pod_does_not_matter() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        await here.job_started()
        await here.settle()
        before = here.registered()
        await here.delete(Secret, RUNNER)
        await here.settle(300)
        assert here.registered() == before
        await here.runner_exits(0)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
@pytest.mark.parametrize("stage", ["created", "registered", "running", "again"])
@pytest.mark.parametrize("grace", [0, 30])
async def test_a_pod_deleted_by_hand_at_any_stage_without_a_job_comes_again(
    stage: str, grace: int
) -> None:
    async with cluster(kubelet=True) as here:
        here.add_runner()
        await here.until(lambda: here.exists(Pod))
        if stage != "created":
            await here.settle(2)
        if stage in ("running", "again"):
            await here.until(lambda: _is_ready(here))
        for _ in range(2 if stage == "again" else 1):
            before = (await here.pod()).uid
            await here.admin.delete(Pod, RUNNER, grace_period_seconds=grace)
            await here.until(lambda: _has_other_pod(here, before), 120)  # noqa: B023
        await here.until(lambda: _is_ready(here))
        status = (await here.runner()).status
        assert (status.failures, status.phase) == ({}, Phase.PENDING)
        assert here.registered() == {RUNNER.name: status.runner_id}


@simulated
@pytest.mark.parametrize("grace", [0, 30])
async def test_a_pod_deleted_by_hand_right_after_its_job_started_ends_the_runner(
    grace: int,
) -> None:
    async with cluster() as here:
        await quick_pod(here)
        await here.job_started()
        await here.admin.delete(Pod, RUNNER, grace_period_seconds=grace)
        await here.settle(120)
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
@pytest.mark.parametrize("slow", ["create secrets", "create pods", "patch ephemeralrunners/status"])
async def test_a_runner_deleted_by_hand_in_the_middle_of_its_start_leaves_nothing(
    slow: str,
) -> None:
    verb, _, resource = slow.partition(" ")
    async with cluster() as here:
        here.slow_down(verb, resource, 3.0)
        here.add_runner()
        await here.settle(1.5)
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(60)
        assert not await here.exists(EphemeralRunner)
        assert not await here.exists(Pod)
        assert not await here.exists(Secret)
        assert here.registered() == {}


@simulated
async def test_finalizers_taken_off_by_hand_come_back_and_the_end_is_clean() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        await here.admin.patch(EphemeralRunner, RUNNER, {"metadata": {"finalizers": None}})
        await here.settle()
        assert sorted((await here.runner()).metadata.finalizers) == sorted(FINALIZERS)
        await here.runner_exits(0)
        await here.settle()
        assert here.registered() == {}


@simulated
async def test_an_idle_runner_deleted_by_force_leaves_no_registration() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        await here.settle()
        here.forget()
        await here.admin.patch(EphemeralRunner, RUNNER, {"metadata": {"finalizers": None}})
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_a_runner_deleted_by_force_stays_registered_while_the_service_calls_it_busy() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        failing = here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=2
        )
        await here.admin.patch(EphemeralRunner, RUNNER, {"metadata": {"finalizers": None}})
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(20)
        assert failing.hits == 2
        assert list(here.registered()) == [RUNNER.name]
        await here.settle(20)
        assert here.registered() == {}


@simulated
async def test_a_runner_that_another_leader_took_back_is_not_left_registered_by_a_late_cache() -> (
    None
):
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        await here.settle()
        here.hold_watch("ephemeralrunners")
        async with here.client(URL, PAT) as other:
            await other.remove_runner(here.registered()[RUNNER.name])
        await here.admin.patch(EphemeralRunner, RUNNER, {"metadata": {"finalizers": None}})
        await here.delete(EphemeralRunner, RUNNER)
        registrations = here.service.calls[Call.GENERATE_JIT_CONFIG]
        await here.settle(10)
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] > registrations
        assert here.registered() == {}
        here.release_watches()
        await here.settle()
        assert here.registered() == {}


@simulated
async def test_a_runner_that_is_let_go_of_is_asked_about_once() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        here.service.calls.clear()
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert here.service.calls[Call.FIND_RUNNER] == 1


@simulated
async def test_annotations_taken_off_runners_by_hand_make_no_more_of_them() -> None:
    async with cluster() as here:
        here.add_set(3, 4, actionableRevision=2)
        await here.settle()
        names = await here.names()
        assert len(names) == 3
        for name in names:
            change = {"metadata": {"annotations": None}}
            await here.admin.patch(EphemeralRunner, NamespacedName(NAMESPACE, name), change)
        await here.settle(30)
        await here.stop_manager()
        here.start_manager()
        await here.settle(60)
        assert await here.names() == names
        # Without a stamp they are of revision 0, and yet they serve: only a verdict makes one stale
        await here.runner_exits(7, names[0])
        await here.settle(30)
        assert (await here.runner_set()).status.phase == "Running"


@simulated
async def test_a_revision_annotation_that_is_garbage_on_a_live_runner_harms_nothing() -> None:
    async with cluster() as here:
        here.add_set(2, 4)
        await here.settle()
        name = (await here.names())[0]
        change = {"metadata": {"annotations": {Annotation.ACTIONABLE_REVISION: "no number"}}}
        await here.admin.patch(EphemeralRunner, NamespacedName(NAMESPACE, name), change)
        await here.runner_exits(7, name)
        await here.settle()
        assert (await here.runner_set()).status.phase == "Outdated"  # it reads 0, and 0 is applied


# --- two things at once -------------------------------------------------------------------------


@simulated
async def test_a_set_deleted_while_it_scales_up_leaves_nothing() -> None:
    async with cluster() as here:
        await here.settle()
        here.slow_down("create", "ephemeralrunners", 1.0)
        here.add_set(100, 1)
        await here.settle(2.5)
        made = len(await here.names())
        assert 0 < made < 100
        await here.delete(EphemeralRunnerSet, SET)
        await here.settle(60)
        assert await here.names() == []
        assert await here.admin.find(EphemeralRunnerSet, SET) is None
        assert here.registered() == {}


@simulated
async def test_a_manager_killed_while_a_deleted_set_scales_up_leaves_nothing() -> None:
    async with cluster() as here:
        await here.settle()
        here.slow_down("create", "ephemeralrunners", 1.0)
        here.add_set(100, 1)
        await here.settle(2.5)
        await here.delete(EphemeralRunnerSet, SET)
        await here.kill_manager()
        here.start_manager()
        await here.settle(60)
        assert await here.names() == []
        assert await here.admin.find(EphemeralRunnerSet, SET) is None
        assert here.registered() == {}


@simulated
async def test_scaling_down_while_a_job_starts_does_not_take_its_runner() -> None:
    """The listener's promotion comes between our unregistering and our deletion."""
    async with cluster() as here:
        here.add_set(2, 0)
        await here.settle()
        for name in await here.names():
            await here.pod_runs(name)
        await here.settle()
        here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=None
        )
        here.slow_down("delete", "ephemeralrunners", 1.0)
        asked = asyncio.create_task(here.ask(0, 0))
        await here.settle(0.3)
        for name in await here.names():
            await here.job_started(name)
        await asked
        await here.settle(100)
        assert len(await here.names()) == 2
        assert all(not runner.is_being_deleted for runner in await here.runners())


@simulated
async def test_a_number_of_runners_that_is_a_typing_error_can_be_taken_back_at_once() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ephemeral_runner_set, "MOST_AT_A_TIME", 64)
        async with cluster() as here:
            await here.settle()
            here.slow_down("create", "ephemeralrunners", 3.0)
            here.add_set(100_000_000, 1)
            await here.settle(5)
            await here.ask(0, 0)
            await here.settle(60)
            assert await here.names() == []
            assert here.registered() == {}
            assert here.calls().count("create ephemeralrunners") <= 2 * 64


@simulated
async def test_more_runners_than_one_pass_creates_are_all_created_and_not_one_more() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ephemeral_runner_set, "MOST_AT_A_TIME", 20)
        async with cluster() as here:
            here.add_set(70, 1)
            await here.settle(30)
            assert len(await here.names()) == 70
            assert here.calls().count("create ephemeralrunners") == 70


@simulated
async def test_a_revision_that_advances_while_its_runners_are_made_leaves_one_set_of_them() -> None:
    async with cluster() as here:
        await here.settle()
        here.slow_down("create", "ephemeralrunners", 1.0)
        here.add_set(40, 1)
        await here.settle(1.5)
        await here.ask(40, 1, actionableRevision=1)
        await here.settle(0.7)
        await here.ask(40, 1, actionableRevision=2)
        await here.settle(60)
        runners = [r for r in await here.runners() if not r.is_being_deleted]
        stamps = [r.metadata.annotations[Annotation.ACTIONABLE_REVISION] for r in runners]
        assert stamps == ["2"] * 40
        assert len(here.registered()) == 40


@simulated
async def test_runners_of_a_set_are_evicted_all_at_once_and_all_come_back() -> None:
    async with cluster() as here:
        here.add_set(5, 0)
        await here.settle(15)
        for name in await here.names():
            await here.pod_status(name, phase="Failed", reason="Evicted")
        await here.settle(60)
        assert len(await here.names()) == 5
        for runner in await here.runners():
            assert runner.status.failures == {}
            assert (await here.pod(runner.metadata.name)).status.reason != "Evicted"
        assert len(here.registered()) == 5


@simulated
async def test_a_runner_evicted_and_deleted_by_hand_at_once_is_replaced_once() -> None:
    async with cluster() as here:
        here.add_set(2, 0)
        await here.settle(15)
        first, _ = await here.names()
        await asyncio.gather(
            here.pod_status(first, phase="Failed", reason="Evicted"),
            here.delete(EphemeralRunner, NamespacedName(NAMESPACE, first)),
        )
        await here.settle(60)
        assert len(await here.names()) == 2
        assert first not in await here.names()
        assert sorted(here.registered()) == await here.names()


@simulated
async def test_a_listener_that_restarts_under_a_busy_runner_is_heard_at_once() -> None:
    """Its ids begin again, and one of them may be that of the newest runner by chance."""
    async with cluster() as here:
        here.add_set(0, 0)
        await here.settle()
        await here.ask(1, 1)
        await here.settle()
        (busy,) = await here.names()
        await here.job_started(busy)
        await here.ask(1, 0)  # another listener
        await here.settle()
        await here.ask(2, 1)  # another job
        await here.settle(1)
        assert len(await here.names()) == 2


@simulated
async def test_a_cached_list_older_than_the_set_does_not_condemn_a_new_revision() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (old,) = await here.names()
        await here.runner_exits(7, old)
        await here.settle()
        assert (await here.runner_set()).status.phase == "Outdated"
        here.hold_watch("ephemeralrunners")
        await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, old))
        await here.ask(1, 2, actionableRevision=1)
        await here.settle(30)
        status = (await here.runner_set()).status
        assert (status.phase, status.applied_actionable_revision) == ("Running", 1)
        here.release_watches()
        await here.settle(30)
        assert (await here.runner_set()).status.phase == "Running"
        assert len([r for r in await here.runners() if not r.is_being_deleted]) == 1


@simulated
async def test_a_cached_list_older_than_the_set_does_not_hide_that_a_revision_is_refused() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        here.hold_watch("ephemeralrunners")
        await here.add_runner_of_set("r", revision=1, patch_id=2, phase=Phase.OUTDATED)
        await here.ask(2, 2, actionableRevision=1)
        await here.settle(30)
        assert (await here.runner_set()).status.phase == "Outdated"
        here.release_watches()
        await here.settle(30)
        assert (await here.runner_set()).status.phase == "Outdated"
        assert await here.names() == ["r"]


@simulated
async def test_a_cached_list_that_lags_far_behind_makes_no_runner_twice() -> None:
    async with cluster() as here:
        await here.settle()
        here.hold_watch("ephemeralrunners")
        here.add_set(5, 1)
        await here.settle()
        await here.ask(8, 2)
        await here.settle(60)
        assert len(await here.names()) == 8
        here.release_watches()
        await here.settle(60)
        assert len(await here.names()) == 8


@simulated
async def test_quota_that_comes_and_goes_counts_its_ten_minutes_anew() -> None:
    async with cluster() as here:
        message = f'pods "{RUNNER.name}" is forbidden: exceeded quota: compute, requested: pods=1'
        here.refuse("create", "pods", 403, "Forbidden", message)
        here.add_runner()
        await here.settle(400)
        here.accept()
        await here.settle(60)
        assert await here.exists(Pod)
        await here.pod_status(phase="Failed", reason="Evicted")
        here.refuse("create", "pods", 403, "Forbidden", message)
        await here.settle(400)
        assert await here.exists(EphemeralRunner)
        here.accept()
        await here.settle(60)
        assert await here.exists(Pod)


@simulated
async def test_a_sidecar_that_keeps_the_pod_alive_after_the_runners_end_delays_nothing() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_status(**exited(0, phase="Running"))
        await here.settle()
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_a_service_that_forgot_a_runner_whose_job_runs_lets_it_end_in_peace() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (name,) = await here.names()
        await here.pod_runs(name)
        await here.job_started(name)
        await here.settle()
        for record in list(here.service.runners.values()):
            here.service._ledger.remove_runner(record)
        await here.settle(300)
        assert await here.names() == [name]
        await here.runner_exits(0, name)
        await here.settle()
        assert await here.names() == []


async def _is_ready(here: Cluster) -> bool:
    return (await here.runner()).status.ready


async def _has_other_pod(here: Cluster, uid: str) -> bool:
    pod = await here.admin.find(Pod, RUNNER)
    return pod is not None and pod.uid != uid
