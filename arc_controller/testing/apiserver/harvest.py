"""Makes `core.json`: what a real API server publishes about its own kinds, without the prose.

    python -m arc_controller.testing.apiserver.harvest DIRECTORY

DIRECTORY holds OpenAPI v3 documents as a kube-apiserver serves them under `/openapi/v3/…`, one
file each (`api__v1_openapi.json`, `apis__apps__v1_openapi.json`, …). Field names, types, defaults,
required fields, list keys and merge keys are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

_ROOTS = (
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.DeploymentList",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authentication.v1.TokenReview",
    "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    "io.k8s.api.authorization.v1.SubjectAccessReview",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.ResourceQuota",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.rbac.v1.ClusterRole",
    "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
)
_REF = "#/components/schemas/"
_KEPT_KINDS = ("", "apps", "policy", "rbac.authorization.k8s.io", "coordination.k8s.io")


def harvest(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The schemas of the built-in kinds and of all they refer to, by name."""
    known: dict[str, Any] = {}
    for document in documents:
        known.update(document.get("components", {}).get("schemas", {}))
    found: dict[str, Any] = {}
    waiting = list(_ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found or name not in known:
            continue
        found[name] = _slim(known[name], waiting)
    return dict(sorted(found.items()))


def _slim(node: Any, waiting: list[str]) -> Any:
    if isinstance(node, list):
        return [_slim(each, waiting) for each in node]
    if not isinstance(node, dict):
        return node
    if set(node) - {"default", "description"} == {"allOf"} and len(node["allOf"]) == 1:
        slim = _slim(node["allOf"][0], waiting)
        if node.get("default"):
            slim["default"] = node["default"]
        return slim
    ref = node.get("$ref")
    if ref is not None:
        waiting.append(ref.removeprefix(_REF))
        return {"$ref": ref}
    slim = {}
    for key, value in node.items():
        if key == "description" and isinstance(value, str):
            continue
        if key == "default" and value in ({}, "", 0):
            continue
        if key == "x-kubernetes-group-version-kind" and len(value) > 3:
            continue
        slim[key] = (
            {name: _slim(each, waiting) for name, each in value.items()}
            if key == "properties"
            else _slim(value, waiting)
        )
    return slim


def main() -> None:
    folder = Path(sys.argv[1])
    documents = [msgspec.json.decode(path.read_bytes()) for path in sorted(folder.glob("api*"))]
    target = Path(__file__).with_name("core.json")
    target.write_bytes(msgspec.json.encode(harvest(documents)) + b"\n")


if __name__ == "__main__":
    main()
