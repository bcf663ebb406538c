"""What a listener's pod says of itself, in one word and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from arc_controller.api.core import ContainerStatus, Pod
from arc_controller.api.v1alpha1 import LISTENER_CONTAINER


@dataclass(frozen=True, slots=True)
class PodState:
    """`is_over`: the listener has ended; it will not run again in this pod."""

    runs: bool
    is_over: bool
    reason: str
    message: str
    ended: datetime | None = None


STARTING = PodState(False, False, "Starting", "its pod is starting")


def pod_state(pod: Pod) -> PodState:
    """Judge the pod. The listener's container decides: a sidecar may outlive it."""
    container = _container(pod)
    ended = container.state.terminated if container else None
    if ended is not None:
        why = ended.message or ended.reason
        text = f"the listener ended with exit code {ended.exit_code}"
        return _over("Terminated", f"{text}: {why}" if why else text, ended.finished_at)
    if pod.status.phase in ("Failed", "Succeeded"):
        reason = pod.status.reason or "Terminated"
        return _over(reason, pod.status.message or f"the pod is {pod.status.phase}")
    if container is not None and container.state.running is not None:
        return PodState(True, False, "Running", "its pod runs")
    waiting = container.state.waiting if container else None
    if waiting is not None and waiting.reason:
        text = f"the pod waits: {waiting.message or waiting.reason}"
        return PodState(False, False, waiting.reason, text)
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodState(False, False, condition.reason or "Unschedulable", condition.message)
    return STARTING


def _over(reason: str, message: str, ended: datetime | None = None) -> PodState:
    return PodState(False, True, reason, message, ended)


def _container(pod: Pod) -> ContainerStatus | None:
    statuses = pod.status.container_statuses
    return next((status for status in statuses if status.name == LISTENER_CONTAINER), None)
