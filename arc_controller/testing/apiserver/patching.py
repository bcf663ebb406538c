"""PATCH: choose the patch type, apply it to what is stored, write the result."""

from __future__ import annotations

from typing import Any

from arc_controller.testing.apiserver import bodies, errors
from arc_controller.testing.apiserver.decode import DecodeError
from arc_controller.testing.apiserver.formats import is_date_time
from arc_controller.testing.apiserver.incoming import check_identity
from arc_controller.testing.apiserver.messages import (
    Object,
    Request,
    decode_json,
    encode_json,
    json_type,
)
from arc_controller.testing.apiserver.metadata import require_version
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
from arc_controller.testing.apiserver.typed import misfits
from arc_controller.testing.apiserver.writer import Writer

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
    writer.require(resource, info.namespace, info.name)
    body = bodies.decode_json_body(request.body)
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
    if isinstance(config["metadata"], dict) and config["metadata"].get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
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
        require_version(made["metadata"].pop("resourceVersion", None))
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
    if shown.count("/") > 1:
        version, name = "/", ""  # neither is read then
    raise errors.bad_request(f"invalid object type: {version}, Kind={name}")


def _check_declared(writer: Writer, resource: Resource, config: Object) -> None:
    """An applied configuration may only have fields that the type declares."""
    wrong = misfits(writer.fields.node(resource), config, "")
    if wrong:
        listed = "errors:\n  " + "\n  ".join(wrong) if len(wrong) > 1 else wrong[0]
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
