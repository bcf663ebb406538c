"""How an EphemeralRunner ends: what it registered and made is taken back, whatever happens."""

from __future__ import annotations

from typing import Final

import structlog
from cachetools import TTLCache

from arc_controller.actions import ActionsError, JobStillRunning, is_transient
from arc_controller.api.core import Pod, Secret
from arc_controller.api.v1alpha1 import EphemeralRunner, Finalizer, Phase
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.runner_conditions import RunnerConditions
from arc_controller.controllers.runner_departures import JOB_STILL_RUNNING_RETRY, Departures
from arc_controller.controllers.runner_fanout import each, raise_first
from arc_controller.controllers.runner_pod import RUNNER_POD_LABEL, uses_container_hooks
from arc_controller.controllers.runner_registration import Registrar
from arc_controller.controllers.trouble import is_hopeless, trouble_of
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, loop_time
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import Forbidden
from arc_controller.runtime.finalizers import remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import KubeObject, LabelSelector
from arc_controller.runtime.ownership import is_controlled_by

log = structlog.get_logger(__name__)

REMEMBERED: Final = 10_000

FINALIZERS: Final = (Finalizer.EPHEMERAL_RUNNER, Finalizer.RUNNER_REGISTRATION)


class RunnerEnd:
    """Rows 1 and 2 of the table, and the ways that lead there. Every step may be repeated."""

    def __init__(
        self,
        client: Client,
        api_reader: Reader,
        registrar: Registrar,
        conditions: RunnerConditions,
        *,
        now: Now,
    ) -> None:
        self._client = client
        self._api_reader = api_reader
        self._registrar = registrar
        self.departures = Departures(registrar)
        self._deleted: TTLCache[str, None] = TTLCache(REMEMBERED, 60.0, timer=loop_time)
        self._conditions = conditions
        self._now = now

    async def finalize(self, runner: LazyCopy[EphemeralRunner]) -> Result:
        """It is being deleted: unregister, delete what is ours, let go."""
        obj = runner.obj
        if not any(name in obj.metadata.finalizers for name in FINALIZERS):
            return Result()

        try:
            if _may_be_registered(obj):
                await self._registrar.unregister(obj)
        except JobStillRunning:
            self._conditions.tell(
                obj,
                "Normal",
                "JobStillRunning",
                "The service says that this runner still runs a job; it is removed afterwards",
            )
            return Result(requeue_after=JOB_STILL_RUNNING_RETRY)
        except (InputError, ActionsError, Forbidden) as error:
            may_be_at_work = holds_a_job(obj) and is_transient(error)
            if may_be_at_work or not is_hopeless(error, obj, self._now()):
                return self._cannot_unregister(obj, error)
            message = f"Its registration stays at the service, which forgets it: {error}"
            self._conditions.tell(obj, "Warning", "RegistrationLeftBehind", message)

        try:
            await self._delete_pod(obj)
            await self._registrar.delete_secret(obj)
            if uses_container_hooks(obj.spec):
                await self._delete_hook_resources(obj)
        except Forbidden as error:
            # A namespace that is deleted takes our permissions in it along, and the rest itself.
            log.info("cannot delete what a runner owned", runner=str(obj.key), reason=str(error))
        remove_finalizers(runner, *FINALIZERS)
        with self.departures.letting_go(obj):
            await runner.patch(self._client)
        return Result()

    async def clean_up(self, runner: LazyCopy[EphemeralRunner]) -> Result:
        """It is done, so nothing but the object itself stays, and the object says why.

        The registration finalizer tells whether this has been done already.
        """
        obj = runner.obj
        if Finalizer.RUNNER_REGISTRATION not in obj.metadata.finalizers:
            return Result()

        await self._delete_pod(obj)
        await self._registrar.delete_secret(obj)
        try:
            await self._registrar.unregister(obj)
        except JobStillRunning:
            return Result(requeue_after=JOB_STILL_RUNNING_RETRY)
        except (InputError, ActionsError) as error:
            return self._cannot_unregister(obj, error)
        remove_finalizers(runner, Finalizer.RUNNER_REGISTRATION)
        await runner.patch(self._client)
        return Result()

    async def fail(
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
        self._conditions.finished(runner, reason, message)
        await runner.patch_status(self._client)
        self._conditions.tell(runner.obj, "Warning", reason, f"{phase}: {message}")
        return await self.clean_up(runner)

    async def give_up(self, runner: EphemeralRunner, reason: str, message: str) -> Result:
        """Delete the runner; row 1 unregisters it. Scaling makes another where one is needed."""
        self._conditions.tell(runner, "Warning", reason, message)
        await self.delete(runner)
        return Result()

    async def delete(self, runner: EphemeralRunner) -> None:
        """Delete it, once."""
        if runner.uid in self._deleted:
            return  # the event is on its way
        await self._client.delete(EphemeralRunner, runner.key, uid=runner.uid)
        self._deleted[runner.uid] = None

    async def _delete_pod(self, runner: EphemeralRunner) -> None:
        pod = await self._client.find(Pod, runner.key)
        if pod is None or pod.is_being_deleted or not is_controlled_by(pod, runner):
            return
        await self._client.delete(Pod, pod.key, uid=pod.uid)

    async def _delete_hook_resources(self, runner: EphemeralRunner) -> None:
        # These are not in the cache, which holds only what the controllers make.
        made_by_hooks = LabelSelector({RUNNER_POD_LABEL: runner.metadata.name})
        namespace = runner.metadata.namespace
        found: list[KubeObject] = [
            *await self._api_reader.list(Pod, namespace=namespace, labels=made_by_hooks),
            *await self._api_reader.list(Secret, namespace=namespace, labels=made_by_hooks),
        ]

        async def delete(obj: KubeObject) -> None:
            await self._client.delete(type(obj), obj.key, uid=obj.uid)

        raise_first(await each([obj for obj in found if not obj.is_being_deleted], delete))

    def _cannot_unregister(
        self, runner: EphemeralRunner, error: InputError | ActionsError | Forbidden
    ) -> Result:
        trouble = trouble_of(error)
        if trouble is None:
            raise error
        message = f"Cannot unregister: {trouble.message}"
        self._conditions.tell(runner, "Warning", trouble.reason, message)
        if trouble.retry is None:
            raise error
        return Result(requeue_after=trouble.retry)


def _may_be_registered(runner: EphemeralRunner) -> bool:
    """Not any more once `RunnerEnd.clean_up` took the registration finalizer off."""
    return Finalizer.RUNNER_REGISTRATION in runner.metadata.finalizers or not runner.status.is_done


def holds_a_job(runner: EphemeralRunner) -> bool:
    return runner.status.has_job or runner.status.phase == Phase.RUNNING
