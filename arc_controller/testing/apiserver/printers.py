"""The columns of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.podprinter import pod_cells, pod_conditions
from arc_controller.testing.apiserver.resources import Column
from arc_controller.testing.apiserver.shorttime import age_of

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Printer:
    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], list[Any]]
    conditions: Callable[[Object], list[Object]] = lambda obj: []
    """What a row says of itself."""


def _columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; a `+` in front marks those of the wide output."""
    found = []
    for name in names:
        bare = name.removeprefix("+")
        found.append(
            Column(
                bare,
                "string",
                format="name" if bare == "Name" else "",
                priority=int(name.startswith("+")),
            )
        )
    return tuple(found)


def _name(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def _age(obj: Object, now: datetime) -> str:
    return age_of(obj["metadata"].get("creationTimestamp"), now)


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _labels(labels: Object | None) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else _NONE


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), _status(obj).get("phase", ""), _age(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now)]


def _config_map(obj: Object, now: datetime) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [_name(obj), count, _age(obj, now)]


def _named(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), _age(obj, now)]


def _event(obj: Object, now: datetime) -> list[Any]:
    series = obj.get("series") or {}
    first = age_of(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = (
        age_of(series.get("lastObservedTime"), now)
        if series
        else (age_of(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first)
    )
    involved = obj.get("involvedObject") or {}
    target = str(involved.get("kind", "")).lower()
    if involved.get("name"):
        target = f"{target}/{involved['name']}"
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        _source(obj),
        str(obj.get("message") or "").strip(),
        first,
        series.get("count") or obj.get("count") or 1,
        _name(obj),
    ]


def _source(obj: Object) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else str(component)


def _quota(obj: Object, now: datetime) -> list[Any]:
    hard, used = _status(obj).get("hard") or {}, _status(obj).get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for key in sorted(hard):
        text = f"{key}: {used.get(key, 0)}/{hard[key]}"
        (limits if key.startswith("limits.") else requests).append(text)
    return [_name(obj), ", ".join(requests), ", ".join(limits), _age(obj, now)]


def _node(obj: Object, now: datetime) -> list[Any]:
    ready = [each for each in _status(obj).get("conditions") or () if each["type"] == "Ready"]
    status = "Unknown"
    if ready:
        status = "Ready" if ready[0].get("status") == "True" else "NotReady"
    if _spec(obj).get("unschedulable"):
        status += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = _status(obj).get("nodeInfo") or {}
    addresses = {each["type"]: each["address"] for each in _status(obj).get("addresses") or ()}
    return [
        _name(obj),
        status,
        ",".join(roles) or _NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = _spec(obj)
    ports = ",".join(
        f"{_port(each)}/{each.get('protocol', 'TCP')}" for each in spec.get("ports") or ()
    )
    return [
        _name(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or _NONE,
        ",".join(spec.get("externalIPs") or ()) or _NONE,
        ports or _NONE,
        _age(obj, now),
        _labels(spec.get("selector")),
    ]


def _port(port: Object) -> str:
    node = port.get("nodePort")
    return f"{port['port']}:{node}" if node else str(port["port"])


def _deployment(obj: Object, now: datetime) -> list[Any]:
    spec, status = _spec(obj), _status(obj)
    template = (spec.get("template") or {}).get("spec") or {}
    containers = template.get("containers") or []
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
        _labels((spec.get("selector") or {}).get("matchLabels")),
    ]


def _binding(obj: Object, now: datetime) -> list[Any]:
    ref = obj.get("roleRef") or {}
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(subject.get("kind", ""), []).append(name)
    return [
        _name(obj),
        f"{ref.get('kind')}/{ref.get('name')}",
        _age(obj, now),
        ", ".join(by_kind["User"]),
        ", ".join(by_kind["Group"]),
        ", ".join(by_kind["ServiceAccount"]),
    ]


def _lease(obj: Object, now: datetime) -> list[Any]:
    return [_name(obj), _spec(obj).get("holderIdentity") or "", _age(obj, now)]


_RBAC = "rbac.authorization.k8s.io"
_BINDING_COLUMNS = _columns("Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts")

PRINTERS: dict[str, Printer] = {
    "pods": Printer(
        _columns(
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "+IP",
            "+Node",
            "+Nominated Node",
            "+Readiness Gates",
        ),
        pod_cells,
        pod_conditions,
    ),
    "namespaces": Printer(_columns("Name", "Status", "Age"), _namespace),
    "secrets": Printer(_columns("Name", "Type", "Data", "Age"), _secret),
    "configmaps": Printer(_columns("Name", "Data", "Age"), _config_map),
    "serviceaccounts": Printer(_columns("Name", "Age"), _named),
    "events": Printer(
        _columns(
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "+Subobject",
            "+Source",
            "Message",
            "+First Seen",
            "+Count",
            "+Name",
        ),
        _event,
    ),
    "resourcequotas": Printer(_columns("Name", "Request", "Limit", "Age"), _quota),
    "nodes": Printer(
        _columns(
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "+Internal-IP",
            "+External-IP",
            "+OS-Image",
            "+Kernel-Version",
            "+Container-Runtime",
        ),
        _node,
    ),
    "services": Printer(
        _columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"),
        _service,
    ),
    "deployments.apps": Printer(
        _columns(
            "Name",
            "Ready",
            "Up-to-date",
            "Available",
            "Age",
            "+Containers",
            "+Images",
            "+Selector",
        ),
        _deployment,
    ),
    f"rolebindings.{_RBAC}": Printer(_BINDING_COLUMNS, _binding),
    f"clusterrolebindings.{_RBAC}": Printer(_BINDING_COLUMNS, _binding),
    "leases.coordination.k8s.io": Printer(_columns("Name", "Holder", "Age"), _lease),
}
