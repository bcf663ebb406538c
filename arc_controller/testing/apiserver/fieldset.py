"""Sets of field paths, as `managedFields` records them (FieldsV1).

A set is a tree of dicts: `f:NAME`, `k:{"KEY":VALUE}`, `v:VALUE` lead to children. A path is in the
set when its dict is empty or has a `.`; one with children only leads to paths that are. Sets are
never changed in place: they share parts with each other and with stored objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from arc_controller.testing.apiserver.types import Node

Fields: TypeAlias = dict[str, Any]
SELF = "."
EMPTY: Fields = {}
"""As a whole set: nothing. As a part of one: just the path that leads to it."""


def union(one: Fields, other: Fields) -> Fields:
    """Both sets together; at the top, an empty one is nothing."""
    if not one:
        return other
    if not other:
        return one
    merged = dict(one)
    for key, child in other.items():
        mine = merged.get(key)
        merged[key] = child if mine is None else _joined(mine, child)
    return merged


def _joined(one: Fields, other: Fields) -> Fields:
    if not one and not other:
        return EMPTY
    if not one or not other:
        more = one or other
        return more if SELF in more else {SELF: EMPTY, **more}
    return union(one, other)


def difference(one: Fields, other: Fields) -> Fields:
    """What is in the one and not in the other."""
    left: Fields = {}
    for key, child in one.items():
        theirs = other.get(key)
        if theirs is None or key == SELF:
            left[key] = child
            continue
        rest = _without(child, theirs)
        if rest is not None:
            left[key] = rest
    return left


def _without(one: Fields, other: Fields) -> Fields | None:
    """The part that is left, None when nothing is."""
    keeps_self = is_member(one) and not is_member(other)
    if not one:
        return EMPTY if keeps_self else None
    rest = difference({key: child for key, child in one.items() if key != SELF}, other)
    if not keeps_self:
        return rest or None
    return {SELF: EMPTY, **rest} if rest else EMPTY


def intersection(one: Fields, other: Fields) -> Fields:
    """What is in both."""
    both: Fields = {}
    for key, child in one.items():
        theirs = other.get(key)
        if theirs is None or key == SELF:
            continue
        shared = intersection(child, theirs)
        if is_member(child) and is_member(theirs):
            both[key] = {SELF: EMPTY, **shared} if shared else EMPTY
        elif shared:
            both[key] = shared
    return both


def is_member(part: Fields) -> bool:
    """Whether the path that leads to this part is in the set itself."""
    return not part or SELF in part


def paths(fields: Fields) -> Iterator[str]:
    """The paths of the set as error messages write them."""
    keys = [key for key in sorted(fields) if key != SELF]
    yield from (step_text(key) for key in keys if is_member(fields[key]))
    for key in keys:
        for rest in paths(fields[key]):
            yield step_text(key) + rest


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
    if is_granular_map(node, value):
        if not value:
            return EMPTY
        found: Fields = {SELF: EMPTY}
        for key, child in value.items():
            found[f"f:{key}"] = everything(child, node.field(key))
        return found
    if is_granular_list(node, value):
        named = items_by_key(node, value)
        if not named:
            return EMPTY
        return {SELF: EMPTY} | {key: everything(item, node.items) for key, item in named.items()}
    return EMPTY


def applied(value: Any, node: Node) -> Fields:
    """The paths an applied configuration claims, of a struct or map."""
    found: Fields = {}
    if is_granular_map(node, value):
        for key, child in value.items():
            below = node.field(key)
            itself = child is None or child == {} or key not in node.fields
            inner = _claimed(child, below, itself=itself)
            if inner is not None:
                found[f"f:{key}"] = inner
    elif is_granular_list(node, value):
        for key, item in items_by_key(node, value).items():
            found[key] = _claimed(item, node.items, itself=True)
    return found


def _claimed(value: Any, node: Node, *, itself: bool) -> Fields | None:
    if not is_granular_map(node, value) and not is_granular_list(node, value):
        return EMPTY
    inner = applied(value, node)
    if not itself:
        return inner or None
    return {SELF: EMPTY, **inner} if inner else EMPTY


def compare(old: Any, new: Any, node: Node) -> tuple[Fields, Fields]:
    """(added or modified, removed) paths between two structs, maps or granular lists."""
    changed: Fields = {}
    removed: Fields = {}
    is_map = is_granular_map(node, new)
    before, after, inner = old, new, None
    if not is_map:
        before, after = items_by_key(node, old), items_by_key(node, new)
        inner = node.items
    for key, value in after.items():
        path = f"f:{key}" if is_map else key
        below = inner or node.field(key)
        if key not in before:
            changed[path] = everything(value, below)
        elif before[key] != value:
            _compare_inside(before[key], value, below, path, (changed, removed))
    for key, value in before.items():
        if key not in after:
            path = f"f:{key}" if is_map else key
            removed[path] = everything(value, inner or node.field(key))
    return changed, removed


def _compare_inside(
    old: Any, new: Any, node: Node, path: str, found: tuple[Fields, Fields]
) -> None:
    """Compare two values of one path that are not equal."""
    changed, removed = found
    for granular, empty in ((is_granular_map, {}), (is_granular_list, [])):
        if not granular(node, new):
            continue
        if old is None:
            old = empty
        if granular(node, old):
            inner = compare(old, new, node)
            if inner[0]:
                changed[path] = inner[0]
            if inner[1]:
                removed[path] = inner[1]
            return
        changed[path] = {key: each for key, each in everything(new, node).items() if key != SELF}
        return
    changed[path] = EMPTY
