"""The shipped permissions of ``config/rbac``, given to each namespace as kustomize does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "config" / "rbac"
CONTROLLER_NAMESPACE = "arc-systems"
MANAGER_ACCOUNT = "arc-controller"
MANAGER = f"system:serviceaccount:{CONTROLLER_NAMESPACE}:{MANAGER_ACCOUNT}"
LEASE = "arc-controller"


@dataclass(frozen=True)
class Role:
    """A role that is shipped; `scope` is ``cluster``, ``controller`` or ``runners``: where it is
    bound."""

    name: str
    scope: str
    rules: Sequence[Mapping[str, Any]]


def controller_manifests() -> list[Manifest]:
    """What ``kubectl apply -k config/rbac`` creates: the manager's account and its permissions."""
    return _resources(RBAC)


def runner_manifests(namespace: str) -> list[Manifest]:
    """What ``config/rbac/runner_namespace`` creates, with ``namespace:`` set."""
    manifests = deepcopy(_resources(RBAC / "runner_namespace"))
    for manifest in manifests:
        manifest["metadata"]["namespace"] = namespace
    return manifests


def shipped_roles() -> list[Role]:
    return [
        *_roles(controller_manifests(), "controller"),
        *_roles(runner_manifests("runners"), "runners"),
    ]


def _roles(manifests: Sequence[Manifest], scope: str) -> Iterator[Role]:
    for manifest in manifests:
        if manifest["kind"] in ("Role", "ClusterRole"):
            where = "cluster" if manifest["kind"] == "ClusterRole" else scope
            yield Role(manifest["metadata"]["name"], where, manifest["rules"])


def _resources(folder: Path) -> list[Manifest]:
    """Of a kustomization without anything but resources of its own."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return [
        document
        for name in kustomization["resources"]
        for document in yaml.safe_load_all((folder / name).read_text())
    ]
