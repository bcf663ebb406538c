"""What runs in a pod's main container, and how its end and its states look in a pod's status."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from arc_controller.api.core import PodManifest

Object = dict[str, Any]
Say = Callable[[str], None]
"""Writes a line to the container's log."""

KILLED = 137
TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container, and with it perhaps the pod, ended.

    ``container_reason`` is that of the container's terminated state; ``reason`` and ``message`` are
    the pod's own, set when something other than the process ended it. With ``started`` False no
    container ever ran, so there is no terminated state.
    """

    code: int
    container_reason: str = ""
    message: str = ""
    reason: str = ""
    started: bool = True
    disruption: str = ""
    """The reason of a ``DisruptionTarget`` condition, empty for none."""
    termination_message: str = ""

    @property
    def failed(self) -> bool:
        return self.code != 0 or bool(self.reason)


class Process(Protocol):
    """What a container runs. Cancelling `run` is SIGKILL."""

    async def run(self, say: Say) -> Exit: ...

    def terminate(self) -> None:
        """SIGTERM."""


@dataclass(slots=True)
class Log:
    """The last lines of a container. Nothing secret is ever said here."""

    now: Callable[[], datetime]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=2_000))

    def say(self, line: str) -> None:
        self.lines.append(line.rstrip("\n"))

    def read(self, query: Mapping[str, str]) -> bytes:
        lines = list(self.lines)
        tail = query.get("tailLines", "")
        if tail.isdigit():
            lines = lines[len(lines) - min(len(lines), int(tail)) :]
        return "".join(f"{line}\n" for line in lines).encode()


def status_of(
    pod: PodManifest,
    phase: str,
    now: datetime,
    *,
    main: str = "",
    ready: bool = False,
    states: Mapping[str, Object] | None = None,
    exit: Exit | None = None,
) -> Object:
    """The ``status`` that a kubelet reports: conditions and one state per container.

    ``states`` overrides the state of single containers, the others run or wait with ``phase``.
    """
    stamp = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    default: Object = {"waiting": {"reason": "ContainerCreating"}}
    if phase == "Running" or (exit is not None and exit.started):
        default = {"running": {"startedAt": stamp}}
    if exit is not None and phase in ("Succeeded", "Failed"):
        default = _terminated(exit, stamp) if exit.started else {"waiting": {"reason": exit.reason}}
    given = states or {}
    conditions = [
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": _bool(ready)},
        {"type": "ContainersReady", "status": _bool(ready)},
        {"type": "PodScheduled", "status": "True"},
    ]
    if exit is not None and exit.disruption:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": exit.disruption})
    status: Object = {
        "phase": phase,
        "startTime": stamp,
        "hostIP": "10.0.0.1",
        "conditions": [{**each, "lastTransitionTime": stamp} for each in conditions],
        "containerStatuses": [
            _container_status(container, given.get(container["name"], default))
            for container in pod.spec.get("containers", [])
        ],
    }
    if inits := pod.spec.get("initContainers"):
        done = _terminated(Exit(0), stamp)
        status["initContainerStatuses"] = [
            _container_status(container, given.get(container["name"], done)) for container in inits
        ]
    if exit is not None and exit.reason:
        status["reason"] = exit.reason
        status["message"] = exit.message
    return status


def _terminated(exit: Exit, stamp: str) -> Object:
    state: Object = {
        "exitCode": exit.code,
        "reason": exit.container_reason or ("Completed" if exit.code == 0 else "Error"),
        "startedAt": stamp,
        "finishedAt": stamp,
    }
    if exit.termination_message:
        state["message"] = exit.termination_message
    return {"terminated": state}


def terminated(exit: Exit, now: datetime) -> Object:
    """A container's terminated state."""
    return _terminated(exit, now.isoformat(timespec="seconds").replace("+00:00", "Z"))


def _container_status(container: Object, state: Object) -> Object:
    running = "running" in state
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
    }


def _bool(value: bool) -> str:
    return "True" if value else "False"
