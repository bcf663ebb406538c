"""Time that a test can replace: the wall clock as a function, durations from the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]
"""Returns the current time, aware and in UTC."""


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


def loop_time() -> float:
    """The running loop's time in seconds: durations are measured with it, and never with `Now`."""
    return asyncio.get_running_loop().time()


def micro_time(moment: datetime) -> str:
    """A ``metav1.MicroTime``: its decoder insists on exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
