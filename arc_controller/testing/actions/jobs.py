"""The life of jobs, runners and messages: what the service does when nobody asks it to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from random import Random
from uuid import UUID

import msgspec

from arc_controller.actions import Label, RunnerGroup

from .model import (
    Job,
    JobState,
    QueuedMessage,
    RunnerRecord,
    ScaleSetRecord,
    SessionRecord,
    Wakeup,
)
from .wire import job_message

MAX_JOBS_PER_MESSAGE = 100


class Ledger:
    """All state and every transition. Nothing here waits; ``changed`` wakes who does."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        random: Random,
        lost_after: float,
        reoffer_after: float,
        session_timeout: float,
    ) -> None:
        self.now = now
        self.random = random
        self.lost_after = lost_after
        self.reoffer_after = reoffer_after
        self.session_timeout = session_timeout
        self.groups: dict[int, RunnerGroup] = {}
        self.scale_sets: dict[int, ScaleSetRecord] = {}
        self.runners: dict[int, RunnerRecord] = {}
        self.jobs: dict[int, Job] = {}
        self.changed = Wakeup()
        self._runner_names: dict[str, RunnerRecord] = {}
        self._unplaced: dict[int, Job] = {}
        self._last_id: dict[str, int] = {}

    def next_id(self, kind: str) -> int:
        """1, 2, 3 … for each kind; ids are never used again."""
        self._last_id[kind] = self._last_id.get(kind, 0) + 1
        return self._last_id[kind]

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    # Scale sets

    def add_scale_set(
        self, scope: str, name: str, group_id: int, labels: list[Label], disable_update: bool
    ) -> ScaleSetRecord:
        record = ScaleSetRecord(
            id=self.next_id("scale set"),
            scope=scope,
            name=name,
            runner_group_id=group_id,
            labels=labels or [Label(name=name)],
            disable_update=disable_update,
            created=self.now(),
        )
        self.scale_sets[record.id] = record
        self._place_all()
        self.changed.notify()
        return record

    def relabel(self, record: ScaleSetRecord) -> None:
        """Look for jobs again after a scale set's name or labels changed."""
        self._place_all()
        record.wakeup.notify()
        self.changed.notify()

    def remove_scale_set(self, record: ScaleSetRecord) -> None:
        """Delete a scale set: idle runners go with it, running jobs end on theirs, jobs that had
        not started wait for another scale set."""
        del self.scale_sets[record.id]
        record.removed = True
        record.session = None
        for state in (JobState.QUEUED, JobState.AVAILABLE, JobState.ACQUIRED, JobState.ASSIGNED):
            for job in list(record.jobs[state].values()):
                del record.jobs[state][job.request_id]
                job.state, job.scale_set_id, job.scale_set_assigned = JobState.QUEUED, None, None
                self._unplaced[job.request_id] = job
        for runner in list(record.runners.values()):
            if not runner.is_busy:
                self.remove_runner(runner)
        self._place_all()
        record.wakeup.notify()
        self.changed.notify()

    # Jobs

    def queue(self, job: Job) -> None:
        self.jobs[job.request_id] = job
        self._unplaced[job.request_id] = job
        self._place(job)
        self.changed.notify()

    def acquire(self, record: ScaleSetRecord, request_ids: list[int]) -> list[int]:
        """Give the scale set the jobs that are still to be had and that its capacity allows."""
        got = []
        for request_id in request_ids:
            job = record.jobs[JobState.AVAILABLE].get(request_id)
            if job is None or self._room(record, offered=0) <= 0:
                continue
            self._move(job, JobState.ACQUIRED)
            self._assign(record, job)
            got.append(request_id)
        return got

    def cancel(self, job: Job) -> None:
        """Cancel a job. A running one is asked to stop; its runner decides when it has."""
        job.cancel_requested.set()
        if job.is_over or job.state is JobState.RUNNING:
            return
        self._unplaced.pop(job.request_id, None)
        self._end(job, JobState.COMPLETED, "canceled")

    def finish(self, runner: RunnerRecord, job: Job, result: str) -> bool:
        """End the runner's job and, since it lives for one job, the runner. False when the job is
        not the runner's (any more)."""
        if runner.job is not job:
            return False
        self._end(job, JobState.COMPLETED, result)
        self._release(runner)
        return True

    def _place_all(self) -> None:
        for job in list(self._unplaced.values()):
            self._place(job)

    def _place(self, job: Job) -> None:
        for record in self.scale_sets.values():
            if record.matches(job.labels):
                del self._unplaced[job.request_id]
                job.scale_set_id = record.id
                record.jobs[job.state][job.request_id] = job
                record.wakeup.notify()
                return

    def _move(self, job: Job, state: JobState) -> None:
        record = self._record_of(job)
        if record is not None:
            record.jobs[job.state].pop(job.request_id, None)
            if state in record.jobs:
                record.jobs[state][job.request_id] = job
        job.state = state
        self.changed.notify()

    def _record_of(self, job: Job) -> ScaleSetRecord | None:
        return self.scale_sets.get(job.scale_set_id) if job.scale_set_id else None

    def _room(self, record: ScaleSetRecord, offered: int) -> float:
        """How many more jobs the capacity that the last poll named leaves."""
        session = record.session
        if session is None or session.capacity is None:
            return float("inf")
        return session.capacity - record.assigned - offered

    def _assign(self, record: ScaleSetRecord, job: Job) -> None:
        job.scale_set_assigned = self.now()
        self._move(job, JobState.ASSIGNED)
        self._post(record, job, "JobAssigned")
        if record.idle:
            self._start(record, next(iter(record.idle.values())), job)

    def _start(self, record: ScaleSetRecord, runner: RunnerRecord, job: Job) -> None:
        record.idle.pop(runner.id, None)
        record.busy += 1
        runner.job = job
        job.runner_id, job.runner_name = runner.id, runner.name
        job.runner_assigned = self.now()
        self._move(job, JobState.RUNNING)
        self._post(record, job, "JobStarted")
        runner.wakeup.notify()

    def _end(self, job: Job, state: JobState, result: str) -> None:
        belonged = job.scale_set_assigned is not None
        record = self._record_of(job)
        job.result, job.finished = result, self.now()
        self._move(job, state)
        job.over.set()
        if record is not None and belonged:
            self._post(record, job, "JobCompleted")
        elif record is not None:
            record.wakeup.notify()

    # Runners

    def add_runner(self, record: ScaleSetRecord, name: str, work_folder: str) -> RunnerRecord:
        runner = RunnerRecord(
            id=self.next_id("runner"),
            name=name,
            scale_set_id=record.id,
            secret=f"{self.random.getrandbits(160):040x}",
            work_folder=work_folder,
            created=self.now(),
        )
        self.runners[runner.id] = runner
        self._runner_names[name.lower()] = runner
        record.runners[runner.id] = runner
        self.changed.notify()
        return runner

    def runner_named(self, name: str) -> RunnerRecord | None:
        return self._runner_names.get(name.lower())

    def remove_runner(self, runner: RunnerRecord) -> None:
        """Deregister; a process that still plays the runner is told."""
        if runner.removed:
            return
        runner.removed = True
        runner.online = False
        if runner.lost_timer is not None:
            runner.lost_timer.cancel()
        del self.runners[runner.id]
        del self._runner_names[runner.name.lower()]
        record = self.scale_sets.get(runner.scale_set_id)
        if record is not None:
            record.runners.pop(runner.id, None)
            record.idle.pop(runner.id, None)
        runner.wakeup.notify()
        self.changed.notify()

    def runner_online(self, runner: RunnerRecord) -> None:
        runner.online = True
        runner.connections += 1
        record = self.scale_sets.get(runner.scale_set_id)
        if record is not None and not runner.is_busy:
            record.idle[runner.id] = runner
            waiting = record.jobs[JobState.ASSIGNED]
            if waiting:
                self._start(record, runner, next(iter(waiting.values())))
        self.changed.notify()

    def runner_offline(self, runner: RunnerRecord) -> None:
        """The runner's process is gone. A job that it held is lost once the service notices."""
        if not runner.online:
            return
        runner.online = False
        record = self.scale_sets.get(runner.scale_set_id)
        if record is not None:
            record.idle.pop(runner.id, None)
        if runner.job is not None:
            loop = asyncio.get_running_loop()
            runner.lost_timer = loop.call_later(self.lost_after, self._lose, runner, runner.job)
        self.changed.notify()

    def stop_timers(self) -> None:
        for runner in self.runners.values():
            if runner.lost_timer is not None:
                runner.lost_timer.cancel()

    def _lose(self, runner: RunnerRecord, job: Job) -> None:
        if runner.job is job:
            self._end(job, JobState.LOST, "failed")
            self._release(runner)

    def _release(self, runner: RunnerRecord) -> None:
        runner.job = None
        record = self.scale_sets.get(runner.scale_set_id)
        if record is not None:
            record.busy -= 1
        self.remove_runner(runner)
        if record is not None:
            record.wakeup.notify()

    # Sessions and messages

    def open_session(self, record: ScaleSetRecord, owner: str) -> SessionRecord | None:
        """A new session; None while another one is alive."""
        if record.session is not None and self.session_alive(record.session):
            return None
        record.session = SessionRecord(
            id=self.uuid(), owner=owner, scale_set_id=record.id, last_seen=self.loop_time()
        )
        # Whoever had been offered these may have died before acquiring them.
        for job in record.jobs[JobState.AVAILABLE].values():
            job.offered_at = -float("inf")
        record.wakeup.notify()
        self.changed.notify()
        return record.session

    def close_session(self, record: ScaleSetRecord) -> None:
        record.session = None
        record.wakeup.notify()
        self.changed.notify()

    def session_alive(self, session: SessionRecord) -> bool:
        return session.polls > 0 or self.loop_time() - session.last_seen < self.session_timeout

    def next_message(self, record: ScaleSetRecord, last_id: int) -> QueuedMessage | None:
        """The first message after ``last_id`` that nobody acknowledged; composed if need be."""
        for message_id, message in record.messages.items():
            if message_id > last_id:
                return message
        self._offer(record)
        if not record.outbox:
            return None
        count = min(len(record.outbox), MAX_JOBS_PER_MESSAGE)
        jobs = [record.outbox.popleft() for _ in range(count)]
        return self._compose(record, msgspec.json.encode(jobs).decode(), count, last_id)

    def next_offer(self, record: ScaleSetRecord) -> float | None:
        """Seconds until an offer that nobody took is made again; None when there is none."""
        first = next(iter(record.jobs[JobState.AVAILABLE].values()), None)
        if first is None:
            return None
        return max(0.0, first.offered_at + self.reoffer_after - self.loop_time())

    def redeliver(self, record: ScaleSetRecord) -> None:
        """Deliver the last message once more, under a new id."""
        if record.history:
            last = record.history[-1]
            self._compose(record, last.body, last.jobs, 0)
            record.wakeup.notify()

    def lose_messages(self, record: ScaleSetRecord) -> int:
        """Forget every message that has not been acknowledged; how many job messages that was."""
        lost = sum(message.jobs for message in record.messages.values()) + len(record.outbox)
        record.messages.clear()
        record.outbox.clear()
        return lost

    def _compose(self, record: ScaleSetRecord, body: str, jobs: int, last_id: int) -> QueuedMessage:
        message_id = self.next_id(f"message of {record.id}")
        while message_id <= last_id:  # a client that came with an id we never gave
            message_id = self.next_id(f"message of {record.id}")
        message = QueuedMessage(id=message_id, body=body, jobs=jobs, statistics=record.statistics)
        record.messages[message.id] = message
        record.history.append(message)
        return message

    def _offer(self, record: ScaleSetRecord) -> None:
        """Offer what waits, as far as capacity allows; offers not taken in time are made again."""
        available, queued = record.jobs[JobState.AVAILABLE], record.jobs[JobState.QUEUED]
        now = self.loop_time()
        stale = []
        for job in available.values():
            if job.offered_at + self.reoffer_after > now:
                break
            stale.append(job)
        room = self._room(record, offered=len(available) - len(stale))
        for job in [*stale, *queued.values()]:
            if room <= 0:
                break
            room -= 1
            if job.direct:
                self._assign(record, job)
                continue
            available.pop(job.request_id, None)  # to the end: the dict is in order of offers
            job.offered_at = now
            self._move(job, JobState.AVAILABLE)
            self._post(record, job, "JobAvailable")

    def _post(self, record: ScaleSetRecord, job: Job, message_type: str) -> None:
        record.outbox.append(job_message(job, message_type))
        record.wakeup.notify()
