"""EphemeralRunnerSet, row by row as in the design text, on the embedded API server."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import (
    Annotation,
    EphemeralRunner,
    EphemeralRunnerSet,
    Finalizer,
    Phase,
    Reason,
    SetPhase,
)
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import Call
from arc_controller.testing.kubelet import PodBehaviour
from arc_controller.testing.loop import now, simulated
from tests.integration.runners import (
    FINALIZERS,
    NAMESPACE,
    SET,
    Cluster,
    cluster,
    is_locked,
)

PROXY = {
    "http": {"url": "http://proxy.acme:3128", "credentialSecretRef": "proxy-login"},
    "noProxy": ["svc.local"],
}


async def parked(here: Cluster) -> None:
    """A set that makes nothing by itself: its one request was answered long ago."""
    here.add_set(replicas=0, patch_id=0)
    await here.settle()


# --- creating -----------------------------------------------------------------------------------


@simulated
async def test_runners_are_made_with_everything_they_need_from_the_start() -> None:
    labels = {
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/version": "0.14.0",
        "actions.github.com/scale-set-name": "linux",
        "actions.github.com/organization": "acme",
        "argocd.argoproj.io/instance": "ci",
    }
    extra = {
        "labels": {"team": "a", "app.kubernetes.io/part-of": "mine"},
        "annotations": {"note": "b"},
    }
    async with cluster(exclude_label_prefixes=("argocd.argoproj.io/",)) as here:
        here.add_set(
            2,
            7,
            metadata={"labels": labels, "annotations": {Annotation.RUNNER_GROUP_NAME: "g"}},
            actionableRevision=3,
            ephemeralRunnerMetadata=extra,
        )
        await here.settle()
        runners = await here.runners()
        owner = await here.runner_set()
        assert len(runners) == 2
        for runner in runners:
            assert runner.metadata.name.startswith("linux-runner-")
            assert len(runner.metadata.name) == len("linux-runner-xxxxx")
            assert sorted(runner.metadata.finalizers) == sorted(FINALIZERS)
            assert runner.metadata.labels == {
                "team": "a",
                "app.kubernetes.io/part-of": "gha-runner-scale-set",
                "app.kubernetes.io/component": "runner",
                "app.kubernetes.io/version": "0.14.0",
                "actions.github.com/scale-set-name": "linux",
                "actions.github.com/organization": "acme",
            }
            assert runner.metadata.annotations == {
                "note": "b",
                Annotation.RUNNER_GROUP_NAME: "g",
                Annotation.PATCH_ID: "7",
                Annotation.ACTIONABLE_REVISION: "3",
            }
            (reference,) = runner.metadata.owner_references
            assert (reference.uid, reference.controller) == (owner.uid, True)
            assert reference.block_owner_deletion


@simulated
async def test_creation_is_concurrent_with_a_bound() -> None:
    async with cluster() as here:
        here.slow_down("create", "ephemeralrunners", 1.0)
        here.add_set(100, 1)
        await here.settle(6)
        assert len(await here.names()) == 100
        assert here.most_at_once == 32


@simulated
async def test_a_burst_of_requests_never_overshoots() -> None:
    async with cluster() as here:
        here.add_set()
        await here.settle()
        for patch_id in range(1, 41):
            await here.ask(patch_id * 5, patch_id)
            await here.settle(0.02)
            assert len(await here.names()) <= patch_id * 5
        await here.settle()
        assert len(await here.names()) == 200


@simulated
async def test_creations_without_an_answer_are_looked_up_and_not_repeated() -> None:
    async with cluster() as here:
        here.refuse("create", "ephemeralrunners", 500, "InternalError", times=5, after=True)
        here.add_set(20, 1)
        await here.settle(30)
        assert len(await here.names()) == 20


@simulated
async def test_creations_that_failed_are_made_up_for_although_others_answer_the_request() -> None:
    async with cluster() as here:
        here.refuse("create", "ephemeralrunners", 500, "InternalError", times=7)
        here.add_set(20, 1)
        await here.settle(30)
        assert len(await here.names()) == 20


# --- the scaling gate ---------------------------------------------------------------------------


@simulated
async def test_a_request_is_acted_on_once() -> None:
    async with cluster() as here:
        here.add_set(2, 5)
        await here.settle()
        first, second = await here.names()
        await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, first))
        await here.settle(60)
        assert await here.names() == [second]
        await here.ask(2, 6)
        await here.settle()
        assert len(await here.names()) == 2


@simulated
async def test_a_request_is_acted_on_once_also_across_a_restart() -> None:
    async with cluster() as here:
        here.add_set(2, 5)
        await here.settle()
        first, second = await here.names()
        await here.stop_manager()
        await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, first))
        here.start_manager()
        await here.settle(60)
        assert await here.names() == [second]


@simulated
async def test_when_the_jobs_of_a_request_are_over_nothing_is_created_without_a_new_one() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle()
        for name in await here.names():
            await here.runner_exits(0, name)
        await here.settle(120)
        assert await here.names() == []
        assert here.calls().count("create ephemeralrunners") == 3


@simulated
async def test_a_job_that_follows_another_gets_a_runner_soon_after_the_other_ones_is_gone() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (first,) = await here.names()
        await here.job_started(first)
        await here.ask(1, 2)  # its job has ended, and another one wants a runner
        await here.settle()
        assert await here.names() == [first]
        await here.runner_exits(0, first)
        await here.settle(2)
        assert len(await here.names()) == 1


@simulated
async def test_a_place_that_is_kept_for_a_moment_is_filled_by_the_same_request() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (first,) = await here.names()
        await here.job_started(first)
        await here.settle()
        await here.runner_exits(0, first)
        await here.until(lambda: _is_empty(here))
        await here.ask(3, 2)
        await here.settle(0.5)
        assert len(await here.names()) == 2  # perhaps one of the three jobs is over already
        await here.settle(2)
        assert len(await here.names()) == 3


@simulated
async def test_patch_0_forces_the_state_again_and_again() -> None:
    async with cluster() as here:
        here.add_set(2, 0)
        await here.settle()
        first, second = await here.names()
        await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, first))
        await here.settle(10)
        assert len(await here.names()) == 2
        assert second in await here.names()


@simulated
async def test_the_newest_patch_id_of_older_revisions_does_not_count() -> None:
    async with cluster() as here:
        here.add_set(1, 4)
        await here.settle()
        (busy,) = await here.names()
        await here.job_started(busy)
        await here.ask(2, 4, actionableRevision=1)
        await here.settle()
        assert len(await here.names()) == 2
        assert busy in await here.names()


@simulated
async def test_ids_that_start_again_are_new_requests() -> None:
    async with cluster() as here:
        here.add_set(1, 57)
        await here.settle(2)
        await here.ask(2, 1)
        await here.settle(2)
        assert len(await here.names()) == 2
        (newest,) = [r for r in await here.runners() if r.metadata.annotations[PATCH] == "1"]
        await here.delete(EphemeralRunner, newest.key)
        await here.settle(60)
        assert len(await here.names()) == 1  # acted on once, although 57 is the larger number


PATCH = Annotation.PATCH_ID


@simulated
async def test_runners_that_are_being_deleted_keep_their_place() -> None:
    async with cluster() as here:
        here.add_set(2, 0)
        await here.settle()
        here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=2
        )
        for name in await here.names():
            await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, name))
        await here.settle(25)
        assert len(await here.names()) == 2
        await here.settle(30)
        assert all(not runner.is_being_deleted for runner in await here.runners())
        assert len(await here.names()) == 2


@simulated
async def test_a_job_that_has_just_ended_is_not_replaced_before_the_listener_knows() -> None:
    async with cluster() as here:
        here.add_set(5, 1)
        await here.settle()
        await here.ask(4, 2)  # of five jobs one has ended, and its runner is about to
        names = await here.names()
        for name in names:
            await here.job_started(name)
        for name in names[:2]:  # and another one, of which the listener will say so in a second
            await here.runner_exits(0, name)
        await here.settle(1)
        assert len(await here.names()) == 3
        await here.ask(3, 3)
        await here.settle(60)
        assert len(await here.names()) == 3


@simulated
async def test_a_job_that_has_just_ended_is_not_replaced_by_a_new_process_either() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (name,) = await here.names()
        await here.job_started(name)
        await here.runner_exits(0, name)
        await here.until(lambda: _is_empty(here))
        await here.kill_manager()
        here.start_manager()
        await here.settle(0.8)
        await here.ask(0, 2)
        await here.settle(60)
        assert await here.names() == []
        assert here.calls().count("create ephemeralrunners") == 1


@simulated
async def test_runners_that_a_new_process_finds_missing_are_there_a_moment_later() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        await here.kill_manager()
        await here.ask(3, 2)
        here.start_manager()
        await here.settle(2)
        assert len(await here.names()) == 3


# --- finished runners ---------------------------------------------------------------------------


@simulated
async def test_finished_runners_are_marked_then_removed_and_their_gap_is_not_filled() -> None:
    async with cluster() as here:
        await parked(here)
        for number in range(3):
            await here.add_runner_of_set(f"r{number}", patch_id=1, phase=Phase.SUCCEEDED)
        here.forget()
        await here.ask(3, 2)
        await here.settle(60)
        assert await here.names() == []
        assert (await here.runner_set()).status.finished_runner_cleanup_patch_id == 2
        writes = here.writes()
        marker = next(
            p
            for p in here.patches("ephemeralrunnersets", "status")
            if "finishedRunnerCleanupPatchID" in p["status"]
        )
        assert is_locked(marker)
        assert writes.index("patch ephemeralrunnersets/status") < writes.index(
            "delete ephemeralrunners"
        )
        assert "create ephemeralrunners" not in writes
        await here.ask(3, 3)
        await here.settle()
        assert len(await here.names()) == 3


@simulated
async def test_the_marker_is_read_uncached_and_keeps_the_gap_after_a_restart() -> None:
    async with cluster() as here:
        await parked(here)
        await here.set_status(finishedRunnerCleanupPatchID=9)
        await here.stop_manager()
        here.start_manager()
        await here.settle()
        here.forget()
        await here.ask(3, 9)
        await here.settle(60)
        assert await here.names() == []
        assert here.calls().count("get ephemeralrunnersets") == 1


@simulated
async def test_the_marker_is_compared_for_equality_for_ids_restart() -> None:
    async with cluster() as here:
        await parked(here)
        await here.set_status(finishedRunnerCleanupPatchID=9)
        await here.ask(3, 1)
        await here.settle()
        assert len(await here.names()) == 3


@simulated
async def test_patch_0_fills_the_gap_of_finished_runners() -> None:
    async with cluster() as here:
        await parked(here)
        await here.add_runner_of_set("r", phase=Phase.SUCCEEDED)
        await here.ask(1, 0)
        await here.settle(30)
        (name,) = await here.names()
        assert name != "r"


# --- scaling down -------------------------------------------------------------------------------


@simulated
async def test_patch_ids_above_0_never_scale_down() -> None:
    async with cluster() as here:
        here.add_set(4, 1)
        await here.settle()
        await here.ask(1, 2)
        await here.settle(60)
        assert len(await here.names()) == 4


@simulated
async def test_scale_down_unregisters_first_and_takes_the_oldest_idle_runners() -> None:
    async with cluster() as here:
        here.add_set(2, 1)
        await here.settle(3)
        old = await here.names()
        await here.ask(4, 2)
        await here.settle(3)
        new = [name for name in await here.names() if name not in old]
        await here.ask(2, 0)
        await here.settle()
        assert sorted(await here.names()) == sorted(new)
        assert ("EphemeralRunnerSet", "ScaledDown") in await here.events()


@simulated
async def test_scale_down_takes_idle_before_busy_although_all_pods_run() -> None:
    async with cluster() as here:
        here.add_set(4, 1)
        await here.settle()
        names = await here.names()
        for name in names:
            await here.pod_runs(name)
        busy = names[:2]
        for name in busy:
            await here.job_started(name)
        await here.settle()
        await here.ask(2, 0)
        await here.settle()
        assert await here.names() == busy


@simulated
async def test_scale_down_never_takes_a_busy_runner() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle()
        names = await here.names()
        for name in names:
            await here.job_started(name)
        here.service.calls.clear()
        await here.ask(0, 0)
        await here.settle(120)
        assert await here.names() == names
        assert here.service.calls[Call.REMOVE_RUNNER] == 0
        assert all(not runner.is_being_deleted for runner in await here.runners())


@simulated
async def test_scale_down_skips_what_the_service_says_is_busy_and_takes_the_next() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle()
        runners = await here.runners()
        busy = min(runners, key=lambda r: (r.metadata.creation_timestamp, r.metadata.name))
        here.service.faults.fail(
            Call.REMOVE_RUNNER,
            status=400,
            type_name="JobStillRunningException",
            times=None,
            when=lambda request: request.url.split("?")[0].endswith(f"/{busy.status.runner_id}"),
        )
        await here.ask(1, 0)
        await here.settle()
        assert await here.names() == [busy.metadata.name]
        assert not (await here.runner(busy.metadata.name)).is_being_deleted


@simulated
async def test_scale_down_leaves_runners_that_are_not_registered_yet() -> None:
    async with cluster() as here:
        here.service.go_down()
        here.add_set(2, 1)
        await here.settle()
        await here.ask(0, 0)
        await here.settle(30)
        assert len(await here.names()) == 2
        here.service.come_up()
        await here.settle(1000)
        assert await here.names() == []
        assert here.registered() == {}


@simulated
async def test_scale_down_does_not_take_more_while_deletions_are_on_their_way() -> None:
    async with cluster() as here:
        here.add_set(10, 1)
        await here.settle()
        here.slow_down("delete", "ephemeralrunners", 0.5)
        await here.ask(6, 0)
        await here.settle(30)
        assert len(await here.names()) == 6


# --- failed runners -----------------------------------------------------------------------------


@simulated
async def test_failed_runners_count_and_are_retried_after_10_minutes() -> None:
    async with cluster() as here:
        here.refuse("create", "pods", 422, "Invalid", "spec.containers[0].image: Required value")
        here.add_set(3, 0)
        await here.settle(590)
        runners = await here.runners()
        assert [runner.status.phase for runner in runners] == [Phase.FAILED] * 3
        status = (await here.runner_set()).status
        assert (status.current_replicas, status.failed_ephemeral_runners) == (3, 3)
        condition = await here.set_condition("RunnersHealthy")
        assert condition.status == "False"
        assert Reason.INVALID_POD in condition.message
        assert "Required value" in condition.message
        here.accept()  # the cluster is repaired
        await here.settle(60)
        assert all(runner.status.phase == Phase.PENDING for runner in await here.runners())
        assert not {r.uid for r in runners} & {r.uid for r in await here.runners()}
        assert (await here.set_condition("RunnersHealthy")).status == "True"


# --- evictions and vanished registrations -------------------------------------------------------


@simulated
async def test_evicted_runners_are_replaced_and_do_not_drain_the_set() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle(30)
        names = await here.names()
        for name in names:
            await here.pod_status(name, phase="Failed", reason="Evicted")
        await here.settle()
        assert await here.names() == names
        status = (await here.runner_set()).status
        assert (status.pending_ephemeral_runners, status.failed_ephemeral_runners) == (3, 0)
        for name in names:
            assert (await here.pod(name)).status.phase != "Failed"


@simulated
async def test_runners_that_the_service_forgot_are_replaced() -> None:
    async with cluster(kubelet=True) as here:
        here.add_set(2, 0)
        await here.settle()
        before = await here.names()
        for runner in list(here.service.runners.values()):
            here.service._ledger.remove_runner(runner)
        await here.settle(60)
        after = await here.names()
        assert len(after) == 2
        assert not set(before) & set(after)
        assert sorted(here.registered()) == sorted(after)


# --- status -------------------------------------------------------------------------------------


@simulated
async def test_status_counts_and_phase() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle()
        names = await here.names()
        await here.job_started(names[0])
        await here.runner_status(names[1], phase=Phase.FAILED)
        await here.settle()
        status = (await here.runner_set()).status
        assert status.phase == SetPhase.RUNNING
        assert status.current_replicas == 3
        assert status.pending_ephemeral_runners == 1
        assert status.running_ephemeral_runners == 1
        assert status.failed_ephemeral_runners == 1


@simulated
async def test_status_is_coalesced_under_load_and_still_written_every_second() -> None:
    async with cluster() as here:
        here.add_set(60, 1)
        await here.settle()
        here.forget()
        for name in await here.names():
            await here.job_started(name)
            await here.settle(0.1)
        await here.settle()
        patches = here.patches("ephemeralrunnersets", "status")
        assert 5 <= len(patches) <= 8
        assert (await here.runner_set()).status.running_ephemeral_runners == 60


@simulated
async def test_counts_alone_go_without_a_lock_and_a_phase_with_one() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (name,) = await here.names()
        await here.job_started(name)
        await here.settle()
        first, *rest = here.patches("ephemeralrunnersets", "status")
        assert first["status"]["phase"] == SetPhase.RUNNING
        assert is_locked(first)
        assert rest
        assert not any(is_locked(patch) for patch in rest)


@simulated
async def test_a_set_at_rest_causes_no_request() -> None:
    async with cluster() as here:
        here.add_set(3, 0)
        await here.settle()
        for name in await here.names():
            await here.pod_runs(name)
        await here.settle()
        here.forget()
        await here.settle(3600)
        assert here.calls() == []


# --- finalizer, deletion ------------------------------------------------------------------------


@simulated
async def test_the_finalizer_is_added_if_it_is_missing() -> None:
    async with cluster() as here:
        here.add_set(metadata={"finalizers": ["example.com/mine"]})
        await here.settle()
        (patch,) = here.patches("ephemeralrunnersets")
        assert set(patch["metadata"]["finalizers"]) == {
            "example.com/mine",
            Finalizer.EPHEMERAL_RUNNER_SET,
        }
        assert is_locked(patch)


@simulated
async def test_deleting_removes_runners_then_the_proxy_secret_then_the_finalizer() -> None:
    async with cluster() as here:
        here.add_secret("proxy-login", username="u", password="p")
        here.add_set(2, 1, runner_spec=here.runner_spec(proxy=PROXY))
        await here.settle()
        names = await here.names()
        await here.job_started(names[0])
        await here.settle()
        here.forget()
        await here.delete(EphemeralRunnerSet, SET)
        await here.settle(120)
        assert await here.names() == [names[0]]
        assert not (await here.runner(names[0])).is_being_deleted
        assert "delete secrets" in here.writes()  # the JIT secret of the idle one
        here.forget()
        await here.runner_exits(0, names[0])
        await here.settle()
        assert [text for text in here.writes() if not text.endswith("/status")] == [
            "delete ephemeralrunners",
            "delete pods",
            "delete secrets",
            "patch ephemeralrunners",
            "delete secrets",
            "patch ephemeralrunnersets",
        ]
        assert await here.admin.find(EphemeralRunnerSet, SET) is None
        assert [s.metadata.name for s in await here.admin.list(Secret, namespace=NAMESPACE)] == [
            "github",
            "proxy-login",
        ]
        assert here.registered() == {}


@simulated
async def test_deleting_takes_runners_of_every_phase() -> None:
    async with cluster() as here:
        await parked(here)
        for phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.OUTDATED):
            await here.add_runner_of_set(phase.lower(), finalizers=FINALIZERS, phase=phase)
        await here.add_runner_of_set("fresh", finalizers=FINALIZERS)
        await here.delete(EphemeralRunnerSet, SET)
        await here.settle(30)
        assert await here.names() == []
        assert await here.admin.find(EphemeralRunnerSet, SET) is None


# --- revision ahead -----------------------------------------------------------------------------


@simulated
async def test_revision_ahead_removes_idle_and_terminated_runners_and_then_records() -> None:
    async with cluster() as here:
        here.add_set(3, 1)
        await here.settle()
        names = await here.names()
        await here.job_started(names[0])
        await here.runner_status(names[1], phase=Phase.FAILED)
        await here.settle()
        here.forget()
        await here.ask(3, 1, actionableRevision=1)
        await here.settle(0.05)
        about_sets = [t for t in here.calls() if t.startswith(("delete ephemeralr", "list", "get"))]
        assert about_sets.count("delete ephemeralrunners") == 2
        assert about_sets.index("list ephemeralrunners") > about_sets.index(
            "delete ephemeralrunners"
        )
        (record,) = here.patches("ephemeralrunnersets", "status")
        assert record["status"]["appliedActionableRevision"] == 1
        assert is_locked(record)
        await here.settle()
        assert names[0] in await here.names()
        assert not (await here.runner(names[0])).is_being_deleted
        assert not {names[1], names[2]} & set(await here.names())
        assert (await here.runner_set()).status.phase == SetPhase.RUNNING


@simulated
async def test_revision_ahead_jobs_keep_flowing_and_new_runners_have_the_new_spec() -> None:
    async with cluster() as here:
        here.add_set(2, 1)
        await here.settle()
        busy, idle = await here.names()
        await here.job_started(busy)
        await here.settle()
        new_pod = {"containers": [{"name": "runner", "image": "runner:2"}]}
        spec = here.runner_spec(pod=new_pod)
        await here.ask(2, 1, actionableRevision=1, ephemeralRunnerSpec=spec)
        await here.settle()
        names = await here.names()
        assert idle not in names
        assert len(names) == 2
        (new,) = (name for name in names if name != busy)
        assert (await here.pod(new)).spec["containers"][0]["image"] == "runner:2"
        annotations = (await here.runner(new)).metadata.annotations
        assert annotations[Annotation.ACTIONABLE_REVISION] == "1"


@simulated
async def test_revision_ahead_refreshes_the_proxy_secret_before_it_is_recorded() -> None:
    async with cluster() as here:
        here.add_secret("proxy-login", username="u", password="p")
        here.add_set()
        await here.settle()
        here.forget()
        await here.ask(
            0, 0, actionableRevision=1, ephemeralRunnerSpec=here.runner_spec(proxy=PROXY)
        )
        await here.settle()
        assert here.writes()[:2] == ["create secrets", "patch ephemeralrunnersets/status"]


@simulated
async def test_revision_ahead_is_recorded_although_the_service_calls_a_runner_busy() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=None
        )
        await here.ask(1, 1, actionableRevision=1)
        await here.settle()
        assert (await here.runner_set()).status.applied_actionable_revision == 1
        (runner,) = [r for r in await here.runners() if r.metadata.annotations[REVISION] == "0"]
        assert not runner.is_being_deleted


REVISION = Annotation.ACTIONABLE_REVISION


# --- outdated -----------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize(
    "revision, applied, condemned",
    [
        (3, 4, False),
        (4, 4, True),
        (5, 4, True),
        (None, 0, True),
        (None, 1, False),
        ("garbage", 0, True),
        ("garbage", 1, False),
        (0, 0, True),
    ],
)
async def test_whether_an_outdated_runner_condemns_the_set(
    revision: int | str | None, applied: int, condemned: bool
) -> None:
    async with cluster() as here:
        here.add_set(1, 3, actionableRevision=applied)
        await here.settle()
        (fresh,) = await here.names()
        await here.add_runner_of_set("r", revision=revision, patch_id=2, phase=Phase.OUTDATED)
        await here.settle(30)
        status = (await here.runner_set()).status
        if condemned:
            assert status.phase == SetPhase.OUTDATED
            assert await here.names() == ["r"]
        else:
            assert status.phase == SetPhase.RUNNING
            assert await here.names() == [fresh]


@simulated
async def test_a_stale_outdated_runner_is_rebuilt_from_todays_spec() -> None:
    async with cluster() as here:
        await parked(here)
        await here.set_status(appliedActionableRevision=4)
        await here.add_runner_of_set("r", revision=3, patch_id=8, phase=Phase.OUTDATED)
        await here.ask(1, 8, actionableRevision=4)
        await here.settle(30)
        (runner,) = await here.runners()
        assert runner.metadata.name != "r"
        assert runner.metadata.annotations[REVISION] == "4"
        assert (await here.runner_set()).status.phase == SetPhase.RUNNING


@simulated
async def test_an_outdated_set_cleans_up_lets_busy_ones_finish_and_creates_nothing() -> None:
    async with cluster() as here:
        here.add_set(4, 1)
        await here.settle()
        names = await here.names()
        await here.job_started(names[0])
        await here.settle()
        here.forget()
        await here.runner_exits(7, names[1])
        await here.settle(60)
        assert await here.names() == [names[0], names[1]]
        status = (await here.runner_set()).status
        assert status.phase == SetPhase.OUTDATED
        assert (status.current_replicas, status.running_ephemeral_runners) == (1, 1)
        condition = await here.set_condition("ScalingActive")
        assert (condition.status, condition.reason) == ("False", "Outdated")
        assert "newer runner image" in condition.message
        assert ("EphemeralRunnerSet", "Outdated") in await here.events()
        await here.ask(10, 2)
        await here.settle(600)
        assert "create ephemeralrunners" not in here.writes()
        await here.runner_exits(0, names[0])
        await here.settle()
        assert await here.names() == [names[1]]


@simulated
async def test_an_outdated_set_is_quiet() -> None:
    async with cluster() as here:
        here.add_set(2, 1)
        await here.settle()
        await here.runner_exits(7, (await here.names())[0])
        await here.settle(60)
        here.forget()
        await here.settle(3600)
        assert here.calls() == []


@simulated
async def test_a_restart_or_another_edit_does_not_revive_an_outdated_set() -> None:
    async with cluster() as here:
        here.add_set(2, 1)
        await here.settle()
        await here.runner_exits(7, (await here.names())[0])
        await here.settle(30)
        await here.stop_manager()
        here.start_manager()
        await here.settle(30)
        await here.ask(0, 0)
        await here.settle(30)
        await here.ask(2, 1)
        await here.settle(30)
        assert (await here.runner_set()).status.phase == SetPhase.OUTDATED
        assert len(await here.names()) == 1


@simulated
async def test_deleting_the_refused_runner_by_hand_does_not_revive_an_outdated_set() -> None:
    async with cluster() as here:
        here.add_set(1, 1)
        await here.settle()
        (name,) = await here.names()
        await here.runner_exits(7, name)
        await here.settle(30)
        await here.delete(EphemeralRunner, NamespacedName(NAMESPACE, name))
        await here.settle(60)
        assert (await here.runner_set()).status.phase == SetPhase.OUTDATED
        assert await here.names() == []


@simulated
async def test_a_new_revision_brings_an_outdated_set_back() -> None:
    async with cluster() as here:
        here.add_set(2, 1)
        await here.settle()
        before = await here.names()
        await here.runner_exits(7, before[0])
        await here.settle(30)
        await here.ask(0, 0)
        await here.settle(30)
        await here.ask(2, 0, actionableRevision=1)
        await here.settle(30)
        assert (await here.runner_set()).status.phase == SetPhase.RUNNING
        after = await here.names()
        assert len(after) == 2
        assert not set(before) & set(after)
        assert (await here.set_condition("ScalingActive")).status == "True"


# --- proxy secret -------------------------------------------------------------------------------


@simulated
async def test_the_proxy_secret_has_credentials_inserted_and_runners_use_it() -> None:
    async with cluster() as here:
        here.add_secret("proxy-login", username="u", password="p@ss")
        here.add_set(1, 1, runner_spec=here.runner_spec(proxy=PROXY))
        await here.settle()
        (runner,) = await here.runners()
        secret = await here.secret(runner.spec.proxy_secret_ref)
        assert secret.metadata.name.startswith("linux-")
        assert secret.metadata.name.endswith("-runner-proxy")
        assert secret.data == {
            "http_proxy": b"http://u:p%40ss@proxy.acme:3128",
            "no_proxy": b"svc.local",
        }
        pod = await here.pod(runner.metadata.name)
        proxied = {
            e["name"]: e["valueFrom"]["secretKeyRef"]["key"]
            for e in pod.spec["containers"][0]["env"]
            if e["name"].endswith("_proxy")
        }
        assert proxied == {"http_proxy": "http_proxy", "no_proxy": "no_proxy"}


@simulated
async def test_the_proxy_secret_is_repaired_and_follows_its_credentials() -> None:
    async with cluster() as here:
        here.add_secret("proxy-login", username="u", password="p")
        here.add_set(1, 1, runner_spec=here.runner_spec(proxy=PROXY))
        await here.settle()
        (runner,) = await here.runners()
        key = NamespacedName(NAMESPACE, runner.spec.proxy_secret_ref)
        await here.admin.patch(Secret, key, {"data": {"http_proxy": "eA=="}})
        await here.settle(60)
        await here.ask(1, 2)
        await here.settle()
        assert (await here.secret(key.name)).data["http_proxy"] == b"http://u:p@proxy.acme:3128"
        await here.delete(Secret, key)
        await here.settle(60)
        await here.ask(1, 3)
        await here.settle()
        assert await here.exists(Secret, key.name)


@simulated
async def test_missing_proxy_credentials_are_explained_and_nothing_is_created() -> None:
    async with cluster() as here:
        here.add_set(1, 1, runner_spec=here.runner_spec(proxy=PROXY))
        await here.settle(300)
        condition = await here.set_condition("ProxyReady")
        assert (condition.status, condition.reason) == ("False", "ProxySecretNotFound")
        assert "proxy-login" in condition.message
        assert await here.names() == []
        assert len(here.patches("ephemeralrunnersets", "status")) == 1
        here.add_secret("proxy-login", username="u", password="p")
        await here.settle(120)
        assert (await here.set_condition("ProxyReady")).status == "True"
        assert len(await here.names()) == 1


@simulated
async def test_without_a_proxy_no_secret_is_made_or_looked_for() -> None:
    async with cluster() as here:
        here.add_set()
        await here.settle()
        assert "get secrets" not in here.calls()


# --- what is never done -------------------------------------------------------------------------


@simulated
async def test_the_spec_is_never_written_whatever_happens() -> None:
    async with cluster(kubelet=True) as here:
        here.add_secret("proxy-login", username="u", password="p")
        here.add_set(metadata={"finalizers": []}, runner_spec=here.runner_spec(proxy=PROXY))
        for patch_id, replicas in enumerate([3, 5, 2, 6, 1], start=1):
            await here.ask(replicas, patch_id)
            await here.settle(2)
        await here.ask(1, 0)
        await here.settle()
        await here.ask(3, 0, actionableRevision=1)
        await here.settle()
        here.service.runner_version_refused = True
        await here.ask(4, 0)
        await here.settle(30)
        here.service.runner_version_refused = False
        await here.ask(2, 0, actionableRevision=2)
        await here.settle(30)
        await here.delete(EphemeralRunnerSet, SET)
        await here.settle(60)
        assert await here.admin.find(EphemeralRunnerSet, SET) is None
        patches = here.patches("ephemeralrunnersets")
        assert patches
        for patch in patches:
            assert set(patch) == {"metadata"}
            assert set(patch["metadata"]) == {"finalizers", "resourceVersion"}
        for patch in here.patches("ephemeralrunnersets", "status"):
            assert set(patch) <= {"metadata", "status"}


# --- the budget ---------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("pull, status_patches", [(0.0, 1), (5.0, 2)], ids=["quick", "slow"])
async def test_requests_per_runner_stay_within_the_budget(pull: float, status_patches: int) -> None:
    jobs = 100
    async with cluster(kubelet=True) as here:
        here.kubelet.behave = lambda _pod: PodBehaviour(pull=pull)
        here.add_set()
        await here.settle()
        here.forget()
        here.service.queue_jobs(jobs, scale_set="linux", duration=20.0)
        record = here.service.scale_set("linux")
        for job in here.service.jobs:
            here.service._ledger._assign(record, job)
        await here.ask(jobs, 1)
        await here.until(lambda: all(job.is_over for job in here.service.jobs))
        await here.ask(0, 2)
        ended = now()
        await here.until(lambda: _is_empty(here))
        assert (now() - ended).total_seconds() <= 10
        created = here.calls().count("create ephemeralrunners")
        assert created == jobs
        by_kind = Counter(here.calls())
        assert sum(by_kind.values()) <= (7 + status_patches) * jobs + 10, by_kind
        about_runners: dict[str, int] = {
            kind: count for kind, count in by_kind.items() if "ephemeralrunnersets" not in kind
        }
        about_runners.pop("get secrets")  # the credentials, now and then
        assert about_runners == {
            "list ephemeralrunners": 1,  # what a predecessor may have made
            "create ephemeralrunners": jobs,
            "create secrets": jobs,
            "create pods": jobs,
            "patch ephemeralrunners/status": status_patches * jobs,
            "delete ephemeralrunners": jobs,
            "delete pods": jobs,
            "delete secrets": jobs,
            "patch ephemeralrunners": jobs,
        }


async def _is_empty(here: Cluster) -> Any:
    return not await here.names()
