"""Whether a value is of its field's type, for server-side apply and the field managers."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver import errors
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.types import Node


def misfits(node: Node, value: Any, path: str = "") -> list[str]:
    """What the type does not have or has otherwise, as structured-merge-diff words it."""
    if value is None:
        return []
    if node.kind == "map":
        if not isinstance(value, dict):
            return [f"{path}: expected map, got &{{{errors.go_plain(value)}}}"]
        found: list[str] = []
        for key, child in value.items():
            if node.fields and node.values is None and not node.unknown and key not in node.fields:
                found.append(f"{path}.{key}: field not declared in schema")
            else:
                found += misfits(node.field(key), child, f"{path}.{key}")
        return found
    if node.kind == "list":
        if not isinstance(value, list):
            return [f"{path}: expected list, got &{{{errors.go_plain(value)}}}"]
        twice = _repeated(node, value)
        if twice:
            return [f"{path}: duplicate entries for key [{twice}]"]
        return [
            each
            for index, item in enumerate(value)
            for each in misfits(node.items, item, f"{path}[{_place(node, index, item)}]")
        ]
    return _scalar_misfit(node, value, path)


def _scalar_misfit(node: Node, value: Any, path: str) -> list[str]:
    a_boolean = isinstance(value, bool)
    if node.type == "boolean" and not a_boolean:
        return [f"{path}: expected boolean, got &{{{errors.go_plain(value)}}}"]
    # A string of some format (a time, a quantity) may be written as anything.
    plain = node.format in ("", "byte") and not node.name.endswith((".Quantity", ".IntOrString"))
    if node.type == "string" and plain and not isinstance(value, str):
        return [f"{path}: expected string, got &value.valueUnstructured{{Value:{_go(value)}}}"]
    if node.type == "string" and isinstance(value, (dict, list)):
        return [f"{path}: expected any scalar, got &{{{errors.go_plain(value)}}}"]
    if node.type in ("integer", "number") and (a_boolean or not isinstance(value, (int, float))):
        return [f"{path}: expected numeric (int or float), got {errors.go_type(value)}"]
    return []


def _place(node: Node, index: int, item: Any) -> str:
    """How an item of a list is named."""
    if node.list_type == "set":
        return f"={errors.go_value(item)}"
    if node.associative and isinstance(item, dict):
        return _keys(node, item)
    return str(index)


def _keys(node: Node, item: Object) -> str:
    return ",".join(f"{key}={errors.go_value(item[key])}" for key in node.keys if key in item)


def _repeated(node: Node, items: list[Any]) -> str:
    """The key that two items of a list share, if any do."""
    seen: set[str] = set()
    if node.associative:
        for item in items:
            if not isinstance(item, dict):
                continue
            text = _keys(node, item)
            if text in seen:
                return text
            seen.add(text)
    return ""


def _go(value: Any) -> str:
    """A value as Go's %#v prints it."""
    if isinstance(value, dict):
        inside = ", ".join(f"{errors.go_quote(key)}:{_go(each)}" for key, each in value.items())
        return f"map[string]interface {{}}{{{inside}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go(each) for each in value)}}}"
    return errors.go_value(value)
