"""Keeps one kind's part of the cache true, and tells handlers what changed.

Three sources say what an object looks like: lists, watch events and the answers to our own writes.
The informer merges them so that nothing ever goes back in time; the rules are in `Informer`.
"""

from __future__ import annotations

import asyncio
import random as random_
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol

import structlog

from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.objects import K, KubeObject, LabelSelector, NamespacedName
from arc_controller.runtime.reflector import Reflector, State
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.store import IndexFunc, Store
from arc_controller.runtime.transport import Transport

Transform = Callable[[K], K]
"""Makes an object smaller before it is stored, for example by sharing equal parts. A failure is
logged, and the object stored as it is."""

LONGEST_VERSION = 100
"""Digits. No counter ever gets there, and Python refuses to read some thousands of them."""

_log = structlog.get_logger(__name__)


class EventHandler(Protocol):
    """Is told what happens to the objects of one kind: in order, synchronously, so be quick.

    What is handed in is what the cache holds: it must not be changed. An error is logged and
    keeps neither the cache nor the other handlers from going on.
    """

    def on_add(self, obj: Any, initial: bool) -> None:
        """`initial`: it was there before anybody looked (first list, or a handler added late)."""

    def on_update(self, old: Any, new: Any) -> None: ...

    def on_delete(self, obj: Any) -> None:
        """With the last state that is known."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of a kind is cached: one namespace (``""``: all), and a label selection."""

    namespace: str = ""
    labels: LabelSelector | None = None

    def holds(self, obj: KubeObject) -> bool:
        meta = obj.metadata
        return (not self.namespace or self.namespace == meta.namespace) and (
            self.labels is None or self.labels.matches(meta.labels)
        )


@dataclass(frozen=True, slots=True)
class ScopeStatus:
    """How one scope of an informer is doing, for diagnostics."""

    namespace: str
    labels: str
    state: State
    version: str
    failures: int
    last_heard: datetime | None


class Informer(Generic[K]):
    """The objects of one kind in some scopes, with field indexes and handlers.

    Every state of an object is either older or newer than another by its resourceVersion, a
    decimal number (KEP-5504). ``seen`` is the version up to which a scope's reflector has told
    everything.

    - A state that is not newer than the stored one is dropped: the watch event of a write whose
      answer was observed, or a late event of a scope that overlaps another.
    - `observe` takes an answer only if it is newer than ``seen``: an older one has been overtaken
      by the watch, and an object that is not there any more was deleted since.
    - A list replaces everything up to ``seen``, whatever the versions say (a restored backup goes
      back); only what was observed and is newer than the list stays.
    - An answer that shows the object's end (being deleted, no finalizers, no grace period) removes
      it at once; whatever is not newer than that, under its name, is dropped from then on.

    Versions that are no numbers are taken in the order of arrival and never from `observe`.
    """

    def __init__(
        self,
        kind: type[K],
        scopes: Sequence[Scope],
        transport: Transport,
        scheme: Scheme,
        *,
        transform: Transform[K] | None = None,
        now: Now = utc_now,
        random: random_.Random | None = None,
    ) -> None:
        if not scopes:
            raise ValueError(f"the informer of {kind.__name__} has no scope")
        self.kind = kind
        self.scopes = tuple(scopes)
        self.store: Store[K] = Store(kind)
        self._transform = transform
        self._handlers: list[EventHandler] = []
        self._followers = [_Follower(self, scope, now) for scope in scopes]
        for follower in self._followers:
            follower.reflector = Reflector(
                kind,
                follower,
                transport,
                scheme,
                namespace=follower.scope.namespace,
                labels=follower.scope.labels,
                random=random,
            )
        self._gone: dict[NamespacedName, _Tombstone] = {}
        self._synced = asyncio.Event()

    def add_handler(self, handler: EventHandler) -> None:
        """It is told at once, as initial, about all that is there already."""
        self._handlers.append(handler)
        for obj in list(self.store):
            _tell(handler, _Added(obj, initial=True))

    def remove_handler(self, handler: EventHandler) -> None:
        self._handlers.remove(handler)

    def add_index(self, name: str, func: IndexFunc[K]) -> None:
        """Raises `ValueError` if the name is taken."""
        self.store.add_index(name, func)

    @property
    def has_synced(self) -> bool:
        """Whether every scope was listed once."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        await self._synced.wait()

    def covers(self, namespace: str = "") -> bool:
        """Whether reads in this namespace (``""``: in all scopes) may be answered from here."""
        return self._synced.is_set() and (
            not namespace or any(s.namespace in ("", namespace) for s in self.scopes)
        )

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        async with asyncio.TaskGroup() as group:
            for follower in self._followers:
                name = f"reflector {self.kind.__name__} {follower.scope.namespace or '*'}"
                group.create_task(follower.reflector.run(), name=name)

    def observe(self, obj: K) -> None:
        """Take in the API server's answer to a write of our own."""
        obj = self._transformed(obj)
        if _is_over(obj):
            self._observe_end(obj)
            return
        version = number(obj.metadata.resource_version)
        followers = [f for f in self._followers if f.scope.holds(obj)]
        if not version or not followers or any(version <= f.seen for f in followers):
            return
        changes: list[_Change] = []
        for follower in followers:
            self._put(follower, obj, changes)
        self._dispatch(changes)

    def status(self) -> list[ScopeStatus]:
        return [
            ScopeStatus(
                f.scope.namespace,
                str(f.scope.labels or ""),
                f.reflector.state,
                f.reflector.version,
                f.reflector.failures,
                f.last_heard,
            )
            for f in self._followers
        ]

    # --- what followers tell ----------------------------------------------------------------------

    def _replaced(
        self,
        follower: _Follower[K],
        objects: Sequence[K],
        unreadable: frozenset[NamespacedName],
        version: int,
    ) -> None:
        changes: list[_Change] = []
        listed = {obj.key: obj for obj in objects}
        # Only what was observed is newer than both, or what another scope holds.
        horizon = max(version, follower.seen)
        for key in [key for key in follower.held if key not in listed and key not in unreadable]:
            obj = self.store.peek(key)
            if obj is None or follower.shares(key):
                follower.held.pop(key, None)
            elif number(obj.metadata.resource_version) <= horizon:
                self._drop(follower, key, obj, changes)
        initial = not self._synced.is_set()
        for obj in objects:
            transformed = self._transformed(obj)
            self._put(follower, transformed, changes, initial=initial, behind=follower.seen)
        for key, tombstone in list(self._gone.items()):
            still_listed = key in listed and listed[key].metadata.uid == tombstone.uid
            # A list that goes back starts another history.
            if version < follower.seen or (version >= tombstone.version and not still_listed):
                self._bury(follower, key, tombstone.uid)
        follower.seen = version
        follower.listed = True
        self._dispatch(changes)
        if all(f.listed for f in self._followers):
            self._synced.set()

    def _changed(self, follower: _Follower[K], obj: K) -> None:
        obj = self._transformed(obj)
        changes: list[_Change] = []
        self._put(follower, obj, changes)
        self._dispatch(changes)

    def _deleted(self, follower: _Follower[K], last: KubeObject) -> None:
        key = last.key
        self._bury(follower, key, last.metadata.uid)
        stored = self.store.peek(key)
        if stored is None:
            return
        changes: list[_Change] = []
        # Otherwise what is stored came later: it was made again, or came back into the selection.
        if number(last.metadata.resource_version) >= number(stored.metadata.resource_version):
            final = last if isinstance(last, self.kind) else stored
            self._drop(follower, key, final, changes)
        elif follower.shares(key):
            follower.held.pop(key, None)
        self._dispatch(changes)

    # --- the store --------------------------------------------------------------------------------

    def _transformed(self, obj: K) -> K:
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception:  # As with indexes and handlers: the cache outlives somebody's mistake.
            _log.exception("transform failed", kind=self.kind.__name__, key=str(obj.key))
            return obj

    def _put(
        self,
        follower: _Follower[K],
        new: K,
        changes: list[_Change],
        *,
        initial: bool = False,
        behind: int | None = None,
    ) -> None:
        """Store `new` unless something newer is known.

        With `behind`, what is stored counts as newer only if its version is above that too.
        """
        version = number(new.metadata.resource_version)
        key = new.key
        if self._gone and self._is_gone(key, version):
            return
        old = self.store.peek(key)
        follower.held[key] = None
        if old is None:
            self.store.put(new)
            changes.append(_Added(new, initial))
            return
        stored = number(old.metadata.resource_version)
        if (
            version
            and stored >= version
            and (stored == version or behind is None or stored > behind)
        ):
            return
        self.store.put(new)
        if old.metadata.uid == new.metadata.uid:
            changes.append(_Updated(old, new))
        else:  # The name is the same, the object is not.
            changes += [_Removed(old), _Added(new, initial=False)]

    def _drop(
        self, follower: _Follower[K], key: NamespacedName, last: K, changes: list[_Change]
    ) -> None:
        follower.held.pop(key, None)
        if any(key in other.held for other in self._followers):
            return
        self.store.remove(key)
        changes.append(_Removed(last))

    def _observe_end(self, last: K) -> None:
        key, uid, version = last.key, last.metadata.uid, number(last.metadata.resource_version)
        stored = self.store.peek(key)
        if stored is None or stored.metadata.uid != uid or not version:
            return
        holders = [f for f in self._followers if key in f.held]
        for follower in holders:
            follower.held.pop(key, None)
        self._gone[key] = _Tombstone(uid, version, set(holders))
        self.store.remove(key)
        self._dispatch([_Removed(last)])

    def _is_gone(self, key: NamespacedName, version: int) -> bool:
        """Whether a state of what has this key is from before its end."""
        tombstone = self._gone.get(key)
        if tombstone is None:
            return False
        if version <= tombstone.version:
            return True
        del self._gone[key]  # It was made again, or lives on after all.
        return False

    def _bury(self, follower: _Follower[K], key: NamespacedName, uid: str) -> None:
        """The follower knows now, too, that the object is gone."""
        tombstone = self._gone.get(key)
        if tombstone is None or tombstone.uid != uid:
            return
        tombstone.waiting.discard(follower)
        if not tombstone.waiting:
            del self._gone[key]

    def _dispatch(self, changes: Sequence[_Change]) -> None:
        for change in changes:
            for handler in self._handlers:
                _tell(handler, change)


class _Follower(Generic[K]):
    """One scope's reflector, and what it has told."""

    reflector: Reflector[K]

    def __init__(self, informer: Informer[K], scope: Scope, now: Now) -> None:
        self._informer = informer
        self._now = now
        self.scope = scope
        self.seen = 0
        self.listed = False
        self.held: dict[NamespacedName, None] = {}  # in order of arrival, as events are then
        self.last_heard: datetime | None = None

    def shares(self, key: NamespacedName) -> bool:
        """Whether another scope holds the object too."""
        return any(key in other.held for other in self._informer._followers if other is not self)

    def replaced(
        self, objects: Sequence[K], unreadable: frozenset[NamespacedName], version: str
    ) -> None:
        self.last_heard = self._now()
        self._informer._replaced(self, objects, unreadable, number(version))

    def changed(self, obj: K) -> None:
        self._informer._changed(self, obj)
        self.reached(obj.metadata.resource_version)

    def deleted(self, last: KubeObject) -> None:
        self._informer._deleted(self, last)
        self.reached(last.metadata.resource_version)

    def reached(self, version: str) -> None:
        self.last_heard = self._now()
        self.seen = number(version) or self.seen


@dataclass(slots=True)
class _Tombstone:
    uid: str
    version: int
    """Of the last state: whatever is not newer is from before the end."""
    waiting: set[Any]
    """The followers that have not told yet that the object is gone."""


@dataclass(frozen=True, slots=True)
class _Added:
    obj: KubeObject
    initial: bool


@dataclass(frozen=True, slots=True)
class _Updated:
    old: KubeObject
    new: KubeObject


@dataclass(frozen=True, slots=True)
class _Removed:
    obj: KubeObject


_Change = _Added | _Updated | _Removed


def _tell(handler: EventHandler, change: _Change) -> None:
    try:
        match change:
            case _Added(obj, initial):
                handler.on_add(obj, initial)
            case _Updated(old, new):
                handler.on_update(old, new)
            case _Removed(obj):
                handler.on_delete(obj)
    except Exception:
        _log.exception("event handler failed", handler=repr(handler))


def number(version: str) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    is_number = version.isascii() and version.isdecimal() and len(version) <= LONGEST_VERSION
    return int(version) if is_number else 0


def _is_over(obj: KubeObject) -> bool:
    meta = obj.metadata
    return (
        meta.deletion_timestamp is not None
        and not meta.finalizers
        and not meta.deletion_grace_period_seconds
    )
