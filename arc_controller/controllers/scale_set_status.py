"""What the status of an AutoscalingRunnerSet says, and saying it."""

from __future__ import annotations

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunnerSetStatus
from arc_controller.controllers.conditions import READY, REGISTERED
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import find_condition

ScaleSet = LazyCopy[AutoscalingRunnerSet]


def show(scale_set: ScaleSet, phase: str, counts: EphemeralRunnerSetStatus | None = None) -> None:
    """Put phase and counts into the status, to be written with the next `LazyCopy.patch_status`.
    What says this already is not copied."""
    if scale_set.obj.status.phase != phase:
        scale_set.mutate().status.phase = phase
    if counts is not None and not has_counts(scale_set.obj, counts):
        status = scale_set.mutate().status
        status.current_runners = counts.current_replicas
        status.pending_ephemeral_runners = counts.pending_ephemeral_runners
        status.running_ephemeral_runners = counts.running_ephemeral_runners
        status.failed_ephemeral_runners = counts.failed_ephemeral_runners


def is_seen(obj: AutoscalingRunnerSet) -> bool:
    """Whether the status speaks of this generation of the spec."""
    ready = find_condition(obj.status.conditions, READY)
    return ready is not None and ready.observed_generation == obj.metadata.generation


def is_verified(obj: AutoscalingRunnerSet) -> bool:
    """Whether the service has it as this generation of the spec wants it."""
    registered = find_condition(obj.status.conditions, REGISTERED)
    return (
        registered is not None
        and registered.status == "True"
        and registered.observed_generation == obj.metadata.generation
    )


def has_counts(obj: AutoscalingRunnerSet, counts: EphemeralRunnerSetStatus) -> bool:
    status = obj.status
    return (
        status.current_runners == counts.current_replicas
        and status.pending_ephemeral_runners == counts.pending_ephemeral_runners
        and status.running_ephemeral_runners == counts.running_ephemeral_runners
        and status.failed_ephemeral_runners == counts.failed_ephemeral_runners
    )
