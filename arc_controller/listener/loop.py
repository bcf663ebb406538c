"""The message loop: from the service's messages to jobs acquired and runners wanted.

Nothing is lost between an acknowledged message and what follows from it: statistics come again with
every message and every session, and what has to be done about single jobs is owed, in memory, until
it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final, NoReturn, Protocol, TypeVar

import structlog

from arc_controller.actions import (
    ActionsError,
    ClientClosed,
    JobCompleted,
    JobStarted,
    Message,
    MessageQueueTokenExpired,
    RunnerScaleSetStatistic,
    ScaleSetNotFound,
    SessionConflict,
    SessionNotFound,
    is_transient,
)
from arc_controller.listener.acquisition import Acquisition
from arc_controller.listener.errors import ScaleSetGone, ServiceRefused, SessionNeverReleased
from arc_controller.listener.metrics import JobMetrics
from arc_controller.listener.patience import Backoff, Patience
from arc_controller.listener.scaler import Scaler

T = TypeVar("T")

REMEMBERED_JOBS: Final = 1024
LAST_WORDS: Final = 5.0


class Queue(Protocol):
    """An open message session; `arc_controller.actions.MessageQueue` is one."""

    @property
    def statistics(self) -> RunnerScaleSetStatistic | None: ...

    async def get_message(self, last_message_id: int, max_capacity: int) -> Message | None: ...

    async def delete_message(self, message_id: int) -> None: ...

    async def acquire_jobs(self, request_ids: list[int]) -> list[int]: ...

    async def close(self) -> None: ...


class OpenQueue(Protocol):
    """Opens the scale set's session. Raises `SessionConflict` while another one is open."""

    async def __call__(self) -> Queue: ...


class Listener:
    """One scale set's listener.

    `run` opens the session, handles messages and survives what heals by itself: a service that is
    away, tokens and sessions that expire, connections that break, an API server that refuses. It
    ends only by cancellation or with a `ListenerError`.
    """

    def __init__(
        self,
        open_queue: OpenQueue,
        scaler: Scaler,
        metrics: JobMetrics,
        *,
        name: str,
        max_runners: int,
        patience: Patience | None = None,
        random: Random | None = None,
    ) -> None:
        """``name`` says in logs and errors which scale set this is."""
        self._open_queue = open_queue
        self._scaler = scaler
        self._metrics = metrics
        self._name = name
        self._max_runners = max_runners
        self._patience = patience = patience or Patience()
        self._backoff = Backoff(patience.min_wait, patience.max_wait, random or Random())
        self._log = structlog.get_logger(__name__).bind(scale_set=name)
        self._statistics: RunnerScaleSetStatistic | None = None
        self._acquisition = Acquisition(max_runners, patience.acquiring, self._log)
        self._last_message_id = 0
        self._counted: dict[tuple[str, int], None] = {}
        self._refused_since: float | None = None
        self._deferred_until: float | None = None
        self._second_look_at: float | None = None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is owed: every decision written, every job that fits acquired."""
        return self._scaler.is_settled and not self._acquisition.due()

    async def run(self) -> NoReturn:
        """Listen until cancelled.

        When cancelled, the message at hand is finished (within ``patience.handling``) and the
        session closed (within ``patience.closing``) before `CancelledError` goes on; a second
        cancellation cuts that short. Raises `ScaleSetGone`, `SessionNeverReleased`,
        `ServiceRefused`; the session is closed then, too.
        """
        while True:
            queue = await self._open()
            try:
                await self._serve(queue)
            finally:
                await self._close(queue)

    # --- the session

    async def _open(self) -> Queue:
        loop = asyncio.get_running_loop()
        since: float | None = None
        while True:
            try:
                queue = await self._open_once()
            except SessionConflict as error:
                since = loop.time() if since is None else since
                waited = loop.time() - since
                if waited >= self._patience.conflict:
                    raise SessionNeverReleased(
                        f"scale set {self._name}: another listener has held the message session "
                        f"for {waited:.0f} s ({error}); stop that listener, or wait until the "
                        "service gives its session up, and start this one again"
                    ) from error
                self._log.warning(
                    "another listener still holds the message session; waiting for it to go",
                    waited=round(waited),
                    giving_up_after=round(self._patience.conflict),
                )
                await self._backoff.sleep()
            except ActionsError as error:
                since = None
                await self._recover(error)
            else:
                self._log.info("message session opened")
                return queue

    async def _open_once(self) -> Queue:
        """A session that was opened while we were being stopped is closed again, not leaked."""
        opening = asyncio.create_task(self._opened())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait({opening}, timeout=self._patience.closing)
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await self._close(opening.result())
            raise
        finally:
            opening.cancel()

    async def _opened(self) -> Queue:
        return await self._open_queue()

    async def _close(self, queue: Queue) -> None:
        """Close the session, so that our successor is not refused; failing is not an error."""
        try:
            async with asyncio.timeout(self._patience.closing):
                await queue.close()
        except (ActionsError, TimeoutError) as error:
            self._log.warning(
                "the message session was not closed; the service gives it up by itself",
                error=str(error) or f"no answer in {self._patience.closing:.0f} s",
            )
        else:
            self._log.info("message session closed")

    # --- messages

    async def _serve(self, queue: Queue) -> None:
        """Handle messages; returns when the session is over and a new one must be opened."""
        self._last_message_id = 0
        if queue.statistics is not None:
            self._take_in(queue.statistics)
        await self._finish(self._follow_up(queue))
        while True:
            try:
                # A message that arrives as we turn away comes again: it is not acknowledged.
                async with asyncio.timeout(self._until_next_attempt()):
                    message = await self._poll(queue)
                await self._finish(self._handle(queue, message))
            except TimeoutError:
                await self._finish(self._settle(queue))
                await self._finish(self._look_again())
            except asyncio.CancelledError:
                await self._last_words()
                raise
            except (SessionNotFound, MessageQueueTokenExpired) as error:
                self._log.warning(
                    "the message session is over; opening a new one", error=str(error)
                )
                await self._backoff.sleep()
                return
            except ActionsError as error:
                await self._recover(error)
            else:
                self._refused_since = None
                if self.is_settled:
                    self._backoff.reset()

    def _until_next_attempt(self) -> float | None:
        """For how long to poll before something that is owed is tried (again); None: no limit."""
        due = self._second_look_at
        if self._deferred_until is not None:
            due = min(self._deferred_until, due or self._deferred_until)
        elif not self.is_settled:
            return self._backoff.next()
        return None if due is None else max(0.0, due - asyncio.get_running_loop().time())

    async def _look_again(self) -> None:
        due = self._second_look_at
        if due is not None and asyncio.get_running_loop().time() >= due:
            self._second_look_at = None
            await self._scale()

    async def _last_words(self) -> None:
        """Write what was deferred; our successor would find out by itself, but later."""
        if self._deferred_until is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await self._scaler.flush()

    async def _poll(self, queue: Queue) -> Message | None:
        return await queue.get_message(self._last_message_id, self._max_runners)

    async def _handle(self, queue: Queue, message: Message | None) -> None:
        """Statistics → started → acknowledge → acquire → completed → desired count.

        A message that is acknowledged never comes again, and nobody else says which runner holds a
        job. So that is written first: if we die before, our successor hears of it.
        """
        if message is None:
            await self._follow_up(queue)
            return
        if message.statistics is not None:
            self._take_in(message.statistics)
        self._note(message)
        if message.started:
            await self._record_started()
        refusal: ActionsError | None = None
        try:
            await queue.delete_message(message.message_id)
            self._last_message_id = message.message_id
        except ActionsError as error:
            # It may come again, or the acknowledgement arrived and only the answer was lost: doing
            # what it says is right in both cases, since doing it twice changes nothing.
            refusal = error
        await self._follow_up(queue)
        if refusal is not None:
            raise refusal

    async def _record_started(self) -> None:
        """Within a bound: an API server that is away shall not keep us from taking jobs, and what
        could not be written stays owed."""
        try:
            async with asyncio.timeout(self._patience.recording):
                await self._scaler.record_started()
        except TimeoutError:
            self._log.warning("started jobs not recorded in time; trying again")

    def _note(self, message: Message) -> None:
        """Remember what a message asks for."""
        self._acquisition.note(message)
        for started in message.started:
            self._scaler.started(started)
            if self._is_new(started):
                self._metrics.job_started(started)
        for completed in message.completed:
            if self._is_new(completed):
                self._scaler.completed()
                loop = asyncio.get_running_loop()
                self._second_look_at = loop.time() + self._patience.second_look
                self._metrics.job_completed(completed)
        self._log.info(
            "message",
            message_id=message.message_id,
            available=len(message.available),
            assigned=len(message.assigned),
            started=len(message.started),
            completed=len(message.completed),
        )

    def _is_new(self, job: JobStarted | JobCompleted) -> bool:
        """Whether this is the first we hear of it: messages come at least once, not exactly."""
        key = (job.message_type, job.runner_request_id)
        if key in self._counted:
            return False
        self._counted[key] = None
        if len(self._counted) > REMEMBERED_JOBS:
            del self._counted[next(iter(self._counted))]
        return True

    def _take_in(self, statistics: RunnerScaleSetStatistic) -> None:
        self._statistics = statistics
        self._acquisition.take_in(statistics)
        self._metrics.statistics(statistics)

    async def _follow_up(self, queue: Queue) -> None:
        """Acquire what fits, then scale to what the statistics say."""
        await self._acquisition.acquire(queue)
        await self._scale()

    async def _settle(self, queue: Queue) -> None:
        """Another attempt at what is owed, without deciding anew."""
        await self._acquisition.acquire(queue)
        await self._flush()
        if self.is_settled:
            self._backoff.reset()

    async def _scale(self) -> None:
        if self._statistics is not None:  # knowing nothing is not the same as having no jobs
            self._metrics.desired(self._scaler.decide(self._statistics.total_assigned_jobs))
        if self._scaler.is_settled or self._scaler.is_urgent:
            await self._flush()
        elif self._deferred_until is None:
            loop = asyncio.get_running_loop()
            self._deferred_until = loop.time() + self._patience.together

    async def _flush(self) -> None:
        self._deferred_until = None
        await self._scaler.flush()

    # --- trouble

    async def _recover(self, error: ActionsError) -> None:
        """Wait before the next attempt, or raise the `ListenerError` that this error means."""
        if isinstance(error, ScaleSetNotFound):
            raise ScaleSetGone(
                f"scale set {self._name} is unknown to the service ({error}): it was deleted "
                "there, or given up after days without a listener. The controller registers it "
                "again; if it does not, remove the annotation runner-scale-set-id from the "
                "AutoscalingRunnerSet"
            ) from error
        if isinstance(error, ClientClosed):
            raise error
        if is_transient(error):
            self._refused_since = None
            wait = self._backoff.next()
            self._log.warning(
                "the Actions service is not available; trying again",
                error=str(error),
                wait=round(wait, 1),
            )
        else:
            wait = self._wait_after_refusal(error)
            self._log.error(
                "the Actions service refuses; trying again", error=str(error), wait=round(wait, 1)
            )
        await asyncio.sleep(wait)

    def _wait_after_refusal(self, error: ActionsError) -> float:
        now = asyncio.get_running_loop().time()
        self._refused_since = now if self._refused_since is None else self._refused_since
        refused = now - self._refused_since
        if refused >= self._patience.refusal:
            raise ServiceRefused(
                f"scale set {self._name}: the Actions service has refused for {refused:.0f} s "
                f"({error}); check that the credentials in the scale set's secret are valid and "
                "may manage self-hosted runners there"
            ) from error
        return self._backoff.next()

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work to its end even if we are cancelled meanwhile, within a bound.

        The cancellation goes on afterwards; a second one gives the work up at once.
        """
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._log.info("finishing the message at hand before stopping")
                await asyncio.wait({task}, timeout=self._patience.handling)
            if task.done() and not task.cancelled() and (error := task.exception()):
                self._log.warning("the last message was not finished", error=str(error))
            raise
        finally:
            task.cancel()
