"""What there is in a test's cluster, kept up to date by watches: read without asking anybody."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunner,
    EphemeralRunnerSet,
    Label,
)
from arc_controller.runtime.cache import Cache
from arc_controller.runtime.clock import Now
from arc_controller.runtime.objects import K, KubeObject, NamespacedName
from arc_controller.runtime.transport import Transport

KINDS: tuple[type[KubeObject], ...] = (
    AutoscalingRunnerSet,
    AutoscalingListener,
    EphemeralRunnerSet,
    EphemeralRunner,
    Pod,
)


class Observer:
    """The four kinds and the pods of an API server. `changed` wakes when any of them changes."""

    def __init__(self, transport: Transport, now: Now, random: Random) -> None:
        self._cache = Cache(transport, SCHEME, now=now, random=random)
        self._changed = asyncio.Event()
        for kind in KINDS:
            self._cache.informer(kind).add_handler(self)

    async def start(self) -> None:
        await self._cache.start()

    async def wait_for_sync(self) -> None:
        await self._cache.wait_for_sync()

    async def changed(self, at_most: float) -> None:
        """Return when something changes, or after so many seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(at_most):
                await self._changed.wait()
        except TimeoutError:
            return

    def all(self, kind: type[K], namespace: str = "") -> Sequence[K]:
        return self._cache.list(kind, namespace=namespace)

    def get(self, kind: type[K], namespace: str, name: str) -> K | None:
        return self._cache.get(kind, NamespacedName(namespace, name))

    def phases(self) -> Counter[str]:
        """How many runners are in which phase; those without one count as Pending."""
        return Counter(runner.status.phase or "Pending" for runner in self.all(EphemeralRunner))

    def runner_pods(self) -> list[Pod]:
        return [pod for pod in self.all(Pod) if Label.EPHEMERAL_RUNNER in pod.metadata.labels]

    def listener_pods(self) -> list[Pod]:
        return [pod for pod in self.all(Pod) if Label.EPHEMERAL_RUNNER not in pod.metadata.labels]

    def on_add(self, obj: Any, initial: bool) -> None:
        self._changed.set()

    def on_update(self, old: Any, new: Any) -> None:
        self._changed.set()

    def on_delete(self, obj: Any) -> None:
        self._changed.set()

    def describe(self) -> str:
        """All of it in a few lines, for the message of a test that waited in vain."""
        lines = []
        for kind in KINDS:
            objects = self.all(kind)
            lines.append(f"{kind.__name__}: {len(objects)}")
            lines += [f"  {_line(obj)}" for obj in objects[:10]]
        return "\n".join(lines)


def _line(obj: KubeObject) -> str:
    status = getattr(obj, "status", None)
    shown: dict[str, Any] = {"phase": getattr(status, "phase", "")}
    if isinstance(obj, EphemeralRunner):
        shown |= {"ready": obj.status.ready, "runnerId": obj.status.runner_id}
        shown |= {"job": obj.status.job_id, "failures": len(obj.status.failures)}
        shown["reason"] = obj.status.reason
    if isinstance(obj, EphemeralRunnerSet):
        shown |= {"replicas": obj.spec.replicas, "patchID": obj.spec.patch_id}
        shown["current"] = obj.status.current_replicas
    for condition in getattr(status, "conditions", ()):
        if getattr(condition, "status", "") != "True" and getattr(condition, "message", ""):
            shown[condition.type] = condition.message
    if obj.is_being_deleted:
        shown |= {"deleting": True, "finalizers": obj.metadata.finalizers}
    return f"{obj.key} " + _pairs(shown)


def _pairs(shown: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in shown.items() if value not in ("", None))
