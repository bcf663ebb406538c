"""`WorkQueue`: what has to be looked at, each item once."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from arc_controller.runtime.metrics import QueueMetrics
from arc_controller.runtime.ratelimiters import RateLimiter, default_rate_limiter

T = TypeVar("T", bound=Hashable)


class QueueShutDown(Exception):
    """The queue was shut down and has nothing more to hand out."""


class WorkQueue(Generic[T]):
    """A de-duplicating queue of items to be processed, with delays.

    The promise: after every ``add`` (or ``add_after``) the item is handed out by a ``get`` that
    happens after that call, and as soon as a worker is free once the delay is over. Several adds
    may share one hand-out; of two delays the earlier wins. An item is never with two workers at
    once: while one has it, further adds wait for ``done``.

    Ready items are handed out first in, first out. All methods but `get` return at once; every
    one must be called from the loop's thread. Delays are in seconds of the loop's time.
    """

    # An item is pending in at most one of these three ways ...
    _ready: dict[T, float]  # to be handed out, in this order; since when
    _delayed: dict[T, asyncio.TimerHandle]  # becomes ready (or held) when the timer fires
    _held: set[T]  # due, but with a worker: becomes ready at done(). A subset of _active
    # ... and, apart from that, may be with a worker. Nothing is in both _ready and _active.
    _active: dict[T, float]  # since when
    # Whenever something is ready, a getter that waits has been woken and not yet run.
    _getters: deque[asyncio.Future[None]]

    def __init__(
        self,
        name: str = "",
        *,
        rate_limiter: RateLimiter[T] | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self.name = name
        self._limiter: RateLimiter[T] = rate_limiter or default_rate_limiter()
        self._metrics = metrics
        self._ready, self._delayed, self._held, self._active = {}, {}, set(), {}
        self._getters = deque()
        self._is_shut_down = False
        if metrics is not None:
            metrics.observe(self)

    def __len__(self) -> int:
        """How many items are ready to be handed out."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many items wait for their time."""
        return len(self._delayed)

    @property
    def active(self) -> int:
        """How many items are with workers."""
        return len(self._active)

    def working_on(self) -> list[T]:
        """What the workers have, the longest running first."""
        return list(self._active)

    @property
    def is_shut_down(self) -> bool:
        return self._is_shut_down

    def add(self, item: T) -> None:
        """Hand the item out as soon as possible. Ignored after `shut_down`."""
        if self._is_shut_down:
            return
        timer = self._delayed.pop(item, None)
        if timer is not None:
            timer.cancel()
        self._make_due(item)

    def add_after(self, item: T, delay: float) -> None:
        """Hand the item out in `delay` seconds, or earlier if something else asks for that.

        Raises `ValueError` for a delay that is not a number (NaN), which the loop cannot sort.
        """
        if math.isnan(delay):
            raise ValueError(f"queue {self.name!r}: {item!r} is to be added after {delay} seconds")
        if delay <= 0:
            self.add(item)
            return
        if self._is_shut_down or item in self._ready or item in self._held:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay
        timer = self._delayed.get(item)
        if timer is not None:
            if timer.when() <= when:
                return
            timer.cancel()
        self._delayed[item] = loop.call_at(when, self._delay_is_over, item)

    def add_rate_limited(self, item: T) -> None:
        """Hand the item out when the rate limiter says so: a retry after a failure."""
        if self._metrics is not None:
            self._metrics.retries.inc()
        self.add_after(item, self._limiter.when(item))

    def forget(self, item: T) -> None:
        """The item succeeded: its next failure counts as the first."""
        self._limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        """How often the item failed in a row."""
        return self._limiter.num_requeues(item)

    async def get(self) -> T:
        """The next item, which must be given back with `done`. Raises `QueueShutDown`.

        Cancelling it never loses an item.
        """
        while not self._ready:
            if self._is_shut_down and not self._held:
                raise QueueShutDown(self.name)
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                elif self._ready:
                    self._wake_one()  # this getter was woken for an item: pass that on
                raise
        item = next(iter(self._ready))
        since = self._ready.pop(item)
        now = asyncio.get_running_loop().time()
        self._active[item] = now
        if self._metrics is not None:
            self._metrics.queue_duration.observe(now - since)
        return item

    def done(self, item: T) -> None:
        """Give back what `get` returned; if it was added meanwhile, it becomes ready again.

        Raises `ValueError` for an item that is with no worker.
        """
        try:
            since = self._active.pop(item)
        except KeyError:
            raise ValueError(f"queue {self.name!r}: {item!r} is not being processed") from None
        if self._metrics is not None:
            now = asyncio.get_running_loop().time()
            self._metrics.work_duration.observe(now - since)
        if item in self._held:
            self._held.remove(item)
            self._make_ready(item)
        if self._is_shut_down and not self._held:
            self._wake_all()

    def shut_down(self, *, drain: bool = True) -> None:
        """Take no more adds and drop the delayed ones.

        What is due is still handed out, unless `drain` is False; after that every `get` raises
        `QueueShutDown`.
        """
        self._is_shut_down = True
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        if not drain:
            self._ready.clear()
            self._held.clear()
        self._wake_all()

    def unfinished_seconds(self) -> float:
        """Seconds of work in progress, summed over all items that are with workers."""
        if not self._active:
            return 0.0
        now = asyncio.get_running_loop().time()
        return sum(now - since for since in self._active.values())

    def longest_running_seconds(self) -> float:
        """For how long the longest running worker has had its item."""
        if not self._active:
            return 0.0
        return asyncio.get_running_loop().time() - min(self._active.values())

    def _delay_is_over(self, item: T) -> None:
        del self._delayed[item]
        self._make_due(item)

    def _make_due(self, item: T) -> None:
        if item in self._ready or item in self._held:
            return
        if self._metrics is not None:
            self._metrics.adds.inc()
        if item in self._active:
            self._held.add(item)
        else:
            self._make_ready(item)

    def _make_ready(self, item: T) -> None:
        self._ready[item] = asyncio.get_running_loop().time()
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._getters:
            self._wake_one()
