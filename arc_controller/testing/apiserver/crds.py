"""CustomResourceDefinitions: the objects themselves and the resources they define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from arc_controller.testing.apiserver.decode import Decoder
from arc_controller.testing.apiserver.errors import FieldError, go_type, invalid_value, required
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.resources import Column, Resource
from arc_controller.testing.apiserver.schema import Schema, prune_and_default, validate
from arc_controller.testing.apiserver.store import storage_key
from arc_controller.testing.apiserver.strategy import Call, Strategy, default_in
from arc_controller.testing.apiserver.types import Node, object_meta

CRD_GROUP = "apiextensions.k8s.io"
CRD_PLURAL = "customresourcedefinitions"
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

AGE_COLUMN = Column(
    "Age",
    "date",
    ".metadata.creationTimestamp",
    description=(
        "CreationTimestamp is a timestamp representing the server time when this object was "
        "created. It is not guaranteed to be set in happens-before order across separate "
        "operations. Clients may not set this value. It is represented in RFC3339 form and is in "
        "UTC."
    ),
)


class CrdStrategy(Strategy):
    """The definitions. They are established at once: nothing here runs behind."""

    counts_generation = True
    qualified_finalizers = False

    def conform(
        self, obj: Object, old: Object | None, node: Node, *, applied: bool = False
    ) -> list[str]:
        return []

    def prepare_create(self, obj: Object, call: Call) -> None:
        meta = obj["metadata"]
        finalizers = meta.setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        self.default(obj)
        spec = obj["spec"]
        obj["status"] = {
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", call.now),
                _condition(
                    "Established",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                    call.now,
                ),
            ],
            "acceptedNames": dict(spec.get("names") or {}),
            "storedVersions": [
                version.get("name")
                for version in spec.get("versions") or ()
                if version.get("storage")
            ],
        }

    def prepare_update(self, obj: Object, old: Object, call: Call) -> None:
        self.default(obj)
        status = obj.get("status")
        if isinstance(status, dict):
            obj["status"] = {**status, "acceptedNames": dict(obj["spec"].get("names") or {})}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = str(names.get("kind") or "")
        default_in(names, "singular", kind.lower())
        default_in(names, "listKind", f"{kind}List")
        default_in(spec, "conversion", {"strategy": "None"})

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        names = spec["names"]
        problems = []
        for key in ("group",):
            if not spec.get(key):
                problems.append(required(f"spec.{key}"))
        for key in ("plural", "kind"):
            if not names.get(key):
                problems.append(required(f"spec.names.{key}"))
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            problems.append(required("spec.scope"))
        expected = f"{names.get('plural')}.{spec.get('group')}"
        if obj["metadata"].get("name") != expected:
            problems.append(
                invalid_value(
                    "metadata.name",
                    obj["metadata"].get("name"),
                    'must be spec.names.plural+"."+spec.group',
                )
            )
        versions = spec.get("versions") or []
        if sum(bool(version.get("storage")) for version in versions) != 1:
            problems.append(
                invalid_value(
                    "spec.versions",
                    versions,
                    "must have exactly one version marked as storage version",
                )
            )
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                problems.append(
                    required(
                        f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"
                    )
                )
        return problems

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        problems = self.validate(obj)
        for path in (("group",), ("scope",), ("names", "kind"), ("names", "plural")):
            new, before = obj["spec"], old["spec"]
            for part in path:
                new, before = new[part], before[part]
            if new != before:
                where = "spec." + ".".join(path)
                problems.append(invalid_value(where, new, "field is immutable"))
        return problems


class CustomStrategy(Strategy):
    """Custom resources: rules come from the schema of their version."""

    unconditional_update = False
    validates_metadata_again = False
    qualified_finalizers = False
    counts_generation = True
    status_takes_metadata = False

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        has_status: bool,
        scale: Mapping[str, Any] | None = None,
    ) -> None:
        self._scale = scale
        self._source = schema
        self._schema: Schema | None = None
        self._has_status = has_status

    @property
    def schema(self) -> Schema:
        if self._schema is None:
            self._schema = Schema(_with_object_fields(self._source))
        return self._schema

    def conform(
        self, obj: Object, old: Object | None, node: Node, *, applied: bool = False
    ) -> list[str]:
        decoder = Decoder()
        before = None if old is None else old["metadata"]
        decoder.conform(object_meta(), obj["metadata"], before, "")
        unknown = [f"metadata.{each}" for each in decoder.unknown]
        prune_and_default(self.schema, obj, old, "", unknown, nulls=applied)
        return unknown

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        before = () if old is None else old["metadata"].get("finalizers") or ()
        return [
            f'metadata.finalizers: "{each}": prefer a domain-qualified finalizer name to avoid '
            "accidental conflicts with other finalizer writers"
            for each in obj["metadata"].get("finalizers") or ()
            if each and "/" not in each and each not in ("orphan", "foregroundDeletion", *before)
        ]

    def validate(self, obj: Object) -> list[FieldError]:
        return validate(self.schema, obj) + self._scale_problems(obj)

    def _scale_problems(self, obj: Object) -> list[FieldError]:
        """The replicas of a kind that can be scaled are a number, whatever the schema says."""
        path = (self._scale or {}).get("specReplicasPath")
        if not path:
            return []
        found: Any = obj
        for part in path.strip(".").split("."):
            if not isinstance(found, dict):
                return [_accessor_error(path, found, "map[string]interface{}")]
            if part not in found:
                return []
            found = found[part]
        if isinstance(found, bool) or not isinstance(found, int):
            return [_accessor_error(path, found, "int64")]
        if found < 0:
            return [invalid_value(path, found, "should be a non-negative integer")]
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate(self.schema, obj, old) + self._scale_problems(obj)

    def validate_status(self, obj: Object, old: Object) -> list[FieldError]:
        """The real server looks at the status alone, and words its paths from there."""
        return [
            replace(each, detail=each.detail.removeprefix("status."))
            for each in validate(self.schema, obj, old)
        ]

    def spec_changed(self, obj: Object, old: Object) -> bool:
        ignored = {"metadata", "status"} if self._has_status else {"metadata"}
        return any(
            obj.get(key) != old.get(key) for key in (obj.keys() | old.keys()) if key not in ignored
        )


def _accessor_error(path: str, value: Any, wanted: str) -> FieldError:
    why = f"{path} accessor error: {value} is of the type {go_type(value)}, expected {wanted}"
    return invalid_value(path, 0, why)


def _with_object_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What every object has is declared in every schema; metadata is not the schema's business."""
    properties = {**(schema.get("properties") or {})}
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    metadata = dict(properties.get("metadata") or {"type": "object"})
    metadata["x-kubernetes-preserve-unknown-fields"] = True
    properties["metadata"] = metadata
    return {**schema, "properties": properties}


def defined_resources(crd: Mapping[str, Any]) -> list[Resource]:
    """The resources a definition serves, its storage version first."""
    spec = crd["spec"]
    names = spec["names"]
    versions = [version for version in spec["versions"] if version.get("served", True)]
    versions.sort(key=lambda version: not version.get("storage"))
    storage_version = next(
        version["name"] for version in spec["versions"] if version.get("storage")
    )
    found = []
    for version in versions:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        parts = version.get("subresources") or {}
        has_status = "status" in parts
        api_version = f"{spec['group']}/{version['name']}"
        is_storage = version["name"] == storage_version
        storage_api_version = f"{spec['group']}/{storage_version}"
        found.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                strategy=CustomStrategy(schema, has_status=has_status, scale=parts.get("scale")),
                namespaced=spec.get("scope") == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                list_kind=names.get("listKind") or f"{names['kind']}List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=frozenset(parts),
                selectable={
                    each["jsonPath"].lstrip("."): each["jsonPath"].lstrip(".")
                    for each in version.get("selectableFields") or ()
                },
                storage=storage_key(spec["group"], names["plural"]),
                convert_out=None if is_storage else _to_version(api_version),
                convert_in=None if is_storage else _to_version(storage_api_version),
                custom=True,
                columns=_columns(version.get("additionalPrinterColumns")),
                schema=schema,
                scale=parts.get("scale"),
            )
        )
    return found


def _columns(given: list[Mapping[str, Any]] | None) -> tuple[Column, ...]:
    if not given:
        return (AGE_COLUMN,)
    return tuple(
        Column(
            each["name"],
            each.get("type", "string"),
            each["jsonPath"],
            each.get("format", ""),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
            each.get("priority", 0),
        )
        for each in given
    )


def _to_version(api_version: str) -> Any:
    def convert(obj: Object) -> Object:
        obj["apiVersion"] = api_version
        return obj

    return convert


def _condition(kind: str, reason: str, message: str, now: str) -> Object:
    return {
        "lastTransitionTime": now,
        "message": message,
        "reason": reason,
        "status": "True",
        "type": kind,
    }
