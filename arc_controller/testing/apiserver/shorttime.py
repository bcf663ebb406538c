"""Ages as kubectl writes them: `5s`, `3m20s`, `4h`, `2d3h`."""

from __future__ import annotations

from datetime import datetime


def age_of(timestamp: str | None, now: datetime) -> str:
    """How long ago a timestamp was; `<unknown>` without one."""
    if not timestamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    return human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """At most two units, the smaller one only while it matters."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(hours // 24, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{hours // 24}d"
    if hours < 24 * 365 * 8:
        return _two(hours // 24 // 365, "y", hours // 24 % 365, "d")
    return f"{hours // 24 // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
