"""Finds code that changes a cached object instead of a `LazyCopy` of it. For tests.

What a cache hands out is shared by everybody; a change made to it is a lie that no API server ever
told. The detector remembers what an object looked like when it was stored and compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from arc_controller.runtime.objects import KubeObject, NamespacedName


class CachedObjectMutated(AssertionError):
    """A cached object was changed; the message names kind, key and the first field that differs."""

    def __init__(self, kind: str, key: NamespacedName, field: str, before: Any, after: Any) -> None:
        self.kind = kind
        self.key = key
        self.field = field
        super().__init__(
            f"cached {kind} {key} was changed in place: {field} was {_short(before)} and is "
            f"{_short(after)} now; change a LazyCopy of it instead"
        )


class MutationDetector:
    """What the objects of one kind looked like when they were stored."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        # The object is kept too: it must be the very one that was stored.
        self._stored: dict[NamespacedName, tuple[KubeObject, bytes]] = {}

        self._found: list[CachedObjectMutated] = []

    def remember(self, key: NamespacedName, obj: KubeObject) -> None:
        """A new object was stored. What happened to the one before is told by the next check."""
        self._inspect(key)
        self._stored[key] = (obj, msgspec.json.encode(obj))

    def forget(self, key: NamespacedName) -> None:
        """The object was removed. What happened to it is told by the next check."""
        self._inspect(key)
        self._stored.pop(key, None)

    def check(self, keys: Iterable[NamespacedName] | None = None) -> None:
        """Raises `CachedObjectMutated` for the first of `keys` (of all) and for what went before.

        A change is reported once.
        """
        for key in list(self._stored if keys is None else keys):
            self._inspect(key)
        if self._found:
            raise self._found.pop(0)

    def _inspect(self, key: NamespacedName) -> None:
        if key not in self._stored:
            return
        obj, stored = self._stored[key]
        now = msgspec.json.encode(obj)
        if now == stored:
            return
        self._stored[key] = (obj, now)
        field, before, after = _difference(msgspec.json.decode(stored), msgspec.json.decode(now))
        field = field or "the order of its fields"
        self._found.append(CachedObjectMutated(self._kind, key, field, before, after))


def _difference(before: Any, after: Any, path: str = "") -> tuple[str, Any, Any]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            if before.get(name) != after.get(name) or (name in before) != (name in after):
                inner = f"{path}.{name}" if path else name
                return _difference(before.get(name), after.get(name), inner)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                return _difference(old, new, f"{path}[{index}]")
    return path, before, after


def _short(value: Any) -> str:
    if isinstance(value, str | list | dict) and len(str(value)) > 80:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
