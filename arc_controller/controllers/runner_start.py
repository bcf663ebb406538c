"""How an EphemeralRunner begins: registered, then given a pod; rows 4 to 7 of the table."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cachetools import TTLCache

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerStatus, Phase, Reason
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.runner_conditions import (
    REGISTERED,
    WITHIN_QUOTA,
    RunnerConditions,
    is_false,
)
from arc_controller.controllers.runner_departures import JOB_STILL_RUNNING_RETRY
from arc_controller.controllers.runner_end import REMEMBERED, RunnerEnd, holds_a_job
from arc_controller.controllers.runner_pod import InvalidTemplate, build_pod
from arc_controller.controllers.runner_registration import (
    NameTaken,
    NotKept,
    Registrar,
    RegistrationUnsettled,
)
from arc_controller.controllers.trouble import refusal_reason, trouble_of
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, loop_time
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import find_condition

MAX_FAILURES: Final = 5
BACKOFF: Final = (0, 5, 10, 20, 40, 80)
"""Seconds to wait after the last failure, by the number of failures."""

QUOTA_RETRY: Final = 30.0
QUOTA_PATIENCE: Final = timedelta(minutes=10)
"""How long a runner waits for quota; its registration would expire."""
UNSETTLED_RETRY: Final = 5.0
POD_EXISTS_RETRY: Final = 30.0
STILL_NEW: Final = timedelta(seconds=30)
"""The age below which a runner that the cache shows is taken to exist."""

STATUS_PATIENCE: Final = 1.0
"""Seconds that the first status waits for the pod to be ready, to be written as one patch."""


class RunnerGone(Exception):
    """Only a late cache still has the runner."""


UNREGISTERED: Final = (
    RunnerGone,
    NameTaken,
    NotKept,
    RegistrationUnsettled,
    InputError,
    ActionsError,
)
"""Why a runner may have no registration; see `RunnerStart.cannot_register`."""


class RunnerStart:
    """Every step may be repeated."""

    def __init__(
        self,
        client: Client,
        api_reader: Reader,
        registrar: Registrar,
        end: RunnerEnd,
        conditions: RunnerConditions,
        *,
        version: str,
        now: Now,
    ) -> None:
        self._client = client
        self._api_reader = api_reader
        self._registrar = registrar
        self._end = end
        self._conditions = conditions
        self._version = version
        self._now = now
        # Ids that are not in the status yet, and since when there has been a pod. The secret has
        # them too: this saves reading it.
        # In a burst of thousands a runner's next turn may be minutes away.
        self._started: TTLCache[str, tuple[int, float]] = TTLCache(
            REMEMBERED, 600.0, timer=loop_time
        )

    async def start(self, runner: LazyCopy[EphemeralRunner]) -> Result:
        """There is no pod."""
        obj = runner.obj
        if holds_a_job(obj):
            return await self._end.give_up(
                obj, "JobLost", "The pod is gone while the runner held a job; the job is lost"
            )

        failures = len(obj.status.failures)
        if failures > MAX_FAILURES:
            return await self._end.give_up(
                obj,
                Reason.TOO_MANY_POD_FAILURES,
                f"The pod failed {failures} times, lastly: {obj.status.message}",
            )

        wait = backoff(obj.status, self._now())
        if wait > 0:
            return Result(requeue_after=wait)

        try:
            runner_id = await self.register(obj)
        except UNREGISTERED as error:
            return await self.cannot_register(runner, error)
        self._conditions.note_registration(runner, runner_id)
        if obj.status.ready:
            runner.mutate().status.ready = False  # it was the last pod that was

        try:
            await self._client.create(build_pod(obj, self._version))
        except AlreadyExists:
            await runner.patch_status(self._client)
            return Result(requeue_after=POD_EXISTS_RETRY)
        except Forbidden as error:
            if error.is_quota_exceeded:
                return await self._wait_for_quota(runner, error)
            if error.is_permission_missing:
                await runner.patch_status(self._client)
                raise  # the pod is not to blame, so neither is its runner
            return await self._end.fail(runner, Reason.INVALID_POD, error.message)
        except (Invalid, BadRequest) as error:
            return await self._end.fail(runner, Reason.INVALID_POD, error.message)
        except InvalidTemplate as error:
            return await self._end.fail(runner, Reason.INVALID_POD, str(error))

        self._conditions.recovered(runner, WITHIN_QUOTA, "The pod was created")
        if obj.status.runner_id == 0:
            # Pods that are quick are ready in a moment: then one patch says both.
            self._started[obj.uid] = (runner_id, loop_time())
            return Result(requeue_after=STATUS_PATIENCE)
        await runner.patch_status(self._client)
        return Result()

    async def register(self, runner: EphemeralRunner) -> int:
        """Its id at the service, as `Registrar.registered`. Raises `RunnerGone`, too: registering a
        runner that is gone would leave the registration for ever, and what is made for it is
        collected at once, so that it would be made again and again."""
        if not self._is_new(runner) and not await self._still_exists(runner):
            raise RunnerGone
        return await self._registrar.registered(runner)

    def _is_new(self, runner: EphemeralRunner) -> bool:
        created = runner.metadata.creation_timestamp
        return created is not None and timedelta(0) <= self._now() - created < STILL_NEW

    async def _still_exists(self, runner: EphemeralRunner) -> bool:
        live = await self._api_reader.find(EphemeralRunner, runner.key)
        return live is not None and live.uid == runner.uid and not live.is_being_deleted

    async def _wait_for_quota(self, runner: LazyCopy[EphemeralRunner], error: Forbidden) -> Result:
        if not is_false(runner.obj, WITHIN_QUOTA):
            message = f"The pod has to wait for resource quota: {error.message}"
            self._conditions.trouble(runner, WITHIN_QUOTA, "QuotaExceeded", message)
        await runner.patch_status(self._client)
        condition = find_condition(runner.obj.status.conditions, WITHIN_QUOTA)
        since = condition.last_transition_time if condition is not None else None
        if since is not None and self._now() - since >= QUOTA_PATIENCE:
            return await self._end.give_up(
                runner.obj, "QuotaExceeded", f"No quota for the pod in {QUOTA_PATIENCE}"
            )
        return Result(requeue_after=QUOTA_RETRY)

    def remembered(self, runner: EphemeralRunner) -> tuple[int, float]:
        """The id that its status does not have yet, and since when it has had a pod; zeros if its
        status has it, or another process knew."""
        return self._started.get(runner.uid, (0, 0.0))

    def forget(self, runner: EphemeralRunner) -> None:
        """Its status has the id."""
        self._started.pop(runner.uid, None)

    async def cannot_register(self, runner: LazyCopy[EphemeralRunner], error: Exception) -> Result:
        """Say why, and when to try again. Raises `error` if the queue's own backoff should."""
        match error:
            case RunnerGone():
                return Result()  # the event is on its way
            case NameTaken():
                return await self._end.give_up(
                    runner.obj, "NameTaken", f"A new name will do: {error}"
                )
            case RegistrationUnsettled():
                return Result(requeue_after=UNSETTLED_RETRY)
            case JobStillRunning():
                return Result(requeue_after=JOB_STILL_RUNNING_RETRY)
            case NotKept():
                return await self._not_kept(runner, error.refusal)
        trouble = trouble_of(error)
        if trouble is None:
            raise error
        await self._say_unregistered(runner, trouble.reason, f"Cannot register: {trouble.message}")
        if trouble.retry is None:
            raise error
        return Result(requeue_after=trouble.retry)

    async def _not_kept(self, runner: LazyCopy[EphemeralRunner], refusal: ApiError) -> Result:
        reason = refusal_reason(refusal)
        await self._say_unregistered(
            runner, reason, f"The secret for its configuration is refused: {refusal.message}"
        )
        return Result(requeue_after=QUOTA_RETRY)

    async def _say_unregistered(
        self, runner: LazyCopy[EphemeralRunner], reason: str, message: str
    ) -> None:
        self._conditions.trouble(runner, REGISTERED, reason, message)
        if not runner.obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        await runner.patch_status(self._client)


def backoff(status: EphemeralRunnerStatus, now: datetime) -> float:
    """Seconds until the next pod may be tried. A wall clock that was set back adds nothing."""
    if not status.failures:
        return 0.0
    delay = BACKOFF[min(len(status.failures), len(BACKOFF) - 1)]
    since = (now - max(status.failures.values())).total_seconds()
    return min(max(delay - since, 0.0), delay)
