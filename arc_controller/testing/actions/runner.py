"""The runner's end of the service: what a fake runner process talks to."""

from __future__ import annotations

import asyncio

from .jobs import Ledger
from .model import Job, JobState, RunnerRecord


class RunnerRemoved(Exception):
    """The runner is not registered (any more): its process has nothing left to do."""


class RunnerBusyElsewhere(Exception):
    """Another process plays this runner right now."""


class RunnerVersionRefused(Exception):
    """The service takes this runner's version for too old: its process exits with code 7."""


class RunnerConnection:
    """A runner that is online. It gets at most one job."""

    def __init__(self, ledger: Ledger, runner: RunnerRecord) -> None:
        self._ledger = ledger
        self._runner = runner
        self._number = runner.connections

    @property
    def id(self) -> int:
        return self._runner.id

    @property
    def name(self) -> str:
        return self._runner.name

    @property
    def scale_set_id(self) -> int:
        return self._runner.scale_set_id

    @property
    def is_online(self) -> bool:
        return self._runner.online and self._runner.connections == self._number

    async def wait_for_job(self) -> Job:
        """The runner's job, as soon as it has one. Cancelled, it may be called again: a job that
        came meanwhile is not lost.

        Raises :class:`RunnerRemoved` when the runner is deregistered, :class:`ConnectionError`
        after :meth:`go_offline`.
        """
        while True:
            if self._runner.removed:
                raise RunnerRemoved(f"runner {self.name} is not registered any more")
            if not self.is_online:
                raise ConnectionError(f"runner {self.name} went offline")
            job = self._runner.job
            if job is not None and job.state is JobState.RUNNING:
                return job
            await self._runner.wakeup.wait()

    async def run(self, job: Job) -> str:
        """Take ``job.duration`` seconds of the loop's time, or less if it is cancelled or ended;
        finish it and return its result."""
        try:
            async with asyncio.timeout(job.duration):
                await job.cancel_requested.wait()
            result = job.ending
        except TimeoutError:
            result = "succeeded"
        self.finish(job, result)
        return result

    def finish(self, job: Job, result: str = "succeeded") -> bool:
        """Report the job's end; the service then deregisters the runner. False, and without
        effect, when the job is not this runner's any more or the runner is offline."""
        return self.is_online and self._ledger.finish(self._runner, job, result)

    def go_offline(self) -> None:
        """Vanish. A job in hand is lost when the service notices, after ``lost_after`` seconds;
        until then the runner counts as busy. An idle one stays registered, offline."""
        if self.is_online:
            self._ledger.runner_offline(self._runner)
            self._runner.wakeup.notify()

    def __repr__(self) -> str:
        return f"RunnerConnection({self.id}, {self.name!r})"
