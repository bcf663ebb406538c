"""The EphemeralRunnerSet controller: as many runners as the listener asks for.

The listener patches the spec all the time, so this controller never writes the spec, and metadata
only for its finalizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import structlog

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSet,
    Finalizer,
    Phase,
    SetPhase,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.expectations import Expectations, Request
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.orphans import remaining_runners
from arc_controller.controllers.revision import (
    patch_applied_actionable_revision_status,
    patch_finished_runner_cleanup_status,
    runners_of,
)
from arc_controller.controllers.runner_fanout import each, raise_first
from arc_controller.controllers.runner_registration import Registrar, RunnerClients
from arc_controller.controllers.runner_set_proxy import delete_proxy_secret, write_proxy_secret
from arc_controller.controllers.runner_set_status import (
    FAILED_RETRY,
    RunnerSetStatus,
    StatusPace,
    failed_since,
)
from arc_controller.controllers.runner_sorting import SortedRunners, revision_of, sort_runners
from arc_controller.controllers.runner_template import (
    build_runner,
    runner_name,
)
from arc_controller.controllers.trouble import is_hopeless, trouble_of
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    ServerError,
)
from arc_controller.runtime.events import EventRecorder
from arc_controller.runtime.finalizers import add_finalizers, remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ownership import controller_of
from arc_controller.runtime.predicates import Predicate

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager

log = structlog.get_logger(__name__)

OWNER_INDEX: Final = "owner"
"""The field index of runners by the uid of the set that controls them."""

PACE: Final = 0.1
PACE_EACH: Final = 0.0003
"""Seconds between two passes over a set that asks for nothing more, and so many for each of its
runners: a burst of events is one, and large sets take no larger share of the time."""
MOST_AT_A_TIME: Final = 1000
"""Runners that one pass creates; before the next ones it looks whether they are still wanted."""
BUSY_RETRY: Final = 30.0
STALE_CACHE_RETRY: Final = 1.0
PROXY_CHECK: Final = 60.0
"""How long a proxy secret that was changed by others, or whose credentials rotated, may stay."""

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
        self._status = RunnerSetStatus(client, events, now)
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
            return Result(requeue_after=trouble.retry)

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
        memory.expectations.see(request)
        newest = runners.newest_patch_id(obj.spec.actionable_revision)
        if not memory.expectations.may_act(request, newest):
            return await self._finish(runner_set, memory, runners=runners)

        if runners.finished:
            await patch_finished_runner_cleanup_status(
                self._client, self._api_reader, obj, obj.spec.patch_id
            )
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

        results = await self._remove([*runners.over, *runners.idle], memory, last_of=obj)
        raise_first(results)
        if runners.count:
            phase = obj.status.phase or SetPhase.RUNNING
            counts = await self._finish(runner_set, memory, phase, runners)
            return _sooner(counts, _again_if_busy(results))

        if await remaining_runners(self._client, self._api_reader, obj):
            return Result(requeue_after=STALE_CACHE_RETRY)

        if obj.spec.ephemeral_runner_spec.proxy is not None:
            try:
                await delete_proxy_secret(self._client, obj)
            except Forbidden as error:
                # A namespace that is deleted takes our permissions in it along, and the secret too.
                log.info("cannot delete a proxy secret", runner_set=str(obj.key), reason=str(error))
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
            await delete_proxy_secret(self._client, obj)
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
        await self._status.write(runner_set, runners, SetPhase.OUTDATED, memory.status)
        rest = [*runners.finished, *runners.failed, *runners.stale_outdated, *runners.idle]
        if rest and await self._live(runner_set.obj) is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
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

        if missing > lingering and not memory.expectations.knows_all:
            memory.expectations.adopt(
                await runners_of(self._api_reader, runner_set.obj), _loop_time()
            )
            if runner_set.obj.status.phase:  # somebody has acted on it before
                memory.expectations.inherit(missing, request, _loop_time())
            return await self._scale(
                runner_set, await self._runners(runner_set.obj, memory), memory
            )

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
        live = await self._live(obj)
        if live is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
        if request.patch_id > 0 and (
            live.status.finished_runner_cleanup_patch_id == request.patch_id
        ):
            # The gap is ours: it was left by runners whose jobs are over.
            memory.expectations.answer(request)
            return await self._finish(runner_set, memory)

        memory.expectations.owe(request)
        names = {runner_name(obj, self._random) for _ in range(min(count, MOST_AT_A_TIME))}
        manifests = [build_runner(obj, name, self._excluded) for name in sorted(names)]
        results = await each(manifests, lambda manifest: self._create(manifest, memory))
        created = sum(isinstance(result, EphemeralRunner) for result in results)
        if created:
            self._tell(obj, "ScaledUp", f"Created {created} runners, {request.replicas} are wanted")
        if runners.total + created >= request.replicas:
            memory.expectations.answer(request)
        # Otherwise places of runners that are on their way out may have to be filled later.
        result = await self._finish(runner_set, memory)
        raise_first(results)
        return _sooner(result, Result(requeue_after=PACE if count > MOST_AT_A_TIME else None))

    async def _scale_down(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: _Memory
    ) -> Result:
        """Remove idle runners: pending before running, oldest first, registered ones only."""
        if await self._live(runner_set.obj) is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
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

    async def _live(self, obj: EphemeralRunnerSet) -> EphemeralRunnerSet | None:
        """The set as the server has it; None if it asks for something else than the cached one.

        A cache may be hours late, that of a new leader most of all, and neither creating nor
        removing runners can be taken back.
        """
        live = await self._api_reader.find(EphemeralRunnerSet, obj.key)
        if live is None or live.uid != obj.uid or Request.of(live) != Request.of(obj):
            return None
        return live

    # --- runners ----------------------------------------------------------------------------------

    async def _runners(self, obj: EphemeralRunnerSet, memory: _Memory) -> SortedRunners:
        expectations, now = memory.expectations, _loop_time()
        if expectations.must_ask(now):
            expectations.settle(await runners_of(self._api_reader, obj), now)
        cached = await self._client.list(
            EphemeralRunner, namespace=obj.metadata.namespace, index=(OWNER_INDEX, obj.uid)
        )
        memory.count = len(cached)
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
        self,
        runners: Sequence[EphemeralRunner],
        memory: _Memory,
        last_of: EphemeralRunnerSet | None = None,
    ) -> list[bool | Exception]:
        """Delete runners, those that may be at work only after they are unregistered.

        True for each that was deleted, False for one that turned out to run a job. Of a set that is
        being deleted (`last_of`) they are not kept for ever when nobody may ask the service.
        """

        async def remove(runner: EphemeralRunner) -> bool:
            status, version = runner.status, ""
            if (status.runner_id and not status.is_done) or status.phase == Phase.RUNNING:
                try:
                    await self._registrar.unregister(runner)
                except JobStillRunning:
                    return False
                except (InputError, ActionsError, Forbidden) as error:
                    if last_of is None or not is_hopeless(error, last_of, self._now()):
                        raise
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
        return self._now() - failed_since(runner) >= FAILED_RETRY

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
            await write_proxy_secret(self._client, obj, proxy, self._excluded)
        except InputError as error:
            self._status.trouble(runner_set, PROXY_READY, error.reason, str(error))
            await runner_set.patch_status(self._client)
            raise
        self._status.recovered(runner_set, PROXY_READY, "The runners' proxy settings are in place")
        await runner_set.patch_status(self._client)
        memory.proxy_checked = now

    # --- the end of a pass ------------------------------------------------------------------------

    async def _finish(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        memory: _Memory,
        phase: str = SetPhase.RUNNING,
        runners: SortedRunners | None = None,
    ) -> Result:
        """Count what there is now, and say when to look again.

        `runners` are given by a pass that changed none of them.
        """
        if runners is None:
            runners = await self._runners(runner_set.obj, memory)
        wait = await self._status.write(runner_set, runners, phase, memory.status)
        due = [failed_since(r) + FAILED_RETRY - self._now() for r in runners.failed]
        retry = min((max(left.total_seconds(), PACE) for left in due), default=None)
        return _sooner(Result(requeue_after=wait), Result(requeue_after=retry))

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
        self.status = StatusPace()
        self.proxy_checked: float | None = None
        self.count = 0
        self._pass: float | None = None
        self._replicas = 0
        self._state: tuple[object, ...] = ()

    def begin_pass(self, obj: EphemeralRunnerSet, now: float) -> float:
        """0 to go on; else the seconds to wait, since a pass began a moment ago.

        More runners, another spec of them, "force this state" and the end of the set never wait.
        """
        spec = obj.spec
        state = (spec.actionable_revision, spec.patch_id == 0, obj.metadata.deletion_timestamp)
        if self._pass is not None and state == self._state and spec.replicas <= self._replicas:
            left = self._pass + max(PACE, PACE_EACH * self.count) - now
            if left > 0:
                return left
        self._pass, self._state, self._replicas = now, state, spec.replicas
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
            max_concurrent_reconciles=config.max_concurrent_sets,
            rate_limiter=config.new_rate_limiter(),
            expected_errors=(ActionsError, InputError),
            sync_period=config.sync_period,
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


def _again_if_busy(results: Sequence[object]) -> Result:
    return Result(requeue_after=BUSY_RETRY if False in results else None)


def _sooner(first: Result, second: Result) -> Result:
    waits = [r.requeue_after for r in (first, second) if r.requeue_after is not None]
    return Result(requeue_after=min(waits, default=None))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
