"""Many small calls at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 32
"""How many calls are on their way at the same time."""


async def each(
    items: Sequence[T], call: Callable[[T], Awaitable[R]], *, at_once: int = AT_ONCE
) -> list[R | Exception]:
    """What `call` returned or raised for each item, in the order of `items`.

    One call that fails does not keep the others from being made. Cancelled, it cancels the calls
    that are on their way, waits for them and makes no more.
    """
    results: dict[int, R | Exception] = {}
    remaining = iter(enumerate(items))

    async def work() -> None:
        for index, item in remaining:
            try:
                results[index] = await call(item)
            except Exception as error:
                results[index] = error

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(items))):
            tasks.create_task(work())
    return [results[index] for index in range(len(items))]


def raise_first(results: Sequence[object]) -> None:
    """Raise the first exception among the results of `each`, if there is one."""
    for result in results:
        if isinstance(result, Exception):
            raise result
