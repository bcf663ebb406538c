"""Which part of the cluster is cached: what the controllers own, and nothing else.

Never every pod, role or secret of the cluster: memory would grow with what others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arc_controller.api.core import Pod, Role, RoleBinding, ServiceAccount
from arc_controller.api.v1alpha1 import (
    PART_OF,
    AutoscalingListener,
    AutoscalingRunnerSet,
    Component,
    EphemeralRunner,
    EphemeralRunnerSet,
    Label,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.interning import SharedSpecs, without_images
from arc_controller.runtime.cache import Scope
from arc_controller.runtime.informer import Transform
from arc_controller.runtime.objects import KubeObject, LabelSelector

_LISTENER_PARTS = LabelSelector({Label.PART_OF: PART_OF, Label.COMPONENT: Component.LISTENER})
_RUNNER_PODS = LabelSelector({Label.EPHEMERAL_RUNNER: "True"})


def cache_scopes(config: ControllerConfig) -> dict[type[KubeObject], Sequence[Scope]]:
    """For `arc_controller.runtime.manager.ManagerOptions`."""
    watched = config.watch_namespaces or ("",)
    scale_sets = [Scope(namespace) for namespace in watched]
    listener_roles = [Scope(namespace, _LISTENER_PARTS) for namespace in watched]
    return {
        AutoscalingRunnerSet: scale_sets,
        EphemeralRunnerSet: scale_sets,
        EphemeralRunner: scale_sets,
        AutoscalingListener: [Scope(config.namespace)],
        Pod: [
            *(Scope(namespace, _RUNNER_PODS) for namespace in watched),
            Scope(config.namespace, _LISTENER_PARTS),
        ],
        ServiceAccount: [Scope(config.namespace, _LISTENER_PARTS)],
        Role: listener_roles,
        RoleBinding: listener_roles,
    }


def cache_transforms() -> dict[type[KubeObject], Transform[Any]]:
    """For `arc_controller.runtime.manager.ManagerOptions`."""
    return {EphemeralRunner: SharedSpecs(), Pod: without_images}
