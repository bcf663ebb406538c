"""Follows CustomResourceDefinitions: serves what they define, cleans up what they no longer do."""

from __future__ import annotations

from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.crds import (
    CLEANUP_FINALIZER,
    CRD_GROUP,
    CRD_PLURAL,
    defined_resources,
)
from arc_controller.testing.apiserver.deleter import Deleter
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.store import Event, Store, storage_key
from arc_controller.testing.apiserver.strategy import DeleteOptions
from arc_controller.testing.apiserver.writer import Writer

_KEY = storage_key(CRD_GROUP, CRD_PLURAL)


class DefinitionController:
    """Keeps the table of resources in step with the definitions stored."""

    def __init__(
        self,
        store: Store,
        resources: ResourceTable,
        writer: Writer,
        deleter: Deleter,
        background: Background,
    ) -> None:
        self._store = store
        self._resources = resources
        self._writer = writer
        self._deleter = deleter
        self._background = background
        self._ending: dict[str, str] = {}
        """Storage key of the resource → name of its definition that is being deleted."""
        store.observe(self._observe)

    def _observe(self, event: Event) -> None:
        stored = event.stored
        if stored.resource != _KEY:
            if event.type == "DELETED" and stored.resource in self._ending:
                self._enqueue(self._ending[stored.resource])
            return
        crd = stored.obj
        spec = crd["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        if event.type == "DELETED":
            self._ending.pop(storage_key(group, plural), None)
            self._resources.remove(group, plural)
            return
        if crd["metadata"].get("deletionTimestamp"):
            self._ending[storage_key(group, plural)] = stored.name
            self._enqueue(stored.name)
            return
        if event.previous is not None:
            if event.previous.obj["spec"] == spec:
                return
            self._resources.remove(group, plural)
        for resource in defined_resources(crd):
            self._resources.add(resource)

    def _enqueue(self, name: str) -> None:
        self._background.add(("crd", name), lambda: self._clean_up(name))

    def _clean_up(self, name: str) -> None:
        stored = self._store.read(_KEY, "", name)
        if stored is None or not stored.obj["metadata"].get("deletionTimestamp"):
            return
        spec = stored.obj["spec"]
        key = storage_key(spec["group"], spec["names"]["plural"])
        for instance in self._store.scan(key):
            if not instance.obj["metadata"].get("deletionTimestamp"):
                self._deleter.delete(
                    self._writer.call(),
                    self._resources.by_storage(key),
                    instance.namespace,
                    instance.name,
                    DeleteOptions(propagation="Background"),
                )
        if self._store.count(key):
            return

        def change(obj: Object) -> Object:
            meta = obj["metadata"]
            meta["finalizers"] = [
                each for each in meta.get("finalizers") or () if each != CLEANUP_FINALIZER
            ]
            return obj

        resource = self._resources.by_storage(_KEY)
        self._writer.update(self._writer.call(), resource, "", name, change)
