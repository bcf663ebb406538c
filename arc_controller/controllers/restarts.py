"""How long to wait before something that keeps dying is started again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cachetools import LRUCache

FIRST_WAIT = 10.0
LONGEST_WAIT = 300.0
LIVED_WELL = 600.0
"""Seconds after which a death is not counted together with the ones before."""


@dataclass(slots=True)
class _Deaths:
    count: int
    last: str
    retry_at: float


class Restarts:
    """The first death is followed by a restart at once, the next by one after 10, 20, 40 … 300 s.

    Times are the loop's own. A new process forgets, and so begins with an immediate restart.
    """

    def __init__(self, size: int = 4096) -> None:
        self._deaths: LRUCache[str, _Deaths] = LRUCache(size)

    def wait(self, owner: str, dead: str, lived: float) -> float:
        """Seconds until `owner` may be restarted, now that `dead` has died after `lived` seconds.

        Asking again about the same death does not count it again.
        """
        now = asyncio.get_running_loop().time()
        deaths = self._deaths.get(owner)
        if deaths is None or (deaths.last != dead and lived >= LIVED_WELL):
            deaths = self._deaths[owner] = _Deaths(1, dead, now)
        elif deaths.last != dead:
            deaths.count += 1
            deaths.last = dead
            deaths.retry_at = now + min(FIRST_WAIT * 2.0 ** (deaths.count - 2), LONGEST_WAIT)
        return max(0.0, deaths.retry_at - now)

    def count(self, owner: str) -> int:
        """How many deaths in a row."""
        deaths = self._deaths.get(owner)
        return deaths.count if deaths is not None else 0

    def forget(self, owner: str) -> None:
        self._deaths.pop(owner, None)
