"""The jobs that the service offers, and acquiring as many of them as there is room for."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from arc_controller.actions import (
    ActionsError,
    ClientClosed,
    Forbidden,
    Message,
    RunnerScaleSetStatistic,
    ScaleSetNotFound,
    SessionNotFound,
    Unauthorized,
    is_transient,
)

# About the session or the right to it: the next poll meets the same and deals with it.
_SESSION_ERRORS: Final = (
    SessionNotFound,
    Unauthorized,
    Forbidden,
    ScaleSetNotFound,
    ClientClosed,
)


class AcquireJobs(Protocol):
    """The part of a message session that acquires."""

    async def acquire_jobs(self, request_ids: list[int]) -> list[int]: ...


class Acquisition:
    """Remembers the jobs that were offered until we got them, or somebody else did.

    It outlives a session: what could not be acquired is acquired in the next one.
    """

    def __init__(
        self, max_runners: int, timeout: float, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        """``timeout``: seconds that one call may take."""
        self._max_runners = max_runners
        self._timeout = timeout
        self._log = log
        self._available: dict[int, None] = {}  # in the order they came
        self._assigned = 0
        self._acquired = 0  # jobs acquired that the statistics do not show yet

    def take_in(self, statistics: RunnerScaleSetStatistic) -> None:
        self._assigned = statistics.total_assigned_jobs
        self._acquired = 0

    def note(self, message: Message) -> None:
        """Remember what is offered, and forget what is not to be had any more."""
        if self._max_runners > 0:
            self._available.update(
                dict.fromkeys(job.runner_request_id for job in message.available)
            )
        for job in (*message.assigned, *message.completed):
            self._available.pop(job.runner_request_id, None)

    def due(self) -> list[int]:
        """The jobs we may acquire now: the oldest, as many as capacity allows."""
        if not self._available:
            return []
        room = max(0, self._max_runners - self._assigned - self._acquired)
        return list(self._available)[:room]

    async def acquire(self, queue: AcquireJobs) -> None:
        """Acquire; what failed for the moment stays for the next attempt."""
        wanted = self.due()
        if not wanted:
            return
        batches = [wanted]
        while batches:
            batch = batches.pop()
            try:
                async with asyncio.timeout(self._timeout):
                    got = await queue.acquire_jobs(batch)
            except TimeoutError:
                self._log.warning("jobs not acquired in time; trying again", asked=len(batch))
                return
            except ActionsError as error:
                if is_transient(error) or isinstance(error, _SESSION_ERRORS):
                    self._log.warning("jobs not acquired; trying again", error=str(error))
                    return
                if len(batch) > 1:
                    batches += [[request_id] for request_id in batch]  # which one is it?
                    continue
                self._log.warning("a job cannot be acquired", request_id=batch[0], error=str(error))
                got = []
            # What we did not get went to somebody else, or is over.
            for request_id in batch:
                self._available.pop(request_id, None)
            self._acquired += len(got)
            self._log.info("jobs acquired", asked=len(batch), got=len(got))
