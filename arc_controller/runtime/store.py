"""What a cache remembers of one kind: the objects and their field indexes.

Plain data structures: who may change them, and when, is the informer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic

import structlog

from arc_controller.runtime.mutation import MutationDetector
from arc_controller.runtime.objects import K, LabelSelector, NamespacedName

IndexFunc = Callable[[K], Iterable[str]]
"""The values under which an object is found; none if it is not found through the index."""

_log = structlog.get_logger(__name__)


class Store(Generic[K]):
    """Objects by key, by namespace and by any number of named indexes.

    Objects are handed out as they are. Lists are new and in the order of arrival.
    """

    def __init__(self, kind: type[K]) -> None:
        self._kind = kind
        self._objects: dict[NamespacedName, K] = {}
        self._namespaces: dict[str, dict[NamespacedName, K]] = {}
        self._indexes: dict[str, _Index[K]] = {}
        self._detector: MutationDetector | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[K]:
        return iter(self._objects.values())

    def keys(self) -> list[NamespacedName]:
        return list(self._objects)

    def peek(self, key: NamespacedName) -> K | None:
        """`get` without looking for mutations: for those who keep the store."""
        return self._objects.get(key)

    def get(self, key: NamespacedName) -> K | None:
        if self._detector is not None:
            self._detector.check([key])
        return self._objects.get(key)

    def list(
        self,
        namespace: str = "",
        labels: LabelSelector | None = None,
        index: tuple[str, str] | None = None,
    ) -> Sequence[K]:
        """Those that match all that is given. Raises `LookupError` for an index nobody added."""
        found: Iterable[K]
        if index is not None:
            bucket = self._indexed(*index)
            found = bucket.values()
            if namespace:
                found = [obj for key, obj in bucket.items() if key[0] == namespace]
        elif namespace:
            found = self._namespaces.get(namespace, {}).values()
        else:
            found = self._objects.values()
        if labels is not None:
            found = [obj for obj in found if labels.matches(obj.metadata.labels)]
        result = list(found)
        if self._detector is not None:
            self._detector.check(obj.key for obj in result)
        return result

    def add_index(self, name: str, func: IndexFunc[K]) -> None:
        """Index what is there and what will come. Raises `ValueError` if the name is taken."""
        if name in self._indexes:
            raise ValueError(f"{self._kind.__name__} has an index {name!r} already")
        index = self._indexes[name] = _Index(name, func)
        for key, obj in self._objects.items():
            index.add(key, obj)

    def put(self, obj: K) -> None:
        key = obj.key
        self._objects[key] = obj
        self._namespaces.setdefault(key.namespace, {})[key] = obj
        for index in self._indexes.values():
            index.add(key, obj)
        if self._detector is not None:
            self._detector.remember(key, obj)

    def remove(self, key: NamespacedName) -> None:
        if self._objects.pop(key, None) is None:
            return
        bucket = self._namespaces[key.namespace]
        del bucket[key]
        if not bucket:
            del self._namespaces[key.namespace]
        for index in self._indexes.values():
            index.remove(key)
        if self._detector is not None:
            self._detector.forget(key)

    def detect_mutations(self, on: bool = True) -> None:
        """From now on reads raise `CachedObjectMutated` for what was changed in place; or not."""
        if not on:
            self._detector = None
        elif self._detector is None:
            self._detector = MutationDetector(self._kind.__name__)
            for key, obj in self._objects.items():
                self._detector.remember(key, obj)

    def check_mutations(self) -> None:
        """Raises `CachedObjectMutated`; does nothing unless mutations are being detected."""
        if self._detector is not None:
            self._detector.check()

    def _indexed(self, name: str, value: str) -> dict[NamespacedName, K]:
        index = self._indexes.get(name)
        if index is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise LookupError(f"{self._kind.__name__} has no index {name!r} (it has: {known})")
        return index.buckets.get(value, {})


class _Index(Generic[K]):
    def __init__(self, name: str, func: IndexFunc[K]) -> None:
        self._name = name
        self._func = func
        self.buckets: dict[str, dict[NamespacedName, K]] = {}
        self._values: dict[NamespacedName, tuple[str, ...]] = {}

    def add(self, key: NamespacedName, obj: K) -> None:
        try:
            found = self._func(obj)
            if isinstance(found, str):
                raise TypeError(f"it returned {found!r}, it must return a list of strings")
            values = tuple(found)
        except Exception:  # The cache outlives a mistake in somebody's function.
            _log.exception("index failed", index=self._name, kind=type(obj).__name__, key=str(key))
            values = ()
        old = self._values.get(key, ())
        if old and old != values:
            self.remove(key)
        if values:
            self._values[key] = values
            for value in values:
                self.buckets.setdefault(value, {})[key] = obj

    def remove(self, key: NamespacedName) -> None:
        for value in self._values.pop(key, ()):
            bucket = self.buckets.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del self.buckets[value]
