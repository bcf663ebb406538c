"""The EphemeralRunnerSet controller: as many runners as the listener asks for.

The listener patches the spec all the time, so this controller never writes the spec, and metadata
only for its finalizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Final

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSet,
    Finalizer,
    Phase,
    SetPhase,
)
from arc_controller.controllers.conditions import put_condition
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.expectations import Expectations, Request
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.meta import is_foreign, same_metadata, set_metadata
from arc_controller.controllers.proxy import proxy_environment
from arc_controller.controllers.revision import patch_applied_actionable_revision_status, runners_of
from arc_controller.controllers.runner_fanout import each, raise_first
from arc_controller.controllers.runner_registration import Registrar, RunnerClients
from arc_controller.controllers.runner_sorting import SortedRunners, revision_of, sort_runners
from arc_controller.controllers.runner_template import (
    build_proxy_secret,
    build_runner,
    proxy_secret_key,
    runner_name,
)
from arc_controller.controllers.trouble import REPAIRED_BY_HAND, trouble_of
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.errors import AlreadyExists, ApiError, Conflict, ServerError
from arc_controller.runtime.events import EventRecorder
from arc_controller.runtime.finalizers import add_finalizers, remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName, find_condition
from arc_controller.runtime.ownership import controller_of
from arc_controller.runtime.predicates import Predicate

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager

OWNER_INDEX: Final = "owner"
"""The field index of runners by the uid of the set that controls them."""

PACE: Final = 0.1
"""Seconds between two passes over a set whose spec did not change: a burst of events is one."""
STATUS_PACE: Final = 1.0
"""Seconds between two writes of nothing but changed counts."""
BUSY_RETRY: Final = 30.0
STALE_CACHE_RETRY: Final = 1.0
PROXY_CHECK: Final = 60.0
"""How long a proxy secret that was changed by others, or whose credentials rotated, may stay."""
FAILED_RETRY: Final = timedelta(minutes=10)
MARKER_ATTEMPTS: Final = 5

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

SCALING_ACTIVE: Final = "ScalingActive"
RUNNERS_HEALTHY: Final = "RunnersHealthy"
PROXY_READY: Final = "ProxyReady"


class EphemeralRunnerSetReconciler:
    """Creates, removes and counts the runners of a set.

    `client` reads sets and runners from a cache that has `OWNER_INDEX`; `api_reader` never does.
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
        random: Random | None = None,
    ) -> None:
        self._client = client
        self._api_reader = api_reader
        self._registrar = Registrar(client, actions)
        self._excluded = config.exclude_label_prefixes
        self._events = events
        self._now = now
        self._random = random or Random()
        self._memories: dict[NamespacedName, _Memory] = {}

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self._client.find(EphemeralRunnerSet, key)
        if found is None:
            self._memories.pop(key, None)
            return Result()
        memory = self._memory_of(found)

        wait = memory.begin_pass(found, _loop_time())
        if wait > 0:
            return Result(requeue_after=wait)

        try:
            return await self._reconcile(LazyCopy(found), memory)
        except (InputError, ActionsError) as error:
            trouble = trouble_of(error)
            if trouble is None:
                raise
            self._events.event(found, "Warning", trouble.reason, trouble.message)
            if not trouble.by_hand:
                raise
            return Result(requeue_after=REPAIRED_BY_HAND)

    async def _reconcile(self, runner_set: LazyCopy[EphemeralRunnerSet], memory: _Memory) -> Result:
        obj = runner_set.obj
        runners = await self._runners(obj, memory)

        if obj.is_being_deleted:
            return await self._finalize(runner_set, runners, memory)

        if add_finalizers(runner_set, Finalizer.EPHEMERAL_RUNNER_SET):
            await runner_set.patch(self._client)

        if obj.spec.actionable_revision > obj.status.applied_actionable_revision:
            return await self._advance(runner_set, runners, memory)

        if runners.outdated or obj.status.phase == SetPhase.OUTDATED:
            return await self._park(runner_set, runners, memory)

        await self._keep_proxy_secret(runner_set, memory)

        if runners.stale_outdated:
            memory.expectations.reopen()
            raise_first(await self._remove(runners.stale_outdated, memory))
            return await self._finish(runner_set, memory)

        failed = [runner for runner in runners.failed if self._is_due(runner)]
        if failed:
            memory.expectations.reopen()
            raise_first(await self._remove(failed, memory))
            self._tell(obj, "FailedRunnersRetried", f"Removed {len(failed)} failed runners")
            return await self._finish(runner_set, memory)

        request = Request.of(obj)
        newest = runners.newest_patch_id(obj.spec.actionable_revision)
        if not memory.expectations.may_act(request, newest):
            return await self._finish(runner_set, memory, runners=runners)

        if runners.finished:
            await self._record_cleanup(obj)
            raise_first(await self._remove(runners.finished, memory))
            return await self._finish(runner_set, memory)

        return await self._scale(runner_set, runners, memory)

    # --- rows -------------------------------------------------------------------------------------

    async def _finalize(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        """Deleting: runners (busy ones get to finish), proxy secret, finalizer."""
        obj = runner_set.obj
        if Finalizer.EPHEMERAL_RUNNER_SET not in obj.metadata.finalizers:
            return Result()

        results = await self._remove([*runners.over, *runners.idle], memory)
        raise_first(results)
        if runners.count:
            phase = obj.status.phase or SetPhase.RUNNING
            return _sooner(
                Result(requeue_after=await self._write_status(runner_set, runners, phase, memory)),
                _again_if_busy(results),
            )

        if await runners_of(self._api_reader, obj):
            return Result(requeue_after=STALE_CACHE_RETRY)

        if obj.spec.ephemeral_runner_spec.proxy is not None:
            await self._delete_proxy_secret(obj)
        remove_finalizers(runner_set, Finalizer.EPHEMERAL_RUNNER_SET)
        await runner_set.patch(self._client)
        return Result()

    async def _advance(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        """Revision ahead: let go of what the old spec made, and only then record the revision."""
        obj = runner_set.obj
        revision = obj.spec.actionable_revision
        # A cached set may lag: what was built from this very revision is here to stay.
        old = [runner for runner in runners.idle if revision_of(runner) < revision]
        results = await self._remove([*runners.over, *old], memory)
        raise_first(results)
        memory.proxy_checked = None
        if obj.spec.ephemeral_runner_spec.proxy is None:
            await self._delete_proxy_secret(obj)
        await self._keep_proxy_secret(runner_set, memory)
        memory.expectations.reopen()
        if await patch_applied_actionable_revision_status(
            self._client, self._api_reader, obj.key, revision
        ):
            self._tell(
                obj,
                "RevisionApplied",
                f"Revision {revision} of the runner spec is in use; "
                f"{results.count(True)} runners of earlier ones were removed, busy ones finish",
            )
        return Result()

    async def _park(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        """Outdated: clean up, do nothing else.

        The runners that were refused stay: they are the evidence from which the phase is derived,
        and removing them would only make others that are refused, too.
        """
        refused = "The service refuses the runners' version as too old; nothing is created until "
        advice = "the runner spec changes: set a newer runner image in the template"
        self._trouble(runner_set, SCALING_ACTIVE, SetPhase.OUTDATED, refused + advice)
        await self._write_status(runner_set, runners, SetPhase.OUTDATED, memory)

        rest = [*runners.finished, *runners.failed, *runners.stale_outdated, *runners.idle]
        results = await self._remove(rest, memory)
        raise_first(results)
        counts = await self._finish(runner_set, memory, SetPhase.OUTDATED)
        return _sooner(counts, _again_if_busy(results))

    async def _scale(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        request = Request.of(runner_set.obj)
        lingering, linger_end = memory.expectations.lingering(_loop_time())
        missing = request.replicas - runners.total - len(runners.deleting)

        if missing > lingering:
            result = await self._scale_up(runner_set, runners, missing - lingering, memory)
            return _sooner(result, Result(requeue_after=linger_end if lingering else None))

        if request.patch_id == 0 and runners.total > request.replicas:
            return await self._scale_down(runner_set, runners, memory)

        result = await self._finish(runner_set, memory, runners=runners)
        return _sooner(result, Result(requeue_after=linger_end)) if missing > 0 else result

    async def _scale_up(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        runners: SortedRunners,
        count: int,
        memory: _Memory,
    ) -> Result:
        obj, request = runner_set.obj, Request.of(runner_set.obj)
        live = await self._api_reader.find(EphemeralRunnerSet, obj.key)
        if live is None or live.uid != obj.uid or Request.of(live) != request:
            return Result(requeue_after=STALE_CACHE_RETRY)
        if request.patch_id > 0 and (
            live.status.finished_runner_cleanup_patch_id == request.patch_id
        ):
            # The gap is ours: it was left by runners whose jobs are over.
            memory.expectations.answer(request)
            return await self._finish(runner_set, memory)

        memory.expectations.owe(request)
        names = sorted({runner_name(obj, self._random) for _ in range(count)})
        manifests = [build_runner(obj, name, self._excluded) for name in names]
        results = await each(manifests, lambda manifest: self._create(manifest, memory))
        created = sum(isinstance(result, EphemeralRunner) for result in results)
        if created:
            self._tell(obj, "ScaledUp", f"Created {created} runners, {request.replicas} are wanted")
        if runners.total + created >= request.replicas:
            memory.expectations.answer(request)
        # Otherwise places of runners that are on their way out may have to be filled later.
        result = await self._finish(runner_set, memory)
        raise_first(results)
        return result

    async def _scale_down(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        """Remove idle runners: pending before running, oldest first, registered ones only."""
        excess = runners.total - runner_set.obj.spec.replicas
        candidates = [runner for runner in runners.idle if runner.status.runner_id]
        results: list[bool | Exception] = []
        while candidates and (missing := excess - results.count(True)) > 0:
            batch, candidates = candidates[:missing], candidates[missing:]
            results += await self._remove(batch, memory)
        removed = results.count(True)
        if removed:
            self._tell(
                runner_set.obj,
                "ScaledDown",
                f"Removed {removed} idle runners, {runner_set.obj.spec.replicas} are wanted",
            )
        result = await self._finish(runner_set, memory)
        raise_first(results)
        return _sooner(result, _again_if_busy(results))

    # --- runners ----------------------------------------------------------------------------------

    async def _runners(self, obj: EphemeralRunnerSet, memory: _Memory) -> SortedRunners:
        expectations, now = memory.expectations, _loop_time()
        if expectations.must_ask(now):
            expectations.settle(await runners_of(self._api_reader, obj), now)
        cached = await self._client.list(
            EphemeralRunner, namespace=obj.metadata.namespace, index=(OWNER_INDEX, obj.uid)
        )
        return sort_runners(
            expectations.complete(cached, now),
            obj.status.applied_actionable_revision,
            expectations.removed_uids,
        )

    async def _create(self, runner: EphemeralRunner, memory: _Memory) -> EphemeralRunner:
        name = runner.metadata.name
        memory.expectations.sent(name)
        try:
            created = await self._client.create(runner)
        except (AlreadyExists, ServerError):
            raise  # it may exist: perhaps it was our own first attempt that made it
        except ApiError:
            memory.expectations.refused(name)
            raise
        memory.expectations.created(created, _loop_time())
        return created

    async def _remove(
        self, runners: Sequence[EphemeralRunner], memory: _Memory
    ) -> list[bool | Exception]:
        """Delete runners, those that may be at work only after they are unregistered.

        True for each that was deleted, False for one that turned out to run a job.
        """

        async def remove(runner: EphemeralRunner) -> bool:
            status, version = runner.status, ""
            if (status.runner_id and not status.is_done) or status.phase == Phase.RUNNING:
                try:
                    await self._registrar.unregister(runner)
                except JobStillRunning:
                    return False
            elif not status.is_done:
                # Not registered as far as we know: not if it has changed since.
                version = runner.metadata.resource_version
            await self._client.delete(
                EphemeralRunner, runner.key, uid=runner.uid, resource_version=version
            )
            memory.expectations.removed(runner.uid)
            return True

        return await each(runners, remove)

    def _is_due(self, runner: EphemeralRunner) -> bool:
        return self._now() - _failed_since(runner) >= FAILED_RETRY

    async def _record_cleanup(self, obj: EphemeralRunnerSet) -> None:
        """Remember that the gap which finished runners leave belongs to this request.

        An equality test, not a maximum: patch ids start again with each listener.
        """
        for attempt in range(MARKER_ATTEMPTS):
            live = await self._api_reader.find(EphemeralRunnerSet, obj.key)
            if live is None or live.uid != obj.uid:
                return
            if live.status.finished_runner_cleanup_patch_id == obj.spec.patch_id:
                return
            runner_set = LazyCopy(live)
            runner_set.mutate().status.finished_runner_cleanup_patch_id = obj.spec.patch_id
            try:
                await runner_set.patch_status(self._client)
                return
            except Conflict:
                if attempt == MARKER_ATTEMPTS - 1:
                    raise

    # --- proxy secret -----------------------------------------------------------------------------

    async def _keep_proxy_secret(
        self, runner_set: LazyCopy[EphemeralRunnerSet], memory: _Memory
    ) -> None:
        """Create or repair it, at most once in `PROXY_CHECK` seconds. Raises `InputError`."""
        obj, now = runner_set.obj, _loop_time()
        proxy = obj.spec.ephemeral_runner_spec.proxy
        if proxy is None:
            return
        if memory.proxy_checked is not None and now - memory.proxy_checked < PROXY_CHECK:
            return
        try:
            environment = await proxy_environment(self._client, proxy, obj.metadata.namespace)
            await self._write_proxy_secret(obj, environment)
        except InputError as error:
            self._trouble(runner_set, PROXY_READY, error.reason, str(error))
            await runner_set.patch_status(self._client)
            raise
        self._recovered(runner_set, PROXY_READY, "The runners' proxy settings are in place")
        await runner_set.patch_status(self._client)
        memory.proxy_checked = now

    async def _write_proxy_secret(
        self, obj: EphemeralRunnerSet, environment: dict[str, str]
    ) -> None:
        wanted = build_proxy_secret(obj, environment, self._excluded)
        existing = await self._client.find(Secret, wanted.key)
        if existing is None:
            await self._client.create(wanted)
            return
        if is_foreign(existing, obj):
            raise InputError(
                "ProxySecretTaken", f"secret {wanted.key} is needed and belongs to something else"
            )
        secret = LazyCopy(existing)
        if existing.data != wanted.data:
            secret.mutate().data = wanted.data
        if not same_metadata(existing.metadata, wanted.metadata):
            set_metadata(secret, wanted.metadata)
        await secret.patch(self._client)

    async def _delete_proxy_secret(self, obj: EphemeralRunnerSet) -> None:
        existing = await self._client.find(Secret, proxy_secret_key(obj))
        if existing is not None and not is_foreign(existing, obj):
            await self._client.delete(Secret, existing.key, uid=existing.uid)

    # --- status -----------------------------------------------------------------------------------

    async def _finish(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        memory: _Memory,
        phase: str = SetPhase.RUNNING,
        runners: SortedRunners | None = None,
    ) -> Result:
        """The end of a pass: count what there is now, and say when to look again.

        `runners` are given by a pass that changed none of them.
        """
        if runners is None:
            runners = await self._runners(runner_set.obj, memory)
        self._note_health(runner_set, runners)
        if phase == SetPhase.RUNNING:
            self._recovered(runner_set, SCALING_ACTIVE, "Runners are created as jobs need them")
        wait = await self._write_status(runner_set, runners, phase, memory)
        due = [_failed_since(r) + FAILED_RETRY - self._now() for r in runners.failed]
        soonest = min((left.total_seconds() for left in due), default=None)
        if soonest is not None:
            wait = min(max(soonest, PACE), wait if wait is not None else soonest + 1)
        return Result(requeue_after=wait)

    async def _write_status(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        runners: SortedRunners,
        phase: str,
        memory: _Memory,
    ) -> float | None:
        """One patch if something changed; the seconds to wait if it is too early for that."""
        old, now = runner_set.obj.status, _loop_time()
        counts = (
            runners.total,
            len(runners.pending),
            len(runners.running),
            len(runners.failed),
        )
        same_counts = counts == (
            old.current_replicas,
            old.pending_ephemeral_runners,
            old.running_ephemeral_runners,
            old.failed_ephemeral_runners,
        )
        only_counts = phase == old.phase and not runner_set.is_mutated
        if only_counts and same_counts:
            return None
        if only_counts and memory.status_written is not None:
            left = memory.status_written + STATUS_PACE - now
            if left > 0:
                return left

        status = runner_set.mutate().status
        status.current_replicas = counts[0]
        status.pending_ephemeral_runners = counts[1]
        status.running_ephemeral_runners = counts[2]
        status.failed_ephemeral_runners = counts[3]
        status.phase = phase
        # Counts are true of the runners, whatever the listener has done to the spec meanwhile, and
        # it does so all the time: they need no lock. The phase was judged by the set's revision.
        await runner_set.patch_status(self._client, lock=not only_counts)
        memory.status_written = now
        return None

    def _note_health(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners
    ) -> None:
        if not runners.failed:
            self._recovered(runner_set, RUNNERS_HEALTHY, "No runner has failed")
            return
        status = runners.failed[-1].status
        minutes = int(FAILED_RETRY.total_seconds() // 60)
        message = (
            f"Failed runners take up replicas and are retried after {minutes} minutes; "
            f"the newest says: {status.reason or Phase.FAILED}: {status.message}"
        )
        self._trouble(runner_set, RUNNERS_HEALTHY, "FailedRunners", message)

    def _trouble(
        self, runner_set: LazyCopy[EphemeralRunnerSet], type_: str, reason: str, message: str
    ) -> None:
        """A condition for the next status patch and, at a turning point, an Event."""
        if put_condition(runner_set, type_, False, reason, message, now=self._now()):
            self._events.event(runner_set.obj, "Warning", reason, message)

    def _recovered(
        self, runner_set: LazyCopy[EphemeralRunnerSet], type_: str, message: str
    ) -> None:
        """Take a trouble back. Where there was none, no condition says so."""
        condition = find_condition(runner_set.obj.status.conditions, type_)
        if condition is not None and condition.status == "False":
            put_condition(runner_set, type_, True, type_, message, now=self._now())
            self._tell(runner_set.obj, type_, message)

    def _tell(self, obj: EphemeralRunnerSet, reason: str, message: str) -> None:
        self._events.event(obj, "Normal", reason, message)

    def _memory_of(self, obj: EphemeralRunnerSet) -> _Memory:
        memory = self._memories.get(obj.key)
        if memory is None or memory.uid != obj.uid:
            memory = self._memories[obj.key] = _Memory(obj.uid)
        return memory


class _Memory:
    """What a pass knows of earlier passes over the same set. Times are the loop's."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.expectations = Expectations()
        self.status_written: float | None = None
        self.proxy_checked: float | None = None
        self._pass: float | None = None
        self._state: tuple[int, datetime | None] | None = None

    def begin_pass(self, obj: EphemeralRunnerSet, now: float) -> float:
        """0 to go on; else the seconds to wait, since a pass began a moment ago."""
        state = (obj.metadata.generation, obj.metadata.deletion_timestamp)
        if self._pass is not None and state == self._state:
            left = self._pass + PACE - now
            if left > 0:
                return left
        self._pass, self._state = now, state
        return 0.0


def add_to_manager(
    manager: Manager, config: ControllerConfig, actions: RunnerClients
) -> Controller:
    """Reconcile EphemeralRunnerSets in this manager."""
    manager.cache.add_index(EphemeralRunner, OWNER_INDEX, _owner_uid)
    reconciler = EphemeralRunnerSetReconciler(
        manager.client,
        manager.api_reader,
        actions,
        config=config,
        events=manager.events,
        now=manager.now,
        random=manager.random,
    )
    return (
        ControllerBuilder(manager)
        .named("ephemeralrunnerset")
        .for_(EphemeralRunnerSet)
        .owns(EphemeralRunner, predicates=[_matters_to_the_set])
        .with_options(
            max_concurrent_reconciles=config.max_concurrent_sets, sync_period=config.sync_period
        )
        .build(reconciler)
    )


def _owner_uid(runner: EphemeralRunner) -> Iterable[str]:
    owner = controller_of(runner)
    return (owner.uid,) if owner is not None else ()


def _sorted_by(runner: EphemeralRunner) -> tuple[object, ...]:
    status = runner.status
    deleting = runner.is_being_deleted
    return status.phase, status.runner_id, status.has_job, deleting, runner.metadata.annotations


_matters_to_the_set = Predicate[EphemeralRunner](
    update=lambda old, new: _sorted_by(old) != _sorted_by(new)
)


def _failed_since(runner: EphemeralRunner) -> datetime:
    """When a runner failed: what its condition says, else no later than any trace it left."""
    times = [condition.last_transition_time for condition in runner.status.conditions]
    known = [*runner.status.failures.values(), runner.metadata.creation_timestamp, *times]
    return max((time for time in known if time is not None), default=_LONG_AGO)


def _again_if_busy(results: Sequence[object]) -> Result:
    return Result(requeue_after=BUSY_RETRY if False in results else None)


def _sooner(first: Result, second: Result) -> Result:
    waits = [r.requeue_after for r in (first, second) if r.requeue_after is not None]
    return Result(requeue_after=min(waits, default=None))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
