"""The status of an EphemeralRunnerSet: counts, phase, and why nothing is happening."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerSetStatus,
    Phase,
    SetPhase,
)
from arc_controller.controllers.conditions import put_condition
from arc_controller.controllers.context import Events
from arc_controller.controllers.runner_sorting import SortedRunners
from arc_controller.controllers.trouble import Trouble
from arc_controller.runtime.client import StatusWriter
from arc_controller.runtime.clock import Now, loop_time
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import Condition, find_condition

STATUS_PACE: Final = 1.0
"""Seconds between two writes of nothing but changed counts."""
FAILED_RETRY: Final = timedelta(minutes=10)
"""After this a failed runner is removed, so that scaling replaces it."""

SCALING_ACTIVE: Final = "ScalingActive"
RUNNERS_HEALTHY: Final = "RunnersHealthy"
SOME_FAILED: Final = "FailedRunners"
"""The reason of `RUNNERS_HEALTHY` where not all runners are ill for one reason; that would be the
reason."""

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_OUTDATED: Final = (
    "The service refuses the runners' version as too old; nothing is created until the runner spec "
    "changes: set a newer runner image in the template"
)


@dataclass(slots=True)
class StatusPace:
    """When a set's status was last written, in the loop's time."""

    written: float | None = None


class RunnerSetStatus:
    """Writes it: one patch if something changed, none if nothing did."""

    def __init__(self, client: StatusWriter, events: Events, now: Now) -> None:
        self._client = client
        self._events = events
        self._now = now

    async def write(
        self,
        runner_set: LazyCopy[EphemeralRunnerSet],
        runners: SortedRunners,
        phase: str,
        pace: StatusPace,
        refusal: Trouble | None = None,
    ) -> float | None:
        """Write what differs; the seconds to wait if only counts do and it is too early for that.

        `refusal` is why no runner can be created. Raises `Conflict` when a phase or a condition was
        judged on an older set.
        """
        self._note_health(runner_set, runners)
        if phase == SetPhase.OUTDATED:
            self.trouble(runner_set, SCALING_ACTIVE, SetPhase.OUTDATED, _OUTDATED)
        elif refusal is not None:
            self.trouble(runner_set, SCALING_ACTIVE, refusal.reason, refusal.message)
        else:
            self.recovered(runner_set, SCALING_ACTIVE, "Runners are created as jobs need them")

        old, counts, now = runner_set.obj.status, _counts(runners), loop_time()
        only_counts = phase == old.phase and not runner_set.is_mutated
        if only_counts and counts == _counts_in(old):
            return None
        if only_counts and pace.written is not None:
            left = pace.written + STATUS_PACE - now
            if left > 0:
                return left

        status = runner_set.mutate().status
        status.current_replicas, status.pending_ephemeral_runners = counts[:2]
        status.running_ephemeral_runners, status.failed_ephemeral_runners = counts[2:]
        status.phase = phase
        # Counts are true of the runners, whatever the listener has done to the spec meanwhile, and
        # it does so all the time: they need no lock. The phase was judged by the set's revision.
        await runner_set.patch_status(self._client, lock=not only_counts)
        pace.written = now
        return None

    def trouble(
        self, runner_set: LazyCopy[EphemeralRunnerSet], type_: str, reason: str, message: str
    ) -> None:
        """A condition for the next status patch and, at a turning point, an Event."""
        if put_condition(runner_set, type_, False, reason, message, now=self._now()):
            self._events.event(runner_set.obj, "Warning", reason, message)

    def recovered(self, runner_set: LazyCopy[EphemeralRunnerSet], type_: str, message: str) -> None:
        """Take a trouble back. Where there was none, no condition says so."""
        condition = find_condition(runner_set.obj.status.conditions, type_)
        if condition is not None and condition.status == "False":
            put_condition(runner_set, type_, True, type_, message, now=self._now())
            self._events.event(runner_set.obj, "Normal", type_, message)

    def _note_health(
        self, runner_set: LazyCopy[EphemeralRunnerSet], runners: SortedRunners
    ) -> None:
        known = find_condition(runner_set.obj.status.conditions, RUNNERS_HEALTHY)
        common = common_complaint(runners, known.reason if known is not None else "")
        if common is not None:
            reason, words = common
            words = f"No runner gets to work, and all for one reason: {reason}: {words}"
            self.trouble(runner_set, RUNNERS_HEALTHY, reason, words)
            return
        if not runners.failed:
            self.recovered(runner_set, RUNNERS_HEALTHY, "Runners get to work")
            return
        status = runners.failed[-1].status
        minutes = int(FAILED_RETRY.total_seconds() // 60)
        message = (
            f"Failed runners take up replicas and are retried after {minutes} minutes; "
            f"the newest says: {status.reason or Phase.FAILED}: {status.message}"
        )
        self.trouble(runner_set, RUNNERS_HEALTHY, SOME_FAILED, message)


def runners_in_trouble(runner_set: EphemeralRunnerSet) -> Condition | None:
    """The condition that says why the set has no runner that works, or makes none."""
    conditions = runner_set.status.conditions
    for type_ in (SCALING_ACTIVE, RUNNERS_HEALTHY):
        found = find_condition(conditions, type_)
        if found is not None and found.status == "False" and found.reason != SOME_FAILED:
            return found
    return None


def common_complaint(runners: SortedRunners, known_as: str = "") -> tuple[str, str] | None:
    """Why no runner gets to work, as reason and words: all say the same, and none is at work or
    ready for it. Once it is `known_as` this, one of which nothing is known yet does not change it.
    """
    if runners.running or any(each.status.ready for each in runners.pending):
        return None
    told = [_complaint_of(each) for each in (*runners.failed, *runners.pending)]
    known = [each for each in told if each is not None]
    if len({reason for reason, _ in known}) != 1:
        return None
    reason, words = known[-1]
    return (reason, words) if len(known) == len(told) or reason == known_as else None


def complaints(runner: EphemeralRunner) -> tuple[str, ...]:
    """The reasons of its conditions that are not well; of most runners, none."""
    conditions = runner.status.conditions
    return tuple(each.reason for each in conditions if each.status == "False") if conditions else ()


def _complaint_of(runner: EphemeralRunner) -> tuple[str, str] | None:
    status = runner.status
    wrong = next((each for each in status.conditions if each.status == "False"), None)
    if status.phase == Phase.FAILED or (wrong is None and status.failures):
        reason, words = status.reason or Phase.FAILED, status.message
    elif wrong is not None:
        reason, words = wrong.reason, wrong.message
    else:
        return None
    # Each runner has another name, which would be another wording whenever a new one is the last.
    return reason, words.replace(runner.metadata.name, "the runner")


def failed_since(runner: EphemeralRunner) -> datetime:
    """When a runner failed: what its condition says, else no earlier than any trace it left."""
    times = [condition.last_transition_time for condition in runner.status.conditions]
    known = [*runner.status.failures.values(), runner.metadata.creation_timestamp, *times]
    return max((time for time in known if time is not None), default=_LONG_AGO)


def _counts(runners: SortedRunners) -> tuple[int, int, int, int]:
    return runners.total, len(runners.pending), len(runners.running), len(runners.failed)


def _counts_in(status: EphemeralRunnerSetStatus) -> tuple[int, int, int, int]:
    return (
        status.current_replicas,
        status.pending_ephemeral_runners,
        status.running_ephemeral_runners,
        status.failed_ephemeral_runners,
    )
