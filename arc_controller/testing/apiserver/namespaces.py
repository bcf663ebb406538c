"""Namespaces: nothing is created in one that is missing or ending, and an ending one is emptied."""

from __future__ import annotations

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.deleter import Deleter
from arc_controller.testing.apiserver.resources import ResourceTable
from arc_controller.testing.apiserver.store import Event, Store
from arc_controller.testing.apiserver.strategy import Call, DeleteOptions
from arc_controller.testing.apiserver.writer import Attempt, Writer

DEFAULT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """The admission plugin of that name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, attempt: Attempt) -> None:
        resource, obj, operation = attempt.resource, attempt.obj, attempt.operation
        name = obj["metadata"].get("name") or ""
        if operation == "DELETE" and resource.storage_key == "namespaces":
            if name in _IMMORTAL:
                raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
            return
        if operation != "CREATE" or not resource.namespaced:
            return
        namespace = obj["metadata"]["namespace"]
        found = self._store.read("namespaces", "", namespace)
        if found is None:
            raise errors.not_found("", "namespaces", namespace)
        if (found.obj.get("status") or {}).get("phase") != "Terminating":
            return
        if resource.storage_key == "events":
            return
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        raise errors.forbidden(resource.group, resource.plural, name, why, [cause])


class NamespaceController:
    """Empties namespaces that are being deleted, then lets them go."""

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
        self._ending: set[str] = set()
        store.observe(self._observe)

    def _observe(self, event: Event) -> None:
        stored = event.stored
        if stored.resource == "namespaces":
            if event.type == "DELETED":
                self._ending.discard(stored.name)
            elif stored.obj["metadata"].get("deletionTimestamp"):
                self._ending.add(stored.name)
                self._enqueue(stored.name)
        elif event.type == "DELETED" and stored.namespace in self._ending:
            self._enqueue(stored.namespace)

    def _enqueue(self, name: str) -> None:
        self._background.add(("namespace", name), lambda: self._empty(name))

    def _empty(self, name: str) -> None:
        if self._store.read("namespaces", "", name) is None:
            return
        left = False
        for key in self._store.resources():
            resource = self._resources.by_storage(key)
            if not resource.namespaced:
                continue
            for stored in self._store.scan(key, name):
                if not stored.obj["metadata"].get("deletionTimestamp"):
                    self._deleter.delete(
                        self._writer.call(),
                        resource,
                        name,
                        stored.name,
                        DeleteOptions(propagation="Background"),
                    )
            left = left or self._store.count(key, name) > 0
        if not left:
            self.finalize(name)

    def finalize(self, name: str) -> None:
        """Take away what holds the namespace itself."""
        finalize_namespace(self._writer, self._resources, self._writer.call(), name, [])


def finalize_namespace(
    writer: Writer, resources: ResourceTable, call: Call, name: str, finalizers: list[str]
) -> None:
    """The `finalize` subresource: set `spec.finalizers`, the namespace goes with the last one."""
    resource = resources.by_storage("namespaces")
    stored = writer.store.read("namespaces", "", name)
    if stored is None:
        raise errors.not_found("", "namespaces", name)
    obj = stored.copy()
    obj["spec"] = {"finalizers": finalizers} if finalizers else {}
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") and not finalizers and not meta.get("finalizers"):
        if not call.dry_run:
            writer.store.remove(resource.storage_key, "", name, stored.copy())
    elif not call.dry_run:
        writer.store.put(resource.storage_key, "", name, obj)
