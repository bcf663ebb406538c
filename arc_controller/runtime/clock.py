"""The wall clock, as a function that a test can replace.

Durations never come from here: they come from the running loop's own time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]
"""Returns the current time, aware and in UTC."""


def utc_now() -> datetime:
    """The system's clock."""
    return datetime.now(UTC)


def micro_time(moment: datetime) -> str:
    """A ``metav1.MicroTime``: its decoder insists on exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
