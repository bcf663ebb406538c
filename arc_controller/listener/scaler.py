"""How many runners, and which of them hold a job: everything a listener writes to Kubernetes.

Two kinds of writes, both patches: ``spec.replicas`` and ``spec.patchID`` of the one
EphemeralRunnerSet, and the job in the status of the EphemeralRunner that took it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from arc_controller.actions import JobStarted
from arc_controller.api.v1alpha1 import (
    LISTENING_SINCE,
    MAX_RUNNERS,
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerStatus,
    Phase,
)
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import Now
from arc_controller.runtime.errors import ApiError, Conflict, Forbidden, NotFound, TransportError
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName

FORCE: Final = 0
"""The patch id that means: make it so, scaling down included."""

MAX_PATCH_ID: Final = 2**31 - 1
CONFLICT_ATTEMPTS: Final = 8
CONCURRENT_JOBS: Final = 16

# Everything that a later attempt may heal; the API server's answer may also be cut short.
_WRITE_ERRORS = (ApiError, TransportError, msgspec.DecodeError)


@dataclass(frozen=True, slots=True)
class Target:
    """What the EphemeralRunnerSet's spec should say."""

    replicas: int
    patch_id: int


class Scaler:
    """Decides and writes. What could not be written is owed and written by a later `flush`.

    Deciding (`decide`, `started`, `completed`) is immediate and never fails; `flush` talks to the
    API server. Cancelling `flush` loses nothing: what it had not written is still owed.
    """

    def __init__(
        self,
        client: Client,
        runner_set: NamespacedName,
        *,
        min_runners: int = 0,
        max_runners: int = MAX_RUNNERS,
        now: Now | None = None,
    ) -> None:
        self._client = client
        self._runner_set = runner_set
        self._now = now
        self._min = min_runners
        self._max = max_runners
        self._log = structlog.get_logger(__name__).bind(
            namespace=runner_set.namespace, ephemeral_runner_set=runner_set.name
        )
        self._next_patch_id = 0
        self._something_happened = False
        self._target: Target | None = None
        self._written: Target | None = None
        self._started: dict[str, JobStarted] = {}

    @property
    def is_settled(self) -> bool:
        """Whether everything decided so far is written."""
        return self._target == self._written and not self._started

    @property
    def is_urgent(self) -> bool:
        """Whether what is owed must not wait: more runners, a runner with a job, or a first word.

        Fewer runners may: a patch id above 0 never removes any, and the gap that a finished runner
        leaves is not filled without a new request.
        """
        if self._started or self._written is None:
            return not self.is_settled
        return self._target is not None and self._target.replicas > self._written.replicas

    def decide(self, assigned_jobs: int) -> int:
        """How many runners ``assigned_jobs`` (waiting or running) need: the new target.

        Every decision counts the patch id up, which tells the controller that this is a new
        request; 0 is sent instead, for "force this state", when nothing happened since the last
        decision and the set is where it rests.
        """
        replicas = min(self._min + assigned_jobs, self._max)
        rests = (
            not self._something_happened
            and self._target is not None
            and replicas == self._target.replicas == self._min
        )
        self._something_happened = False
        patch_id = self._next_patch_id
        self._next_patch_id = 0 if patch_id >= MAX_PATCH_ID else patch_id + 1
        self._target = Target(replicas, FORCE if rests else patch_id)
        return replicas

    def started(self, job: JobStarted) -> None:
        """A runner took this job; `flush` tells the EphemeralRunner."""
        self._something_happened = True
        if job.runner_name:
            self._started[job.runner_name] = job

    def completed(self) -> None:
        """A job ended. The runner itself says so by exiting, hence nothing to write."""
        self._something_happened = True

    async def flush(self) -> bool:
        """Write what is owed: started jobs, then the target. True when all of it is written.

        Failures are logged, not raised: the caller comes back.
        """
        await self.record_started()
        await self._write_target()
        return self.is_settled

    # --- the EphemeralRunnerSet

    async def _write_target(self) -> None:
        target = self._target
        if target is None or target == self._written:
            return
        # Written out in full: zero is a value here, while the types leave their defaults out.
        patch: dict[str, Any] = {"spec": {"replicas": target.replicas, "patchID": target.patch_id}}
        if self._written is None and self._now is not None:
            # The first word is said when there is a session: that is how the controller knows.
            since = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
            patch["metadata"] = {"annotations": {LISTENING_SINCE: since}}
        try:
            await self._client.patch(EphemeralRunnerSet, self._runner_set, patch)
        except _WRITE_ERRORS as error:
            self._log.warning(
                "the EphemeralRunnerSet was not scaled; trying again",
                replicas=target.replicas,
                patch_id=target.patch_id,
                error=f"{error}{self._hint(error)}",
            )
            return
        self._written = target
        self._log.debug("scaled", replicas=target.replicas, patch_id=target.patch_id)

    def _hint(self, error: Exception) -> str:
        if isinstance(error, NotFound):
            return "; the set is gone: the controller makes it anew or removes this listener"
        if isinstance(error, Forbidden):
            name = self._runner_set.name
            return f"; the listener's role needs patch on ephemeralrunnersets/{name}"
        return ""

    # --- EphemeralRunners

    async def record_started(self) -> None:
        """Write the started jobs that are owed; those that could not be written stay owed.

        Many at once, since a burst starts many; the bound is for the API server's sake.
        """
        waiting = list(self._started.values())

        async def work() -> None:
            while waiting:
                job = waiting.pop(0)
                if await self._record(job) and self._started.get(job.runner_name) is job:
                    del self._started[job.runner_name]

        if len(waiting) == 1:
            await work()
        elif waiting:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(CONCURRENT_JOBS, len(waiting))):
                    group.create_task(work())

    async def _record(self, job: JobStarted) -> bool:
        """Write the job into its runner's status; whether that is over and done with."""
        key = NamespacedName(self._runner_set.namespace, job.runner_name)
        log = self._log.bind(ephemeral_runner=key.name, job_id=job.job_id)
        for _ in range(CONFLICT_ATTEMPTS):
            try:
                found = await self._client.find(EphemeralRunner, key)
                if found is None:
                    log.info("the runner of a started job is gone")
                    return True
                await self._write_job(LazyCopy(found), job)
            except Conflict:
                continue  # somebody wrote meanwhile, perhaps a terminal phase: look again
            except NotFound:
                log.info("the runner of a started job is gone")
                return True
            except _WRITE_ERRORS as error:
                log.warning("the started job was not recorded; trying again", error=str(error))
                return False
            log.debug("the runner has a job")
            return True
        log.warning("the started job was not recorded: the runner keeps changing; trying again")
        return False

    async def _write_job(self, runner: LazyCopy[EphemeralRunner], job: JobStarted) -> None:
        promotes = not runner.obj.status.is_done and not runner.obj.is_being_deleted
        if _tells(runner.obj.status, job, running=promotes):
            return
        status = runner.mutate().status
        status.job_request_id = job.runner_request_id
        status.job_id = job.job_id
        status.job_repository_name = f"{job.owner_name}/{job.repository_name}"
        status.job_workflow_ref = job.job_workflow_ref
        status.workflow_run_id = job.workflow_run_id
        status.job_display_name = job.job_display_name
        if promotes:
            status.phase = Phase.RUNNING
            await runner.patch_status(self._client)
        else:
            # Without the lock: only the listener writes these fields, so there is nothing to
            # overwrite, and a runner that is going away changes too often to race against.
            await runner.patch_status(self._client, lock=False)


def _tells(status: EphemeralRunnerStatus, job: JobStarted, *, running: bool) -> bool:
    """Whether the status says all of it already (a message that came twice)."""
    return (
        status.job_request_id == job.runner_request_id
        and status.job_id == job.job_id
        and status.job_repository_name == f"{job.owner_name}/{job.repository_name}"
        and status.job_workflow_ref == job.job_workflow_ref
        and status.workflow_run_id == job.workflow_run_id
        and status.job_display_name == job.job_display_name
        and (not running or status.phase == Phase.RUNNING)
    )
