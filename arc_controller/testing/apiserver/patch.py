"""Merge patches (RFC 7396) and JSON patches (RFC 6902)."""

from __future__ import annotations

from typing import Any

import jsonpatch  # type: ignore[import-untyped,unused-ignore]
import jsonpointer  # type: ignore[import-untyped,unused-ignore]

from arc_controller.testing.apiserver.errors import StatusError, bad_request, internal
from arc_controller.testing.apiserver.messages import Object

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
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > 10_000:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is 10000, got {len(operations)}",
        )
    try:
        result = jsonpatch.apply_patch(target, operations, in_place=True)
    except jsonpatch.JsonPatchTestFailed as error:
        raise _unprocessable(_last_line(error)) from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _unprocessable(_last_line(error)) from error
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise internal(f"the patch does not fit the object: {error}") from error
    if not isinstance(result, dict):
        raise bad_request("a patch must leave an object")
    return result


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


def _unprocessable(why: str) -> StatusError:
    message = f"the server rejected our request due to an error in our request: {why}"
    return StatusError(422, "Invalid", message, {})
