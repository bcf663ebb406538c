"""The EphemeralRunnerSet controller: as many runners as the listener asks for.

The listener patches the spec all the time, so this controller never writes the spec, and metadata
only for its finalizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import structlog

from arc_controller.actions import ActionsError
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSet,
    Finalizer,
    SetPhase,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.expectations import Request
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.orphans import adopt_runners, any_remain
from arc_controller.controllers.revision import (
    patch_applied_actionable_revision_status,
    patch_finished_runner_cleanup_status,
)
from arc_controller.controllers.runner_fanout import AT_ONCE, raise_first
from arc_controller.controllers.runner_registration import Registrar, RunnerClients
from arc_controller.controllers.runner_set_members import OWNER_INDEX, Members, owner_uid
from arc_controller.controllers.runner_set_memory import PACE, Memories, Memory
from arc_controller.controllers.runner_set_proxy import ProxySecrets, delete_proxy_secret
from arc_controller.controllers.runner_set_status import (
    FAILED_RETRY,
    RunnerSetStatus,
    complaints,
    failed_since,
)
from arc_controller.controllers.runner_sorting import SortedRunners, revision_of
from arc_controller.controllers.runner_template import (
    build_runner,
    runner_name,
)
from arc_controller.controllers.trouble import trouble_of
from arc_controller.controllers.turnstile import WORKERS_PER_PLACE, Turnstile
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, loop_time, utc_now
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.errors import (
    Forbidden,
)
from arc_controller.runtime.events import EventRecorder
from arc_controller.runtime.finalizers import add_finalizers, remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.predicates import Predicate

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager

log = structlog.get_logger(__name__)

MOST_AT_A_TIME: Final = 1000
"""Runners that one pass creates; before the next ones it looks whether they are still wanted."""
BUSY_RETRY: Final = 30.0
STALE_CACHE_RETRY: Final = 1.0


class EphemeralRunnerSetReconciler:
    """Creates, removes and counts the runners of a set.

    `client` reads sets and runners from a cache that has the index `OWNER_INDEX`; `api_reader`
    never does.
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
        # One pass asks for many runners at once, with one worker.
        registrar = Registrar(client, actions, Turnstile(AT_ONCE))
        turnstile = Turnstile(config.max_concurrent_sets // WORKERS_PER_PLACE)
        self._members = Members(client, api_reader, registrar, turnstile, now=now)
        self._excluded = config.exclude_label_prefixes
        self._events = events
        self._status = RunnerSetStatus(client, events, now)
        self._proxies = ProxySecrets(client, self._status, config.exclude_label_prefixes)
        self._now = now
        self._random = random or Random()
        self._memories = Memories()

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self._client.find(EphemeralRunnerSet, key)
        if found is None:
            self._memories.forget(key)
            return Result()
        memory = self._memories.of(found)

        wait = memory.begin_pass(found, loop_time())
        if wait > 0:
            return Result(requeue_after=wait, postponed=True)

        try:
            return await self._reconcile(LazyCopy(found), memory)
        except (InputError, ActionsError) as error:
            trouble = trouble_of(error)
            if trouble is None:
                raise
            self._events.event(found, "Warning", trouble.reason, trouble.message)
            if trouble.retry is None:
                raise
            return Result(requeue_after=trouble.retry)

    async def _reconcile(self, runner_set: LazyCopy[EphemeralRunnerSet], memory: Memory) -> Result:
        obj = runner_set.obj
        runners = await self._members.of(obj, memory)

        if obj.is_being_deleted:
            return await self._finalize(runner_set, runners, memory)

        if add_finalizers(runner_set, Finalizer.EPHEMERAL_RUNNER_SET):
            await runner_set.patch(self._client)

        if obj.spec.actionable_revision > obj.status.applied_actionable_revision:
            return await self._advance(runner_set, runners, memory)

        if runners.outdated or obj.status.phase == SetPhase.OUTDATED:
            return await self._park(runner_set, runners, memory)

        await self._proxies.keep(runner_set, memory)

        if runners.stale_outdated:
            memory.expectations.reopen()
            raise_first(await self._members.remove(runners.stale_outdated, memory))
            return await self._finish(runner_set, memory)

        failed = [runner for runner in runners.failed if self._is_due(runner)]
        if failed:
            memory.expectations.reopen()
            raise_first(await self._members.remove(failed, memory))
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
            raise_first(await self._members.remove(runners.finished, memory))
            return await self._finish(runner_set, memory)

        return await self._scale(runner_set, runners, memory)

    # --- rows -------------------------------------------------------------------------------------

    async def _finalize(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: Memory
    ) -> Result:
        """Deleting: runners (busy ones get to finish), proxy secret, finalizer."""
        obj = runner_set.obj
        if Finalizer.EPHEMERAL_RUNNER_SET not in obj.metadata.finalizers:
            return Result()

        if await adopt_runners(self._client, self._client, obj):
            return Result(requeue_after=STALE_CACHE_RETRY)

        results = await self._members.remove([*runners.over, *runners.idle], memory, last_of=obj)
        raise_first(results)
        if runners.count:
            phase = obj.status.phase or SetPhase.RUNNING
            counts = await self._finish(runner_set, memory, phase, runners)
            return _sooner(counts, _again_if_busy(results))

        if await any_remain(self._client, self._api_reader, obj):
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
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: Memory
    ) -> Result:
        """Revision ahead: let go of what the old spec made, and only then record the revision."""
        obj = runner_set.obj
        revision = obj.spec.actionable_revision
        # A cached set may lag: what was built from this very revision is here to stay.
        old = [runner for runner in runners.idle if revision_of(runner) < revision]
        results = await self._members.remove([*runners.over, *old], memory)
        raise_first(results)
        memory.proxy_checked = None
        if obj.spec.ephemeral_runner_spec.proxy is None:
            await delete_proxy_secret(self._client, obj)
        await self._proxies.keep(runner_set, memory)
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
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: Memory
    ) -> Result:
        """Outdated: clean up, do nothing else.

        The runners that were refused stay: they are the evidence from which the phase is derived,
        and removing them would only make others that are refused, too.
        """
        await self._status.write(runner_set, runners, SetPhase.OUTDATED, memory.status)
        rest = [*runners.finished, *runners.failed, *runners.stale_outdated, *runners.idle]
        if rest and await self._members.live(runner_set.obj) is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
        results = await self._members.remove(rest, memory)
        raise_first(results)
        counts = await self._finish(runner_set, memory, SetPhase.OUTDATED)
        return _sooner(counts, _again_if_busy(results))

    async def _scale(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: Memory
    ) -> Result:
        request = Request.of(runner_set.obj)
        lingering, linger_end = memory.expectations.lingering(loop_time())
        missing = request.replicas - runners.total - len(runners.deleting)

        if missing <= 0:
            memory.refusals.over()
        wait = memory.refusals.wait(runner_set.obj, memory.count, loop_time())
        if wait > 0:
            result = await self._finish(runner_set, memory, runners=runners)
            return _sooner(result, Result(requeue_after=wait))

        if missing > lingering and not memory.expectations.knows_all:
            await self._members.adopt(runner_set.obj, missing, memory)
            return await self._scale(
                runner_set, await self._members.of(runner_set.obj, memory), memory
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
        memory: Memory,
    ) -> Result:
        obj, request = runner_set.obj, Request.of(runner_set.obj)
        live = await self._members.live(obj)
        if live is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
        if request.patch_id > 0 and (
            live.status.finished_runner_cleanup_patch_id == request.patch_id
        ):
            # The gap is ours: it was left by runners whose jobs are over.
            memory.expectations.answer(request)
            return await self._finish(runner_set, memory)

        memory.expectations.owe(request)
        # After a refusal one shows whether there is any point in more.
        now = 1 if memory.refusals.trouble is not None else min(count, MOST_AT_A_TIME)
        names = {runner_name(obj, self._random) for _ in range(now)}
        manifests = [build_runner(obj, name, self._excluded) for name in sorted(names)]
        results, wait = await self._members.create(obj, manifests, memory)
        created = sum(isinstance(result, EphemeralRunner) for result in results)
        if created:
            self._tell(obj, "ScaledUp", f"Created {created} runners, {request.replicas} are wanted")
        if runners.total + created >= request.replicas:
            memory.expectations.answer(request)
        # Otherwise places of runners that are on their way out may have to be filled later.
        result = await self._finish(runner_set, memory)
        if wait:
            return _sooner(result, Result(requeue_after=wait))
        raise_first(results)
        return _sooner(result, Result(requeue_after=PACE if count > now else None))

    async def _scale_down(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners, memory: Memory
    ) -> Result:
        """Remove idle runners: pending before running, oldest first, registered ones only."""
        if await self._members.live(runner_set.obj) is None:
            return Result(requeue_after=STALE_CACHE_RETRY)
        excess = runners.total - runner_set.obj.spec.replicas
        candidates = [runner for runner in runners.idle if runner.status.runner_id]
        results: list[bool | Exception] = []
        while candidates and (missing := excess - results.count(True)) > 0:
            batch, candidates = candidates[:missing], candidates[missing:]
            results += await self._members.remove(batch, memory)
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

    def _is_due(self, runner: EphemeralRunner) -> bool:
        return self._now() - failed_since(runner) >= FAILED_RETRY

    # --- the end of a pass ------------------------------------------------------------------------

    async def _finish(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        memory: Memory,
        phase: str = SetPhase.RUNNING,
        runners: SortedRunners | None = None,
    ) -> Result:
        """Count what there is now, and say when to look again.

        `runners` are given by a pass that changed none of them.
        """
        if runners is None:
            runners = await self._members.of(runner_set.obj, memory)
        wait = await self._status.write(
            runner_set, runners, phase, memory.status, memory.refusals.trouble
        )
        due = [failed_since(r) + FAILED_RETRY - self._now() for r in runners.failed]
        retry = min((max(left.total_seconds(), PACE) for left in due), default=None)
        return _sooner(Result(requeue_after=wait), Result(requeue_after=retry))

    def _tell(self, obj: EphemeralRunnerSet, reason: str, message: str) -> None:
        self._events.event(obj, "Normal", reason, message)


def add_to_manager(
    manager: Manager, config: ControllerConfig, actions: RunnerClients
) -> Controller:
    """Reconcile EphemeralRunnerSets in this manager."""
    manager.cache.add_index(EphemeralRunner, OWNER_INDEX, owner_uid)
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


def _sorted_by(runner: EphemeralRunner) -> tuple[object, ...]:
    status = runner.status
    deleting = runner.is_being_deleted
    owner = owner_uid(runner)
    return (
        status.phase,
        status.runner_id,
        status.has_job,
        deleting,
        owner,
        runner.metadata.annotations,
        complaints(runner),
    )


_matters_to_the_set = Predicate[EphemeralRunner](
    update=lambda old, new: _sorted_by(old) != _sorted_by(new)
)


def _again_if_busy(results: Sequence[object]) -> Result:
    return Result(requeue_after=BUSY_RETRY if False in results else None)


def _sooner(first: Result, second: Result) -> Result:
    waits = [r.requeue_after for r in (first, second) if r.requeue_after is not None]
    return Result(requeue_after=min(waits, default=None))
