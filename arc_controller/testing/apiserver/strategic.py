"""Strategic merge patches: lists merged by key, and the `$` directives."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver.errors import go_plain, internal
from arc_controller.testing.apiserver.types import Node

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def strategic_merge_patch(current: Any, patch: Any, node: Node) -> Any:
    """Apply the patch to an object or a part of one; may change `current`.

    Raises an internal error, as the real server does, on a patch that makes no sense.
    """
    if not isinstance(patch, dict) or not isinstance(current, dict):
        return _without_directives(patch)
    directive = patch.get(_DIRECTIVE)
    if directive is not None:
        if directive == "replace":
            return _without_directives({k: v for k, v in patch.items() if k != _DIRECTIVE})
        if directive == "delete":
            return {}
        if directive != "merge":
            raise internal(f"unknown patch type: {directive} in map: {go_plain(patch)}")
    _retain_keys(current, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            _primitive_deletions(current, key, value)
            continue
        if value is None:
            current.pop(key, None)
            continue
        child = node.field(key)
        present = current.get(key)
        if isinstance(value, list):
            order = patch.get(_ORDER + key)
            current[key] = _merge_list(present, value, child, order)
        elif key in current and isinstance(value, dict) and "replace" not in child.strategies:
            current[key] = strategic_merge_patch(present, value, child)
        else:
            current[key] = _without_directives(value)
    _order_untouched(current, patch, node)
    return current


def _merge_list(present: Any, items: list[Any], node: Node, order: list[Any] | None) -> Any:
    if not isinstance(present, list):
        return _without_directives(items)
    if "merge" not in node.strategies:
        return items
    if not node.merge_key:
        merged = list(present)
        merged += [each for each in items if each not in merged]
        return _in_order(merged, present, order or items, lambda item: item)
    return _merge_keyed(present, items, node, order)


def _merge_keyed(
    present: list[Any], items: list[Any], node: Node, order: list[Any] | None
) -> list[Any]:
    key = node.merge_key
    merged = list(present)
    if any(isinstance(each, dict) and each.get(_DIRECTIVE) == "replace" for each in items):
        rest = [
            each
            for each in items
            if not (
                isinstance(each, dict)
                and each.get(_DIRECTIVE) == "replace"
                and set(each) == {_DIRECTIVE}
            )
        ]
        return [_without_directives(each) for each in rest]
    for item in items:
        if not isinstance(item, dict) or key not in item:
            shown = go_plain(item)
            raise internal(f"map: {shown} does not contain declared merge key: {key}")
        matches = [
            index
            for index, each in enumerate(merged)
            if isinstance(each, dict) and each.get(key) == item[key]
        ]
        if _is_delete(item):
            merged = [each for index, each in enumerate(merged) if index not in matches]
        elif matches:
            merged[matches[0]] = strategic_merge_patch(merged[matches[0]], item, node.items)
        else:
            merged.append(_without_directives(item))
    named = [each.get(key) for each in (order or items) if isinstance(each, dict)]
    return _in_order(
        merged, present, named, lambda each: each.get(key) if isinstance(each, dict) else None
    )


def _in_order(merged: list[Any], present: list[Any], order: list[Any], key: Any) -> list[Any]:
    """Items named in `order` in that order; the others stay near their neighbours."""
    once = [name for index, name in enumerate(order) if name not in order[:index]]
    named = [item for name in once for item in merged if key(item) == name]
    others = [item for item in merged if key(item) not in order]
    places = {_hashable(key(item)): index for index, item in enumerate(present)}
    result: list[Any] = []
    while named or others:
        if not named or (
            others
            and places.get(_hashable(key(others[0])), len(present))
            < places.get(_hashable(key(named[0])), -1)
        ):
            result.append(others.pop(0))
        else:
            result.append(named.pop(0))
    return result


def _order_untouched(current: Any, patch: dict[str, Any], node: Node) -> None:
    """`$setElementOrder` of a list that the patch does not otherwise change."""
    for name, order in patch.items():
        if not name.startswith(_ORDER):
            continue
        key = name.removeprefix(_ORDER)
        present = current.get(key)
        if key in patch or not isinstance(present, list) or not isinstance(order, list):
            continue
        merge_key = node.field(key).merge_key
        if merge_key:
            names = [each.get(merge_key) for each in order if isinstance(each, dict)]
            current[key] = _in_order(
                present,
                present,
                names,
                lambda each, by=merge_key: each.get(by) if isinstance(each, dict) else None,
            )
        else:
            current[key] = _in_order(present, present, order, lambda item: item)


def _retain_keys(current: dict[str, Any], patch: dict[str, Any]) -> None:
    kept = patch.get(_RETAIN)
    if kept is None:
        return
    for key in [key for key in current if key not in kept]:
        del current[key]


def _primitive_deletions(current: dict[str, Any], directive: str, value: Any) -> None:
    if not directive.startswith(_DELETE_PRIMITIVES):
        return
    key = directive.removeprefix(_DELETE_PRIMITIVES)
    if isinstance(current.get(key), list) and isinstance(value, list):
        current[key] = [each for each in current[key] if each not in value]


def _is_delete(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_DIRECTIVE) == "delete"


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_directives(each)
            for key, each in value.items()
            if not key.startswith("$") and each is not None
        }
    if isinstance(value, list):
        return [_without_directives(each) for each in value if not _is_delete(each)]
    return value


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
