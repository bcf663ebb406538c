"""How fast requests may be sent: a token bucket on the running loop's own time."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """Lets `burst` pass at once and then `rate` per second, in the order in which they asked.

    A rate of 0 or less means no limit.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: int) -> None:
        if rate > 0 and burst < 1:
            raise ValueError(f"burst is {burst}: with a rate of {rate} it has to be at least 1")
        self._rate = rate
        self._burst = float(burst)
        # Below zero, it is the number of those who were promised a token that is not there yet.
        self._tokens = float(burst)
        self._at = float("-inf")

    def reserve(self) -> float:
        """Take a token, and say in how many seconds it may be used (0.0 for at once)."""
        if self._rate <= 0:
            return 0.0
        now = asyncio.get_running_loop().time()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """Return a reserved token that was not used."""
        self._tokens += 1

    async def acquire(self) -> float:
        """Wait for a token; returns the seconds waited. A cancelled wait takes no token."""
        delay = self.reserve()
        if delay > 0:
            try:
                await asyncio.sleep(delay)
            except BaseException:
                self.give_back()
                raise
        return delay
