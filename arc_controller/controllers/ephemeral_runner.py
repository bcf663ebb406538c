"""The EphemeralRunner controller: one runner, one pod, one registration, one job.

It never says ``Running``: that means *holds a job*, and only the listener knows. A runner that is
registered and idle stays ``Pending``, so that scaling down takes it before a busy one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arc_controller.actions import ActionsError
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import EphemeralRunner
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.runner_conditions import RunnerConditions
from arc_controller.controllers.runner_course import RunnerCourse
from arc_controller.controllers.runner_end import FINALIZERS, RunnerEnd, holds_a_job
from arc_controller.controllers.runner_registration import Registrar, RunnerClients
from arc_controller.controllers.runner_start import POD_EXISTS_RETRY, RunnerStart
from arc_controller.controllers.turnstile import WORKERS_PER_PLACE, Turnstile
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.errors import NotFound
from arc_controller.runtime.events import EventRecorder
from arc_controller.runtime.finalizers import add_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ownership import is_controlled_by
from arc_controller.runtime.predicates import Predicate

if TYPE_CHECKING:
    from arc_controller.runtime.manager import Manager


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
        turnstile = Turnstile(config.max_concurrent_reconciles // WORKERS_PER_PLACE)
        registrar = Registrar(client, actions, turnstile)
        conditions = RunnerConditions(events, now)
        end = RunnerEnd(client, api_reader, registrar, conditions, now=now)
        start = RunnerStart(
            client, api_reader, registrar, end, conditions, version=config.version, now=now
        )
        self._start, self._end = start, end
        self._course = RunnerCourse(client, registrar, start, end, conditions, now=now)
        self.departures = end.departures

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
        if holds_a_job(found) and self._course.looks_lost(found, pod):
            # A leader that is new may have a cache that is old: giving up would kill the job.
            pod = await self._api_reader.find(Pod, key)
        if pod is None:
            return await self._start.start(runner)

        if not is_controlled_by(pod, found):
            return Result(requeue_after=POD_EXISTS_RETRY)

        return await self._course.follow(runner, pod)


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
        holds_a_job(runner),
    )


# Most changes of a status are our own: there is no need to look at them again.
_not_our_status = Predicate[EphemeralRunner](
    update=lambda old, new: _decisive(old) != _decisive(new)
)
