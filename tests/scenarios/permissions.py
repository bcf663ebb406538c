"""The shipped permissions: those of ``config/rbac``, or what the charts make of some values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Permissions:
    """What one way to install the manager gives it.

    `controller` is created once, `runners` makes what each namespace of runners gets. With
    `single_namespace` the manager is told to look after that one only.
    """

    controller: Sequence[Manifest]
    runners: Callable[[str], Sequence[Manifest]]
    single_namespace: bool = False

    def roles(self) -> list[Role]:
        manifests = [*self.controller, *self.runners("runners")]
        return [_role(each) for each in manifests if each["kind"] in ("Role", "ClusterRole")]


def controller_manifests() -> list[Manifest]:
    """What ``kubectl apply -k config/rbac`` creates: the manager's account and its permissions."""
    return _resources(RBAC)


def runner_manifests(namespace: str) -> list[Manifest]:
    """What ``config/rbac/runner_namespace`` creates, with ``namespace:`` set."""
    return [in_namespace(each, namespace) for each in _resources(RBAC / "runner_namespace")]


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def shipped() -> Permissions:
    """Those of ``config/rbac``."""
    return Permissions(controller_manifests(), runner_manifests)


def _role(manifest: Manifest) -> Role:
    if manifest["kind"] == "ClusterRole":
        scope = "cluster"
    else:
        inside = manifest["metadata"]["namespace"] == CONTROLLER_NAMESPACE
        scope = "controller" if inside else "runners"
    return Role(manifest["metadata"]["name"], scope, manifest["rules"])


def _resources(folder: Path) -> list[Manifest]:
    """Of a kustomization without anything but resources of its own."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return [
        document
        for name in kustomization["resources"]
        for document in yaml.safe_load_all((folder / name).read_text())
    ]
