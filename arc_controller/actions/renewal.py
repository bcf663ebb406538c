"""One renewal for many callers: whoever comes while it runs waits for the same result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from .errors import ClientClosed

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Wraps a coroutine function so that concurrent calls become one.

    A caller that is cancelled leaves the others, and the call itself, alone. An error reaches
    everybody who waits; the next caller starts anew.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._task: asyncio.Task[T] | None = None
        self._closed = False

    async def __call__(self) -> T:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(_look_at)
        task = self._task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and not (me and me.cancelling()):
                raise ClientClosed("the client was closed during the call") from None
            raise

    async def aclose(self) -> None:
        """Cancel what runs and refuse what comes; who waits gets :class:`ClientClosed`."""
        self._closed = True
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> T:
        return await self._call()


def _look_at(task: asyncio.Task[T]) -> None:
    # All waiters may have been cancelled: then nobody else would ever look at the error.
    if not task.cancelled():
        task.exception()
