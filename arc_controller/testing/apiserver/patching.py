"""PATCH: choose the patch type, apply it to what is stored, write the result."""

from __future__ import annotations

from arc_controller.testing.apiserver import bodies, errors
from arc_controller.testing.apiserver.messages import Object, Request
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
from arc_controller.testing.apiserver.strategy import Call
from arc_controller.testing.apiserver.writer import Writer

_CUSTOM_TYPES = (JSON_PATCH, MERGE, APPLY)


def patch(
    writer: Writer, call: Call, request: Request, info: RequestInfo, resource: Resource
) -> tuple[Stored, bool]:
    """Apply the request's patch; the second value says whether the object was created."""
    kind = bodies.media_type(request)
    supported = _CUSTOM_TYPES if resource.custom else PATCH_TYPES
    if kind not in supported:
        raise errors.unsupported_media_type(supported)
    body = bodies.decode_json_body(request.body)
    if kind != JSON_PATCH and not isinstance(body, dict):
        raise errors.bad_request(
            f"json: cannot unmarshal {bodies.json_type(body)} into Go value of type "
            "map[string]interface {}"
        )

    def change(old: Object) -> Object:
        current = old if resource.convert_out is None else resource.convert_out(old)
        changed = json_patch(current, body) if kind == JSON_PATCH else merge_patch(current, body)
        return changed if resource.convert_in is None else resource.convert_in(changed)

    stored = writer.update(call, resource, info.namespace, info.name, change, info.subresource)
    return stored, False


__all__ = ["STRATEGIC", "patch"]
