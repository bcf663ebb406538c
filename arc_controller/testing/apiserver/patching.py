"""PATCH: choose the patch type, apply it to what is stored, write the result."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver import bodies, errors
from arc_controller.testing.apiserver.decode import DecodeError
from arc_controller.testing.apiserver.formats import is_date_time
from arc_controller.testing.apiserver.messages import (
    Object,
    Request,
    decode_json,
    encode_json,
    json_type,
)
from arc_controller.testing.apiserver.patch import (
    APPLY,
    JSON_PATCH,
    MERGE,
    PATCH_TYPES,
    STRATEGIC,
    json_patch,
    merge_patch,
)
from arc_controller.testing.apiserver.resources import Resource
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.apiserver.store import Stored
from arc_controller.testing.apiserver.strategic import strategic_merge_patch
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.types import Node
from arc_controller.testing.apiserver.writer import Writer, check_identity

_CUSTOM_TYPES = (JSON_PATCH, MERGE, APPLY)


def patch(
    writer: Writer, call: Call, request: Request, info: RequestInfo, resource: Resource
) -> tuple[Stored, bool]:
    """Apply the request's patch; the second value says whether the object was created."""
    kind = bodies.media_type(request)
    supported = _CUSTOM_TYPES if resource.custom else PATCH_TYPES
    if kind not in supported:
        if not resource.custom:
            message = "415: Unsupported Media Type"
            raise errors.StatusError(415, "UnsupportedMediaType", message, {})
        raise errors.unsupported_media_type(supported)
    if kind == APPLY:
        return _apply(writer, call, request, info, resource)
    if info.query.get("force"):
        problem = errors.forbidden_value("force", "may not be specified for non-apply patch")
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
    body = bodies.decode_json_body(request.body)
    writer.require(resource, info.namespace, info.name)
    if body is None:
        if kind == MERGE:
            raise errors.bad_request("Invalid JSON Patch")
        body = [] if kind == JSON_PATCH else {}
    if kind != JSON_PATCH and not isinstance(body, dict):
        prefix = "error decoding patch: " if kind == MERGE else ""
        raise errors.bad_request(
            f"{prefix}json: cannot unmarshal {json_type(body)} into Go value of type "
            "map[string]interface {}"
        )
    if kind == STRATEGIC:
        call.strategic = body
    call.patched = True

    def change(old: Object) -> Object:
        current = old if resource.convert_out is None else resource.convert_out(old)
        if kind == JSON_PATCH:
            changed = json_patch(current, body)
        elif kind == STRATEGIC:
            changed = strategic_merge_patch(current, body, writer.fields.node(resource))
        else:
            changed = merge_patch(current, body)
        return changed if resource.convert_in is None else resource.convert_in(changed)

    stored = writer.update(
        call, resource, info.namespace, info.name, change, subresource=info.subresource
    )
    return stored, False


def _apply(
    writer: Writer, call: Call, request: Request, info: RequestInfo, resource: Resource
) -> tuple[Stored, bool]:
    """Server-side apply: also creates what is not there."""
    manager = info.query.get("fieldManager", "")
    if not manager:
        problem = errors.required("fieldManager", "is required for apply patch")
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", [problem])
    call.manager = manager
    call.patched = True
    force = info.query.get("force", "") in ("1", "true")
    config = bodies.decode_yaml(request.body)
    if config is None:
        config = {}
    if not isinstance(config, dict):
        raise errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {json_type(config)} into Go value of type map[string]interface {{}}"
        )
    _check_kind(config, resource)
    if resource.convert_in is not None:
        config = resource.convert_in(config)
    if config.get("metadata") is None:
        config["metadata"] = {}
    _check_declared(writer, resource, config)

    def merged(live: Object | None) -> Object:
        result = writer.fields.apply(
            call, resource, live, config, subresource=info.subresource, force=force
        )
        if resource.custom:
            _drop_malformed_times(result["metadata"])
        else:
            _check_convertible(writer, resource, config)
        return result

    old = writer.store.read(resource.storage_key, info.namespace, info.name)
    if old is None:
        if info.subresource:
            raise errors.not_found(resource.group, resource.plural, info.name)
        if config["metadata"].get("uid"):
            raise errors.conflict(
                resource.group,
                resource.plural,
                info.name,
                "uid mismatch: the provided object "
                f"specified uid {config['metadata']['uid']}, and no existing object was found",
            )
        made = merged(None)
        check_identity(resource, made, info.name)
        made["metadata"].pop("resourceVersion", None)
        return writer.create(call, resource, info.namespace, made), True
    stored = writer.update(
        call, resource, info.namespace, info.name, merged, subresource=info.subresource
    )
    return stored, False


def _check_kind(config: Object, resource: Resource) -> None:
    kind, api_version = config.get("kind"), config.get("apiVersion")
    if (kind, api_version) == (resource.kind, resource.api_version):
        return
    shown = api_version if isinstance(api_version, str) else ""
    version = shown if "/" in shown else f"/{shown}"
    name = kind if isinstance(kind, str) else ""
    raise errors.bad_request(f"invalid object type: {version}, Kind={name}")


def _check_declared(writer: Writer, resource: Resource, config: Object) -> None:
    """An applied configuration may only have fields that the type declares."""
    misfits = _misfits(writer.fields.node(resource), config, "")
    if misfits:
        listed = "errors:\n  " + "\n  ".join(misfits) if len(misfits) > 1 else misfits[0]
        what = f"{_named(config)}; {_gvk(resource)}"
        raise errors.internal(f"failed to create typed patch object ({what}): {listed}")


def _check_convertible(writer: Writer, resource: Resource, config: Object) -> None:
    """Nor values that its Go struct cannot hold."""
    probe: Any = decode_json(encode_json(config))
    try:
        resource.strategy.conform(probe, None, writer.fields.node(resource))
    except DecodeError as error:
        gvk = _gvk(resource)
        raise errors.internal(
            f"failed to convert new object ({_named(config)}; {gvk}) to proper version: "
            f"unable to convert unstructured object to {gvk}: {error.converted}"
        ) from None


def _gvk(resource: Resource) -> str:
    return f"{resource.group}/{resource.version}, Kind={resource.kind}"


def _named(config: Object) -> str:
    meta = config["metadata"] if isinstance(config["metadata"], dict) else {}
    namespace, name = (
        each if isinstance(each := meta.get(key), str) else "" for key in ("namespace", "name")
    )
    return f"{namespace}/{name}"


def _drop_malformed_times(meta: Object) -> None:
    """Of a custom resource's metadata, what cannot be read is dropped."""
    for key in ("creationTimestamp", "deletionTimestamp"):
        given = meta.get(key)
        if given is not None and not (isinstance(given, str) and is_date_time(given)):
            del meta[key]


def _misfits(node: Node, value: Any, path: str) -> list[str]:
    """What the type does not have or has otherwise, as structured-merge-diff words it."""
    if value is None:
        return []
    if node.kind == "map":
        if not isinstance(value, dict):
            return [f"{path}: expected map, got &{{{errors.go_plain(value)}}}"]
        misfits: list[str] = []
        for key, child in value.items():
            if node.fields and node.values is None and not node.unknown and key not in node.fields:
                misfits.append(f"{path}.{key}: field not declared in schema")
            else:
                misfits += _misfits(node.field(key), child, f"{path}.{key}")
        return misfits
    if node.kind == "list":
        if not isinstance(value, list):
            return [f"{path}: expected list, got &{{{errors.go_plain(value)}}}"]
        twice = _repeated(node, value)
        if twice:
            return [f"{path}: duplicate entries for key [{twice}]"]
        return [
            each
            for index, item in enumerate(value)
            for each in _misfits(node.items, item, f"{path}[{index}]")
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
        return [f"{path}: expected numeric (int or float), got {_go_type(value)}"]
    return []


def _repeated(node: Node, items: list[Any]) -> str:
    """The key that two items of a list share, if any do."""
    seen: set[str] = set()
    if node.associative:
        for item in items:
            if not isinstance(item, dict):
                continue
            named = [key for key in node.keys if key in item]
            text = ",".join(f"{key}={errors.go_value(item[key])}" for key in named)
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


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    return "[]interface {}" if isinstance(value, list) else "map[string]interface {}"
