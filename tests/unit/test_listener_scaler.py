"""How many runners, which patch id, and who may say Running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.actions import JobStarted
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerStatus,
    Phase,
)
from arc_controller.listener.scaler import MAX_PATCH_ID, Scaler
from arc_controller.runtime.client import Propagation
from arc_controller.runtime.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Status,
    TransportError,
)
from arc_controller.runtime.lazycopy import apply_merge_patch
from arc_controller.runtime.objects import K, KubeObject, LabelSelector, NamespacedName, ObjectMeta

SET = NamespacedName("runners", "linux-abc")
RUNNER = NamespacedName("runners", "linux-abc-runner-x")
JOB = JobStarted(
    runner_request_id=11,
    runner_id=3,
    runner_name=RUNNER.name,
    owner_name="octo",
    repository_name="repo",
    job_id="job-1",
    job_workflow_ref="octo/repo/.github/workflows/ci.yml@refs/heads/main",
    job_display_name="build",
    workflow_run_id=99,
)


class Cluster:
    """A client over a few objects in memory, that records what is written."""

    def __init__(self) -> None:
        self.runners: dict[NamespacedName, EphemeralRunner] = {}
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[Exception] = []
        self.before_write: list[Callable[[], None]] = []
        self.reads = 0

    @property
    def targets(self) -> list[tuple[int, int]]:
        return [
            (patch["spec"]["replicas"], patch["spec"]["patchID"])
            for what, patch in self.writes
            if what == "set"
        ]

    @property
    def status_patches(self) -> list[dict[str, Any]]:
        return [patch for what, patch in self.writes if what == "status"]

    def add_runner(self, phase: str = Phase.PENDING, **metadata: Any) -> EphemeralRunner:
        meta = ObjectMeta(
            name=RUNNER.name, namespace=RUNNER.namespace, resource_version="1", **metadata
        )
        runner = EphemeralRunner(metadata=meta, status=EphemeralRunnerStatus(phase=phase))
        self.runners[RUNNER] = runner
        return runner

    def set_phase(self, phase: str) -> None:
        """Somebody else writes the runner's phase."""
        old = self.runners[RUNNER]
        version = str(int(old.metadata.resource_version) + 1)
        self.runners[RUNNER] = msgspec.structs.replace(
            old,
            metadata=msgspec.structs.replace(old.metadata, resource_version=version),
            status=msgspec.structs.replace(old.status, phase=phase),
        )

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        self.reads += 1
        await asyncio.sleep(0)
        return cast("K | None", self.runners.get(key))

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        assert kind is EphemeralRunnerSet
        assert key == SET
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.writes.append(("set", dict(patch)))
        return kind()

    async def patch_status(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        await asyncio.sleep(0)
        if self.before_write:
            self.before_write.pop(0)()
        if self.errors:
            raise self.errors.pop(0)
        old = self.runners.get(key)
        if old is None:
            raise NotFound(Status(code=404))
        lock = patch.get("metadata", {}).get("resourceVersion")
        if lock is not None and lock != old.metadata.resource_version:
            raise Conflict(Status(code=409))
        self.writes.append(("status", dict(patch)))
        merged = apply_merge_patch(msgspec.to_builtins(old), patch)
        merged["metadata"]["resourceVersion"] = str(int(old.metadata.resource_version) + 1)
        self.runners[key] = msgspec.convert(merged, EphemeralRunner)
        return cast("K", self.runners[key])

    async def get(self, kind: type[K], key: NamespacedName) -> K:
        raise AssertionError("the listener finds, it does not get")

    async def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        raise AssertionError("the listener's role has no list")

    async def create(self, obj: K) -> K:
        raise AssertionError("the listener's role has no create")

    async def delete(
        self,
        kind: type[KubeObject],
        key: NamespacedName,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> bool:
        raise AssertionError("the listener's role has no delete")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def scaler(cluster: Cluster, min_runners: int = 0, max_runners: int = 10) -> Scaler:
    return Scaler(cluster, SET, min_runners=min_runners, max_runners=max_runners)


async def scale(scaler: Scaler, *assigned: int) -> None:
    for jobs in assigned:
        scaler.decide(jobs)
        assert await scaler.flush()


async def test_the_first_word_of_a_life_says_since_when_it_listens(cluster: Cluster) -> None:
    def now() -> datetime:
        return datetime(2026, 12, 1, 15, 30, 59, 900_000, tzinfo=UTC)

    await scale(Scaler(cluster, SET, now=now), 1, 2)
    (_, first), (_, second) = cluster.writes
    since = {"annotations": {"actions.github.com/listening-since": "2026-12-01T15:30:59Z"}}
    assert first == {"spec": {"replicas": 1, "patchID": 0}, "metadata": since}
    assert second == {"spec": {"replicas": 2, "patchID": 1}}


# --- the target


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 1000))
def test_the_target_is_the_minimum_plus_the_jobs_up_to_the_maximum(
    minimum: int, more: int, assigned: int
) -> None:
    maximum = minimum + more
    target = scaler(Cluster(), minimum, maximum).decide(assigned)
    assert target == min(minimum + assigned, maximum)


async def test_the_patch_id_counts_up_from_zero(cluster: Cluster) -> None:
    await scale(scaler(cluster), 1, 2, 2, 5)
    assert cluster.targets == [(1, 0), (2, 1), (2, 2), (5, 3)]


async def test_zeros_are_written_out(cluster: Cluster) -> None:
    await scale(scaler(cluster), 0)
    assert cluster.writes == [("set", {"spec": {"replicas": 0, "patchID": 0}})]


async def test_a_set_at_rest_is_forced_once_and_then_left_alone(cluster: Cluster) -> None:
    await scale(scaler(cluster, min_runners=2), 3, 0, 0, 0, 0)
    # 5 runners; back to 2 with an id of its own; "force this state"; nothing to write any more.
    assert cluster.targets == [(5, 0), (2, 1), (2, 0)]


async def test_the_first_decision_at_rest_needs_one_write_only(cluster: Cluster) -> None:
    await scale(scaler(cluster), 0, 0, 0)
    assert cluster.targets == [(0, 0)]


async def test_a_completed_job_makes_the_next_decision_a_request_of_its_own(
    cluster: Cluster,
) -> None:
    one = scaler(cluster)
    await scale(one, 0)
    one.completed()
    await scale(one, 0)
    assert cluster.targets[-1][1] > 0
    await scale(one, 0)
    assert cluster.targets[-1] == (0, 0)


async def test_a_busy_set_gets_a_new_request_with_every_decision(cluster: Cluster) -> None:
    # A runner lost meanwhile is only replaced when the controller sees a new patch id.
    await scale(scaler(cluster, min_runners=1), 1, 1, 1)
    assert cluster.targets == [(2, 0), (2, 1), (2, 2)]


async def test_the_patch_id_wraps_to_zero(cluster: Cluster) -> None:
    one = scaler(cluster)
    one._next_patch_id = MAX_PATCH_ID
    await scale(one, 1, 2)
    assert cluster.targets == [(1, MAX_PATCH_ID), (2, 0)]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30), st.integers(0, 3))
def test_force_is_only_said_when_nothing_happened_and_the_set_rests(
    history: list[tuple[int, bool]], minimum: int
) -> None:
    one = scaler(Cluster(), minimum, 5)
    previous: int | None = None
    for index, (assigned, happened) in enumerate(history):
        if happened:
            one.completed()
        target = one.decide(assigned)
        assert one._target is not None
        at_rest = not happened and target == previous == minimum
        assert (one._target.patch_id == 0) == (at_rest or index == 0)
        previous = target


# --- writing it


@pytest.mark.parametrize(
    "error",
    [
        TransportError("reset"),
        ApiError(Status(code=500)),
        NotFound(Status(code=404)),
        Forbidden(Status(code=403)),
        msgspec.DecodeError("truncated"),
    ],
)
async def test_a_failed_patch_is_owed_and_repeated_as_the_same_request(
    cluster: Cluster, error: Exception
) -> None:
    one = scaler(cluster)
    await scale(one, 1)
    one.decide(3)
    cluster.errors = [error]
    assert not await one.flush()
    assert not one.is_settled
    assert await one.flush()
    assert cluster.targets == [(1, 0), (3, 1)]
    assert one.is_settled


async def test_only_the_newest_decision_is_owed(cluster: Cluster) -> None:
    one = scaler(cluster)
    cluster.errors = [TransportError("reset")]
    one.decide(3)
    await one.flush()
    one.decide(4)
    assert await one.flush()
    assert cluster.targets == [(4, 1)]


async def test_a_patch_that_was_cancelled_is_owed(cluster: Cluster) -> None:
    one = scaler(cluster)
    one.decide(3)
    flush = asyncio.create_task(one.flush())
    await asyncio.sleep(0)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    assert not one.is_settled
    assert await one.flush()
    assert cluster.targets[-1] == (3, 0)


# --- who may say Running


async def test_a_started_job_promotes_its_runner_in_one_locked_patch(cluster: Cluster) -> None:
    cluster.add_runner()
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    assert cluster.status_patches == [
        {
            "metadata": {"resourceVersion": "1"},
            "status": {
                "phase": "Running",
                "jobRequestId": 11,
                "jobId": "job-1",
                "jobRepositoryName": "octo/repo",
                "jobWorkflowRef": "octo/repo/.github/workflows/ci.yml@refs/heads/main",
                "workflowRunId": 99,
                "jobDisplayName": "build",
            },
        }
    ]


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.OUTDATED])
async def test_a_runner_that_is_done_is_never_promoted(cluster: Cluster, phase: str) -> None:
    cluster.add_runner(phase=phase)
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == phase
    assert cluster.runners[RUNNER].status.job_id == "job-1"
    assert [set(patch) for patch in cluster.status_patches] == [{"status"}]
    assert "phase" not in cluster.status_patches[0]["status"]


async def test_a_runner_that_is_being_deleted_is_never_promoted(cluster: Cluster) -> None:
    cluster.add_runner(deletion_timestamp=datetime(2025, 1, 1, tzinfo=UTC))
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == Phase.PENDING
    assert cluster.runners[RUNNER].status.job_id == "job-1"


async def test_a_terminal_phase_written_meanwhile_survives_the_promotion(cluster: Cluster) -> None:
    cluster.add_runner()
    cluster.before_write = [lambda: cluster.set_phase(Phase.FAILED)]
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == Phase.FAILED
    assert cluster.runners[RUNNER].status.job_id == "job-1"
    assert cluster.reads == 2


async def test_a_promotion_is_retried_from_a_fresh_read(cluster: Cluster) -> None:
    cluster.add_runner()
    cluster.before_write = [lambda: cluster.set_phase(Phase.PENDING)] * 3
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == Phase.RUNNING
    assert cluster.reads == 4


async def test_a_runner_that_never_stops_changing_stays_owed(cluster: Cluster) -> None:
    cluster.add_runner()
    cluster.before_write = [lambda: cluster.set_phase(Phase.PENDING)] * 8
    one = scaler(cluster)
    one.started(JOB)
    assert not await one.flush()
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == Phase.RUNNING


async def test_a_runner_that_is_gone_is_a_shrug(cluster: Cluster) -> None:
    one = scaler(cluster)
    one.started(JOB)
    assert await one.flush()
    cluster.add_runner()
    cluster.before_write = [lambda: cluster.runners.clear()]
    one.started(JOB)
    assert await one.flush()
    assert cluster.writes == []


async def test_a_job_that_is_recorded_already_writes_nothing(cluster: Cluster) -> None:
    cluster.add_runner()
    one = scaler(cluster)
    for _ in range(2):
        one.started(JOB)
        assert await one.flush()
    assert len(cluster.status_patches) == 1


async def test_a_job_that_could_not_be_recorded_is_owed(cluster: Cluster) -> None:
    cluster.add_runner()
    one = scaler(cluster)
    one.started(JOB)
    cluster.errors = [TransportError("reset")]
    assert not await one.flush()
    assert await one.flush()
    assert cluster.runners[RUNNER].status.phase == Phase.RUNNING


async def test_a_burst_of_started_jobs_is_recorded_concurrently_and_before_the_target(
    cluster: Cluster,
) -> None:
    one = scaler(cluster, max_runners=100)
    for number in range(40):
        name = f"linux-abc-runner-{number}"
        key = NamespacedName("runners", name)
        meta = ObjectMeta(name=name, namespace="runners", resource_version="1")
        cluster.runners[key] = EphemeralRunner(metadata=meta)
        one.started(msgspec.structs.replace(JOB, runner_name=name))
    one.decide(40)
    assert await one.flush()
    assert [what for what, _ in cluster.writes] == ["status"] * 40 + ["set"]
    assert {runner.status.phase for runner in cluster.runners.values()} == {Phase.RUNNING}
