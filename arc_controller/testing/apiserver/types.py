"""The shape of objects: what field is a struct, a map, a list with keys, a leaf.

Compiled from OpenAPI (built-in kinds, `core.json`) or from a definition's structural schema.
Strategic merge patches, server-side apply, field ownership and decoding are driven by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from arc_controller.testing.apiserver.messages import decode_json

_REF = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


class Node:
    """One field's type. `fields` and `values` of a map, `items` of a list; neither: a leaf."""

    __slots__ = (
        "_compile",
        "_fields",
        "_items",
        "_shown",
        "_source",
        "_values",
        "_vanishing",
        "atomic",
        "default",
        "format",
        "keys",
        "kind",
        "list_type",
        "merge_key",
        "name",
        "nullable",
        "strategies",
        "type",
        "unknown",
    )

    def __init__(self, source: Mapping[str, Any], compile_: Any, name: str = "") -> None:
        self.name = name
        """The schema's name, as `core.json` calls it; empty for inline types."""
        self._source = source
        self._compile = compile_
        self._fields: dict[str, Node] | None = None
        self._items: Node | None = None
        self._values: Node | None = None
        self._shown: dict[str, Any] | None = None
        self._vanishing: frozenset[str] | None = None
        self.type: str = source.get("type", "")
        self.format: str = source.get("format", "")
        self.default = source.get("default")
        self.nullable = bool(source.get("nullable"))
        self.unknown = bool(source.get("x-kubernetes-preserve-unknown-fields"))
        self.atomic = source.get("x-kubernetes-map-type") == "atomic"
        self.list_type: str = source.get("x-kubernetes-list-type", "atomic")
        self.keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys", ()))
        self.merge_key: str = source.get("x-kubernetes-patch-merge-key", "")
        self.strategies = tuple(source.get("x-kubernetes-patch-strategy", "").split(","))
        if source.get("x-kubernetes-int-or-string") or "oneOf" in source:
            self.type = ""
        self.kind = _kind(source)

    @property
    def fields(self) -> Mapping[str, Node]:
        """The declared fields of a struct."""
        if self._fields is None:
            self._fields = {
                name: self._compile(each)
                for name, each in (self._source.get("properties") or {}).items()
            }
        return self._fields

    @property
    def values(self) -> Node | None:
        """The type of a map's values."""
        if self._values is None:
            extra = self._source.get("additionalProperties")
            if isinstance(extra, Mapping):
                self._values = self._compile(extra)
        return self._values

    @property
    def items(self) -> Node:
        """The type of a list's items."""
        if self._items is None:
            self._items = self._compile(self._source.get("items") or {})
        return self._items

    def field(self, name: str) -> Node:
        """The type of a field, declared or not."""
        found = self.fields.get(name)
        if found is not None:
            return found
        return self.values or UNTYPED

    @property
    def vanishing(self) -> frozenset[str]:
        """The fields that JSON leaves out when they are empty, false or zero."""
        if self._vanishing is None:
            self._vanishing = frozenset(
                name
                for name, kind, _, modifiers in wire_fields(self.name).values()
                if kind in "sbi" and "o" in modifiers and not set("prM") & set(modifiers)
            )
        return self._vanishing

    @property
    def shown(self) -> Mapping[str, Any]:
        """The fields that JSON has even when they are not set, and their zero values."""
        if self._shown is None:
            self._shown = _shown_fields(self.name)
        return self._shown

    @property
    def associative(self) -> bool:
        """A list whose items are told apart by keys."""
        return self.list_type == "map" and bool(self.keys)


def _kind(source: Mapping[str, Any]) -> str:
    kind = source.get("type", "")
    if kind == "object" or "properties" in source or "additionalProperties" in source:
        return "map"
    return "list" if kind == "array" else "leaf"


def _compile_inline(source: Mapping[str, Any]) -> Node:
    ref = source.get("$ref")
    if ref is not None:
        return core_node(ref.removeprefix(_REF))
    parts = source.get("allOf")
    if parts is not None and len(parts) == 1 and "$ref" in parts[0]:
        name = parts[0]["$ref"].removeprefix(_REF)
        beside = {key: value for key, value in source.items() if key != "allOf"}
        return Node({**core_schemas()[name], **beside}, _compile_inline, name)
    return Node(source, _compile_inline)


UNTYPED = Node({}, _compile_inline)


@lru_cache(maxsize=1)
def core_schemas() -> dict[str, Any]:
    """The published schemas of the built-in kinds, by name."""
    schemas: dict[str, Any] = decode_json(Path(__file__).with_name("core.json").read_bytes())
    return schemas


@lru_cache(maxsize=1)
def _wire() -> dict[str, dict[str, tuple[str, str, str, str]]]:
    found: dict[str, dict[str, tuple[str, str, str, str]]] = decode_json(
        Path(__file__).with_name("wire.json").read_bytes()
    )
    return found


def wire_fields(name: str) -> dict[str, tuple[str, str, str, str]]:
    """Field number → (JSON name, kind, type, modifiers) of a built-in struct; empty if unknown.

    Kinds: s(tring), b(ool), i(nteger), d(ouble), y (bytes), m(essage). Modifiers: p(ointer),
    r(epeated), M(ap), n (inline), o(mitted when empty), z (omitted when zero).
    """
    return _wire().get(name, {})


def _shown_fields(name: str) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field, kind, ref, modifiers in wire_fields(name).values():
        if "n" in modifiers:
            shown.update(_shown_fields(ref))
        elif set("prM") & set(modifiers):
            if "o" not in modifiers:
                shown[field] = None
        elif "z" not in modifiers and ("o" not in modifiers or kind == "m"):
            # Go's omitempty does not know when a struct is empty.
            shown[field] = _zero(kind, ref)
    return shown


def _zero(kind: str, ref: str) -> Any:
    if kind == "m":
        if ref.endswith("IntOrString"):
            return 0
        if ref.endswith("Quantity"):
            return "0"
        return {} if wire_fields(ref) else None
    return {"s": "", "i": 0, "d": 0, "b": False}.get(kind)


@lru_cache(maxsize=1024)
def core_node(name: str) -> Node:
    """The type with this name in `core.json`."""
    return Node(core_schemas()[name], _compile_inline, name)


@lru_cache(maxsize=1)
def _names_by_kind() -> dict[tuple[str, str, str], str]:
    found = {}
    for name, schema in core_schemas().items():
        for each in schema.get("x-kubernetes-group-version-kind", ()):
            found[each["group"], each["version"], each["kind"]] = name
    return found


def core_name(group: str, version: str, kind: str) -> str:
    """The name of a built-in kind's schema; empty when there is none."""
    return _names_by_kind().get((group, version, kind), "")


def object_meta() -> Node:
    return core_node(META + "ObjectMeta")


def custom_node(schema: Mapping[str, Any]) -> Node:
    """The type of a custom resource: its schema, with the metadata all objects have."""
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"{_REF}{META}ObjectMeta"},
    }
    return Node({**schema, "type": "object", "properties": properties}, _compile_inline)
