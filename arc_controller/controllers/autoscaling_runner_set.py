"""The AutoscalingRunnerSet controller: one scale set at the service, one set of runners, one
listener. The rows are those of design 02."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from cachetools import TTLCache

from arc_controller.actions import ActionsError
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    EphemeralRunnerSetStatus,
    Finalizer,
    Label,
    SetPhase,
)
from arc_controller.controllers.conditions import (
    READY,
    REGISTERED,
    SCALE_SET_FOUND,
    VERSION_MATCHES,
    put_condition,
)
from arc_controller.controllers.context import Context
from arc_controller.controllers.indexes import (
    LISTENERS_OF_SCALE_SET,
    SAME_REGISTRATION,
    registration_of,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.listener_state import STARTING
from arc_controller.controllers.runner_set_status import runners_in_trouble
from arc_controller.controllers.scale_set import (
    limits_in_words,
    new_ephemeral_runner_set,
    registered_name,
    scale_set_id,
    validate,
)
from arc_controller.controllers.scale_set_departure import Departures, departed
from arc_controller.controllers.scale_set_parts import Parts
from arc_controller.controllers.scale_set_registration import (
    Registration,
    is_recorded,
    record,
    register,
)
from arc_controller.controllers.scale_set_removal import Removal
from arc_controller.controllers.scale_set_status import (
    ScaleSet,
    has_counts,
    is_seen,
    is_verified,
    show,
)
from arc_controller.controllers.scale_set_version import version_complaint
from arc_controller.controllers.trouble import trouble_of
from arc_controller.controllers.turnstile import place_of
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import ApiError, Conflict
from arc_controller.runtime.events import EventType
from arc_controller.runtime.finalizers import add_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName, find_condition

log = structlog.get_logger(__name__)

COUNTS_EVERY = 1.0
"""Seconds between two writes of counts alone: under load they change with every runner."""
ASK_EVERY = 60.0
"""Seconds between two questions to the service about a scale set that one listener lost."""


LOOK_UP_EVERY = 1.0
SAY_AFTER = 3.0
"""Seconds without an answer of the service after which the user is told whom we wait for."""
CHANGED_PATIENCE, DELETED_PATIENCE = 5.0, 30.0
"""Seconds that the calls for a spec that has changed meanwhile may take, and those for an object
that is being deleted: an answer that is not waited for may be a scale set that nobody removes."""

T = TypeVar("T")


class Superseded(Exception):
    """The calls were made for a spec that is no longer so."""


class AutoscalingRunnerSetReconciler:
    """Keeps the scale set registered, its runner set as the spec says, and its listener up."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._removal = Removal(context)
        self._departures = Departures(context)
        self._parts = Parts(context)
        self._counted: TTLCache[NamespacedName, float] = TTLCache(
            4096, COUNTS_EVERY, timer=loop_time
        )
        self._asked: TTLCache[str, bool] = TTLCache(4096, ASK_EVERY, timer=loop_time)

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self._client.find(AutoscalingRunnerSet, key)
        if found is None:
            self._context.metrics.forget_scale_set(key)
            return Result()
        scale_set = LazyCopy(found)

        if found.is_being_deleted:
            return await self._removal.remove(scale_set)

        self._judge_version(scale_set)

        if add_finalizers(scale_set, Finalizer.AUTOSCALING_RUNNER_SET):
            await scale_set.patch(self._client)

        try:
            return await self._advance(scale_set)
        except Superseded:
            return Result()  # what has changed it brings us here again
        except (InputError, ActionsError, ApiError) as error:
            return await self._explain(scale_set, error)

    async def _advance(self, scale_set: ScaleSet) -> Result:
        validate(scale_set.obj)
        runner_set = await self._parts.runner_set(scale_set.obj)
        listeners = await self._client.list(
            AutoscalingListener, index=(LISTENERS_OF_SCALE_SET, str(scale_set.obj.key))
        )

        if runner_set is not None and self._is_parked(scale_set.obj, runner_set):
            return await self._park(scale_set, runner_set, listeners)

        moves = runner_set is not None and await self._departures.note(scale_set, runner_set)
        if not is_seen(scale_set.obj):
            show(scale_set, SetPhase.PENDING)
            self._ready(scale_set, False, "Pending", "the spec is new; bringing things up to date")
            await scale_set.patch_status(self._client)

        if not is_verified(scale_set.obj):
            await self._yield_to_rival(scale_set.obj)
        is_lost = moves or self._is_lost(scale_set.obj, listeners)
        if is_lost or not is_recorded(scale_set.obj):
            await self._register(scale_set)
            self._asked.update({listener.uid: True for listener in listeners})

        await self._parts.remove_other_runner_sets(scale_set.obj)
        if runner_set is not None and runner_set.is_being_deleted:
            return Result()  # its deletion ends in an event, and then there is a new one
        if runner_set is None and listeners:
            # What they asked for they asked of a set that is gone, and they do not ask again before
            # something happens.
            await self._parts.stop(listeners)
            runner_set = await self._parts.ensure_runner_set(scale_set.obj, None)
            return await self._report(scale_set, runner_set, None)
        runner_set = await self._parts.ensure_runner_set(scale_set.obj, runner_set)

        listener = await self._parts.ensure_listener(scale_set.obj, listeners)
        if not is_verified(scale_set.obj):
            # Only now: an edit of the spec shall not wait for a service that is not well.
            await self._register(scale_set)
        again = await self._departures.settle(scale_set, listeners)
        result = await self._report(scale_set, runner_set, listener)
        return result if again is None else Result(requeue_after=result.requeue_after or again)

    # Row 2: the version. What a user wrote is never deleted for it.

    def _judge_version(self, scale_set: ScaleSet) -> None:
        label = scale_set.obj.metadata.labels.get(Label.VERSION, "")
        complaint = version_complaint(label, self._context.config.version)
        if complaint:
            if self._condition(scale_set, VERSION_MATCHES, False, "OtherRelease", complaint):
                self._event(scale_set, "Warning", "OtherRelease", complaint)
        elif find_condition(scale_set.obj.status.conditions, VERSION_MATCHES):
            message = "chart and controller are of the same release"
            self._condition(scale_set, VERSION_MATCHES, True, "SameRelease", message)

    # Row 4: outdated.

    def _is_parked(self, obj: AutoscalingRunnerSet, runner_set: EphemeralRunnerSet) -> bool:
        """Whether the service refused the runners of today's spec.

        All of it is read from what is stored, so a restart changes nothing: the set is Outdated, no
        newer revision is on its way to it, and what it holds is what the spec asks for. The
        registration does not count: a new one does not make the runner image any newer.
        """
        if not _is_outdated(runner_set):
            return False
        wanted = new_ephemeral_runner_set(obj, self._context.config)
        spec = runner_set.spec
        wanted.spec.ephemeral_runner_spec.runner_scale_set_id = (
            spec.ephemeral_runner_spec.runner_scale_set_id
        )
        return self._parts.has_runner_spec(runner_set, wanted)

    async def _park(
        self,
        scale_set: ScaleSet,
        runner_set: EphemeralRunnerSet,
        listeners: Sequence[AutoscalingListener],
    ) -> Result:
        await self._parts.stop(listeners)
        if runner_set.spec.replicas or runner_set.spec.patch_id:
            # The last words of the listener may come after this; they bring us here again.
            stopped = LazyCopy(runner_set)
            spec = stopped.mutate().spec
            spec.replicas = spec.patch_id = 0
            await stopped.patch(self._client)
        message = (
            "the service refuses runners of this version; change template or "
            "ephemeralRunnerMetadata (usually: a newer runner image) and everything comes back"
        )
        if self._ready(scale_set, False, "Outdated", message):
            self._event(scale_set, "Warning", "Outdated", message)
        self._publish_metrics(scale_set.obj, runner_set.status)
        show(scale_set, SetPhase.OUTDATED, runner_set.status)
        await scale_set.patch_status(self._client)
        return Result()

    # Row 5: the scale set at the service.

    def _is_lost(self, obj: AutoscalingRunnerSet, listeners: Sequence[AutoscalingListener]) -> bool:
        """Whether a listener says that the service forgot the scale set, for the first time in a
        while."""
        lost = [each.uid for each in listeners if _lost(each, scale_set_id(obj))]
        return any(uid not in self._asked for uid in lost)

    async def _yield_to_rival(self, obj: AutoscalingRunnerSet) -> None:
        """Two objects for one scale set would take each other's jobs: the first one has it.

        Raises `InputError` for the other.
        """
        same = await self._client.list(
            AutoscalingRunnerSet, index=(SAME_REGISTRATION, registration_of(obj))
        )
        rivals = [other for other in same if other.uid != obj.uid and not other.is_being_deleted]
        for rival in rivals:
            if _precedence(rival) < _precedence(obj):
                raise InputError(
                    "NameTaken",
                    f"{rival.key} is the scale set {registered_name(obj)!r} of "
                    f"{obj.spec.github_config_url} already; "
                    "give this one another runnerScaleSetName or runnerGroup",
                )

    async def _register(self, scale_set: ScaleSet) -> None:
        obj = scale_set.obj
        client = await self._context.service.for_scale_set(obj.spec, obj.metadata.namespace)
        before = scale_set_id(obj)
        outcome = await self._patiently(scale_set, register(client, obj))

        after = Registration.wanted(obj, outcome.scale_set.id)
        await self._record(scale_set, after)

        message = f"the service has it as scale set {after.id} in runner group {after.group}"
        self._condition(scale_set, REGISTERED, True, "Registered", message)
        has_moved = any(each.id == before for each in departed(obj))
        if before and before != after.id and not has_moved:
            lost = (
                f"the service does not know scale set {before} any more; registered as {after.id}"
            )
            self._event(scale_set, "Warning", "RegisteredAgain", lost)
        elif outcome.what:
            self._event(scale_set, "Normal", outcome.what, f"{outcome.what}: {message}")
        if outcome.labels_refused:
            refused = f"the service keeps the labels it has: {outcome.labels_refused}"
            self._event(scale_set, "Warning", "LabelsRefused", refused)

    async def _patiently(self, scale_set: ScaleSet, calls: Coroutine[Any, Any, T]) -> T:
        """What `calls` to the service come to; says whom it waits for when that takes long.

        Raises `Superseded` when the object has changed meanwhile and there still is no answer.
        """
        obj, start = scale_set.obj, loop_time()
        place, host = place_of(obj.spec.github_config_url)
        asking = asyncio.ensure_future(calls)
        try:
            with self._context.turnstile.passing(place, host):
                while not (await asyncio.wait({asking}, timeout=LOOK_UP_EVERY))[0]:
                    waited = loop_time() - start
                    live = await self._client.find(AutoscalingRunnerSet, obj.key)
                    patience = _patience(obj, live)
                    if waited >= patience:
                        raise Superseded
                    if waited >= SAY_AFTER and patience == math.inf and _says_little(obj):
                        message = f"waiting for an answer of {host}"
                        self._ready(scale_set, False, "WaitingForService", message)
                        with suppress(Conflict):  # the answer still matters, see `_record`
                            await scale_set.patch_status(self._client)
                return await asking
        finally:
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _record(self, scale_set: ScaleSet, registration: Registration) -> None:
        record(scale_set, registration)
        try:
            await scale_set.patch(self._client)
        except Conflict:
            # If it is being deleted now, only this record says what to remove from the service.
            live = await self._context.live.find(AutoscalingRunnerSet, scale_set.obj.key)
            if live is not None and live.is_being_deleted and live.uid == scale_set.obj.uid:
                leaving = LazyCopy(live)
                record(leaving, registration)
                await leaving.patch(self._client)
            raise

    # Row 8: phase and counts.

    async def _report(
        self,
        scale_set: ScaleSet,
        runner_set: EphemeralRunnerSet,
        listener: AutoscalingListener | None,
    ) -> Result:
        key, turned = scale_set.obj.key, False
        ready = find_condition(listener.status.conditions, READY) if listener else None
        trouble = runners_in_trouble(runner_set)
        if listener is None:
            self._ready(
                scale_set, False, "ListenerReplaced", "waiting for the old listener to stop"
            )
        elif ready is None or ready.status != "True":
            why = ready.message if ready else STARTING.message
            message = f"the listener {listener.key} does not run: {why}"
            self._ready(scale_set, False, "ListenerNotReady", message)
        elif trouble is not None:
            self._ready(scale_set, False, trouble.reason, trouble.message)
        else:
            message = f"the listener runs; {limits_in_words(scale_set.obj)}"
            turned = self._ready(scale_set, True, "Running", message)
        if turned:
            self._event(scale_set, "Normal", "Running", "the scale set takes jobs")

        is_urgent = scale_set.is_mutated or scale_set.obj.status.phase != SetPhase.RUNNING
        self._publish_metrics(scale_set.obj, runner_set.status)
        if not has_counts(scale_set.obj, runner_set.status):
            next_write = self._counted.get(key)
            if next_write is not None and not is_urgent:
                return Result(requeue_after=max(0.0, next_write - loop_time()))
            self._counted[key] = loop_time() + COUNTS_EVERY
        show(scale_set, SetPhase.RUNNING, runner_set.status)
        await scale_set.patch_status(self._client)
        return Result()

    # What the user sees.

    async def _explain(self, scale_set: ScaleSet, error: Exception) -> Result:
        """Say in the status what is wrong, and come back: at leisure if it needs a person."""
        obj = scale_set.obj
        self._context.service.failed(error, obj.spec, obj.metadata.namespace)
        trouble = trouble_of(error)
        if trouble is None:
            raise error
        if not is_seen(scale_set.obj):
            show(scale_set, SetPhase.PENDING)
        if self._ready(scale_set, False, trouble.reason, trouble.message):
            self._event(scale_set, "Warning", trouble.reason, trouble.message)
        await scale_set.patch_status(self._client)
        if trouble.retry is None:
            raise error
        if trouble.by_hand:
            log.warning(
                "waiting for somebody to repair it", reason=trouble.reason, why=trouble.message
            )
        return Result(requeue_after=trouble.retry)

    def _publish_metrics(self, obj: AutoscalingRunnerSet, counts: EphemeralRunnerSetStatus) -> None:
        self._context.metrics.runners(
            obj.key,
            obj.spec.github_config_url,
            pending=counts.pending_ephemeral_runners,
            running=counts.running_ephemeral_runners,
            failed=counts.failed_ephemeral_runners,
        )

    def _ready(self, scale_set: ScaleSet, holds: bool, reason: str, message: str) -> bool:
        return self._condition(scale_set, READY, holds, reason, message)

    def _condition(
        self, scale_set: ScaleSet, type_: str, holds: bool, reason: str, message: str
    ) -> bool:
        return put_condition(scale_set, type_, holds, reason, message, now=self._context.now())

    def _event(self, scale_set: ScaleSet, type_: EventType, reason: str, message: str) -> None:
        self._context.events.event(scale_set.obj, type_, reason, message)


def _is_outdated(runner_set: EphemeralRunnerSet) -> bool:
    """Outdated by its newest revision: with a newer one ahead, the verdict is not in yet."""
    return (
        runner_set.status.phase == SetPhase.OUTDATED
        and runner_set.spec.actionable_revision <= runner_set.status.applied_actionable_revision
    )


def _lost(listener: AutoscalingListener, id_: int) -> bool:
    found = find_condition(listener.status.conditions, SCALE_SET_FOUND)
    return (
        listener.spec.runner_scale_set_id == id_ and found is not None and found.status == "False"
    )


def _precedence(obj: AutoscalingRunnerSet) -> tuple[bool, str, NamespacedName]:
    """Who registered goes first, then who is older, then whose name is."""
    created = obj.metadata.creation_timestamp
    return not scale_set_id(obj), created.isoformat() if created else "", obj.key


def _says_little(obj: AutoscalingRunnerSet) -> bool:
    ready = find_condition(obj.status.conditions, READY)
    return ready is None or ready.reason == "Pending"


def _patience(obj: AutoscalingRunnerSet, live: AutoscalingRunnerSet | None) -> float:
    """Seconds that calls for `obj` may take, now that it is `live`."""
    if live is None or live.uid != obj.uid or live.is_being_deleted:
        return DELETED_PATIENCE
    return CHANGED_PATIENCE if live.metadata.generation != obj.metadata.generation else math.inf
