"""The store: what etcd and the watch cache are to the real server.

One global revision grows by one with every write. Objects are kept decoded and encoded; the last
`history` writes are kept so that watches can start in the past and lists can be read as they were.
Stored objects are never changed: a write puts a new one in their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from arc_controller.testing.apiserver.messages import Object, decode_json, encode_json

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Listener = Callable[["Event"], None]


class HistoryGoneError(LookupError):
    """The asked revision is older than the history kept."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} is gone, the oldest kept is {oldest}")
        self.asked = asked
        self.oldest = oldest


class Stored:
    """One object at one revision, encoded; decoded lazily. Must not be changed."""

    __slots__ = ("_obj", "data", "name", "namespace", "resource", "revision", "variants")

    def __init__(
        self, resource: str, namespace: str, name: str, *, revision: int, obj: Object, data: bytes
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.name = name
        self.revision = revision
        self.data = data
        self.variants: dict[str, bytes] = {}
        self._obj: Object | None = obj

    @property
    def obj(self) -> Object:
        """The decoded object, shared: read it, never change it."""
        if self._obj is None:
            self._obj = decode_json(self.data)
        return self._obj

    def copy(self) -> Object:
        """A private decoded copy."""
        copied: Object = decode_json(self.data)
        return copied

    def forget_decoded(self) -> None:
        self._obj = None


class Event:
    """One write. `previous` is what was there before; frames are cached here so that hundreds of
    watchers share one encoding."""

    __slots__ = ("frames", "previous", "revision", "stored", "type")

    def __init__(
        self, revision: int, type_: EventType, stored: Stored, previous: Stored | None
    ) -> None:
        self.revision = revision
        self.type = type_
        self.stored = stored
        self.previous = previous
        self.frames: dict[str, bytes] = {}


class Store:
    """Objects by resource (`"plural.group"`, `"plural"` in the core group), namespace and name."""

    def __init__(self, history: int = 10_000) -> None:
        self.revision = 1
        self.compacted = 0
        """Watches and lists older than this revision are refused."""
        self._limit = max(1, history)
        self._objects: dict[str, dict[str, dict[str, Stored]]] = {}
        self._log: deque[Event] = deque()
        self._logs: dict[str, deque[Event]] = {}
        self._listeners: dict[tuple[str, str], list[Listener]] = {}
        self._observers: list[Listener] = []

    def get(self, group: str, resource: str, namespace: str, name: str) -> Object | None:
        """The object as it is now, or None. Shared: must not be changed."""
        stored = self.read(storage_key(group, resource), namespace, name)
        return None if stored is None else stored.obj

    def objects(self, group: str, resource: str, namespace: str = "") -> list[Object]:
        """The objects of one resource, of one namespace if given, in key order."""
        key = storage_key(group, resource)
        return [stored.obj for stored in self.scan(key, namespace)]

    def __iter__(self) -> Iterator[Stored]:
        for namespaces in self._objects.values():
            for names in namespaces.values():
                yield from names.values()

    def __len__(self) -> int:
        return sum(
            len(names) for namespaces in self._objects.values() for names in namespaces.values()
        )

    def __contains__(self, key: tuple[str, str, str, str]) -> bool:
        return self.get(*key) is not None

    def __getitem__(self, key: tuple[str, str, str, str]) -> Object:
        found = self.get(*key)
        if found is None:
            raise KeyError(key)
        return found

    def resources(self) -> list[str]:
        """The storage keys that hold at least one object."""
        return [key for key, spaces in self._objects.items() if any(spaces.values())]

    def count(self, key: str, namespace: str = "") -> int:
        spaces = self._objects.get(key, {})
        if namespace:
            return len(spaces.get(namespace, ()))
        return sum(len(names) for names in spaces.values())

    def read(self, key: str, namespace: str, name: str) -> Stored | None:
        spaces = self._objects.get(key)
        if spaces is None:
            return None
        names = spaces.get(namespace)
        return None if names is None else names.get(name)

    def scan(self, key: str, namespace: str = "") -> list[Stored]:
        """Current objects in key order, of every namespace unless one is given."""
        spaces = self._objects.get(key)
        if not spaces:
            return []
        if namespace:
            names = spaces.get(namespace)
            return [names[name] for name in sorted(names)] if names else []
        ordered = sorted(spaces, key=lambda space: f"{space}/")
        return [spaces[space][name] for space in ordered for name in sorted(spaces[space])]

    def list_at(self, key: str, namespace: str, revision: int) -> list[Stored]:
        """The objects as they were at a revision. Raises `HistoryGoneError`."""
        if revision >= self.revision:
            return self.scan(key, namespace)
        self._check_kept(revision)
        found = {(each.namespace, each.name): each for each in self.scan(key, namespace)}
        for event in reversed(self._logs.get(key, ())):
            if event.revision <= revision:
                break
            stored = event.stored
            if namespace and stored.namespace != namespace:
                continue
            if event.previous is None:
                found.pop((stored.namespace, stored.name), None)
            else:
                found[stored.namespace, stored.name] = event.previous
        return sorted(found.values(), key=lambda each: (f"{each.namespace}/", each.name))

    def events_after(self, key: str, revision: int) -> list[Event]:
        """Writes to a resource after a revision, oldest first. Raises `HistoryGoneError`."""
        self._check_kept(revision)
        found: list[Event] = []
        for event in reversed(self._logs.get(key, ())):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def put(self, key: str, namespace: str, name: str, obj: Object) -> Stored:
        """Store the object under the next revision and tell everyone who watches.

        Takes ownership of `obj` and writes `metadata.resourceVersion` into it.
        """
        previous = self.read(key, namespace, name)
        self.revision += 1
        stored = self._stored(key, namespace, name, obj)
        self._objects.setdefault(key, {}).setdefault(namespace, {})[name] = stored
        self._publish(
            Event(self.revision, "MODIFIED" if previous else "ADDED", stored, previous), key
        )
        return stored

    def remove(self, key: str, namespace: str, name: str, final: Object) -> Stored:
        """Remove the object; watchers see `final` under the revision of the removal."""
        previous = self._objects[key][namespace].pop(name)
        if not self._objects[key][namespace]:
            del self._objects[key][namespace]
        self.revision += 1
        stored = self._stored(key, namespace, name, final)
        self._publish(Event(self.revision, "DELETED", stored, previous), key)
        return stored

    def compact(self, revision: int | None = None) -> None:
        """Forget the history up to a revision (default: all of it), as etcd's compaction does."""
        self.compacted = max(self.compacted, self.revision if revision is None else revision)
        while self._log and self._log[0].revision <= self.compacted:
            self._drop_oldest()

    def subscribe(self, key: str, listener: Listener, name: str = "") -> Callable[[], None]:
        """Call `listener` on every write to a resource, or to its objects of one name; returns
        how to stop."""
        listeners = self._listeners.setdefault((key, name), [])
        listeners.append(listener)

        def cancel() -> None:
            if listener in listeners:
                listeners.remove(listener)
            if not listeners and self._listeners.get((key, name)) is listeners:
                del self._listeners[key, name]

        return cancel

    def observe(self, listener: Listener) -> None:
        """Call `listener` on every write, before the watchers of the resource."""
        self._observers.append(listener)

    def _stored(self, key: str, namespace: str, name: str, obj: Object) -> Stored:
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return Stored(key, namespace, name, revision=self.revision, obj=obj, data=encode_json(obj))

    def _publish(self, event: Event, key: str) -> None:
        self._log.append(event)
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = deque()
        log.append(event)
        if len(self._log) > self._limit:
            self.compacted = self._log[0].revision
            self._drop_oldest()
        for observer in self._observers:
            observer(event)
        for name in ("", event.stored.name):
            for listener in tuple(self._listeners.get((key, name), ())):
                listener(event)
        # What only history needs is kept encoded: a decoded object is five times as big.
        if event.previous is not None:
            event.previous.forget_decoded()
        if event.type == "DELETED":
            event.stored.forget_decoded()

    def _drop_oldest(self) -> None:
        event = self._log.popleft()
        self._logs[event.stored.resource].popleft()

    def _check_kept(self, revision: int) -> None:
        if revision < self.compacted:
            raise HistoryGoneError(revision, self.compacted)


def storage_key(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource
