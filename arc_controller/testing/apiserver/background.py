"""Work that the store's writes cause later: what controllers do in a real cluster.

A queue with at most one task, which exists only while there is work: a server with nothing to do
has no task, and under simulated time the order is the order of the writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable


class Background:
    """De-duplicating queue of things to do, done one after the other."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay
        self._jobs: dict[Hashable, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, key: Hashable, job: Callable[[], None]) -> None:
        """Run `job` soon; a job that is waiting under the same key already is enough.

        Outside a running loop the job waits for the next `add` or `start` inside one.
        """
        if self._closed:
            return
        self._jobs.setdefault(key, job)
        self.start()

    def start(self) -> None:
        if self._task is not None or not self._jobs or self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._delay)
            while self._jobs:
                key = next(iter(self._jobs))
                job = self._jobs.pop(key)
                job()
                await asyncio.sleep(0)
        finally:
            self._task = None

    async def aclose(self) -> None:
        self._closed = True
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until there is nothing left to do."""
        while self._task is not None:
            await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)
