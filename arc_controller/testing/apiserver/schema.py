"""Structural schemas of custom resources: pruning, defaults and validation.

Wording and order of checks follow the API server's (`spec.x in body must be of type …`). On updates
a part that did not change is not looked at again: that is fast, and it is what the real server's
ratcheting does. Not evaluated: `x-kubernetes-validations` (CEL).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from arc_controller.testing.apiserver.errors import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    required,
)
from arc_controller.testing.apiserver.formats import format_problem
from arc_controller.testing.apiserver.messages import decode_json, encode_json

_UNSET = object()
_EMBEDDED = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


class Schema:
    """One compiled node."""

    __slots__ = (
        "_children",
        "_sources",
        "additional",
        "all_of",
        "any_of",
        "default",
        "defaulted",
        "embedded",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "format",
        "int_or_string",
        "items",
        "keys",
        "list_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "nullable",
        "one_of",
        "pattern",
        "pattern_text",
        "preserve",
        "rejects",
        "required",
        "type",
    )

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.type: str = source.get("type", "")
        self.nullable = bool(source.get("nullable"))
        self.preserve = bool(source.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(source.get("x-kubernetes-embedded-resource"))
        self.int_or_string = bool(source.get("x-kubernetes-int-or-string"))
        properties = dict(source.get("properties") or {})
        if self.embedded:
            properties = {**_EMBEDDED, **properties}
        self._sources: dict[str, Any] = properties
        self._children: dict[str, Schema] = {}
        self.required: tuple[str, ...] = tuple(source.get("required") or ())
        if self.embedded:
            self.required = tuple(dict.fromkeys((*self.required, "apiVersion", "kind")))
        extra = source.get("additionalProperties")
        self.additional = Schema(extra) if isinstance(extra, Mapping) else None
        if extra is True:
            self.preserve = True
        items = source.get("items")
        self.items = Schema(items) if isinstance(items, Mapping) else None
        self.list_type: str = source.get("x-kubernetes-list-type", "")
        self.keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys") or ())
        self.default = source.get("default", _UNSET)
        self.defaulted = tuple(name for name, each in properties.items() if "default" in each)
        self.enum = source.get("enum")
        self.pattern_text: str = source.get("pattern", "")
        self.pattern = re.compile(_go_pattern(self.pattern_text)) if self.pattern_text else None
        self.format: str = source.get("format", "")
        self.minimum = source.get("minimum")
        self.maximum = source.get("maximum")
        self.exclusive_minimum = bool(source.get("exclusiveMinimum"))
        self.exclusive_maximum = bool(source.get("exclusiveMaximum"))
        self.multiple_of = source.get("multipleOf")
        self.min_length = source.get("minLength")
        self.max_length = source.get("maxLength")
        self.min_items = source.get("minItems")
        self.max_items = source.get("maxItems")
        self.min_properties = source.get("minProperties")
        self.max_properties = source.get("maxProperties")
        self.all_of = tuple(Schema(each) for each in source.get("allOf") or ())
        self.any_of = tuple(Schema(each) for each in source.get("anyOf") or ())
        self.one_of = tuple(Schema(each) for each in source.get("oneOf") or ())
        rejects = source.get("not")
        self.rejects = Schema(rejects) if rejects is not None else None

    def declares(self, name: str) -> bool:
        return name in self._sources

    def child(self, name: str) -> Schema | None:
        """The schema of a property or map value; compiled when first asked for."""
        found = self._children.get(name)
        if found is None:
            source = self._sources.get(name)
            if source is None:
                return self.additional
            found = self._children[name] = Schema(source)
        return found


def _go_pattern(text: str) -> str:
    """RE2 spelled for Python: `\\z` is the difference that schemas use."""
    return text.replace("\\z", "\\Z")


def prune_and_default(
    schema: Schema, value: Any, old: Any, path: str, unknown: list[str], *, nulls: bool = False
) -> None:
    """Drop undeclared fields (their paths go to `unknown`), then fill in defaults, in place.

    Nulls that the schema does not allow are dropped, too, unless `nulls` says that they stay.
    """
    if isinstance(value, dict):
        _prune_map(schema, value, old, path, unknown, nulls=nulls)
    elif isinstance(value, list) and schema.items is not None:
        before = old if isinstance(old, list) else ()
        for index, item in enumerate(value):
            was = before[index] if index < len(before) else _UNSET
            if item != was and isinstance(item, (dict, list)):
                where = f"{path}[{index}]"
                prune_and_default(schema.items, item, was, where, unknown, nulls=nulls)


def _prune_map(
    schema: Schema, value: dict[str, Any], old: Any, path: str, unknown: list[str], *, nulls: bool
) -> None:
    before = old if isinstance(old, dict) else {}
    dropped: list[str] = []
    for key, child in value.items():
        below = schema.child(key)
        if below is None:
            if not schema.preserve:
                dropped.append(key)
            continue
        if child is None:
            refused = not below.nullable and bool(below.type or below.int_or_string)
            if refused and (not nulls or key in schema.defaulted):
                dropped.append(key)
            continue
        if isinstance(child, (dict, list)):
            was = before.get(key, _UNSET)
            if child != was:
                where = f"{path}.{key}" if path else key
                prune_and_default(below, child, was, where, unknown, nulls=nulls)
    for key in dropped:
        if schema.child(key) is None:
            unknown.append(f"{path}.{key}" if path else key)
        del value[key]
    for key in schema.defaulted:
        if key not in value:
            below = schema.child(key)
            assert below is not None
            value[key] = decode_json(encode_json(below.default))
            prune_and_default(below, value[key], _UNSET, path, unknown)


def validate(schema: Schema, value: Any, old: Any = _UNSET, path: str = "") -> list[FieldError]:
    """What is wrong with the value. Parts equal to those of `old` are taken as they are."""
    problems: list[FieldError] = []
    _validate(schema, value, old, path, problems)
    return problems


def _validate(schema: Schema, value: Any, old: Any, path: str, problems: list[FieldError]) -> None:
    if value is None:
        if not schema.nullable and (schema.type or schema.int_or_string):
            _wrong_type(schema, "null", path, problems)
        return
    if schema.enum is not None and value not in schema.enum:
        shown = [each if isinstance(each, str) else _json(each) for each in schema.enum]
        problems.append(not_supported(path, value, shown))
    if not _has_type(schema, value):
        _wrong_type(schema, _type_name(value), path, problems)
        return
    if isinstance(value, dict):
        _validate_map(schema, value, old, path, problems)
    elif isinstance(value, list):
        _validate_list(schema, value, old, path, problems)
    elif isinstance(value, str):
        _validate_string(schema, value, path, problems)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _validate_number(schema, value, path, problems)
    if schema.all_of or schema.any_of or schema.one_of or schema.rejects is not None:
        _validate_junctors(schema, value, path, problems)


def _validate_map(
    schema: Schema, value: dict[str, Any], old: Any, path: str, problems: list[FieldError]
) -> None:
    before = old if isinstance(old, dict) else {}
    for key in schema.required:
        if key not in value:
            problems.append(required(f"{path}.{key}" if path else key))
    for key, child in value.items():
        below = schema.child(key)
        if below is None or (key in before and before[key] == child):
            continue
        where = f"{path}.{key}" if path else key
        _validate(below, child, before.get(key, _UNSET), where, problems)
    size = len(value)
    if schema.max_properties is not None and size > schema.max_properties:
        problems.append(_too_many(path, size, schema.max_properties))
    if schema.min_properties is not None and size < schema.min_properties:
        problems.append(
            _invalid(path, value, f"should have at least {schema.min_properties} properties")
        )


def _validate_list(
    schema: Schema, value: list[Any], old: Any, path: str, problems: list[FieldError]
) -> None:
    before = old if isinstance(old, list) else []
    size = len(value)
    if schema.max_items is not None and size > schema.max_items:
        problems.append(_too_many(path, size, schema.max_items))
    if schema.min_items is not None and size < schema.min_items:
        problems.append(_invalid(path, value, f"should have at least {schema.min_items} items"))
    if schema.items is not None:
        for index, item in enumerate(value):
            was = before[index] if index < len(before) else _UNSET
            if item != was:
                _validate(schema.items, item, was, f"{path}[{index}]", problems)
    if schema.list_type in ("map", "set"):
        _validate_keys(schema, value, path, problems)


def _validate_keys(schema: Schema, value: list[Any], path: str, problems: list[FieldError]) -> None:
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        shown = item
        if schema.list_type == "map":
            if not isinstance(item, dict):
                continue
            shown = {key: item[key] for key in sorted(schema.keys) if key in item}
        name = encode_json(shown)
        if name in seen:
            problems.append(duplicate(f"{path}[{index}]", shown))
        seen.add(name)


def _validate_string(schema: Schema, value: str, path: str, problems: list[FieldError]) -> None:
    if schema.max_length is not None and len(value) > schema.max_length:
        detail = f"may not be more than {schema.max_length} bytes"
        problems.append(FieldError("TooLong", path, "", detail))
    if schema.min_length is not None and len(value) < schema.min_length:
        problems.append(_invalid(path, value, f"should be at least {schema.min_length} chars long"))
    if schema.pattern is not None and not schema.pattern.search(value):
        problems.append(_invalid(path, value, f"should match '{schema.pattern_text}'"))
    if schema.format and format_problem(schema.format, value):
        detail = f'{path} in body must be of type {schema.format}: "{value}"'
        problems.append(invalid_value(path, value, detail))


def _validate_number(schema: Schema, value: float, path: str, problems: list[FieldError]) -> None:
    low, high = schema.minimum, schema.maximum
    if high is not None:
        if schema.exclusive_maximum and value >= high:
            problems.append(_invalid(path, value, f"should be less than {high}"))
        elif value > high:
            problems.append(_invalid(path, value, f"should be less than or equal to {high}"))
    if low is not None:
        if schema.exclusive_minimum and value <= low:
            problems.append(_invalid(path, value, f"should be greater than {low}"))
        elif value < low:
            problems.append(_invalid(path, value, f"should be greater than or equal to {low}"))
    if schema.multiple_of and value % schema.multiple_of:
        problems.append(_invalid(path, value, f"should be a multiple of {schema.multiple_of}"))
    bits = {"int32": 31, "int64": 63}.get(schema.format)
    if bits is not None and not -(2**bits) <= value < 2**bits:
        problems.append(_not_an_integer(schema, path))


def _validate_junctors(schema: Schema, value: Any, path: str, problems: list[FieldError]) -> None:
    for each in schema.all_of:
        _validate(each, value, _UNSET, path, problems)
    if schema.any_of and all(validate(each, value, _UNSET, path) for each in schema.any_of):
        problems.append(_invalid(path, value, "must validate at least one schema (anyOf)"))
        problems += validate(schema.any_of[0], value, _UNSET, path)
    if schema.one_of:
        fitting = sum(not validate(each, value, _UNSET, path) for each in schema.one_of)
        if fitting != 1:
            found = "none valid" if not fitting else f"{fitting} valid alternatives"
            problems.append(
                _invalid(
                    path,
                    value,
                    f"must validate one and only one schema (oneOf). Found {found}",
                )
            )
    if schema.rejects is not None and not validate(schema.rejects, value, _UNSET, path):
        problems.append(_invalid(path, value, "must not validate the schema (not)"))


def _has_type(schema: Schema, value: Any) -> bool:
    if schema.int_or_string:
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    wanted = schema.type
    if not wanted:
        return True
    if wanted == "object":
        return isinstance(value, dict)
    if wanted == "array":
        return isinstance(value, list)
    if wanted == "string":
        return isinstance(value, str)
    if wanted == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if wanted == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, (int, float))


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _wrong_type(schema: Schema, name: str, path: str, problems: list[FieldError]) -> None:
    wanted = "integer,string" if schema.int_or_string else schema.type
    if wanted == "integer" and name == "number":
        problems.append(_not_an_integer(schema, path))
    if schema.format and name in _FORMATS:
        # With a format, it is the formats that do not match.
        wanted, name = schema.format, _FORMATS[name]
    detail = f'{path or "."} in body must be of type {wanted}: "{name}"'
    problems.append(FieldError("TypeInvalid", path or "<nil>", name, detail))


_FORMATS = {"object": "", "boolean": "", "integer": "int64", "number": "float64"}


def _not_an_integer(schema: Schema, path: str) -> FieldError:
    wanted = f"with format {schema.format}" if schema.format else "(default format)"
    detail = f"Checked value must be of type integer {wanted} in {path}"
    return invalid_value("<nil>", "", detail)


def _invalid(path: str, value: Any, why: str) -> FieldError:
    return invalid_value(path, value, f"{path} in body {why}")


def _too_many(path: str, size: int, limit: int) -> FieldError:
    return FieldError("TooMany", path, size, f"must have at most {limit} items")


def _json(value: Any) -> str:
    return encode_json(value).decode()
