"""Row 1 of an AutoscalingRunnerSet, being deleted: listener, runners, registration, protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from arc_controller.actions import ActionsError, ScaleSetNotFound
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    Finalizer,
)
from arc_controller.controllers.cleanup import protected, release
from arc_controller.controllers.conditions import READY, put_condition
from arc_controller.controllers.context import Context
from arc_controller.controllers.indexes import (
    LISTENERS_OF_SCALE_SET,
    RUNNER_SETS_OF_SCALE_SET,
    SAME_REGISTRATION,
    registration_of,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.orphans import adopt_runner_set
from arc_controller.controllers.scale_set import scale_set_id
from arc_controller.controllers.scale_set_departure import Departures
from arc_controller.controllers.trouble import REPAIRED_BY_HAND, is_hopeless, trouble_of
from arc_controller.controllers.turnstile import place_of
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import Forbidden
from arc_controller.runtime.finalizers import missing_finalizers, remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    context: Context

    async def remove(self, scale_set: LazyCopy[AutoscalingRunnerSet]) -> Result:
        """The next step; each waits until what came before is gone. Raises `ApiError` and, after
        saying so, transient `ActionsError`."""
        client, obj = self.context.client, scale_set.obj
        if missing_finalizers(obj, Finalizer.AUTOSCALING_RUNNER_SET):
            return Result()

        listeners = await client.list(
            AutoscalingListener, index=(LISTENERS_OF_SCALE_SET, str(obj.key))
        )
        for listener in listeners:
            if not listener.is_being_deleted:
                await client.delete(AutoscalingListener, listener.key, uid=listener.uid)
        if listeners:
            return await self._wait(scale_set, "the listener to stop")

        runner_sets = await client.list(
            EphemeralRunnerSet, index=(RUNNER_SETS_OF_SCALE_SET, obj.uid)
        )
        for runner_set in runner_sets:
            if not runner_set.is_being_deleted:
                await client.delete(EphemeralRunnerSet, runner_set.key, uid=runner_set.uid)
        if runner_sets or await adopt_runner_set(client, obj):
            return await self._wait(scale_set, _what_is_left(runner_sets))

        try:
            await self._unregister(obj)
        except (InputError, ActionsError, Forbidden) as error:
            # Forbidden: with its namespace goes what lets us read the credentials there.
            trouble = trouble_of(error)
            if trouble is None:
                raise
            if not is_hopeless(error, obj, self.context.now()):
                why = f"cannot remove the scale set from the service: {trouble.message}"
                await self._wait(scale_set, why, reason=trouble.reason, warn=True)
                if trouble.retry is None:
                    raise
                return Result(requeue_after=trouble.retry)
            log.warning(
                "the scale set stays at the service", id=scale_set_id(obj), error=str(error)
            )
            self.context.events.event(
                obj,
                "Warning",
                "ScaleSetLeftBehind",
                f"scale set {scale_set_id(obj)} stays at the service: {trouble.message}",
            )

        await Departures(self.context).abandon(obj)
        for thing in protected(obj):
            try:
                await release(self.context.live, thing)
            except Forbidden as error:
                log.warning("cannot remove cleanup-protection", error=str(error))
                self.context.events.event(
                    obj,
                    "Warning",
                    "CleanupForbidden",
                    f"{thing.kind.__name__} {thing.key.name} keeps its finalizer "
                    f"{Finalizer.CLEANUP_PROTECTION}: {error.message}",
                )

        remove_finalizers(scale_set, Finalizer.AUTOSCALING_RUNNER_SET)
        await scale_set.patch(client)
        self.context.metrics.forget_scale_set(obj.key)
        return Result()

    async def _unregister(self, obj: AutoscalingRunnerSet) -> None:
        id_ = scale_set_id(obj)
        if not id_ or await self._is_shared(obj, id_):
            return
        service = self.context.service
        try:
            client = await service.for_scale_set(obj.spec, obj.metadata.namespace)
            with self.context.turnstile.passing(*place_of(obj.spec.github_config_url)):
                await client.delete_runner_scale_set(id_)
        except ScaleSetNotFound:
            return
        except ActionsError as error:
            service.failed(error, obj.spec, obj.metadata.namespace)
            raise

    async def _is_shared(self, obj: AutoscalingRunnerSet, id_: int) -> bool:
        """Whether another object stands for the same scale set, which then must live on."""
        same = await self.context.client.list(
            AutoscalingRunnerSet, index=(SAME_REGISTRATION, registration_of(obj))
        )
        return any(
            other.uid != obj.uid and not other.is_being_deleted and scale_set_id(other) == id_
            for other in same
        )

    async def _wait(
        self,
        scale_set: LazyCopy[AutoscalingRunnerSet],
        what: str,
        *,
        reason: str = "Deleting",
        warn: bool = False,
    ) -> Result:
        message = what if warn else f"waiting for {what}"
        now = self.context.now()
        if put_condition(scale_set, READY, False, reason, message, now=now) and warn:
            self.context.events.event(scale_set.obj, "Warning", reason, message)
        await scale_set.patch_status(self.context.client)
        return Result(requeue_after=REPAIRED_BY_HAND)


def _what_is_left(runner_sets: Sequence[EphemeralRunnerSet]) -> str:
    if any(each.status.running_ephemeral_runners for each in runner_sets):
        return "runners that hold a job to finish, others to stop"
    if any(each.status.current_replicas for each in runner_sets):
        return "the runners to be taken back from the service, and to stop"
    return "the set of runners to end"
