"""Waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until(
    condition: Callable[[], Any], seconds: float = 120.0, *, every: float = 0.05
) -> None:
    """Until `condition()` (awaited if need be) holds. Raises `TimeoutError` when it does not."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(every)
