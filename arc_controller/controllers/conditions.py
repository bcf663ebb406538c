"""Conditions: the answer to "why is nothing happening?" for whoever runs ``kubectl describe``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import Condition, find_condition, set_condition

READY = "Ready"
"""On all kinds: things are as the spec wants them."""
REGISTERED = "Registered"
"""On an AutoscalingRunnerSet: the service knows the scale set as this generation of the spec."""
VERSION_MATCHES = "VersionMatches"
"""On an AutoscalingRunnerSet; absent as long as there was nothing to complain about."""
SCALE_SET_FOUND = "ScaleSetFound"
"""On an AutoscalingListener: False when its scale set is gone from the service."""


def put_condition(
    lazy: LazyCopy[Any], type_: str, holds: bool, reason: str, message: str, *, now: datetime
) -> bool:
    """Put a condition into the status, to be written with the next `LazyCopy.patch_status`.

    Says whether this is a turning point (another status or reason), worth an Event. An object whose
    condition says this already is not copied.
    """
    wanted = Condition(
        type=type_,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        observed_generation=lazy.obj.metadata.generation,
    )
    current = find_condition(lazy.obj.status.conditions, type_)
    if current is not None and _says(current) == _says(wanted):
        return False
    set_condition(lazy.mutate().status.conditions, wanted, now)
    return current is None or (current.status, current.reason) != (wanted.status, wanted.reason)


def _says(condition: Condition) -> tuple[object, ...]:
    return (condition.status, condition.reason, condition.message, condition.observed_generation)
