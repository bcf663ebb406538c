"""What was asked of the server and by whom: proof that permissions are neither short nor wide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# One line a request (two for a watch: when it starts and when it ends), written before the answer.
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class AuditEvent:
    """One request. `resource` holds the subresource too, as RBAC writes it: ``pods/status``."""

    audit_id: str
    username: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    uri: str
    code: int
    allowed: bool
    received: str = ""
    """When, in RFC 3339 with microseconds and UTC."""
    user_agent: str = ""


@dataclass(frozen=True)
class Rule:
    """The smallest thing that RBAC can grant: one verb on one resource (of one name)."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}" + (f" {self.name!r}" if self.name else "")


class AuditLog:
    """An audit log that is being written: `events` reads what was added since."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._events: dict[str, AuditEvent] = {}

    def events(self) -> list[AuditEvent]:
        """The requests so far, oldest first, each once."""
        if self._path.exists():
            with self._path.open("rb") as log:
                log.seek(self._read)
                for line in log:
                    if not line.endswith(b"\n"):
                        break  # being written right now
                    self._read += len(line)
                    event = _event(json.loads(line))
                    self._events.setdefault(event.audit_id, event)
        return list(self._events.values())


def refusals(events: Iterable[AuditEvent], username: str | None = None) -> list[AuditEvent]:
    """The requests that authorization refused (not those that admission or quota did)."""
    return [
        event
        for event in events
        if not event.allowed and (username is None or event.username == username)
    ]


def unused_rules(
    rules: Sequence[Mapping[str, Any]], events: Iterable[AuditEvent], username: str | None = None
) -> list[Rule]:
    """What ``rules`` (of a Role or ClusterRole) grant and no request of ``events`` made use of."""
    used = {
        rule
        for event in events
        if event.allowed and (username is None or event.username == username)
        for rule in (
            Rule(event.group, event.resource, event.verb),
            Rule(event.group, event.resource, event.verb, event.name),
        )
    }
    return [rule for rule in each_rule(rules) if rule not in used]


def each_rule(rules: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """The rules of a role, multiplied out: one entry for each group, resource, name and verb."""
    return [
        Rule(group, resource, verb, name)
        for rule in rules
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for name in rule.get("resourceNames", []) or [""]
        for verb in rule["verbs"]
    ]


def _event(raw: Mapping[str, Any]) -> AuditEvent:
    target = raw.get("objectRef") or {}
    resource = target.get("resource", "")
    if target.get("subresource"):
        resource = f"{resource}/{target['subresource']}"
    annotations = raw.get("annotations") or {}
    return AuditEvent(
        audit_id=raw["auditID"],
        username=(raw.get("user") or {}).get("username", ""),
        verb=raw["verb"],
        group=target.get("apiGroup", ""),
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        uri=raw["requestURI"],
        code=(raw.get("responseStatus") or {}).get("code", 0),
        allowed=annotations.get("authorization.k8s.io/decision", "allow") == "allow",
        received=raw.get("requestReceivedTimestamp", ""),
        user_agent=raw.get("userAgent", ""),
    )
