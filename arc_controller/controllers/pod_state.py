"""What has become of a runner's pod: one pure judgement of what its status says.

The exit code of the container ``runner`` counts more than the phase of the pod: a sidecar that
fails must not fail a job that succeeded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from arc_controller.api.core import ContainerStateTerminated, ContainerStatus, Pod
from arc_controller.api.v1alpha1 import RUNNER_CONTAINER

EXIT_OUTDATED: Final = 7
"""The runner's exit code when the service refuses its version as too old."""

DEADLINE_SLACK: Final = timedelta(seconds=30)
"""How long after its deadline a pod that is being deleted counts as lost with its node."""

MAX_MESSAGE: Final = 1024

# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions and the
# reasons that kubelet and node lifecycle controller write into a pod's status.
_DISRUPTION_CONDITION: Final = "DisruptionTarget"
_NODE_LOST: Final = "NodeLost"
_DISRUPTIONS: Final = frozenset(
    {
        "Evicted",
        "NodeShutdown",
        "Preempted",
        "Preempting",
        "Shutdown",
        "Terminated",
        _NODE_LOST,
    }
)
_CONFIGURATION_MISSING: Final = "CreateContainerConfigError"
_STUCK: Final = {
    _CONFIGURATION_MISSING: _CONFIGURATION_MISSING,
    "CreateContainerError": "CreateContainerError",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "ErrImagePull": "ImagePullBackOff",  # the two alternate, and each change would be a write
    "ImagePullBackOff": "ImagePullBackOff",
    "InvalidImageName": "InvalidImageName",
    "RunContainerError": "RunContainerError",
}


class Outcome(Enum):
    """What a pod's status amounts to."""

    ALIVE = "alive"
    """Starting or running; nothing is decided yet."""
    STOPPING = "stopping"
    """Being deleted, by whomever; its node still has time to stop it."""
    SUCCEEDED = "succeeded"
    OUTDATED = "outdated"
    FAILED = "failed"
    """The runner or one of its init containers failed, or it never started."""
    LOST = "lost"
    """Over, and the cluster is to blame: evicted, preempted, node shut down, deleted."""
    STRANDED = "stranded"
    """Its node is gone and cannot report an end: the pod object may stay for ever."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is one CamelCase word, `message` a sentence; both are empty for ALIVE."""

    outcome: Outcome
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a pod does not start."""

    reason: str
    message: str


def judge(pod: Pod, now: datetime, *, sidecars: Collection[str] = ()) -> Verdict:
    """The verdict for a pod; there is one for every status that a pod can have.

    `sidecars` names the init containers that are restarted for ever (``restartPolicy: Always``):
    their ends say nothing.
    """
    end = _end(pod)
    if end is not None and end.exit_code == 0:
        return Verdict(Outcome.SUCCEEDED, "Completed", "the runner exited with code 0")
    if end is not None and end.exit_code == EXIT_OUTDATED:
        return Verdict(
            Outcome.OUTDATED,
            "Outdated",
            f"the runner exited with code {EXIT_OUTDATED}: the service refuses its version as too "
            "old; use a newer runner image",
        )
    if end is None and pod.status.phase == "Succeeded":
        return Verdict(Outcome.SUCCEEDED, "Completed", "the pod succeeded")

    failure = _failure(pod, end, sidecars)
    if failure is not None:
        disruption = _disruption(pod)
        if disruption is not None:
            return disruption
        if pod.is_being_deleted:
            return Verdict(Outcome.LOST, "PodDeleted", f"the pod was deleted: {failure.message}")
        return failure
    if not pod.is_being_deleted:
        return Verdict(Outcome.ALIVE)
    if pod.status.reason == _NODE_LOST or is_past_deadline(pod, now):
        return Verdict(
            Outcome.STRANDED,
            "NodeLost",
            "the pod is being deleted and its node does not say that it has stopped",
        )
    return Verdict(Outcome.STOPPING, "PodDeleted", "the pod is being deleted")


def is_past_deadline(pod: Pod, now: datetime) -> bool:
    """Whether a pod that is being deleted should have stopped long ago."""
    # A pod's deletionTimestamp lies in the future: it is the end of its grace period.
    deadline = pod.metadata.deletion_timestamp
    return deadline is not None and now >= deadline + DEADLINE_SLACK


def is_ready(pod: Pod) -> bool:
    """Whether the pod's Ready condition is true."""
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def has_started(pod: Pod) -> bool:
    """Whether the runner container runs or ran."""
    runner = _runner(pod)
    return runner is not None and (
        runner.state.running is not None
        or runner.state.terminated is not None
        or runner.last_state.terminated is not None
    )


def lacks_configuration(pod: Pod) -> bool:
    """Whether the runner container waits for a secret or a config map that it refers to."""
    runner = _runner(pod)
    waiting = runner.state.waiting if runner is not None else None
    return waiting is not None and waiting.reason == _CONFIGURATION_MISSING


def why_stuck(pod: Pod) -> Stuck | None:
    """What keeps the pod from starting, as far as its status says."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason in _STUCK:
            text = f"container {status.name}: {waiting.message or waiting.reason}"
            return Stuck(_STUCK[waiting.reason], text[:MAX_MESSAGE])
    for condition in pod.status.conditions:
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            reason = condition.reason or "Unschedulable"
            return Stuck(reason, (condition.message or "no node takes the pod")[:MAX_MESSAGE])
    return None


def _failure(
    pod: Pod, end: ContainerStateTerminated | None, sidecars: Collection[str]
) -> Verdict | None:
    """That the pod is over without success, and why; None while it is not over."""
    status = pod.status
    if end is not None:
        text = f"the runner exited with code {end.exit_code}"
        return _failed(status.reason or end.reason, (text, end.message or status.message))
    if status.phase == "Failed":
        text = "the pod failed before the runner container ended"
        if not has_started(pod):
            text = "the pod failed before the runner container started"
        culprit = _failed_container(status.init_container_statuses, sidecars)
        why = status.message or (f"init container {culprit}" if culprit else "")
        return _failed(status.reason, (text, why))
    if not has_started(pod):
        culprit = _failed_container(status.init_container_statuses, sidecars)
        if culprit:
            return _failed("InitContainerFailed", (f"init container {culprit}",))
    return None


def _failed(reason: str, parts: Iterable[str]) -> Verdict:
    message = ": ".join(part.strip() for part in parts if part.strip())
    return Verdict(Outcome.FAILED, reason or "PodFailed", message[:MAX_MESSAGE])


def _failed_container(statuses: Iterable[ContainerStatus], sidecars: Collection[str]) -> str:
    """``NAME exited with code N`` of the first that failed, or ``""``."""
    for status in statuses:
        end = status.state.terminated
        if end is not None and end.exit_code != 0 and status.name not in sidecars:
            return f"{status.name} exited with code {end.exit_code}"
    return ""


def _disruption(pod: Pod) -> Verdict | None:
    for condition in pod.status.conditions:
        if (condition.type, condition.status) == (_DISRUPTION_CONDITION, "True"):
            reason = condition.reason or _DISRUPTION_CONDITION
            return Verdict(Outcome.LOST, reason, (condition.message or reason)[:MAX_MESSAGE])
    status = pod.status
    if status.reason in _DISRUPTIONS:
        return Verdict(Outcome.LOST, status.reason, (status.message or status.reason)[:MAX_MESSAGE])
    return None


def _runner(pod: Pod) -> ContainerStatus | None:
    return next((c for c in pod.status.container_statuses if c.name == RUNNER_CONTAINER), None)


def _end(pod: Pod) -> ContainerStateTerminated | None:
    runner = _runner(pod)
    return runner.state.terminated if runner is not None else None
