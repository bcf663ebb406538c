"""Sets of field paths, as `managedFields` records them (FieldsV1).

A set is a tree of dicts: `f:NAME`, `k:{"KEY":VALUE}`, `v:VALUE` lead to children, `.` says that the
path itself is in the set. On the wire a path without children leaves the `.` out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from arc_controller.testing.apiserver.types import Node

Fields: TypeAlias = dict[str, Any]
SELF = "."
_SELF_ONLY: Fields = {SELF: None}


def leaf() -> Fields:
    return {SELF: None}


def from_wire(tree: Mapping[str, Any]) -> Fields:
    found: Fields = {}
    for key, child in tree.items():
        if key == SELF:
            found[SELF] = None
        elif child:
            found[key] = from_wire(child)
        else:
            found[key] = {SELF: None}
    return found


def to_wire(fields: Fields) -> Fields:
    wire: Fields = {}
    for key in sorted(fields):
        if key == SELF:
            if len(fields) > 1:
                wire[SELF] = {}
        else:
            wire[key] = to_wire(fields[key])
    return wire


def union(one: Fields, other: Fields) -> Fields:
    if not one:
        return other
    if not other:
        return one
    merged = dict(one)
    for key, child in other.items():
        mine = one.get(key)
        merged[key] = child if key == SELF or mine is None else union(mine, child)
    return merged


def difference(one: Fields, other: Fields) -> Fields:
    left: Fields = {}
    for key, child in one.items():
        if key not in other:
            left[key] = child
        elif key != SELF:
            rest = difference(child, other[key])
            if rest:
                left[key] = rest
    return left


def intersection(one: Fields, other: Fields) -> Fields:
    both: Fields = {}
    for key, child in one.items():
        if key not in other:
            continue
        if key == SELF:
            both[SELF] = None
        else:
            shared = intersection(child, other[key])
            if shared:
                both[key] = shared
    return both


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """The paths of the set as error messages write them."""
    if SELF in fields:
        yield prefix
    for key in sorted(fields):
        if key != SELF:
            yield from paths(fields[key], prefix + step_text(key))


def step_text(key: str) -> str:
    """One step of a path: `.name`, `[name="x"]`, `[="x"]`."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = msgspec.json.decode(rest)
        inner = ",".join(
            f"{name}={msgspec.json.encode(keys[name]).decode()}" for name in sorted(keys)
        )
        return f"[{inner}]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def item_key(node: Node, item: Any) -> str | None:
    """How an item of a map-list or set-list is called; None when it lacks its keys."""
    if node.list_type == "set":
        return f"v:{msgspec.json.encode(item).decode()}"
    if not isinstance(item, dict):
        return None
    keys = {}
    for name in sorted(node.keys):
        value = item.get(name)
        if value is None:
            value = _default_of(node, name)
            if value is None:
                continue
        keys[name] = value
    return f"k:{msgspec.json.encode(keys).decode()}" if keys else None


def _default_of(node: Node, name: str) -> Any:
    return node.items.fields[name].default if name in node.items.fields else None


def items_by_key(node: Node, items: list[Any]) -> dict[str, Any]:
    found = {}
    for item in items:
        key = item_key(node, item)
        if key is not None:
            found[key] = item
    return found


def is_granular_list(node: Node, value: Any) -> bool:
    return isinstance(value, list) and node.kind == "list" and node.list_type in ("map", "set")


def is_granular_map(node: Node, value: Any) -> bool:
    return isinstance(value, dict) and not node.atomic


def everything(value: Any, node: Node) -> Fields:
    """Every path of a value, the inner ones too: what an update that adds it owns."""
    found = leaf()
    if is_granular_map(node, value):
        for key, child in value.items():
            found[f"f:{key}"] = everything(child, node.field(key))
    elif is_granular_list(node, value):
        for key, item in items_by_key(node, value).items():
            found[key] = everything(item, node.items)
    return found


def applied(value: Any, node: Node) -> Fields:
    """The paths an applied configuration claims."""
    found: Fields = {}
    if is_granular_map(node, value):
        for key, child in value.items():
            inner = applied(child, node.field(key))
            if child is None or child == {} or key not in node.fields:
                inner = {**inner, SELF: None}
            if inner:
                found[f"f:{key}"] = inner
    elif is_granular_list(node, value):
        for key, item in items_by_key(node, value).items():
            found[key] = {**applied(item, node.items), SELF: None}
    else:
        found[SELF] = None
    return found


def compare(old: Any, new: Any, node: Node) -> tuple[Fields, Fields]:
    """(added or modified, removed) paths between two values."""
    changed: Fields = {}
    removed: Fields = {}
    if old is None:
        old = {} if is_granular_map(node, new) else [] if is_granular_list(node, new) else None
    if is_granular_map(node, old) and is_granular_map(node, new):
        for key, value in new.items():
            if key not in old:
                changed[f"f:{key}"] = everything(value, node.field(key))
            elif old[key] != value:
                _merge(f"f:{key}", compare(old[key], value, node.field(key)), changed, removed)
        for key, value in old.items():
            if key not in new:
                removed[f"f:{key}"] = everything(value, node.field(key))
    elif is_granular_list(node, old) and is_granular_list(node, new):
        before, after = items_by_key(node, old), items_by_key(node, new)
        for key, value in after.items():
            if key not in before:
                changed[key] = everything(value, node.items)
            elif before[key] != value:
                _merge(key, compare(before[key], value, node.items), changed, removed)
        for key, value in before.items():
            if key not in after:
                removed[key] = everything(value, node.items)
    elif old != new:
        changed = everything(new, node)
        del changed[SELF]
        if not changed:
            changed = leaf()
    return changed, removed


def _merge(key: str, inner: tuple[Fields, Fields], changed: Fields, removed: Fields) -> None:
    if inner[0]:
        changed[key] = inner[0]
    if inner[1]:
        removed[key] = inner[1]
