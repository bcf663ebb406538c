"""Typed decoding of built-in kinds: what Go's JSON decoder does to a body.

Wrong types are refused, undeclared fields dropped (and reported); nulls, empty lists and maps and,
where Go cannot tell, zero values are the same as absent; quantities and times get their one
spelling; what Go always prints is there.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import datetime
from typing import Any

from arc_controller.testing.apiserver.errors import go_type
from arc_controller.testing.apiserver.formats import base64_error, is_date_time
from arc_controller.testing.apiserver.messages import Object, json_type
from arc_controller.testing.apiserver.metadata import rfc3339, rfc3339_micro
from arc_controller.testing.apiserver.quantity import canonical_quantity
from arc_controller.testing.apiserver.types import Node

_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CANONICAL_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_NO_BREAKS = str.maketrans("", "", "\r\n")
_SECONDS = len("2006-01-02T15:04:05")
_MICROSECONDS = re.compile(r".{19}\.\d{6}")
_QUANTITY_MESSAGE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class DecodeError(ValueError):
    """A value that does not fit its Go type.

    `converted` is how the converter says it that strategic merge patches go through.
    """

    def __init__(self, message: str, converted: str = "") -> None:
        super().__init__(message)
        self.converted = converted or message


class Decoder:
    """One decoding. Paths of undeclared fields are collected in `unknown`."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def conform(self, node: Node, value: Object, old: Any, path: str, struct: str = "") -> None:
        """Make a struct or map look as if decoded and encoded again, in place.

        Parts equal to those of `old` are left alone. Raises `DecodeError`.
        """
        before = old if isinstance(old, dict) else {}
        struct = node.name or struct
        fields, values, shown = node.fields, node.values, node.shown
        dropped: list[str] = []
        for key, child in value.items():
            below = fields.get(key) or values
            if below is None:
                if fields and not node.unknown:
                    self.unknown.append(f"{path}.{key}" if path else key)
                    dropped.append(key)
                continue
            if child is None:
                if below is values and below.type == "string" and below.format in ("", "byte"):
                    value[key] = ""
                elif key not in shown:
                    dropped.append(key)
                else:
                    value[key] = self._filled(below, shown[key])
                continue
            if key in before and child == before[key]:
                continue
            if below.kind == "leaf":
                where = path if values is below else f"{path}.{key}" if path else key
                value[key] = _leaf(below, child, where, struct)
                vanishes = not value[key] and key in node.vanishing
            else:
                where = f"{path}.{key}" if path else key
                vanishes = self._inner(below, child, before.get(key), where, struct)
                if vanishes and key in shown:
                    value[key] = None
                    vanishes = False
            if vanishes:
                dropped.append(key)
        for key in dropped:
            del value[key]
        for key, zero in shown.items():
            if key not in value:
                value[key] = self._filled(fields.get(key), zero)

    def _filled(self, node: Node | None, zero: Any) -> Any:
        if zero != {} or node is None:
            return zero
        struct: Object = {}
        self.conform(node, struct, None, "")
        return struct

    def _inner(self, node: Node, value: Any, old: Any, path: str, struct: str) -> bool:
        """Conform a map or list; says whether it counts as absent."""
        if node.kind == "map":
            if not isinstance(value, dict):
                raise _mismatch(node, value, path, struct)
            self.conform(node, value, old, path, struct)
            return not value and not node.fields and node.values is not None
        if not isinstance(value, list):
            raise _mismatch(node, value, path, struct)
        before = old if isinstance(old, list) else ()
        items = node.items
        for index, item in enumerate(value):
            was = before[index] if index < len(before) else None
            if item is None or item == was:
                continue
            where = f"{path}[{index}]"
            if items.kind == "leaf":
                value[index] = _leaf(items, item, where, struct)
            else:
                self._inner(items, item, was, where, struct)
        return not value


def _leaf(node: Node, value: Any, path: str, struct: str) -> Any:
    """The value in its one spelling."""
    name = node.name
    if name.endswith("resource.Quantity"):
        if isinstance(value, (dict, list, bool)):
            raise DecodeError(_QUANTITY_MESSAGE)
        try:
            return canonical_quantity(value)
        except ValueError:
            raise DecodeError(_QUANTITY_MESSAGE) from None
    wanted = node.type
    if not wanted:
        return value
    if wanted == "string":
        if node.format == "byte" and isinstance(value, list) and _are_bytes(value):
            return b64encode(bytes(value)).decode()
        if not isinstance(value, str):
            raise _mismatch(node, value, path, struct)
        if node.format == "date-time":
            return _time(value, micro=name.endswith("MicroTime"))
        if node.format == "byte":
            problem = base64_error(value)
            if problem:
                raise DecodeError(problem, f"error decoding from json: {problem}")
            return value.translate(_NO_BREAKS)
    elif wanted == "boolean":
        if not isinstance(value, bool):
            raise _mismatch(node, value, path, struct)
    elif wanted == "integer":
        if isinstance(value, float) and value.is_integer():
            value = int(value)
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
    return value


def _are_bytes(items: list[Any]) -> bool:
    """Go takes bytes as a list of numbers, too."""
    return all(type(each) is int and 0 <= each < 256 for each in items)


def _time(value: str, *, micro: bool) -> str:
    canonical = _CANONICAL_MICRO if micro else _CANONICAL_TIME
    if canonical.fullmatch(value) and is_date_time(value):
        return value
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    problem = ""
    if not is_date_time(value):
        problem = f'cannot parse "{value}" as "2006"'
    elif micro and not _MICROSECONDS.match(value):
        # The same six digits always: a Time is no MicroTime.
        problem = f'cannot parse "{value[_SECONDS:]}" as ".000000"'
    if problem:
        raise DecodeError(f'parsing time "{value}" as "{layout}": {problem}')
    moment = datetime.fromisoformat(value.upper())
    return rfc3339_micro(moment) if micro else rfc3339(moment)


def _mismatch(node: Node, value: Any, path: str, struct: str) -> DecodeError:
    field = path.rpartition(".")[2]
    wanted = _NAMED_STRINGS.get(f"{_short(struct)}.{field}") or _go_type(node)
    if node.format == "date-time":
        wanted = "string"  # what its own decoder expects
    return DecodeError(
        f"json: cannot unmarshal {json_type(value)} into Go struct field "
        f"{_short(struct)}.{_fields(path)} of type {wanted}",
        _unconverted(node, value),
    )


_NAMED_STRINGS = {
    "Secret.type": "v1.SecretType",
    "PodSpec.restartPolicy": "v1.RestartPolicy",
    "PodSpec.dnsPolicy": "v1.DNSPolicy",
    "Container.imagePullPolicy": "v1.PullPolicy",
    "PodStatus.phase": "v1.PodPhase",
    "PodStatus.qosClass": "v1.PodQOSClass",
}


def _unconverted(node: Node, value: Any) -> str:
    """The same from Go's conversion of untyped values."""
    if node.format == "date-time":
        return f"json: cannot unmarshal {json_type(value)} into Go value of type string"
    source = _go_kind(value)
    if node.kind == "map":
        whole = "struct from:" if node.fields else "map from"
        return f"cannot restore {whole} {source}"
    if node.kind == "list" or node.format == "byte":
        return f"cannot restore slice from {source}"
    numbers = node.type in ("integer", "number") and source == "float64"
    if numbers or (node.type == "string" and source == "int64"):
        return f"cannot convert {source} to {_go_type(node)}"
    kind = {"boolean": "bool", "integer": node.format or "int64"}.get(node.type, node.type)
    return f"unrecognized type: {kind}"


def _go_kind(value: Any) -> str:
    """The `reflect.Kind` of a decoded value."""
    if isinstance(value, dict):
        return "map"
    return "slice" if isinstance(value, list) else go_type(value)


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
    if node.format == "byte":
        return "[]uint8"
    return {"boolean": "bool", "number": "float64"}.get(node.type, "string")
