"""What the fake service knows: scale sets, jobs, runners, sessions, messages."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from arc_controller.actions import Label, RunnerScaleSet, RunnerScaleSetStatistic, RunnerSetting


class JobState(StrEnum):
    """How far a job has come."""

    QUEUED = "queued"
    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ASSIGNED = "assigned"
    RUNNING = "running"
    COMPLETED = "completed"
    LOST = "lost"


OVER = frozenset({JobState.COMPLETED, JobState.LOST})


class Wakeup:
    """Wakes everybody who waits, and remembers nothing."""

    def __init__(self) -> None:
        # In order of arrival: a set would make simulated runs depend on memory addresses.
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Return at the next :meth:`notify`, or after ``seconds`` of the loop's time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._waiters.pop(waiter, None)
            waiter.cancel()


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """A job of a workflow. ``duration`` (seconds) is a hint to whoever plays its runner."""

    request_id: int
    job_id: str
    labels: tuple[str, ...]
    owner: str
    repository: str
    display_name: str
    workflow_ref: str
    workflow_run_id: int
    event_name: str
    queued: datetime
    duration: float = 0.0
    direct: bool = False

    state: JobState = JobState.QUEUED
    result: str | None = None
    scale_set_id: int | None = None
    scale_set_assigned: datetime | None = None
    runner_assigned: datetime | None = None
    finished: datetime | None = None
    runner_id: int = 0
    runner_name: str = ""
    offered_at: float = 0.0
    cancel_requested: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    ending: str = "canceled"
    """The result when it is asked to end before its time."""
    over: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def is_over(self) -> bool:
        return self.state in OVER


@dataclass(eq=False, slots=True, kw_only=True)
class RunnerRecord:
    """A registered runner. It is busy while it holds a job, whether it is online or not."""

    id: int
    name: str
    scale_set_id: int
    secret: str = field(repr=False)
    work_folder: str = ""
    created: datetime
    online: bool = False
    connections: int = 0
    removed: bool = False
    job: Job | None = None
    wakeup: Wakeup = field(default_factory=Wakeup, repr=False)
    lost_timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def is_busy(self) -> bool:
        return self.job is not None


@dataclass(eq=False, slots=True, kw_only=True)
class SessionRecord:
    """A message session, alive while somebody polls and for a while after."""

    id: str
    owner: str
    scale_set_id: int
    last_seen: float
    polls: int = 0
    capacity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that was composed and not yet acknowledged."""

    id: int
    body: str
    jobs: int
    statistics: RunnerScaleSetStatistic


@dataclass(eq=False, slots=True, kw_only=True)
class ScaleSetRecord:
    """A scale set with its jobs by state, its runners and its messages."""

    id: int
    scope: str
    name: str
    runner_group_id: int
    labels: list[Label]
    disable_update: bool
    created: datetime
    jobs: dict[JobState, dict[int, Job]] = field(
        default_factory=lambda: {state: {} for state in JobState if state not in OVER}, repr=False
    )
    runners: dict[int, RunnerRecord] = field(default_factory=dict, repr=False)
    idle: dict[int, RunnerRecord] = field(default_factory=dict, repr=False)
    busy: int = 0
    session: SessionRecord | None = None
    outbox: deque[dict[str, Any]] = field(default_factory=deque, repr=False)
    messages: dict[int, QueuedMessage] = field(default_factory=dict, repr=False)
    history: deque[QueuedMessage] = field(default_factory=lambda: deque(maxlen=32), repr=False)
    wakeup: Wakeup = field(default_factory=Wakeup, repr=False)
    removed: bool = False

    @property
    def assigned(self) -> int:
        """Jobs that belong to this scale set, waiting or running."""
        return sum(
            len(self.jobs[state])
            for state in (JobState.ACQUIRED, JobState.ASSIGNED, JobState.RUNNING)
        )

    @property
    def statistics(self) -> RunnerScaleSetStatistic:
        return RunnerScaleSetStatistic(
            total_available_jobs=len(self.jobs[JobState.QUEUED])
            + len(self.jobs[JobState.AVAILABLE]),
            total_acquired_jobs=len(self.jobs[JobState.ACQUIRED]),
            total_assigned_jobs=self.assigned,
            total_running_jobs=len(self.jobs[JobState.RUNNING]),
            total_registered_runners=len(self.runners),
            total_busy_runners=self.busy,
            total_idle_runners=len(self.idle),
        )

    def matches(self, labels: tuple[str, ...]) -> bool:
        """Whether a job that asks for these labels may come here."""
        own = {label.name.lower() for label in self.labels} | {self.name.lower()}
        return all(label.lower() in own for label in labels)

    def wire(self, group_name: str) -> RunnerScaleSet:
        """As the service shows it."""
        return RunnerScaleSet(
            id=self.id,
            name=self.name,
            runner_group_id=self.runner_group_id,
            runner_group_name=group_name,
            labels=self.labels,
            runner_setting=RunnerSetting(disable_update=self.disable_update),
            created_on=self.created,
            statistics=self.statistics,
        )
