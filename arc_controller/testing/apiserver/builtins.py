"""The table of built-in kinds."""

from __future__ import annotations

from arc_controller.testing.apiserver import core, crds, eventsv1, pods
from arc_controller.testing.apiserver.resources import Resource

_RBAC = "rbac.authorization.k8s.io"

_POD_FIELDS = {
    field: field
    for field in (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )
}
_EVENT_FIELDS = {
    **{
        f"involvedObject.{field}": f"involvedObject.{field}"
        for field in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    },
    **{
        f"regarding.{field}": f"involvedObject.{field}"
        for field in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    },
    "reason": "reason",
    "reportingComponent": "reportingComponent",
    "source": "source.component",
    "type": "type",
}


def builtin_resources() -> list[Resource]:
    """Fresh table entries of every built-in kind."""
    status = frozenset({"status"})
    event = core.EventStrategy()
    return [
        Resource(
            "",
            "v1",
            "namespaces",
            "Namespace",
            core.NamespaceStrategy(),
            namespaced=False,
            short_names=("ns",),
            subresources=frozenset({"status", "finalize"}),
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            selectable={"status.phase": "status.phase"},
        ),
        Resource(
            "",
            "v1",
            "pods",
            "Pod",
            pods.PodStrategy(),
            short_names=("po",),
            categories=("all",),
            subresources=frozenset({"status", "log", "binding", "eviction", "ephemeralcontainers"}),
            selectable=_POD_FIELDS,
            indexed="spec.nodeName",
        ),
        Resource(
            "",
            "v1",
            "secrets",
            "Secret",
            core.SecretStrategy(),
            selectable={"type": "type"},
        ),
        Resource(
            "", "v1", "configmaps", "ConfigMap", core.ConfigMapStrategy(), short_names=("cm",)
        ),
        Resource(
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            core.ServiceAccountStrategy(),
            short_names=("sa",),
            subresources=frozenset({"token"}),
        ),
        Resource(
            "",
            "v1",
            "events",
            "Event",
            event,
            short_names=("ev",),
            selectable=_EVENT_FIELDS,
        ),
        Resource(
            "",
            "v1",
            "resourcequotas",
            "ResourceQuota",
            core.ResourceQuotaStrategy(),
            short_names=("quota",),
            subresources=status,
        ),
        Resource(
            "",
            "v1",
            "nodes",
            "Node",
            core.NodeStrategy(),
            namespaced=False,
            short_names=("no",),
            subresources=status,
            selectable={"spec.unschedulable": "spec.unschedulable"},
        ),
        Resource(
            "",
            "v1",
            "services",
            "Service",
            core.ServiceStrategy(),
            short_names=("svc",),
            categories=("all",),
            subresources=status,
        ),
        Resource(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            core.DeploymentStrategy(),
            short_names=("deploy",),
            categories=("all",),
            subresources=frozenset({"status", "scale"}),
            scale={
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            },
        ),
        Resource(
            "events.k8s.io",
            "v1",
            "events",
            "Event",
            event,
            short_names=("ev",),
            selectable=_EVENT_FIELDS,
            storage="events",
            convert_out=eventsv1.from_core,
            convert_in=eventsv1.to_core,
        ),
        Resource(
            _RBAC,
            "v1",
            "clusterroles",
            "ClusterRole",
            core.RoleStrategy(),
            namespaced=False,
        ),
        Resource(
            _RBAC,
            "v1",
            "clusterrolebindings",
            "ClusterRoleBinding",
            core.RoleBindingStrategy(cluster=True),
            namespaced=False,
        ),
        Resource(_RBAC, "v1", "roles", "Role", core.RoleStrategy()),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding", core.RoleBindingStrategy()),
        Resource("coordination.k8s.io", "v1", "leases", "Lease", core.LeaseStrategy()),
        Resource(
            crds.CRD_GROUP,
            "v1",
            crds.CRD_PLURAL,
            "CustomResourceDefinition",
            crds.CrdStrategy(),
            namespaced=False,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            subresources=status,
        ),
    ]
