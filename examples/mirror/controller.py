"""The controller: a `Mirror` keeps copies of a ConfigMap in other namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from arc_controller.api.core import ConfigMap
from arc_controller.runtime import (
    Condition,
    ControllerBuilder,
    LazyCopy,
    Manager,
    NamespacedName,
    ObjectMeta,
    Result,
    enqueue_mapped,
)
from arc_controller.runtime.finalizers import add_finalizers, remove_finalizers
from arc_controller.runtime.objects import set_condition
from arc_controller.runtime.predicates import generation_changed
from examples.mirror.kind import GROUP, Mirror

FINALIZER = f"{GROUP}/copies"  # copies live in other namespaces: no owner reference reaches there
MIRROR = f"{GROUP}/mirror"  # on a copy: "namespace.name" of its mirror


class MirrorReconciler:
    def __init__(self, manager: Manager) -> None:
        self.client, self.events, self.now = manager.client, manager.events, manager.now

    async def reconcile(self, key: NamespacedName) -> Result:
        found = await self.client.find(Mirror, key)
        if found is None:
            return Result()
        mirror = LazyCopy(found)
        copies = await self.client.list(ConfigMap, index=("mirror", f"{key.namespace}.{key.name}"))

        if found.is_being_deleted:
            await self.remove(copies)
            remove_finalizers(mirror, FINALIZER)
            await mirror.patch(self.client)
            return Result()

        if add_finalizers(mirror, FINALIZER):  # before the first copy, or one could stay behind
            await mirror.patch(self.client)

        source = await self.client.find(ConfigMap, NamespacedName(key.namespace, found.spec.source))
        if source is None:
            await self.report(mirror, len(copies), f"There is no ConfigMap {found.spec.source}.")
            return Result()  # its creation is an event, no need to come back for it

        wanted = {
            NamespacedName(namespace, source.metadata.name) for namespace in found.spec.namespaces
        }
        kept = [target for target in sorted(wanted) if await self.copy(source, target, key)]
        await self.remove(copy for copy in copies if copy.key not in wanted)
        await self.report(mirror, len(kept), "")
        return Result()

    async def copy(self, source: ConfigMap, target: NamespacedName, mirror: NamespacedName) -> bool:
        """Make the copy or put it right; False if somebody else's ConfigMap has its name."""
        found = await self.client.find(ConfigMap, target)
        if found is None:
            labels = {MIRROR: f"{mirror.namespace}.{mirror.name}"}
            meta = ObjectMeta(namespace=target.namespace, name=target.name, labels=labels)
            await self.client.create(ConfigMap(metadata=meta, data=source.data))
            return True
        if MIRROR not in found.metadata.labels:
            return False
        copy = LazyCopy(found)
        if found.data != source.data:
            copy.mutate().data = dict(source.data)
        await copy.patch(self.client)  # sends nothing when nothing changed
        return True

    async def remove(self, copies: Iterable[ConfigMap]) -> None:
        for copy in list(copies):
            await self.client.delete(ConfigMap, copy.key, uid=copy.uid)

    async def report(self, mirror: LazyCopy[Mirror], copies: int, problem: str) -> None:
        status = mirror.mutate().status
        status.copies = copies
        ready = Condition(
            type="Ready",
            status="False" if problem else "True",
            reason="SourceMissing" if problem else "Copied",
            message=problem,
        )
        if set_condition(status.conditions, ready, self.now()) and problem:
            self.events.event(mirror.obj, "Warning", ready.reason, problem)
        await mirror.patch_status(self.client)


def add_mirror_controller(manager: Manager) -> None:
    cache = manager.cache
    cache.add_index(
        ConfigMap, "mirror", lambda obj: filter(None, [obj.metadata.labels.get(MIRROR)])
    )
    cache.add_index(Mirror, "source", lambda obj: [f"{obj.metadata.namespace}/{obj.spec.source}"])

    def mirrors_of(config_map: ConfigMap) -> Iterable[NamespacedName]:
        if owner := config_map.metadata.labels.get(MIRROR):  # a copy was changed or deleted
            yield NamespacedName(*owner.split(".", 1))
        for mirror in cache.list(Mirror, index=("source", str(config_map.key))):
            yield mirror.key

    (
        ControllerBuilder(manager)
        .for_(Mirror, predicates=[generation_changed])
        .watches(ConfigMap, enqueue_mapped(mirrors_of))
        .with_options(max_concurrent_reconciles=4)
        .build(MirrorReconciler(manager))
    )
