"""What a listener's pod says of itself, in one word and one sentence."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import datetime

from arc_controller.api.core import ContainerStateTerminated, ContainerStatus, Pod
from arc_controller.api.v1alpha1 import (
    LISTENER_CONTAINER,
    LISTENING_SINCE,
    EphemeralRunnerSet,
)


@dataclass(frozen=True, slots=True)
class PodState:
    """`is_over`: the listener has ended; it will not run again in this pod. `is_clean`: because it
    was asked to."""

    runs: bool
    is_over: bool
    reason: str
    message: str
    ended: datetime | None = None
    is_clean: bool = False


FATAL_SIGNAL = 128
"""What a shell, and a container runtime, adds to the number of the signal that ended a process."""
_SIGNALS = {each.value: each.name for each in signal.Signals}

NO_SESSION = PodState(
    False,
    False,
    "WaitingForSession",
    "its pod runs and waits for the message session, which the service gives to one listener at a "
    "time: that of a listener that was killed ends after a minute or more",
)
STARTING = PodState(False, False, "Starting", "its pod is starting")


def pod_state(pod: Pod) -> PodState:
    """Judge the pod. The listener's container decides: a sidecar may outlive it."""
    container = _container(pod)
    ended = container.state.terminated if container else None
    if ended is not None:
        is_clean = ended.exit_code == 0
        return PodState(False, True, "Terminated", _end(ended), ended.finished_at, is_clean)
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


def waits_for_session(pod: Pod, runner_set: EphemeralRunnerSet | None, image: str) -> bool:
    """Whether a listener whose pod runs has not said yet that the service gave it the message
    session, as listeners of `image` do with their first word to the set of runners."""
    container = _container(pod)
    if container is None or container.state.running is None or runner_set is None:
        return False
    if all(each.image != image for each in pod.spec.containers):
        return False
    started = str(container.state.running.get("startedAt") or "")
    # Both times are of one form and of one clock, that of the node.
    return runner_set.metadata.annotations.get(LISTENING_SINCE, "") < started


def _end(ended: ContainerStateTerminated) -> str:
    if ended.exit_code == 0:
        return "the listener ended without an error"
    text, why = f"the listener ended with exit code {ended.exit_code}", ended.message
    if ended.exit_code > FATAL_SIGNAL:
        # The message is what it logged last, and it did not see this coming.
        number = ended.exit_code - FATAL_SIGNAL
        name = f"signal {number}"
        if number in _SIGNALS:
            name = f"{name}, {_SIGNALS[number]}"
        text, why = f"{text} (killed by {name})", ""
    if not why and ended.reason not in ("", "Error"):
        why = ended.reason
    return f"{text}: {why}" if why else text


def _over(reason: str, message: str, ended: datetime | None = None) -> PodState:
    return PodState(False, True, reason, message, ended)


def _container(pod: Pod) -> ContainerStatus | None:
    statuses = pod.status.container_statuses
    return next((status for status in statuses if status.name == LISTENER_CONTAINER), None)
