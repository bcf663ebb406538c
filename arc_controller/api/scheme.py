"""The scheme: every kind of `v1alpha1` and `core`, registered."""

from __future__ import annotations

from arc_controller.api import core, v1alpha1
from arc_controller.runtime.scheme import Resource, Scheme

_RBAC = "rbac.authorization.k8s.io"


def build_scheme() -> Scheme:
    """A new scheme with all the kinds, for a user to extend with kinds of their own."""
    scheme = Scheme()
    scheme.register(core.Pod, Resource("", "v1", "Pod", "pods"))
    scheme.register(core.Secret, Resource("", "v1", "Secret", "secrets"))
    scheme.register(core.ConfigMap, Resource("", "v1", "ConfigMap", "configmaps"))
    scheme.register(core.ServiceAccount, Resource("", "v1", "ServiceAccount", "serviceaccounts"))
    scheme.register(core.Role, Resource(_RBAC, "v1", "Role", "roles"))
    scheme.register(core.RoleBinding, Resource(_RBAC, "v1", "RoleBinding", "rolebindings"))
    for kind, plural in (
        (v1alpha1.AutoscalingRunnerSet, "autoscalingrunnersets"),
        (v1alpha1.AutoscalingListener, "autoscalinglisteners"),
        (v1alpha1.EphemeralRunnerSet, "ephemeralrunnersets"),
        (v1alpha1.EphemeralRunner, "ephemeralrunners"),
    ):
        resource = Resource(v1alpha1.GROUP, v1alpha1.VERSION, kind.__name__, plural)
        scheme.register(kind, resource)
    return scheme


SCHEME = build_scheme()
