"""The EphemeralRunner controller: one runner, one pod, one registration, one job.

It never says ``Running``: that means *holds a job*, and only the listener knows. A runner that is
registered and idle stays ``Pending``, so that scaling down takes it before a busy one.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from cachetools import TTLCache

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerStatus,
    Phase,
    Reason,
)
from arc_controller.controllers.conditions import put_condition
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import InputError
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
from arc_controller.controllers.runner_departures import JOB_STILL_RUNNING_RETRY
from arc_controller.controllers.runner_end import FINALIZERS, RunnerEnd
from arc_controller.controllers.runner_pod import InvalidTemplate, build_pod, sidecars
from arc_controller.controllers.runner_registration import (
    NameTaken,
    Registrar,
    RegistrationUnsettled,
    RunnerClients,
)
from arc_controller.controllers.trouble import trouble_of
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from arc_controller.runtime.events import EventRecorder, EventType
from arc_controller.runtime.finalizers import add_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName, find_condition
from arc_controller.runtime.ownership import is_controlled_by
from arc_controller.runtime.predicates import Predicate

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager

log = structlog.get_logger(__name__)

MAX_FAILURES: Final = 5
BACKOFF: Final = (0, 5, 10, 20, 40, 80)
"""Seconds to wait after the last failure, by the number of failures."""

QUOTA_RETRY: Final = 30.0
QUOTA_PATIENCE: Final = timedelta(minutes=10)
"""How long a runner waits for quota; its registration would expire."""
UNSETTLED_RETRY: Final = 5.0
POD_EXISTS_RETRY: Final = 30.0
STUCK_AFTER: Final = timedelta(seconds=30)
"""How long a pod may take to start before the reason is worth a condition."""
REPLACEMENT_PAUSE: Final = timedelta(seconds=10)
"""The least age of a pod that the cluster threw out before it is replaced: where every new pod is
evicted at once, that would be a loop."""

STATUS_PATIENCE: Final = 1.0
"""Seconds that the first status waits for the pod to be ready, to be written as one patch."""
REMEMBERED: Final = 10_000

STILL_NEW: Final = timedelta(seconds=30)
"""The age below which a runner that the cache shows is taken to exist."""

_UNREGISTERED: Final = (NameTaken, RegistrationUnsettled, InputError, ActionsError)
"""Why a runner may have no registration; see `_cannot_register`."""

_LOSSES: Final = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.STRANDED})

REGISTERED: Final = "Registered"
WITHIN_QUOTA: Final = "WithinQuota"
POD_STARTED: Final = "PodStarted"
FINISHED: Final = "Finished"


class EphemeralRunnerReconciler:
    """Brings one EphemeralRunner from its creation to its end.

    `client` answers reads of runners, their pods and sets from the cache; `api_reader` never does.
    """

    def __init__(
        self,
        client: Client,
        api_reader: Reader,
        actions: RunnerClients,
        *,
        config: ControllerConfig,
        events: EventRecorder,
        now: Now = utc_now,
    ) -> None:
        self._client = client
        self._api_reader = api_reader
        self._registrar = Registrar(client, actions)
        self._end = RunnerEnd(client, api_reader, self._registrar, events, now)
        self.departures = self._end.departures
        self._version = config.version
        self._events = events
        self._now = now
        self._deleted: TTLCache[str, None] = TTLCache(REMEMBERED, 60.0, timer=_loop_time)
        # Ids that are not in the status yet, and since when there has been a pod. The secret has
        # them too: this saves reading it.
        # In a burst of thousands a runner's next turn may be minutes away.
        self._started: TTLCache[str, tuple[int, float]] = TTLCache(
            REMEMBERED, 600.0, timer=_loop_time
        )

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self._client.find(EphemeralRunner, key)
        if found is None or self.departures.is_gone(found):
            return await self.departures.settle(key)
        try:
            return await self._reconcile(found)
        except NotFound:
            live = await self._api_reader.find(EphemeralRunner, key)
            if live is not None and live.uid == found.uid:
                raise
            # The cache is late: what was done here for this runner, nobody else will take back.
            self.departures.went_without_us(found)
            return await self.departures.settle(key)

    async def _reconcile(self, found: EphemeralRunner) -> Result:
        runner, key = LazyCopy(found), found.key

        if found.is_being_deleted:
            return await self._end.finalize(runner)

        if found.status.is_done:
            return await self._end.clean_up(runner)

        if add_finalizers(runner, *FINALIZERS):
            await runner.patch(self._client)

        pod = await self._client.find(Pod, key)
        if _holds_a_job(found) and self._looks_lost(found, pod):
            # A leader that is new may have a cache that is old: giving up would kill the job.
            pod = await self._api_reader.find(Pod, key)
        if pod is None:
            return await self._start(runner)

        if not is_controlled_by(pod, found):
            return Result(requeue_after=POD_EXISTS_RETRY)

        return await self._follow(runner, pod)

    def _looks_lost(self, runner: EphemeralRunner, pod: Pod | None) -> bool:
        return pod is None or (
            judge(pod, self._now(), sidecars=sidecars(runner.spec)).outcome in _LOSSES
        )

    # --- the beginning ----------------------------------------------------------------------------

    async def _start(self, runner: LazyCopy[EphemeralRunner]) -> Result:
        """Rows 4 to 7: there is no pod."""
        obj = runner.obj
        if _holds_a_job(obj):
            return await self._give_up(
                obj, "JobLost", "The pod is gone while the runner held a job; the job is lost"
            )

        failures = len(obj.status.failures)
        if failures > MAX_FAILURES:
            return await self._give_up(
                obj,
                Reason.TOO_MANY_POD_FAILURES,
                f"The pod failed {failures} times, lastly: {obj.status.message}",
            )

        wait = _backoff(obj.status, self._now())
        if wait > 0:
            return Result(requeue_after=wait)

        if not self._is_new(obj) and not await self._still_exists(obj):
            return Result()  # the cache is late, and the event on its way

        try:
            runner_id = await self._registrar.registered(obj)
        except _UNREGISTERED as error:
            return await self._cannot_register(runner, error)
        self._note_registration(runner, runner_id)
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
            return await self._fail(runner, Reason.INVALID_POD, error.message)
        except (Invalid, BadRequest) as error:
            return await self._fail(runner, Reason.INVALID_POD, error.message)
        except InvalidTemplate as error:
            return await self._fail(runner, Reason.INVALID_POD, str(error))

        self._recovered(runner, WITHIN_QUOTA, "The pod was created")
        if obj.status.runner_id == 0:
            # Pods that are quick are ready in a moment: then one patch says both.
            self._started[obj.uid] = (runner_id, _loop_time())
            return Result(requeue_after=STATUS_PATIENCE)
        await runner.patch_status(self._client)
        return Result()

    def _is_new(self, runner: EphemeralRunner) -> bool:
        created = runner.metadata.creation_timestamp
        return created is not None and timedelta(0) <= self._now() - created < STILL_NEW

    async def _still_exists(self, runner: EphemeralRunner) -> bool:
        """Registering a runner that is gone would leave the registration for ever, and what is
        made for it is collected at once, so that it would be made again and again."""
        live = await self._api_reader.find(EphemeralRunner, runner.key)
        return live is not None and live.uid == runner.uid and not live.is_being_deleted

    async def _wait_for_quota(self, runner: LazyCopy[EphemeralRunner], error: Forbidden) -> Result:
        if not _is_false(runner.obj, WITHIN_QUOTA):
            message = f"The pod has to wait for resource quota: {error.message}"
            self._trouble(runner, WITHIN_QUOTA, "QuotaExceeded", message)
        await runner.patch_status(self._client)
        condition = find_condition(runner.obj.status.conditions, WITHIN_QUOTA)
        since = condition.last_transition_time if condition is not None else None
        if since is not None and self._now() - since >= QUOTA_PATIENCE:
            return await self._give_up(
                runner.obj, "QuotaExceeded", f"No quota for the pod in {QUOTA_PATIENCE}"
            )
        return Result(requeue_after=QUOTA_RETRY)

    # --- the pod ----------------------------------------------------------------------------------

    async def _follow(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> Result:
        """Rows 8 and 9: there is a pod, and what its status says decides."""
        obj = runner.obj
        verdict = judge(pod, self._now(), sidecars=sidecars(obj.spec))
        match verdict.outcome:
            case Outcome.ALIVE:
                return await self._publish(runner, pod)
            case Outcome.SUCCEEDED:
                await self._delete_runner(obj)
                return Result()
            case Outcome.OUTDATED:
                return await self._fail(
                    runner, Reason.OUTDATED, verdict.message, phase=Phase.OUTDATED
                )
            case Outcome.STRANDED:
                return await self._give_up(obj, verdict.reason, f"Pod lost: {verdict.message}")
            case Outcome.STOPPING:
                return await self._until_stopped(runner, pod)
            case Outcome.LOST if _holds_a_job(obj):
                return await self._give_up(
                    obj, "JobLost", f"The pod is over and the job lost: {verdict.message}"
                )
            case Outcome.LOST:
                return await self._replace(runner, pod, verdict)
            case Outcome.FAILED if _holds_a_job(obj):
                return await self._give_up(
                    obj, "JobLost", f"The runner failed with a job in hand: {verdict.message}"
                )
            case _:
                return await self._count_failure(runner, pod, verdict)

    async def _publish(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> Result:
        """The pod starts or runs: Pending once, and `ready` as the pod's own condition says."""
        obj, ready = runner.obj, is_ready(pod)
        runner_id, started = self._started.get(obj.uid, (0, 0.0))
        if not obj.status.runner_id and runner_id and not ready:
            left = started + STATUS_PATIENCE - _loop_time()
            if left > 0:
                return Result(requeue_after=left)

        if not obj.status.runner_id or lacks_configuration(pod):
            try:
                runner_id = await self._id_of(obj, pod, runner_id)
            except _UNREGISTERED as error:
                return await self._cannot_register(runner, error)
            self._note_registration(runner, runner_id)

        if obj.status.ready != ready:
            runner.mutate().status.ready = ready
        if not obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        wait = self._note_start(runner, pod)
        await runner.patch_status(self._client)
        self._started.pop(obj.uid, None)
        return Result(requeue_after=wait)

    async def _id_of(self, obj: EphemeralRunner, pod: Pod, remembered: int) -> int:
        """The runner's id at the service. A secret that the pod waits for is made again."""
        if lacks_configuration(pod):
            return await self._registrar.registered(obj)
        known = remembered or await self._registrar.known_id(obj)
        if not known and not has_started(pod):
            return await self._registrar.registered(obj)
        return known

    def _note_start(self, runner: LazyCopy[EphemeralRunner], pod: Pod) -> float | None:
        """Say why a pod does not start, once it should have; the seconds until then, if any."""
        if has_started(pod):
            self._recovered(runner, POD_STARTED, "The runner container has started")
            return None
        created = pod.metadata.creation_timestamp
        patience = STUCK_AFTER - (self._now() - created) if created is not None else STUCK_AFTER
        if patience > timedelta(0):
            return min(patience, STUCK_AFTER).total_seconds()
        stuck = why_stuck(pod)
        if stuck is not None and not _is_false(runner.obj, POD_STARTED, stuck.reason):
            self._trouble(
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
            self._tell(runner.obj, "Warning", "PodFailed", f"Pod failed: {verdict.message}")
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
        self._tell(
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

    # --- small steps ------------------------------------------------------------------------------

    def _note_registration(self, runner: LazyCopy[EphemeralRunner], runner_id: int) -> None:
        """Row 5, for the next status patch."""
        obj = runner.obj
        if runner_id and obj.status.runner_id != runner_id:
            runner.mutate().status.runner_id = runner_id
        if runner_id and obj.status.runner_name != obj.metadata.name:
            runner.mutate().status.runner_name = obj.metadata.name
        if not obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        self._recovered(runner, REGISTERED, "The runner is registered at the service")

    async def _fail(
        self,
        runner: LazyCopy[EphemeralRunner],
        reason: str,
        message: str,
        *,
        phase: str = Phase.FAILED,
    ) -> Result:
        """Into a phase that is never left, then row 2 at once."""
        status = runner.mutate().status
        status.phase, status.reason, status.message = phase, reason, message
        status.ready = False
        put_condition(runner, FINISHED, True, reason, message, now=self._now())
        await runner.patch_status(self._client)
        self._tell(runner.obj, "Warning", reason, f"{phase}: {message}")
        return await self._end.clean_up(runner)

    async def _give_up(self, runner: EphemeralRunner, reason: str, message: str) -> Result:
        """Delete the runner; row 1 unregisters it. Scaling makes another where one is needed."""
        self._tell(runner, "Warning", reason, message)
        await self._delete_runner(runner)
        return Result()

    async def _delete_runner(self, runner: EphemeralRunner) -> None:
        if runner.uid in self._deleted:
            return  # the event is on its way
        await self._client.delete(EphemeralRunner, runner.key, uid=runner.uid)
        self._deleted[runner.uid] = None

    async def _cannot_register(self, runner: LazyCopy[EphemeralRunner], error: Exception) -> Result:
        match error:
            case NameTaken():
                return await self._give_up(runner.obj, "NameTaken", f"A new name will do: {error}")
            case RegistrationUnsettled():
                return Result(requeue_after=UNSETTLED_RETRY)
            case JobStillRunning():
                return Result(requeue_after=JOB_STILL_RUNNING_RETRY)
        trouble = trouble_of(error)
        if trouble is None:
            raise error
        self._trouble(runner, REGISTERED, trouble.reason, f"Cannot register: {trouble.message}")
        if not runner.obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        await runner.patch_status(self._client)
        if trouble.by_hand:
            return Result(requeue_after=trouble.retry)
        raise error

    def _trouble(
        self, runner: LazyCopy[EphemeralRunner], type_: str, reason: str, message: str
    ) -> None:
        """A condition for the next status patch and, at a turning point, an Event."""
        if put_condition(runner, type_, False, reason, message, now=self._now()):
            self._tell(runner.obj, "Warning", reason, message)

    def _recovered(self, runner: LazyCopy[EphemeralRunner], type_: str, message: str) -> None:
        """Take a trouble back. Where there was none, no condition says so: it would be said of
        every runner."""
        if _is_false(runner.obj, type_):
            put_condition(runner, type_, True, type_, message, now=self._now())

    def _tell(self, runner: EphemeralRunner, type_: EventType, reason: str, message: str) -> None:
        self._events.event(runner, type_, reason, message)


def add_to_manager(
    manager: Manager, config: ControllerConfig, actions: RunnerClients
) -> Controller:
    """Reconcile EphemeralRunners in this manager."""
    reconciler = EphemeralRunnerReconciler(
        manager.client,
        manager.api_reader,
        actions,
        config=config,
        events=manager.events,
        now=manager.now,
    )
    return (
        ControllerBuilder(manager)
        .named("ephemeralrunner")
        .for_(
            EphemeralRunner,
            predicates=[_not_our_status, Predicate(delete=reconciler.departures.went_without_us)],
        )
        .owns(Pod)
        .with_options(
            max_concurrent_reconciles=config.max_concurrent_reconciles,
            rate_limiter=config.new_rate_limiter(),
            expected_errors=(ActionsError, InputError),
        )
        .build(reconciler)
    )


def _decisive(runner: EphemeralRunner) -> tuple[object, ...]:
    metadata = runner.metadata
    return (
        metadata.generation,
        metadata.deletion_timestamp,
        metadata.finalizers,
        runner.status.is_done,
        _holds_a_job(runner),
    )


# Most changes of a status are our own: there is no need to look at them again.
_not_our_status = Predicate[EphemeralRunner](
    update=lambda old, new: _decisive(old) != _decisive(new)
)


def _holds_a_job(runner: EphemeralRunner) -> bool:
    return runner.status.has_job or runner.status.phase == Phase.RUNNING


def _backoff(status: EphemeralRunnerStatus, now: datetime) -> float:
    """Seconds until the next pod may be tried. A wall clock that was set back adds nothing."""
    if not status.failures:
        return 0.0
    delay = BACKOFF[min(len(status.failures), len(BACKOFF) - 1)]
    since = (now - max(status.failures.values())).total_seconds()
    return min(max(delay - since, 0.0), delay)


def _is_false(runner: EphemeralRunner, type_: str, reason: str = "") -> bool:
    condition = find_condition(runner.status.conditions, type_)
    if condition is None or condition.status != "False":
        return False
    return not reason or condition.reason == reason


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
