"""`Controller`: workers that hand keys to a reconciler and decide when to come back."""

from __future__ import annotations

import asyncio
import logging
import math
import random as random_
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from structlog.contextvars import bind_contextvars

from arc_controller.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    TransportError,
)
from arc_controller.runtime.metrics import ControllerMetrics, RuntimeMetrics
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ratelimiters import ExponentialBackoff
from arc_controller.runtime.workqueue import QueueShutDown, WorkQueue

log = structlog.get_logger(__name__)

RESYNC_CHUNK = 500
LATE_CACHE_FAILURES: Final = 2
"""So many `NotFound` or `AlreadyExists` in a row are no error: whoever works from a cache now and
then deletes what is gone, or creates what is there. It is over before there are more."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile ended well; `requeue_after` (seconds) is the one way to ask for another.

    A pass that asks for nothing is looked at again when something changes. A pass that only put
    the work off, and so cannot know whether it would succeed, is `postponed`: the failures before
    it are not forgotten. Raises `TypeError` or `ValueError` for what is no number of seconds.
    """

    requeue_after: float | None = None
    postponed: bool = False

    def __post_init__(self) -> None:
        seconds = self.requeue_after
        if seconds is None:
            if self.postponed:
                raise ValueError("Result(postponed=True) needs a requeue_after: until when?")
            return
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise TypeError(f"Result(requeue_after={seconds!r}): it is a number of seconds")
        if not math.isfinite(seconds):
            raise ValueError(f"Result(requeue_after={seconds!r}): it is a finite number of seconds")


class TerminalError(Exception):
    """This object cannot be reconciled as it is, and trying again will not help.

    It is logged and counted but not retried before the object changes.
    """


class Reconciler(Protocol):
    """Brings one object closer to what its spec says.

    Reconciling is level based: the key says that *something* may have changed, never what. Every
    pass reads the present state, compares it with the wanted one and makes the next step; a pass
    may come late, twice or for an object that is gone, and a missed event costs only time.

    One key is never reconciled twice at the same time. An exception means: again later, with a
    growing delay; `Conflict` means: again at once, the decision was made on stale data. A pass
    may be cancelled at every ``await`` (the process stops), so each step must be safe to repeat.
    """

    async def reconcile(self, key: NamespacedName) -> Result: ...


EXPECTED: Final = (ApiError, TransportError, TerminalError, TimeoutError)
"""Errors whose message says all; others are logged with a traceback."""


class Controller:
    """Runs a reconciler for the keys of a queue, `max_concurrent_reconciles` at a time.

    `start` runs until it is cancelled, which cancels running reconciles too; call `drain` first
    to let them finish. `on_start` functions are called when `start` begins: sources that
    begin to fill the queue. `resync` lists keys that are enqueued again every `sync_period`
    seconds, spread over the period.
    """

    needs_leader_election = True

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        queue: WorkQueue[NamespacedName] | None = None,
        *,
        max_concurrent_reconciles: int = 1,
        reconcile_timeout: float | None = None,
        expected_errors: Iterable[type[Exception]] = (),
        on_start: Iterable[Callable[[], None]] = (),
        resync: Callable[[], Iterable[NamespacedName]] | None = None,
        sync_period: float | None = None,
        metrics: RuntimeMetrics | None = None,
        random: random_.Random | None = None,
    ) -> None:
        if max_concurrent_reconciles < 1:
            raise ValueError(
                f"controller {name}: max_concurrent_reconciles is {max_concurrent_reconciles}, "
                "it must be at least 1"
            )
        self.name = name
        self.queue: WorkQueue[NamespacedName] = queue if queue is not None else WorkQueue(name)
        self.max_concurrent_reconciles = max_concurrent_reconciles
        self._reconciler = reconciler
        self._timeout = reconcile_timeout
        self._expected = (*EXPECTED, *expected_errors)
        self._on_start = tuple(on_start)
        self._resync_keys = resync
        self._sync_period = sync_period
        self._random = random or random_.Random()
        self._conflicts = ExponentialBackoff[NamespacedName](
            base=0.01, cap=1.0, jitter=1.0, random=self._random
        )
        self._metrics: ControllerMetrics | None = None
        if metrics is not None:
            self._metrics = metrics.controller(name, max_concurrent_reconciles)
            self._metrics.active_workers.set_function(lambda: self._busy)
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0

    @property
    def active(self) -> int:
        """How many reconciles are running."""
        return self._busy

    async def start(self) -> None:
        """Reconcile until cancelled (or shut down by `drain`).

        When this returns or raises, no reconcile of this controller runs any more.
        """
        for begin in self._on_start:
            begin()
        async with asyncio.TaskGroup() as tasks:
            resync = tasks.create_task(self._resync(), name=f"{self.name}-resync")
            workers = [
                tasks.create_task(self._work(), name=f"{self.name}-worker-{number}")
                for number in range(self.max_concurrent_reconciles)
            ]
            await asyncio.wait(workers)
            resync.cancel()

    async def drain(self) -> None:
        """Hand out no more keys and wait until the running reconciles have ended."""
        self.queue.shut_down(drain=False)
        await self._idle.wait()

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            self._busy += 1
            self._idle.clear()
            try:
                await self._process(key)
            finally:
                self.queue.done(key)
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _process(self, key: NamespacedName) -> None:
        loop = asyncio.get_running_loop()
        metrics, started = self._metrics, loop.time()
        # Each worker has a context of its own, and its next key overwrites these.
        bind_contextvars(controller=self.name, namespace=key.namespace, name=key.name)
        try:
            outcome = await self._reconcile(key)
        finally:
            if metrics is not None:
                metrics.time.observe(loop.time() - started)
        if metrics is not None:
            metrics.count(outcome)
        if log.is_enabled_for(logging.DEBUG):
            log.debug("reconciled", outcome=outcome, seconds=round(loop.time() - started, 3))

    async def _reconcile(self, key: NamespacedName) -> str:
        deadline: asyncio.Timeout | None = None
        try:
            if self._timeout is None:
                result = await self._reconciler.reconcile(key)
            else:
                async with asyncio.timeout(self._timeout) as deadline:
                    result = await self._reconciler.reconcile(key)
            if not isinstance(result, Result):
                raise TypeError(f"reconcile returned {result!r}; it must return a Result")
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # we are being stopped
            return self._retry(key, error)  # something the reconciler waited for was cancelled
        except (Exception, BaseExceptionGroup) as error:
            if _consists_of(Conflict, error):
                log.debug("the object changed meanwhile, looking again", reason=str(error))
                self.queue.add_after(key, self._conflicts.when(key))
                return "requeue"
            if isinstance(error, TerminalError):
                return self._give_up(key, error)
            if deadline is not None and deadline.expired():
                self._count_timeout()
            return self._retry(key, error)
        if not result.postponed:
            self._conflicts.forget(key)
            self.queue.forget(key)
        if result.requeue_after is None:
            return "success"
        log.debug("looks again later", seconds=round(result.requeue_after, 3))
        self.queue.add_after(key, result.requeue_after)
        return "requeue_after"

    def _retry(self, key: NamespacedName, error: BaseException) -> str:
        failures = self.queue.num_requeues(key) + 1
        self._log_failure(
            error,
            "reconcile failed",
            is_race=failures <= LATE_CACHE_FAILURES
            and _consists_of((NotFound, AlreadyExists), error),
            failures=failures,
        )
        self.queue.add_rate_limited(key)
        return "error"

    def _give_up(self, key: NamespacedName, error: TerminalError) -> str:
        self._log_failure(error, "reconcile failed and is not tried again before a change")
        if self._metrics is not None:
            self._metrics.terminal_errors.inc()
        self._conflicts.forget(key)
        self.queue.forget(key)
        return "error"

    def _log_failure(
        self, error: BaseException, event: str, *, is_race: bool = False, **context: object
    ) -> None:
        if self._metrics is not None:
            self._metrics.errors.inc()
        is_expected = isinstance(error, self._expected)
        write = log.info if is_race else log.error
        write(
            event,
            error=str(error) or type(error).__name__,
            exc_info=None if is_expected else error,
            **context,
        )

    def _count_timeout(self) -> None:
        if self._metrics is not None:
            self._metrics.timeouts.inc()
        log.warning("reconcile was cancelled, it took too long", seconds=self._timeout)

    async def _resync(self) -> None:
        if self._resync_keys is None or not self._sync_period:
            return
        while True:
            await asyncio.sleep(self._sync_period)
            for number, key in enumerate(list(self._resync_keys())):
                self.queue.add_after(key, self._random.uniform(0, self._sync_period))
                if number % RESYNC_CHUNK == RESYNC_CHUNK - 1:
                    await asyncio.sleep(0)


def _consists_of(kind: type[Exception] | tuple[type[Exception], ...], error: BaseException) -> bool:
    """Whether the error is of that kind, or a group (of a TaskGroup) of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1] is None
    return isinstance(error, kind)
