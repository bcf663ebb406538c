"""Authorization of requests, and the check that nobody grants more than they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import Object, UserInfo
from arc_controller.testing.apiserver.rbac import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLES,
    Attributes,
    Rbac,
    compact,
)
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.writer import Attempt

_AUTHENTICATED = {"kind": "Group", "name": "system:authenticated", "apiGroup": GROUP}
_ANYONE = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": GROUP}
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORKLOADS = ["pods", "configmaps", "secrets", "serviceaccounts", "services", "events"]


def attributes_of(info: RequestInfo) -> Attributes:
    """What a request asks the authorizer for."""
    if not info.is_resource:
        return Attributes(info.verb, path=info.path)
    resource = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    return Attributes(info.verb, info.group, resource, info.namespace, info.name)


class EscalationCheck:
    """Admission: roles and bindings may not give more than their author has."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def __call__(self, attempt: Attempt) -> None:
        key = attempt.resource.storage_key
        if attempt.operation == "DELETE" or attempt.subresource:
            return
        if key in (ROLES, CLUSTER_ROLES):
            self._role(attempt)
        elif key in (BINDINGS, CLUSTER_BINDINGS):
            self._binding(attempt)

    def _role(self, attempt: Attempt) -> None:
        obj, old = attempt.obj, attempt.old
        if old is not None and old.get("rules") == obj.get("rules"):
            return
        namespace, name = _where(obj)
        asked = Attributes("escalate", GROUP, attempt.resource.plural, namespace, name)
        user = attempt.call.user
        if self._rbac.allows(user, asked, count=False)[0]:
            return
        self._refuse_uncovered(attempt, namespace, obj.get("rules") or [])

    def _binding(self, attempt: Attempt) -> None:
        obj, old = attempt.obj, attempt.old
        same = old is not None and all(
            old.get(key) == obj.get(key) for key in ("roleRef", "subjects")
        )
        if same:
            return
        namespace, _ = _where(obj)
        ref = obj.get("roleRef") or {}
        plural = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
        asked = Attributes("bind", GROUP, plural, namespace, ref.get("name", ""))
        if self._rbac.allows(attempt.call.user, asked, count=False)[0]:
            return
        rules = self._rbac.rules_of(ref, namespace)
        if rules is None:
            raise errors.not_found(GROUP, plural, ref.get("name", ""))
        self._refuse_uncovered(attempt, namespace, rules)

    def _refuse_uncovered(
        self, attempt: Attempt, namespace: str, rules: list[Mapping[str, Any]]
    ) -> None:
        user = attempt.call.user
        missing = self._rbac.uncovered(user, namespace, rules)
        if not missing:
            return
        groups = " ".join(errors.go_quote(each) for each in user.groups)
        why = (
            f"user {errors.go_quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC "
            "permissions not currently held:\n" + "\n".join(compact(missing))
        )
        resource = attempt.resource
        raise errors.forbidden(
            resource.group, resource.plural, attempt.obj["metadata"].get("name", ""), why
        )


def _where(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta.get("name", "")


def default_policy() -> list[Object]:
    """The roles and bindings that every cluster starts with, as far as they matter here."""
    paths = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version"]
    health = ["/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*"]
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    workloads = {"apiGroups": [""], "resources": _WORKLOADS}
    roles: list[tuple[str, list[Object], list[Object]]] = [
        (
            "cluster-admin",
            [everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
            [{"kind": "Group", "name": "system:masters", "apiGroup": GROUP}],
        ),
        (
            "system:discovery",
            [{"nonResourceURLs": [*paths, *health], "verbs": ["get"]}],
            [_AUTHENTICATED],
        ),
        (
            "system:basic-user",
            [
                {
                    "apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    "verbs": ["create"],
                },
                {
                    "apiGroups": ["authentication.k8s.io"],
                    "resources": ["selfsubjectreviews"],
                    "verbs": ["create"],
                },
            ],
            [_AUTHENTICATED],
        ),
        (
            "system:public-info-viewer",
            [{"nonResourceURLs": ["/version", *health], "verbs": ["get"]}],
            [_AUTHENTICATED, _ANYONE],
        ),
        ("admin", [{**workloads, "verbs": [*_READ, *_WRITE]}], []),
        ("edit", [{**workloads, "verbs": [*_READ, *_WRITE]}], []),
        (
            "view",
            [{"apiGroups": [""], "resources": ["pods", "configmaps", "events"], "verbs": _READ}],
            [],
        ),
    ]
    found: list[Object] = []
    for name, rules, subjects in roles:
        meta = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        api_version = f"{GROUP}/v1"
        found.append(
            {"apiVersion": api_version, "kind": "ClusterRole", "metadata": meta, "rules": rules}
        )
        if subjects:
            ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
            found.append(
                {
                    "apiVersion": api_version,
                    "kind": "ClusterRoleBinding",
                    "metadata": meta,
                    "roleRef": ref,
                    "subjects": subjects,
                }
            )
    return found


def review_user(spec: Mapping[str, Any]) -> UserInfo:
    """The user that an access review asks about."""
    extra = {key: tuple(value) for key, value in (spec.get("extra") or {}).items()}
    return UserInfo(
        str(spec.get("user") or ""), tuple(spec.get("groups") or ()), spec.get("uid") or "", extra
    )
