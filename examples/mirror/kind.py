"""The kind: what a user writes, and what the controller reports."""

from __future__ import annotations

import msgspec

from arc_controller.api.core import ConfigMap
from arc_controller.runtime import Condition, KubeObject, Resource, Scheme, Wire

GROUP = "examples.dev"


class MirrorSpec(Wire):
    source: str = ""
    namespaces: list[str] = msgspec.field(default_factory=list)


class MirrorStatus(Wire):
    copies: int = 0
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Mirror(KubeObject):
    spec: MirrorSpec = msgspec.field(default_factory=MirrorSpec)
    status: MirrorStatus = msgspec.field(default_factory=MirrorStatus)


SCHEME = Scheme()
SCHEME.register(Mirror, Resource(GROUP, "v1", "Mirror", "mirrors"))
SCHEME.register(ConfigMap, Resource("", "v1", "ConfigMap", "configmaps"))
