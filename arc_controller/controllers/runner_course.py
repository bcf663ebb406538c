"""What becomes of an EphemeralRunner that has a pod; rows 8 and 9 of the table."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import EphemeralRunner, Phase, Reason
from arc_controller.controllers.pod_state import (
    DEADLINE_SLACK,
    Outcome,
    Verdict,
    has_started,
    is_ready,
    judge,
    lacks_configuration,
    why_stuck,
)
from arc_controller.controllers.runner_conditions import (
    POD_STARTED,
    RunnerConditions,
    is_false,
)
from arc_controller.controllers.runner_end import RunnerEnd, holds_a_job
from arc_controller.controllers.runner_pod import sidecars
from arc_controller.controllers.runner_registration import Registrar
from arc_controller.controllers.runner_start import STATUS_PATIENCE, UNREGISTERED, RunnerStart
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import Now, loop_time
from arc_controller.runtime.controller import Result
from arc_controller.runtime.lazycopy import LazyCopy

STUCK_AFTER: Final = timedelta(seconds=30)
"""How long a pod may take to start before the reason is worth a condition."""
REPLACEMENT_PAUSE: Final = timedelta(seconds=10)
"""The least age of a pod that the cluster threw out before it is replaced: where every new pod is
evicted at once, that would be a loop."""

_LOSSES: Final = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.STRANDED})


class RunnerCourse:
    """Every step may be repeated."""

    def __init__(
        self,
        client: Client,
        registrar: Registrar,
        start: RunnerStart,
        end: RunnerEnd,
        conditions: RunnerConditions,
        *,
        now: Now,
    ) -> None:
        self._client = client
        self._registrar = registrar
        self._start = start
        self._end = end
        self._conditions = conditions
        self._now = now

    def looks_lost(self, runner: EphemeralRunner, pod: Pod | None) -> bool:
        """Whether a job that the runner holds would be given up for lost."""
        return pod is None or self._judge(runner, pod).outcome in _LOSSES

    async def follow(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> Result:
        """What the pod's status says decides."""
        obj = runner.obj
        verdict = self._judge(obj, pod)
        match verdict.outcome:
            case Outcome.ALIVE:
                return await self._publish(runner, pod)
            case Outcome.SUCCEEDED:
                await self._end.delete(obj)
                return Result()
            case Outcome.OUTDATED:
                return await self._end.fail(
                    runner, Reason.OUTDATED, verdict.message, phase=Phase.OUTDATED
                )
            case Outcome.STRANDED:
                return await self._end.give_up(obj, verdict.reason, f"Pod lost: {verdict.message}")
            case Outcome.STOPPING:
                return await self._until_stopped(runner, pod)
            case Outcome.LOST if holds_a_job(obj):
                return await self._end.give_up(
                    obj, "JobLost", f"The pod is over and the job lost: {verdict.message}"
                )
            case Outcome.LOST:
                return await self._replace(runner, pod, verdict)
            case Outcome.FAILED if holds_a_job(obj):
                return await self._end.give_up(
                    obj, "JobLost", f"The runner failed with a job in hand: {verdict.message}"
                )
            case _:
                return await self._count_failure(runner, pod, verdict)

    async def _publish(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> Result:
        """The pod starts or runs: Pending once, and `ready` as the pod's own condition says."""
        obj, ready = runner.obj, is_ready(pod)
        runner_id, started = self._start.remembered(obj)
        if not obj.status.runner_id and runner_id and not ready:
            left = started + STATUS_PATIENCE - loop_time()
            if left > 0:
                return Result(requeue_after=left)

        if not obj.status.runner_id or lacks_configuration(pod):
            try:
                runner_id = await self._id_of(obj, pod, runner_id)
            except UNREGISTERED as error:
                return await self._start.cannot_register(runner, error)
            self._conditions.note_registration(runner, runner_id)

        if obj.status.ready != ready:
            runner.mutate().status.ready = ready
        if not obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        wait = self._note_start(runner, pod)
        await runner.patch_status(self._client)
        self._start.forget(obj)
        return Result(requeue_after=wait)

    async def _id_of(self, obj: EphemeralRunner, pod: Pod, remembered: int) -> int:
        """The runner's id at the service. A secret that the pod waits for is made again."""
        if not lacks_configuration(pod):
            known = remembered or await self._registrar.known_id(obj)
            if known or has_started(pod):
                return known
        return await self._start.register(obj)

    def _note_start(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> float | None:
        """Say why a pod does not start, once it should have; the seconds until then, if any."""
        if has_started(pod):
            self._conditions.recovered(runner, POD_STARTED, "The runner container has started")
            return None
        created = pod.metadata.creation_timestamp
        patience = STUCK_AFTER - (self._now() - created) if created is not None else STUCK_AFTER
        if patience > timedelta(0):
            return min(patience, STUCK_AFTER).total_seconds()
        stuck = why_stuck(pod)
        if stuck is not None and not is_false(runner.obj, POD_STARTED, stuck.reason):
            self._conditions.trouble(
                runner, POD_STARTED, stuck.reason, f"The pod does not start: {stuck.message}"
            )
        return None

    async def _count_failure(
        self, runner: LazyCopy[EphemeralRunner], pod: Pod, verdict: Verdict
    ) -> Result:
        """As failed, without a job: count it, by the pod's uid, and only then delete the pod."""
        if pod.uid not in runner.obj.status.failures:
            status = runner.mutate().status
            status.failures[pod.uid] = self._now().replace(microsecond=0)
            status.ready = False
            status.reason, status.message = verdict.reason, verdict.message
            await runner.patch_status(self._client)
            self._conditions.tell(
                runner.obj, "Warning", "PodFailed", f"Pod failed: {verdict.message}"
            )
        await self._client.delete(Pod, pod.key, uid=pod.uid)
        return Result()

    async def _replace(
        self, runner: LazyCopy[EphemeralRunner], pod: Pod, verdict: Verdict
    ) -> Result:
        """Lost to the cluster, without a job: the same runner gets another pod."""
        if pod.is_being_deleted:
            return await self._until_stopped(runner, pod)
        created = pod.metadata.creation_timestamp
        age = self._now() - created if created is not None else REPLACEMENT_PAUSE
        if timedelta(0) <= age < REPLACEMENT_PAUSE:
            return Result(requeue_after=(REPLACEMENT_PAUSE - age).total_seconds())
        await self._client.delete(Pod, pod.key, uid=pod.uid)
        self._conditions.tell(
            runner.obj,
            "Normal",
            "PodReplaced",
            f"The cluster took the pod away ({verdict.reason}: {verdict.message}); "
            "it gets another one, and this counts as no failure",
        )
        return Result()

    async def _until_stopped(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> Result:
        """Wait for the event; after the deadline `judge` says that the node is gone."""
        if runner.obj.status.ready and not is_ready(pod):
            runner.mutate().status.ready = False
            await runner.patch_status(self._client)
        deadline = pod.metadata.deletion_timestamp
        left = (deadline - self._now()).total_seconds() if deadline is not None else 0.0
        return Result(requeue_after=max(left, 0.0) + DEADLINE_SLACK.total_seconds())

    def _judge(self, runner: EphemeralRunner, pod: Pod) -> Verdict:
        return judge(pod, self._now(), sidecars=sidecars(runner.spec))
