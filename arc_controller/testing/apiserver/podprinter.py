"""How `kubectl get pods` sums a pod up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.shorttime import age_of

_NONE = "<none>"


_ENDED = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def pod_conditions(pod: Object) -> list[Object]:
    """A row of a pod that has ended says so."""
    phase = str((pod.get("status") or {}).get("phase"))
    message = _ENDED.get(phase)
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


def pod_cells(pod: Object, now: datetime) -> list[Any]:
    """NAME READY STATUS RESTARTS AGE and the wide columns."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    state = _State(pod)
    restarts = str(state.restarts)
    if state.restarts and state.last_restart:
        restarts = f"{state.restarts} ({age_of(state.last_restart, now)} ago)"
    ips = status.get("podIPs") or []
    return [
        meta.get("name", ""),
        f"{state.ready}/{state.total}",
        state.reason,
        restarts,
        age_of(meta.get("creationTimestamp"), now),
        (ips[0].get("ip") if ips else status.get("podIP")) or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _readiness_gates(spec, status),
    ]


class _State:
    """Readiness, reason and restarts, worked out from the container statuses."""

    def __init__(self, pod: Object) -> None:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        sidecars = {
            each.get("name")
            for each in spec.get("initContainers") or ()
            if each.get("restartPolicy") == "Always"
        }
        self.total = len(spec.get("containers") or ()) + len(sidecars)
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        phase = status.get("phase", "")
        self.reason = status.get("reason") or phase
        conditions = {each.get("type"): each for each in status.get("conditions") or ()}
        if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
            self.reason = "SchedulingGated"
        initializing = self._init_containers(spec, status, sidecars)
        if not initializing or conditions.get("Initialized", {}).get("status") == "True":
            self._containers(status, conditions, sidecars)
        if pod["metadata"].get("deletionTimestamp"):
            if status.get("reason") == "NodeLost":
                self.reason = "Unknown"
            elif phase not in ("Succeeded", "Failed"):
                self.reason = "Terminating"

    def _init_containers(self, spec: Object, status: Object, sidecars: set[Any]) -> bool:
        count = len(spec.get("initContainers") or ())
        for index, container in enumerate(status.get("initContainerStatuses") or ()):
            self._count_restarts(container)
            state = container.get("state") or {}
            ended = state.get("terminated")
            waiting = state.get("waiting") or {}
            if ended is not None and ended.get("exitCode") == 0:
                continue
            if container.get("name") in sidecars and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if ended is not None:
                self.reason = f"Init:{_ended_reason(ended)}"
            elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{index}/{count}"
            return True
        return False

    def _containers(
        self, status: Object, conditions: dict[Any, Object], sidecars: set[Any]
    ) -> None:
        self.restarts = 0
        self.last_restart = ""
        for container in status.get("initContainerStatuses") or ():
            if container.get("name") in sidecars:
                self._count_restarts(container)
        running = False
        failure = ""
        for container in reversed(status.get("containerStatuses") or ()):
            self._count_restarts(container)
            state = container.get("state") or {}
            ended = state.get("terminated")
            waiting = state.get("waiting") or {}
            if waiting.get("reason"):
                self.reason = waiting["reason"]
            elif ended is not None:
                self.reason = _ended_reason(ended)
                if ended.get("exitCode"):
                    failure = self.reason
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and conditions.get("Ready", {}).get("status") == "True":
                self.reason = "Running"
            elif failure:
                self.reason = failure
            elif running:
                self.reason = "NotReady"

    def _count_restarts(self, container: Object) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = (container.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, ended.get("finishedAt") or "")


def _ended_reason(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _readiness_gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return _NONE
    holding = {
        each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"
    }
    passed = sum(each.get("conditionType") in holding for each in gates)
    return f"{passed}/{len(gates)}"
