"""What a user sees of a runner: conditions and events, and the registration in its status."""

from __future__ import annotations

from typing import Final

from arc_controller.api.v1alpha1 import EphemeralRunner, Phase
from arc_controller.controllers.conditions import put_condition
from arc_controller.controllers.context import Events
from arc_controller.runtime.clock import Now
from arc_controller.runtime.events import EventType
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import find_condition

REGISTERED: Final = "Registered"
WITHIN_QUOTA: Final = "WithinQuota"
POD_STARTED: Final = "PodStarted"
FINISHED: Final = "Finished"


class RunnerConditions:
    """Nothing here writes: what it puts into a status goes with the caller's next patch of it."""

    def __init__(self, events: Events, now: Now) -> None:
        self._events = events
        self._now = now

    def note_registration(self, runner: LazyCopy[EphemeralRunner], runner_id: int) -> None:
        """Row 5, for the next status patch."""
        obj = runner.obj
        if runner_id and obj.status.runner_id != runner_id:
            runner.mutate().status.runner_id = runner_id
        if runner_id and obj.status.runner_name != obj.metadata.name:
            runner.mutate().status.runner_name = obj.metadata.name
        if not obj.status.phase:
            runner.mutate().status.phase = Phase.PENDING
        self.recovered(runner, REGISTERED, "The runner is registered at the service")

    def finished(self, runner: LazyCopy[EphemeralRunner], reason: str, message: str) -> None:
        """It will never be anything else."""
        put_condition(runner, FINISHED, True, reason, message, now=self._now())

    def trouble(
        self, runner: LazyCopy[EphemeralRunner], type_: str, reason: str, message: str
    ) -> None:
        """A condition for the next status patch and, at a turning point, an Event."""
        if put_condition(runner, type_, False, reason, message, now=self._now()):
            self.tell(runner.obj, "Warning", reason, message)

    def recovered(self, runner: LazyCopy[EphemeralRunner], type_: str, message: str) -> None:
        """Take a trouble back. Where there was none, no condition says so: it would be said of
        every runner."""
        if is_false(runner.obj, type_):
            put_condition(runner, type_, True, type_, message, now=self._now())

    def tell(self, runner: EphemeralRunner, type_: EventType, reason: str, message: str) -> None:
        self._events.event(runner, type_, reason, message)


def is_false(runner: EphemeralRunner, type_: str, reason: str = "") -> bool:
    """Whether the condition says no, with this reason if one is given."""
    condition = find_condition(runner.status.conditions, type_)
    if condition is None or condition.status != "False":
        return False
    return not reason or condition.reason == reason
