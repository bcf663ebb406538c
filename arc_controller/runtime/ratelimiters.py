"""How long a failed item waits before it is tried again."""

from __future__ import annotations

import random as random_
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from arc_controller.runtime.clock import loop_time

T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)
T = TypeVar("T", bound=Hashable)


class RateLimiter(Protocol[T_contra]):
    """Decides about one item at a time; `forget` ends an item's run of failures."""

    def when(self, item: T_contra) -> float:
        """How many seconds the item has to wait; each call counts as one more failure."""

    def forget(self, item: T_contra) -> None: ...

    def num_requeues(self, item: T_contra) -> int:
        """How often `when` was asked about the item since it was last forgotten."""


class ExponentialBackoff(Generic[T]):
    """``base``, 2 ``base``, 4 ``base``, … seconds per item, never more than `cap`.

    `jitter` makes each delay longer by a random share: 0.5 means up to half as long again. It
    keeps items that failed together from coming back together.
    """

    def __init__(
        self,
        base: float = 0.005,
        cap: float = 1000.0,
        *,
        jitter: float = 0.0,
        random: random_.Random | None = None,
    ) -> None:
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._random = random or random_.Random()
        self._failures: dict[T, int] = {}

    def when(self, item: T) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # An exponent of 64 is past any cap; larger ones would overflow a float.
        delay = min(self._cap, self._base * 2.0 ** min(failures, 64))
        return delay * (1 + self._random.uniform(0, self._jitter)) if self._jitter else delay

    def forget(self, item: T) -> None:
        self._failures.pop(item, None)

    def num_requeues(self, item: T) -> int:
        return self._failures.get(item, 0)


class TokenBucket(Generic[T]):
    """At most `qps` items per second over all items, after a burst of `burst`.

    `time` is the running loop's unless given. It knows no single items: `forget` does nothing.
    """

    def __init__(
        self, qps: float = 10.0, burst: int = 100, *, time: Callable[[], float] | None = None
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"TokenBucket(qps={qps}, burst={burst}): both must be positive")
        self._qps = qps
        self._burst = burst
        self._time = time or loop_time
        self._tokens = float(burst)  # negative: that many are promised to items already waiting
        self._at: float | None = None

    def when(self, item: T) -> float:
        self._refill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def take(self) -> bool:
        """Take a token if there is one; for those who would rather drop than wait."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self) -> None:
        now = self._time()
        if self._at is not None:
            refilled = self._tokens + (now - self._at) * self._qps
            self._tokens = min(float(self._burst), refilled)
        self._at = now

    def forget(self, item: T) -> None: ...

    def num_requeues(self, item: T) -> int:
        return 0


class MaxOf(Generic[T]):
    """The longest of what several limiters say."""

    def __init__(self, *limiters: RateLimiter[T]) -> None:
        self._limiters = limiters

    def when(self, item: T) -> float:
        return max(limiter.when(item) for limiter in self._limiters)

    def forget(self, item: T) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def num_requeues(self, item: T) -> int:
        return max(limiter.num_requeues(item) for limiter in self._limiters)


def default_rate_limiter() -> RateLimiter[Hashable]:
    """5 ms doubling up to 1000 s per item, and 10 retries per second (burst 100) over all items."""
    return MaxOf(ExponentialBackoff[Hashable](), TokenBucket[Hashable]())
