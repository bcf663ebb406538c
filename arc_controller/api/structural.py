"""From OpenAPI v3 to structural schemas: how a CRD takes in a type of Kubernetes itself.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
lists what a structural schema must and may hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"

_KEPT = (
    "type",
    "format",
    "enum",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
_REFERENCE = "#/components/schemas/"

# Types whose JSON is not what their OpenAPI entry says, or is more than a template needs.
QUANTITY = {
    "x-kubernetes-int-or-string": True,
    "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
TEMPLATE_METADATA = {
    "type": "object",
    "properties": {
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "generateName": {"type": "string"},
        "labels": _STRINGS,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
_SPECIAL: Mapping[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": TEMPLATE_METADATA,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
}


class NotStructural(ValueError):
    """A type cannot be told as a structural schema; the message names the place."""


def structural_schema(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The structural schema of type ``name`` of an OpenAPI v3 ``document``.

    References are replaced by what they refer to, descriptions left out (they are ten times the
    rest), defaults too, except where the key of a list needs one to be always there.
    Raises `NotStructural` for a recursive type, or a list whose key may be missing.
    """
    return _Converter(document["components"]["schemas"]).named(name, ())


class _Converter:
    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def named(self, name: str, inside: tuple[str, ...]) -> dict[str, Any]:
        if name in _SPECIAL:
            return dict(_SPECIAL[name])
        if name in inside:
            raise NotStructural(f"{name} contains itself: {' → '.join([*inside, name])}")
        return self.schema(self._schemas[name], (*inside, name))

    def schema(self, source: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        reference = _reference(source)
        if reference:
            return self.named(reference, inside)
        result = {key: source[key] for key in _KEPT if key in source}
        if "properties" in source:
            result["properties"] = {
                key: self.schema(value, inside) for key, value in source["properties"].items()
            }
        if isinstance(source.get("additionalProperties"), Mapping):
            result["additionalProperties"] = self.schema(source["additionalProperties"], inside)
        if "items" in source:
            result["items"] = self.schema(source["items"], inside)
            self._complete_keys(result, source["items"], inside)
        if "type" not in result:
            raise NotStructural(f"{' → '.join(inside)} holds a value without a type: {source}")
        return result

    def _complete_keys(
        self, array: dict[str, Any], items: Mapping[str, Any], inside: tuple[str, ...]
    ) -> None:
        """The server refuses a list whose keys may be absent from an item."""
        reference = _reference(items)
        properties = (self._schemas[reference] if reference else items).get("properties", {})
        for key in array.get("x-kubernetes-list-map-keys", ()):
            if key in array["items"].get("required", ()):
                continue
            if "default" not in properties[key]:
                raise NotStructural(f"{' → '.join(inside)}: key {key} may be missing from a list")
            keyed = dict(array["items"]["properties"])
            keyed[key] = {**keyed[key], "default": properties[key]["default"]}
            array["items"] = {**array["items"], "properties": keyed}


def _reference(source: Mapping[str, Any]) -> str:
    """The name a schema refers to: as it is, or wrapped to carry a description or a default."""
    wrapped = source.get("allOf", ())
    reference = wrapped[0].get("$ref", "") if len(wrapped) == 1 else source.get("$ref", "")
    return str(reference).removeprefix(_REFERENCE)
