"""RBAC objects that let one user do what a list of rules says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Grant:
    """Rules for a user, in one namespace or (``None``) everywhere."""

    username: str
    rules: tuple[Mapping[str, Any], ...]
    namespace: str | None = None

    @property
    def name(self) -> str:
        """The same grant has the same name; a further one for the same user has another."""
        told = json.dumps([self.username, self.rules, self.namespace], sort_keys=True)
        return "envtest-" + hashlib.sha256(told.encode()).hexdigest()[:16]


def grant_objects(grant: Grant) -> list[tuple[str, dict[str, Any]]]:
    """A role and its binding, each with the path to POST it to."""
    prefix = "" if grant.namespace else "Cluster"
    base = f"/apis/{_GROUP}/v1"
    if grant.namespace:
        base += f"/namespaces/{grant.namespace}"
    role = {"metadata": {"name": grant.name}, "rules": list(grant.rules)}
    binding = {
        "metadata": {"name": grant.name},
        "roleRef": {"apiGroup": _GROUP, "kind": f"{prefix}Role", "name": grant.name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": grant.username}],
    }
    roles, bindings = f"{prefix}Roles".lower(), f"{prefix}RoleBindings".lower()
    return [(f"{base}/{roles}", role), (f"{base}/{bindings}", binding)]
