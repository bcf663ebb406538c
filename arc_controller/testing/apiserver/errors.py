"""Failures as the API server words them: a `Status` object with reason, details and causes.

The wording follows `k8s.io/apimachinery` (`pkg/api/errors`, `pkg/util/validation/field`): clients
and people match on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from arc_controller.testing.apiserver.messages import Object, Response, json_response

FieldErrorType = Literal[
    "Required",
    "Invalid",
    "NotSupported",
    "Forbidden",
    "Duplicate",
    "NotFound",
    "TooLong",
    "TooMany",
    "TypeInvalid",
]

_LABELS: dict[str, str] = {
    "Required": "Required value",
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Forbidden": "Forbidden",
    "Duplicate": "Duplicate value",
    "NotFound": "Not found",
    "TooLong": "Too long",
    "TooMany": "Too many",
    "TypeInvalid": "Invalid value",
}

_UNSET = object()


class StatusError(Exception):
    """A request that fails, with the answer the client gets."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = dict(headers or {})
        self.list_meta: Mapping[str, Any] = {}

    def status(self) -> Object:
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.list_meta),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body

    def response(self) -> Response:
        return json_response(self.code, self.status(), self.headers)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that is wrong, and why: what `field.Error` is in Go."""

    type: FieldErrorType
    field: str
    value: Any = _UNSET
    detail: str = ""

    def body(self) -> str:
        label = _LABELS[self.type]
        if self.type not in ("Required", "Forbidden", "TooLong") and self.value is not _UNSET:
            label = f"{label}: {go_value(self.value)}"
        return f"{label}: {self.detail}" if self.detail else label

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"

    def cause(self) -> Object:
        return {
            "reason": f"FieldValue{self.type}",
            "message": self.body(),
            "field": self.field,
        }


def go_value(value: Any) -> str:
    """A value as Go prints it in a field error."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, order="sorted").decode()
    return str(value)


def go_plain(value: Any) -> str:
    """A value as Go's %v prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_plain(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_plain(each) for each in value)}]"
    return value if isinstance(value, str) else go_value(value)


_GO_TYPES: dict[type, str] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def go_type(value: Any) -> str:
    """The type that a decoded value has in Go."""
    return _GO_TYPES[type(value)]


def go_quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("Required", field, detail=detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("Invalid", field, value, detail)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(go_quote(each) for each in supported)
    return FieldError("NotSupported", field, value, f"supported values: {listed}")


def forbidden_value(field: str, detail: str) -> FieldError:
    return FieldError("Forbidden", field, detail=detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("Duplicate", field, value)


def _details(group: str, kind: str, name: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(group: str, resource: str, name: str) -> StatusError:
    message = f"{qualified(group, resource)} {go_quote(name)} not found"
    return StatusError(404, "NotFound", message, _details(group, resource, name))


def no_such_resource() -> StatusError:
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, {})


def already_exists(
    group: str, resource: str, name: str, *, being_deleted: bool = False
) -> StatusError:
    message = f"{qualified(group, resource)} {go_quote(name)} already exists"
    if being_deleted:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(group, resource, name))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(group: str, resource: str, name: str, why: str = MODIFIED) -> StatusError:
    message = (
        f"Operation cannot be fulfilled on {qualified(group, resource)} {go_quote(name)}: {why}"
    )
    return StatusError(409, "Conflict", message, _details(group, resource, name))


def forbidden(
    group: str, resource: str, name: str, why: str, causes: Sequence[Object] = ()
) -> StatusError:
    if name:
        message = f"{qualified(group, resource)} {go_quote(name)} is forbidden: {why}"
    else:
        message = f"{qualified(group, resource)} is forbidden: {why}"
    details = _details(group, resource, name)
    if causes:
        details["causes"] = list(causes)
    return StatusError(403, "Forbidden", message, details)


def invalid(group: str, kind: str, name: str, problems: Sequence[FieldError]) -> StatusError:
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{qualified(group, kind)} {go_quote(name)} is invalid: {joined}"
    details = _details(group, kind, name)
    details["causes"] = [problem.cause() for problem in problems]
    return StatusError(422, "Invalid", message, details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def internal(message: str) -> StatusError:
    return StatusError(500, "", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    available = [*accepted, "application/json;stream=watch"]
    if accepted[-1] != "application/json":
        available.append(f"{accepted[-1]};stream=watch")
    message = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(available)
    return StatusError(406, "NotAcceptable", message, {})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_resource_version(asked: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": 1},
        {"Retry-After": "1"},
    )


def too_many_requests(message: str, retry_after: int = 1) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": retry_after},
        {"Retry-After": str(retry_after)},
    )
