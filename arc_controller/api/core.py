"""The few core kinds we touch, each with only the fields that are read or written.

`Pod` is a projection for reading; `PodManifest` adds the spec for creating one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from arc_controller.runtime.objects import KubeObject, Wire


class ContainerStateTerminated(Wire):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class ContainerStateWaiting(Wire):
    reason: str = ""
    message: str = ""


class ContainerState(Wire):
    waiting: ContainerStateWaiting | None = None
    running: dict[str, Any] | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodCondition(Wire):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(Wire):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] = msgspec.field(default_factory=list)
    container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)


class Container(Wire):
    name: str = ""
    image: str = ""


class PodImages(Wire):
    """What can be changed in the spec of a pod that exists, and matters."""

    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] = msgspec.field(default_factory=list)


class Pod(KubeObject):
    """A pod as the controllers see it: metadata, images and status."""

    spec: PodImages = msgspec.field(default_factory=PodImages)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodManifest(Pod):
    """A pod to be created."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)  # type: ignore[assignment]


class Secret(KubeObject):
    """``data`` holds bytes; msgspec writes them as base64, as the API does."""

    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Secret({self.key}, keys={sorted(self.data)})"


class ConfigMap(KubeObject):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class ServiceAccount(KubeObject):
    pass


class PolicyRule(Wire):
    verbs: list[str]
    api_groups: list[str] = msgspec.field(default_factory=list)
    resources: list[str] = msgspec.field(default_factory=list)
    resource_names: list[str] = msgspec.field(default_factory=list)


class Role(KubeObject):
    rules: list[PolicyRule] | None = None
    """The API server says null for none."""


class RoleRef(Wire):
    api_group: str
    kind: str
    name: str


class Subject(Wire):
    kind: str
    name: str
    namespace: str = ""
    api_group: str = ""


class RoleBinding(KubeObject, kw_only=True):
    role_ref: RoleRef
    subjects: list[Subject] = msgspec.field(default_factory=list)
