"""What all scenarios together say of the shipped permissions: neither too little nor too much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from arc_controller.testing.envtest import AuditEvent, unused_rules
from arc_controller.testing.envtest.audit import each_rule
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, MANAGER, Role
from tests.scenarios.servers import Server

ACCOUNTS = f"system:serviceaccount:{CONTROLLER_NAMESPACE}:"
LISTENER_RULES = [
    {"apiGroups": ["actions.github.com"], "resources": [resource], "verbs": verbs}
    for resource, verbs in {
        "ephemeralrunnersets": ["patch"],
        "ephemeralrunners": ["get", "patch"],
        "ephemeralrunners/status": ["patch"],
    }.items()
]


def refusals(server: Server) -> list[str]:
    """Every request of the manager and of listeners that was answered 403.

    Two things are no refusals: a quota that is exceeded is what a quota is for, and in a namespace
    that is being deleted nobody keeps their permissions.
    """
    return [
        f"{event.username} {event.verb} {event.resource} in {event.namespace or 'the cluster'}"
        for event in _ours([server])
        if event.code == 403
        and not (event.allowed and (event.verb, event.resource) == ("create", "pods"))
        and event.namespace not in server.unjudged
        and not server.is_starting(event)
    ]


def unused(servers: Sequence[Server]) -> list[str]:
    """What is granted (on all of them the same) and no scenario needed.

    The manager needs what it grants to listeners: nobody may grant more than they have. And nobody
    requests ``update`` on ``…/finalizers``: admission asks about it, on some clusters; see
    ``test_permissions.py``.
    """
    events = [event for event in _ours(servers) if event.username == MANAGER]
    granted = {f"{rule.verb} {rule.resource}" for rule in each_rule(LISTENER_RULES)}
    return [
        f"{role.name}: {rule}"
        for role in servers[0].permissions.roles()
        for rule in unused_rules(role.rules, _within(role, events))
        if not (rule.verb == "update" and rule.resource.endswith("/finalizers"))
        and f"{rule.verb} {rule.resource}" not in granted
    ]


def unused_by_listeners(servers: Iterable[Server]) -> list[str]:
    """The same of the role that the manager makes for each listener."""
    events = [event for event in _ours(servers) if event.username != MANAGER]
    return [str(rule) for rule in unused_rules(LISTENER_RULES, events)]


def _ours(servers: Iterable[Server]) -> Iterator[AuditEvent]:
    return (
        event
        for server in servers
        for event in server.requests()
        if event.username.startswith(ACCOUNTS)
    )


def _within(role: Role, events: list[AuditEvent]) -> list[AuditEvent]:
    """The requests that the role may have been needed for."""
    if role.scope == "cluster":
        return events
    inside = role.scope == "controller"
    return [
        event
        for event in events
        if event.namespace and (event.namespace == CONTROLLER_NAMESPACE) == inside
    ]
