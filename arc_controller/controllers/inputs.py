"""Secrets and config maps that users give us, read on demand and remembered for a moment.

They are not in the cache (that would mean every secret of the cluster), and reading one on every
pass would be most of an idle controller's traffic. So a read is remembered for less than a minute:
long enough for a burst of runners to cost one read, short enough that a rotated secret takes effect
by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from cachetools import TTLCache

from arc_controller.runtime.client import Reader
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.objects import K, KubeObject, NamespacedName

REMEMBERED = 45.0
"""Seconds that a read is remembered."""

_Key = tuple[type[KubeObject], NamespacedName]


class InputError(Exception):
    """Something that the spec refers to is missing or cannot be used.

    ``reason`` is one CamelCase word for a condition; the text names field, object and what would be
    right. It is for the user to repair: nothing here gets better by trying faster.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class Inputs:
    """`find` for secrets and config maps, remembered for `ttl` seconds of the loop's own time.

    Many callers at once cause one read; one of them being cancelled disturbs nobody. What is not
    there is not remembered. What is returned is shared and must not be changed.
    """

    def __init__(self, reader: Reader, *, ttl: float = REMEMBERED, size: int = 2048) -> None:
        self._reader = reader
        self._remembered: TTLCache[_Key, KubeObject] = TTLCache(size, ttl, timer=loop_time)
        self._reading: dict[_Key, asyncio.Task[KubeObject | None]] = {}

    async def find(self, kind: type[K], key: NamespacedName) -> K | None:
        """The object, or None. Raises `ApiError`."""
        slot = (kind, key)
        known = self._remembered.get(slot)
        if known is not None:
            return cast("K", known)
        reading = self._reading.get(slot)
        if reading is None:
            reading = asyncio.ensure_future(self._read(slot))
            self._reading[slot] = reading
            reading.add_done_callback(lambda task: self._finished(slot, task))
        return cast("K | None", await asyncio.shield(reading))

    def forget(self, kind: type[KubeObject], key: NamespacedName) -> None:
        """Read it again next time; for when the service refused what it says."""
        self._remembered.pop((kind, key), None)

    async def _read(self, slot: _Key) -> KubeObject | None:
        found: KubeObject | None = await self._reader.find(*slot)
        if found is not None:
            self._remembered[slot] = found
        return found

    def _finished(self, slot: _Key, task: asyncio.Task[Any]) -> None:
        self._reading.pop(slot, None)
        if not task.cancelled():
            task.exception()  # somebody may have stopped waiting for it
