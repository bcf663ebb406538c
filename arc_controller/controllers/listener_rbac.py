"""Who a listener is, and the little that it may do: in the runners' namespace, and to its own set.

The account lives beside the pod, in the controller's namespace. Role and binding live where the
runners are; an owner reference cannot reach there, so labels say whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from arc_controller.api.core import PolicyRule, Role, RoleBinding, RoleRef, ServiceAccount, Subject
from arc_controller.api.v1alpha1 import GROUP, AutoscalingListener, Label, ResourceMeta
from arc_controller.controllers.labels import label_value, merged_annotations, merged_labels
from arc_controller.controllers.meta import own, with_integrity
from arc_controller.runtime.objects import KubeObject, NamespacedName, ObjectMeta

_RBAC = "rbac.authorization.k8s.io"


def service_account(listener: AutoscalingListener) -> ServiceAccount:
    extra = listener.spec.service_account_metadata
    metadata = ObjectMeta(
        name=listener.metadata.name,
        namespace=listener.metadata.namespace,
        labels=merged_labels(extra, listener.metadata.labels),
        annotations=merged_annotations(extra),
    )
    return ServiceAccount(metadata=with_integrity(own(listener, metadata)))


def role(listener: AutoscalingListener) -> Role:
    """Patch its one set of runners; look at runners and write down what job they have."""
    rules = [
        PolicyRule(
            api_groups=[GROUP],
            resources=["ephemeralrunnersets"],
            resource_names=[listener.spec.ephemeral_runner_set_name],
            verbs=["patch"],
        ),
        PolicyRule(api_groups=[GROUP], resources=["ephemeralrunners"], verbs=["get", "patch"]),
        PolicyRule(api_groups=[GROUP], resources=["ephemeralrunners/status"], verbs=["patch"]),
    ]
    return Role(metadata=_in_runners_namespace(listener, listener.spec.role_metadata), rules=rules)


def role_binding(listener: AutoscalingListener) -> RoleBinding:
    name, namespace = listener.metadata.name, listener.metadata.namespace
    return RoleBinding(
        metadata=_in_runners_namespace(listener, listener.spec.role_binding_metadata),
        role_ref=RoleRef(api_group=_RBAC, kind="Role", name=name),
        subjects=[Subject(kind="ServiceAccount", name=name, namespace=namespace)],
    )


def listener_of(obj: KubeObject) -> Iterable[NamespacedName]:
    """The listener that a role or binding was made for."""
    labels = obj.metadata.labels
    name, namespace = labels.get(Label.LISTENER_NAME), labels.get(Label.LISTENER_NAMESPACE)
    return [NamespacedName(namespace, name)] if name and namespace else []


def _in_runners_namespace(listener: AutoscalingListener, extra: ResourceMeta | None) -> ObjectMeta:
    whose = {
        Label.LISTENER_NAME: label_value(listener.metadata.name),
        Label.LISTENER_NAMESPACE: label_value(listener.metadata.namespace),
    }
    metadata = ObjectMeta(
        name=listener.metadata.name,
        namespace=listener.spec.autoscaling_runner_set_namespace,
        labels=merged_labels(extra, listener.metadata.labels, whose),
        annotations=merged_annotations(extra),
    )
    return with_integrity(own(listener, metadata))
