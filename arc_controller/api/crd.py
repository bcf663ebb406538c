"""CustomResourceDefinitions made from the msgspec structs of `v1alpha1`.

What a struct cannot say (which fields a person must write, what ``kubectl get`` shows) is in the
tables here; what a person reads in ``kubectl explain`` is in `field_docs`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from arc_controller.api import v1alpha1 as api
from arc_controller.api.field_docs import FIELD_DOCS
from arc_controller.runtime.objects import Condition, KubeObject

POD_TEMPLATE_FILE: Final = "pod_template_schema.json"


@dataclass(frozen=True)
class Column:
    """One column of ``kubectl get``; those of priority 1 show with ``-o wide`` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class CustomResource:
    """A kind as people address it: ``kubectl get PLURAL`` or one of the short names."""

    kind: type[KubeObject]
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        return f"{self.plural}.{api.GROUP}"


_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_WHY = Column("Status", '.status.conditions[?(@.type=="Ready")].reason')
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

CUSTOM_RESOURCES: Final = (
    CustomResource(
        api.AutoscalingRunnerSet,
        "autoscalingrunnersets",
        ("ars",),
        (
            Column("Minimum Runners", ".spec.minRunners", "integer"),
            Column("Maximum Runners", ".spec.maxRunners", "integer"),
            Column("Current Runners", ".status.currentRunners", "integer"),
            Column("Phase", ".status.phase"),
            _READY,
            Column("Pending Runners", ".status.pendingEphemeralRunners", "integer"),
            Column("Running Runners", ".status.runningEphemeralRunners", "integer"),
            Column("Failed Runners", ".status.failedEphemeralRunners", "integer"),
            Column("GitHub Config URL", ".spec.githubConfigUrl", priority=1),
            _AGE,
        ),
    ),
    CustomResource(
        api.AutoscalingListener,
        "autoscalinglisteners",
        ("als",),
        (
            Column("GitHub Configure URL", ".spec.githubConfigUrl"),
            Column("AutoscalingRunnerSet Namespace", ".spec.autoscalingRunnerSetNamespace"),
            Column("AutoscalingRunnerSet Name", ".spec.autoscalingRunnerSetName"),
            _READY,
            _WHY,
            _AGE,
        ),
    ),
    CustomResource(
        api.EphemeralRunnerSet,
        "ephemeralrunnersets",
        ("ers",),
        (
            Column("DesiredReplicas", ".spec.replicas", "integer"),
            Column("CurrentReplicas", ".status.currentReplicas", "integer"),
            Column("Phase", ".status.phase"),
            Column("Pending Runners", ".status.pendingEphemeralRunners", "integer"),
            Column("Running Runners", ".status.runningEphemeralRunners", "integer"),
            Column("Failed Runners", ".status.failedEphemeralRunners", "integer"),
            Column("Revision", ".spec.actionableRevision", "integer", priority=1),
            _AGE,
        ),
    ),
    CustomResource(
        api.EphemeralRunner,
        "ephemeralrunners",
        ("er",),
        (
            Column("GitHub Config URL", ".spec.githubConfigUrl"),
            Column("RunnerId", ".status.runnerId", "number"),
            Column("Status", ".status.phase"),
            Column("JobRepository", ".status.jobRepositoryName"),
            Column("JobWorkflowRef", ".status.jobWorkflowRef"),
            Column("WorkflowRunId", ".status.workflowRunId", "number"),
            Column("JobDisplayName", ".status.jobDisplayName"),
            Column("JobId", ".status.jobId", priority=1),
            Column("Message", ".status.message"),
            _AGE,
        ),
    ),
)

# What must be written. Never a status field: the first patch of a status has only some of them, and
# never one whose zero means something, since zeros are left out on the wire.
REQUIRED: Final[Mapping[type, tuple[str, ...]]] = {
    api.AutoscalingRunnerSetSpec: ("githubConfigUrl", "githubConfigSecret", "template"),
    api.AutoscalingListenerSpec: (
        "githubConfigUrl",
        "githubConfigSecret",
        "runnerScaleSetId",
        "autoscalingRunnerSetNamespace",
        "autoscalingRunnerSetName",
        "ephemeralRunnerSetName",
        "image",
    ),
    api.EphemeralRunnerSetSpec: ("ephemeralRunnerSpec",),
    api.EphemeralRunnerSpec: ("githubConfigUrl", "githubConfigSecret", "runnerScaleSetId", "spec"),
    api.ProxyServer: ("url",),
    api.ConfigMapKey: ("name", "key"),
    api.AzureKeyVault: ("url", "tenantId", "clientId", "certificatePath"),
    Condition: ("type", "status"),
}
# Zeros are left out on the wire, and a column of ``kubectl get`` without a value is blank.
_COUNTS: Final[Mapping[type, tuple[str, ...]]] = {
    api.AutoscalingRunnerSetStatus: ("_runners",),
    api.EphemeralRunnerSetStatus: ("_runners", "_replicas"),
}
_KEYED_LISTS: Final[Mapping[type, str]] = {Condition: "type"}


def custom_resource_definition(
    resource: CustomResource, pod_template: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The CRD of one kind. ``pod_template``: its schema, by default the one in the package."""
    generator = _Schemas(pod_template_schema() if pod_template is None else pod_template)
    fields = {field.name: field.type for field in types.type_info(resource.kind).fields}  # type: ignore[attr-defined]
    schema = {
        "description": _docstring(resource.kind),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": generator.schema(fields["spec"]),
            "status": generator.schema(fields["status"]),
        },
    }
    kind = resource.kind.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": api.GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
                "shortNames": list(resource.short_names),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": api.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(c) for c in resource.columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def custom_resource_definitions() -> list[dict[str, Any]]:
    """The CRDs of all four kinds, in the order a person meets them."""
    template = pod_template_schema()
    return [custom_resource_definition(resource, template) for resource in CUSTOM_RESOURCES]


def pod_template_schema() -> dict[str, Any]:
    """The structural schema of a pod template, as an API server published it."""
    text = (resources.files("arc_controller.api") / POD_TEMPLATE_FILE).read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


class _Schemas:
    """Schemas of the types that msgspec sees in a struct."""

    def __init__(self, pod_template: Mapping[str, Any]) -> None:
        self._template = pod_template

    def schema(self, type_: types.Type) -> dict[str, Any]:
        match type_:
            case types.Metadata():
                extra = type_.extra_json_schema or {}
                return {**extra, **self.schema(type_.type)}
            case types.UnionType():
                (inner,) = [t for t in type_.types if not isinstance(t, types.NoneType)]
                return self.schema(inner)
            case types.BoolType():
                return {"type": "boolean"}
            case types.IntType():
                return {"type": "integer", "format": _width(type_), **_limits(type_)}
            case types.FloatType():
                return {"type": "number", **_limits(type_)}
            case types.StrType():
                return {"type": "string"}
            case types.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case types.ListType():
                return self._list(type_)
            case types.DictType():
                return {"type": "object", "additionalProperties": self.schema(type_.value_type)}
            case types.StructType():
                return self._struct(type_)
        raise TypeError(f"no schema is known for {type_}")

    def _list(self, type_: types.ListType) -> dict[str, Any]:
        result = {"type": "array", "items": self.schema(type_.item_type)}
        if isinstance(type_.item_type, types.StructType) and type_.item_type.cls in _KEYED_LISTS:
            result["x-kubernetes-list-type"] = "map"
            result["x-kubernetes-list-map-keys"] = [_KEYED_LISTS[type_.item_type.cls]]
        return result

    def _struct(self, type_: types.StructType) -> dict[str, Any]:
        if type_.cls is api.PodTemplate:
            return dict(self._template)
        required = REQUIRED.get(type_.cls, ())
        properties = {}
        for field in type_.fields:
            schema = self._field(type_.cls, field)
            if field.encode_name in required and schema.get("type") == "string":
                schema["minLength"] = 1
            properties[field.encode_name] = schema
        if type_.cls is api.AutoscalingRunnerSetSpec:
            # Runners need a pod; a listener's template may leave everything as it is.
            properties["template"] = {**properties["template"], "required": ["spec"]}
        result: dict[str, Any] = {"type": "object"}
        text = _docstring(type_.cls)
        if text:
            result["description"] = text
        if required:
            result["required"] = list(required)
        result["properties"] = properties
        return result

    def _field(self, struct: type, field: types.Field) -> dict[str, Any]:
        if struct is api.EphemeralRunnerSpec and field.name in self._template["properties"]:
            return dict(self._template["properties"][field.name])
        schema = self.schema(field.type)
        if field.name.endswith(_COUNTS.get(struct, ())):
            schema["default"] = 0
        text = FIELD_DOCS.get(struct, {}).get(field.name)
        if text:
            schema["description"] = text
        return schema


def _column(column: Column) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
    }
    if column.priority:
        result["priority"] = column.priority
    return result


def _width(type_: types.IntType) -> str:
    return "int32" if type_.le is not None and type_.le < 2**31 else "int64"


def _limits(type_: types.IntType | types.FloatType) -> dict[str, Any]:
    limits = {"minimum": type_.ge, "maximum": type_.le}
    return {key: value for key, value in limits.items() if value is not None}


def _docstring(cls: type) -> str:
    """The docstring of a class, unwrapped; empty when it has none of its own."""
    own = cls.__dict__.get("__doc__")
    return " ".join(inspect.cleandoc(own).split()) if own else ""


def all_structs(kinds: Iterable[type[msgspec.Struct]]) -> set[type]:
    """The structs that the CRDs of ``kinds`` describe: what `field_docs` has to cover."""
    found: set[type] = set()

    def visit(type_: types.Type) -> None:
        match type_:
            case types.Metadata():
                visit(type_.type)
            case types.UnionType():
                for member in type_.types:
                    visit(member)
            case types.ListType():
                visit(type_.item_type)
            case types.DictType():
                visit(type_.value_type)
            case types.StructType() if type_.cls is not api.PodTemplate:
                if type_.cls not in found:
                    found.add(type_.cls)
                    for field in type_.fields:
                        visit(field.type)

    for kind in kinds:
        for field in types.type_info(kind).fields:  # type: ignore[attr-defined]
            if field.name in {"spec", "status"}:
                visit(field.type)
    return found
