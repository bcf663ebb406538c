"""The owner garbage collector: what kube-controller-manager's does, over the store.

Dependents whose owners are all gone are deleted; references to owners that are gone are taken out
of those that still have one; owners deleted in the foreground wait for the dependents that block
them; orphaned dependents lose the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

from arc_controller.testing.apiserver.background import Background
from arc_controller.testing.apiserver.deleter import FOREGROUND, ORPHAN, Deleter
from arc_controller.testing.apiserver.errors import StatusError
from arc_controller.testing.apiserver.messages import Object, UserInfo
from arc_controller.testing.apiserver.resources import Resource, ResourceTable
from arc_controller.testing.apiserver.store import Event, Store, Stored
from arc_controller.testing.apiserver.strategy import DeleteOptions
from arc_controller.testing.apiserver.writer import Writer

_USER = UserInfo(
    "system:serviceaccount:kube-system:generic-garbage-collector",
    ("system:serviceaccounts", "system:authenticated", "system:masters"),
)


@dataclass(frozen=True, slots=True)
class _Where:
    resource: str
    namespace: str
    name: str


class GarbageCollector:
    """Follows the store's writes; does its work in a `Background` queue."""

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
        self._alive: dict[str, _Where] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        """Owner uid → uids of the objects that refer to it, in the order they came."""
        store.observe(self._observe)

    def _observe(self, event: Event) -> None:
        obj = event.stored.obj
        meta = obj["metadata"]
        uid = meta["uid"]
        before = _owner_uids(event.previous.obj) if event.previous is not None else set()
        if event.type == "DELETED":
            self._alive.pop(uid, None)
            for owner in before:
                self._forget(owner, uid)
            for dependent in tuple(self._dependents.get(uid, ())):
                self._enqueue(dependent)
            return
        self._alive[uid] = _Where(event.stored.resource, event.stored.namespace, event.stored.name)
        owners = _owner_uids(obj)
        if owners != before:
            for owner in before - owners:
                self._forget(owner, uid)
            for owner in sorted(owners - before):
                self._dependents.setdefault(owner, {})[uid] = None
            self._enqueue(uid)
        finalizers = meta.get("finalizers")
        if finalizers and meta.get("deletionTimestamp"):
            if FOREGROUND in finalizers or ORPHAN in finalizers:
                self._enqueue(uid)
            if event.previous is None or not event.previous.obj["metadata"].get(
                "deletionTimestamp"
            ):
                for dependent in tuple(self._dependents.get(uid, ())):
                    self._enqueue(dependent)

    def _forget(self, owner: str, dependent: str) -> None:
        found = self._dependents.get(owner)
        if found is None:
            return
        found.pop(dependent, None)
        if not found:
            del self._dependents[owner]
        where = self._alive.get(owner)
        if where is not None:
            stored = self._store.read(where.resource, where.namespace, where.name)
            if stored is not None and _is_being_deleted_with(stored, FOREGROUND):
                self._enqueue(owner)

    def _enqueue(self, uid: str) -> None:
        self._background.add(("gc", uid), lambda: self._collect(uid))

    def _collect(self, uid: str) -> None:
        where = self._alive.get(uid)
        if where is None:
            return
        stored = self._store.read(where.resource, where.namespace, where.name)
        if stored is None or stored.obj["metadata"]["uid"] != uid:
            return
        resource = self._resources.by_storage(where.resource)
        try:
            if _is_being_deleted_with(stored, ORPHAN):
                self._orphan_dependents(resource, stored)
            elif _is_being_deleted_with(stored, FOREGROUND):
                self._delete_dependents(resource, stored)
            self._check_owners(resource, stored)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _orphan_dependents(self, resource: Resource, stored: Stored) -> None:
        uid = stored.obj["metadata"]["uid"]
        for dependent in tuple(self._dependents.get(uid, ())):
            found = self._read(dependent)
            if found is not None:
                self._drop_owners(*found, {uid})
        self._drop_finalizer(resource, stored, ORPHAN)

    def _delete_dependents(self, resource: Resource, stored: Stored) -> None:
        uid = stored.obj["metadata"]["uid"]
        blocking = [
            found
            for dependent in tuple(self._dependents.get(uid, ()))
            if (found := self._read(dependent)) is not None and _blocks(found[1], uid)
        ]
        if not blocking:
            self._drop_finalizer(resource, stored, FOREGROUND)
            return
        for _, dependent_object in blocking:
            if not dependent_object.obj["metadata"].get("deletionTimestamp"):
                self._enqueue(dependent_object.obj["metadata"]["uid"])

    def _check_owners(self, resource: Resource, stored: Stored) -> None:
        current = self._store.read(stored.resource, stored.namespace, stored.name)
        if current is None:
            return
        meta = current.obj["metadata"]
        owners = meta.get("ownerReferences") or []
        if not owners or meta.get("deletionTimestamp"):
            return
        absent: set[str] = set()
        waiting: set[str] = set()
        for owner in owners:
            state = self._owner_state(owner, current)
            if state == "absent":
                absent.add(owner["uid"])
            elif state == "waiting":
                waiting.add(owner["uid"])
            elif state == "unknown":
                return
        if not absent and not waiting:
            return
        if len(absent | waiting) < len(owners):
            self._drop_owners(resource, current, absent | waiting)
            return
        uid = meta["uid"]
        policy = ""
        if waiting and self._dependents.get(uid):
            policy = "Foreground"
        elif not {ORPHAN, FOREGROUND} & set(meta.get("finalizers") or ()):
            policy = "Background"
        options = DeleteOptions(propagation=policy, uid=uid)
        call = self._writer.call(user=_USER)
        self._deleter.delete(call, resource, current.namespace, current.name, options)

    def _owner_state(self, owner: Object, dependent: Stored) -> str:
        """absent, waiting (for its dependents), solid, or unknown when nothing can be said."""
        where = self._alive.get(owner["uid"])
        resource = self._resources.by_kind(owner["apiVersion"], owner["kind"])
        if resource is None:
            return "unknown"
        if where is None or where.name != owner["name"]:
            return "absent"
        if where.resource != resource.storage_key:
            return "absent"
        if where.namespace and where.namespace != dependent.namespace:
            return "absent"
        stored = self._store.read(where.resource, where.namespace, where.name)
        if stored is None:
            return "absent"
        if _is_being_deleted_with(stored, FOREGROUND):
            return "waiting"
        return "solid"

    def _read(self, uid: str) -> tuple[Resource, Stored] | None:
        where = self._alive.get(uid)
        if where is None:
            return None
        stored = self._store.read(where.resource, where.namespace, where.name)
        if stored is None:
            return None
        return self._resources.by_storage(where.resource), stored

    def _drop_owners(self, resource: Resource, stored: Stored, uids: set[str]) -> None:
        def change(obj: Object) -> Object:
            meta = obj["metadata"]
            kept = [each for each in meta.get("ownerReferences") or () if each["uid"] not in uids]
            meta["ownerReferences"] = kept
            return obj

        self._writer.update(
            self._writer.call(user=_USER), resource, stored.namespace, stored.name, change
        )

    def _drop_finalizer(self, resource: Resource, stored: Stored, finalizer: str) -> None:
        def change(obj: Object) -> Object:
            meta = obj["metadata"]
            meta["finalizers"] = [each for each in meta["finalizers"] if each != finalizer]
            return obj

        self._writer.update(
            self._writer.call(user=_USER), resource, stored.namespace, stored.name, change
        )


def _owner_uids(obj: Object) -> set[str]:
    owners = obj["metadata"].get("ownerReferences")
    return {owner["uid"] for owner in owners} if owners else set()


def _is_being_deleted_with(stored: Stored, finalizer: str) -> bool:
    meta = stored.obj["metadata"]
    return bool(meta.get("deletionTimestamp")) and finalizer in (meta.get("finalizers") or ())


def _blocks(stored: Stored, owner: str) -> bool:
    return any(
        each["uid"] == owner and each.get("blockOwnerDeletion")
        for each in stored.obj["metadata"].get("ownerReferences") or ()
    )
