"""`LazyCopy`: the one door through which a cached object is changed."""

from __future__ import annotations

import copy
from typing import Any, Generic

import msgspec

from arc_controller.runtime.client import StatusWriter, Writer
from arc_controller.runtime.objects import K

Patch = dict[str, Any]


def merge_patch(before: Any, after: Any) -> Patch:
    """The smallest RFC 7396 merge patch that turns `before` into `after`; ``{}`` if they are equal.

    Both are plain JSON objects. ``null`` values in `after` cannot be expressed by a merge patch and
    count as absent.
    """
    patch: Patch = {}
    for name in before:
        if after.get(name) is None and before[name] is not None:
            patch[name] = None
    for name, value in after.items():
        old = before.get(name)
        if value is None or (old is not None and _same(old, value)):
            continue
        if isinstance(value, dict) and isinstance(old, dict):
            nested = merge_patch(old, value)
            if nested:
                patch[name] = nested
        else:
            patch[name] = _without_nulls(value)
    return patch


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, without changing `target`."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


class LazyCopy(Generic[K]):
    """An object that is copied when it is first changed, and written as the difference.

    ::

        runner = LazyCopy(await client.get(EphemeralRunner, key))
        if runner.obj.status.phase in DONE: ...          # reading: no copy was made
        runner.mutate().status.phase = Phase.PENDING     # the first call snapshots and copies
        await runner.patch_status(client)                # difference → merge patch

    `patch` and `patch_status` send nothing when nothing changed. By default the patch carries the
    ``resourceVersion`` it was computed from, so a decision made on stale data is refused with
    `Conflict` instead of applied. After a successful patch the server's answer is the new view.

    `patch` covers everything except ``status``, `patch_status` only ``status``; changes to the
    other half stay pending. If a patch raises or is cancelled, view and pending changes stay.
    """

    __slots__ = ("_base", "_copy", "_snapshot")

    def __init__(self, obj: K) -> None:
        self._base = obj
        self._copy: K | None = None
        self._snapshot = b""

    @property
    def obj(self) -> K:
        """The current view. Read only: assign through `mutate`."""
        return self._base if self._copy is None else self._copy

    @property
    def is_mutated(self) -> bool:
        """Whether `mutate` was called since the last write, changed anything or not."""
        return self._copy is not None

    def mutate(self) -> K:
        """The private copy. The first call takes the snapshot; later calls return the same copy."""
        if self._copy is None:
            self._snapshot = msgspec.json.encode(self._base)
            self._copy = msgspec.json.decode(self._snapshot, type=type(self._base))
        return self._copy

    def diff(self) -> Patch:
        """What `patch` would send, without the lock."""
        patch = self._changes()
        patch.pop("status", None)
        return patch

    def diff_status(self) -> Patch:
        """What `patch_status` would send, without the lock."""
        return _status_of(self._changes())

    async def patch(self, client: Writer, *, lock: bool = True) -> bool:
        """Write spec and metadata; says whether anything was sent. Raises `ApiError`."""
        patch = self._changes()
        pending = _status_of(patch)
        patch.pop("status", None)
        if not patch:
            return False
        base = self._base
        answer = await client.patch(type(base), base.key, self._locked(patch, lock))
        self._accept(answer, pending)
        return True

    async def patch_status(self, client: StatusWriter, *, lock: bool = True) -> bool:
        """Write the status subresource; says whether anything was sent. Raises `ApiError`."""
        pending = self._changes()
        patch = _status_of(pending)
        pending.pop("status", None)
        if not patch:
            return False
        base = self._base
        answer = await client.patch_status(type(base), base.key, self._locked(patch, lock))
        self._accept(answer, pending)
        return True

    def _changes(self) -> Patch:
        if self._copy is None:
            return {}
        old, new = _fields(self._snapshot), _fields(msgspec.json.encode(self._copy))
        # Equal bytes are equal fields: most of an object, its spec above all, is never looked into.
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        before = {name: msgspec.json.decode(old[name]) for name in changed if name in old}
        after = {name: msgspec.json.decode(new[name]) for name in changed if name in new}
        _show_emptied_maps(self._copy, before, after)
        return merge_patch(before, after)

    def _locked(self, patch: Patch, lock: bool) -> Patch:
        if not lock:
            return patch
        version = self._base.metadata.resource_version
        if not version:
            raise ValueError(
                f"{type(self._base).__name__} {self._base.key} has no resourceVersion to lock: "
                "it was not read from the API server"
            )
        return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}

    def _accept(self, answer: K, pending: Patch) -> None:
        """`answer` is the new view, with those changes to its other half that were not sent."""
        self._base, self._copy, self._snapshot = answer, None, b""
        if pending:
            self._snapshot = msgspec.json.encode(answer)
            merged = apply_merge_patch(msgspec.json.decode(self._snapshot), pending)
            self._copy = msgspec.json.decode(msgspec.json.encode(merged), type=type(answer))


def _status_of(changes: Patch) -> Patch:
    return {"status": changes["status"]} if "status" in changes else {}


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _show_emptied_maps(obj: msgspec.Struct, before: Any, after: Any) -> None:
    """Put the maps of `obj` that became empty into `after`, where they are omitted.

    The patch then removes the keys we know instead of the whole map, which may hold others' keys
    by now.
    """
    # msgspec.structs.fields() would evaluate the annotations anew each time: milliseconds.
    for attribute, name in zip(obj.__struct_fields__, obj.__struct_encode_fields__, strict=True):
        if not isinstance(before.get(name), dict):
            continue
        value = getattr(obj, attribute)
        if isinstance(value, dict):
            after.setdefault(name, {})
        elif isinstance(value, msgspec.Struct) and name in after:
            _show_emptied_maps(value, before[name], after[name])


def _same(old: Any, new: Any) -> bool:
    # True == 1 in Python, but not in JSON.
    if isinstance(old, bool) is not isinstance(new, bool):
        return False
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    return value
