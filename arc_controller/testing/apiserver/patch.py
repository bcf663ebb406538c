"""Merge patches (RFC 7396) and JSON patches (RFC 6902)."""

from __future__ import annotations

from typing import Any

import jsonpatch  # type: ignore[import-untyped,unused-ignore]
import jsonpointer  # type: ignore[import-untyped,unused-ignore]

from arc_controller.testing.apiserver.errors import StatusError, bad_request
from arc_controller.testing.apiserver.messages import Object, json_type

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch in place: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target


def json_patch(target: Object, operations: Any) -> Object:
    """Apply a JSON patch. Raises the server's answers to a patch that does not fit."""
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value "
            "of type []handlers.jsonPatchOp"
        )
    if len(operations) > 10_000:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is 10000, got {len(operations)}",
        )
    result: Any = target
    try:
        for operation in operations:
            settled = _settled(result, operation)
            result = jsonpatch.apply_patch(result, [settled], in_place=True)
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        TypeError,
        KeyError,
        IndexError,
        ValueError,
    ) as error:
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message, {}) from error
    if not isinstance(result, dict):
        raise bad_request("a patch must leave an object")
    return result


def _settled(target: Any, operation: Any) -> Any:
    """The server's library lets `replace` add a member that is missing."""
    if not isinstance(operation, dict) or operation.get("op") != "replace":
        return operation
    pointer = jsonpointer.JsonPointer(operation.get("path", ""))
    parent, member = pointer.to_last(target)
    if isinstance(parent, dict) and member is not None and member not in parent:
        return {**operation, "op": "add"}
    return operation
