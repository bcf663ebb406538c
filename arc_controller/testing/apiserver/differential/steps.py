"""What a comparison sends: steps, and the kinds they are about.

What only one server knows (a resourceVersion, a uid, a continue token) is written as a placeholder
that each side fills from its own answers; see `compare.Memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from arc_controller.testing.apiserver.messages import JSON, Object

WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.differential.example.com"},
    "spec": {
        "group": "differential.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "minimum": 0},
                                    "mode": {
                                        "type": "string",
                                        "enum": ["Fast", "Slow"],
                                        "default": "Fast",
                                    },
                                    "tags": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "x-kubernetes-list-type": "set",
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""The custom resource of generated sequences; install it on both sides."""

_CORE = "/api/v1/namespaces/{namespace}"
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
_OURS = "/apis/actions.github.com/v1alpha1/namespaces/{namespace}"

COLLECTIONS = {
    "widgets": "/apis/differential.example.com/v1/namespaces/{namespace}/widgets",
    "pods": f"{_CORE}/pods",
    "configmaps": f"{_CORE}/configmaps",
    "secrets": f"{_CORE}/secrets",
    "serviceaccounts": f"{_CORE}/serviceaccounts",
    "roles": f"{_RBAC}/roles",
    "rolebindings": f"{_RBAC}/rolebindings",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
    "ephemeralrunners": f"{_OURS}/ephemeralrunners",
    "ephemeralrunnersets": f"{_OURS}/ephemeralrunnersets",
    "autoscalingrunnersets": f"{_OURS}/autoscalingrunnersets",
    "autoscalinglisteners": f"{_OURS}/autoscalinglisteners",
}
"""Where the kinds of a sequence live. The last four need the definitions of config/crd."""

WATCH = "WATCH"
"""The method of a step that opens a watch; its events are compared when the sequence is over."""

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"

Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `{namespace}` in the path is filled in, placeholders everywhere else.

    `raw` is sent instead of the body as it is.
    """

    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    query: Query = ()
    accept: str = ""
    raw: str | None = None


def collections_of(steps: Sequence[Step]) -> list[str]:
    """The paths of the collections that the steps are about."""
    return [
        path
        for path in COLLECTIONS.values()
        if any(step.path == path or step.path.startswith(f"{path}/") for step in steps)
    ]


def path_of(kind: str, name: str = "") -> str:
    return f"{COLLECTIONS[kind]}/{name}" if name else COLLECTIONS[kind]
