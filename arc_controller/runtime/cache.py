"""What this process knows of the cluster: one informer per kind, read without asking anybody."""

from __future__ import annotations

import asyncio
import random as random_
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.informer import EventHandler, Informer, Scope, Transform
from arc_controller.runtime.mutation import CachedObjectMutated
from arc_controller.runtime.objects import K, KubeObject, LabelSelector, NamespacedName
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.store import IndexFunc
from arc_controller.runtime.transport import Transport

__all__ = ["Cache", "CachedObjectMutated", "EventHandler", "Informer", "Scope"]

EVERYTHING = (Scope(),)


class Cache:
    """Informers by kind.

    ``scopes`` says which part of a kind is cached, ``default_scopes`` the same for all others.
    Scopes of one kind are merged; they may overlap. Nothing is cached until an informer is asked
    for (`informer`, `add_index`), and `covers` stays False until it has seen everything once, so
    that a reader never takes "not seen yet" for "not there".

    What `get` and `list` return is shared and must not be changed.
    """

    on_new: ClassVar[Callable[[Cache], None] | None] = None
    """Called with every new cache; `arc_controller.testing.mutations` finds them all through it."""

    def __init__(
        self,
        transport: Transport,
        scheme: Scheme,
        scopes: Mapping[type[Any], Sequence[Scope]] | None = None,
        *,
        default_scopes: Sequence[Scope] = EVERYTHING,
        transforms: Mapping[type[Any], Transform[Any]] | None = None,
        now: Now = utc_now,
        random: random_.Random | None = None,
    ) -> None:
        self._transport = transport
        self._scheme = scheme
        self._scopes = dict(scopes or {})
        self._default_scopes = tuple(default_scopes)
        self._transforms = dict(transforms or {})
        self._now = now
        self._random = random
        self._informers: dict[type[KubeObject], Informer[Any]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._detect_mutations = False
        if Cache.on_new is not None:
            Cache.on_new(self)

    def informer(self, kind: type[K]) -> Informer[K]:
        """The kind's informer; made when first asked for, and started if the cache runs."""
        kind = self._scheme.registered(kind)
        informer = self._informers.get(kind)
        if informer is None:
            informer = self._informers[kind] = Informer(
                kind,
                self._scopes.get(kind) or self._default_scopes,
                self._transport,
                self._scheme,
                transform=self._transforms.get(kind),
                now=self._now,
                random=self._random,
            )
            if self._detect_mutations:
                informer.store.detect_mutations()
            if self._group is not None:
                self._start(self._group, informer)
        return cast("Informer[K]", informer)

    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    def add_index(self, kind: type[K], name: str, func: IndexFunc[K]) -> None:
        """Make ``list(kind, index=(name, value))`` work. Raises `ValueError` for a taken name."""
        self.informer(kind).add_index(name, func)

    def covers(self, kind: type[KubeObject], namespace: str = "") -> bool:
        """Whether reads are answered from here; see `CachedReader.covers`."""
        informer = self._find(kind)
        return informer is not None and informer.covers(namespace)

    def get(self, kind: type[K], key: NamespacedName) -> K | None:
        """None too if the kind is not cached: ask `covers` first."""
        informer = self._find(kind)
        return informer.store.get(key) if informer is not None else None

    def list(
        self,
        kind: type[K],
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        """Those that match all that is given. Raises `LookupError` for an index nobody added."""
        informer = self._find(kind)
        if informer is None:
            raise LookupError(f"{kind.__name__} is not cached: nobody asked for its informer")
        return informer.store.list(namespace, labels, index)

    def observe(self, obj: KubeObject) -> None:
        """Take in the API server's answer to a write; see `Informer` for what becomes of it."""
        informer = self._find(type(obj))
        if informer is not None:
            informer.observe(obj)

    async def start(self) -> None:
        """Follow the API server until cancelled. Raises `RuntimeError` if it runs already."""
        if self._group is not None:
            raise RuntimeError("the cache runs already")
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for informer in self.informers():
                    self._start(group, informer)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None

    async def wait_for_sync(self, kinds: Iterable[type[KubeObject]] = ()) -> None:
        """Until every informer (or those of `kinds`) has listed everything once."""
        wanted = [self.informer(kind) for kind in kinds] or self.informers()
        for informer in wanted:
            await informer.wait_for_sync()

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self._informers.values())

    @property
    def detect_mutations(self) -> bool:
        """Whether reads raise `CachedObjectMutated` for an object that was changed in place.

        For tests: every read and every change then costs an encoding of the object.
        """
        return self._detect_mutations

    @detect_mutations.setter
    def detect_mutations(self, value: bool) -> None:
        self._detect_mutations = value
        for informer in self._informers.values():
            informer.store.detect_mutations(value)

    def check_mutations(self) -> None:
        """Raises `CachedObjectMutated`; does nothing unless `detect_mutations` is on."""
        for informer in self._informers.values():
            informer.store.check_mutations()

    def _find(self, kind: type[K]) -> Informer[K] | None:
        for base in kind.__mro__:
            if base in self._informers:
                return self._informers[base]
        return None

    @staticmethod
    def _start(group: asyncio.TaskGroup, informer: Informer[Any]) -> None:
        group.create_task(informer.run(), name=f"informer {informer.kind.__name__}")
