"""Typed decoding of built-in kinds: what Go's JSON decoder does to a body.

Wrong types are refused, undeclared fields dropped (and reported), nulls and empty lists and maps
are the same as absent.
"""

from __future__ import annotations

import re
from typing import Any

from arc_controller.testing.apiserver.formats import is_date_time
from arc_controller.testing.apiserver.messages import Object, json_type
from arc_controller.testing.apiserver.types import Node

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_QUANTITY_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class DecodeError(ValueError):
    """A value that does not fit its Go type."""


class Decoder:
    """One decoding. Paths of undeclared fields are collected in `unknown`."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def conform(self, node: Node, value: Object, old: Any, path: str) -> None:
        """Make a struct or map look as if decoded and encoded again, in place.

        Parts equal to those of `old` are left alone. Raises `DecodeError`.
        """
        before = old if isinstance(old, dict) else {}
        fields = node.fields
        values = node.values
        dropped: list[str] = []
        for key, child in value.items():
            below = fields.get(key) or values
            if below is None:
                if fields and not node.unknown:
                    self.unknown.append(f"{path}.{key}" if path else key)
                    dropped.append(key)
                continue
            if child is None:
                dropped.append(key)
                continue
            if key in before and child == before[key]:
                continue
            where = f"{path}.{key}" if path else key
            if self._conform_value(below, child, before.get(key), where, node.name) or (
                not child and key in node.vanishing
            ):
                dropped.append(key)
        for key in dropped:
            del value[key]

    def _conform_value(self, node: Node, value: Any, old: Any, path: str, struct: str) -> bool:
        """Check one value; says whether it counts as absent."""
        if node.kind == "map":
            if not isinstance(value, dict):
                raise _mismatch(node, value, path, struct)
            self.conform(node, value, old, path)
            return not value and not node.fields and node.values is not None
        if node.kind == "list":
            if not isinstance(value, list):
                raise _mismatch(node, value, path, struct)
            before = old if isinstance(old, list) else ()
            items = node.items
            for index, item in enumerate(value):
                was = before[index] if index < len(before) else None
                if item is not None and item != was:
                    self._conform_value(items, item, was, f"{path}[{index}]", struct)
            return not value
        _check_leaf(node, value, path, struct)
        return False


def _check_leaf(node: Node, value: Any, path: str, struct: str) -> None:
    name = node.name
    if name.endswith("resource.Quantity"):
        text = str(value)
        if isinstance(value, (dict, list, bool)) or not _QUANTITY.fullmatch(text):
            raise DecodeError(_QUANTITY_MESSAGE)
        return
    wanted = node.type
    if not wanted:
        return
    if wanted == "string":
        if not isinstance(value, str):
            raise _mismatch(node, value, path, struct)
        if node.format == "date-time" and not is_date_time(value):
            layout = (
                "2006-01-02T15:04:05.000000Z07:00"
                if name.endswith("MicroTime")
                else ("2006-01-02T15:04:05Z07:00")
            )
            raise DecodeError(
                f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
            )
    elif wanted == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(node, value, path, struct)
    elif wanted == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(node, value, path, struct)
        bits = 31 if node.format == "int32" else 63
        if not -(2**bits) <= value < 2**bits:
            raise DecodeError(
                f"json: cannot unmarshal number {value} into Go struct field "
                f"{_short(struct)}.{_fields(path)} of type {_go_type(node)}"
            )
    elif wanted == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise _mismatch(node, value, path, struct)


def _mismatch(node: Node, value: Any, path: str, struct: str) -> DecodeError:
    return DecodeError(
        f"json: cannot unmarshal {json_type(value)} into Go struct field "
        f"{_short(struct)}.{_fields(path)} of type {_go_type(node)}"
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _fields(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def _go_type(node: Node) -> str:
    if node.name:
        return ".".join(node.name.split(".")[-2:])
    if node.kind == "list":
        return f"[]{_go_type(node.items)}"
    if node.kind == "map":
        return f"map[string]{_go_type(node.values) if node.values is not None else 'interface {}'}"
    if node.type == "integer":
        return node.format or "int64"
    return {"boolean": "bool", "number": "float64"}.get(node.type, "string")
