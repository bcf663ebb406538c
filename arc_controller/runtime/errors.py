"""What an API server refuses, as a small tree with one root.

Every error carries the server's own ``Status`` (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/).
"""

from __future__ import annotations

import re

import msgspec

from arc_controller.runtime.objects import Wire

A_DAY = 86_400
"""Seconds; who is asked to wait longer has been asked by mistake."""


class StatusCause(Wire):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = msgspec.field(default_factory=list)
    retry_after_seconds: int = 0


class Status(Wire):
    """The body of a refusal."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ApiError(Exception):
    """The API server answered with an error, or its answer could not be read.

    ``status`` is what it said; ``call`` names the request (method and path, no query).
    """

    def __init__(self, status: Status, call: str = "") -> None:
        self.status = status
        self.call = call
        super().__init__(f"{call}: {self.message}" if call else self.message)

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message or f"the API server answered {self.status.code}"


_NOT_AUTHORIZED = re.compile(r'User "[^"]*" cannot [a-z]+ resource |cannot set blockOwnerDeletion ')


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: by RBAC, admission or quota; see `is_quota_exceeded`, `is_permission_missing`."""

    @property
    def is_quota_exceeded(self) -> bool:
        return "exceeded quota" in self.message

    @property
    def is_permission_missing(self) -> bool:
        """Whether authorization refused (owner references included), not what the object says. An
        API server that has just started does so for a while, until it has read its roles and learnt
        its kinds."""
        return _NOT_AUTHORIZED.search(self.message) is not None


class NotFound(ApiError):
    """404"""


class MethodNotAllowed(ApiError):
    """405"""


class Conflict(ApiError):
    """409: the object changed since it was read (optimistic lock), or a precondition failed."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists."""


class Gone(ApiError):
    """410: the requested resource version or continue token is too old. Relist."""


class UnsupportedMediaType(ApiError):
    """415"""


class Invalid(ApiError):
    """422: validation failed; ``status.details.causes`` names the fields."""


class TooManyRequests(ApiError):
    """429, after the transport's own retries; ``retry_after`` in seconds, 0 when not said."""

    @property
    def retry_after(self) -> float:
        details = self.status.details
        return float(max(0, min(details.retry_after_seconds, A_DAY))) if details else 0.0


class ServerError(ApiError):
    """5xx, after the transport's own retries."""


class MalformedAnswer(ApiError):
    """The server accepted the call, but its answer does not fit the class it was read into."""


SAME_PAGE = "the list would never end: this page's continue token is the one it was asked with"


class ConfigurationError(Exception):
    """How to reach the API server is not known; the message says what is missing or wrong."""


class TransportError(Exception):
    """No answer: the connection was refused, broke, or timed out.

    Whether a write took effect is not known; a level-based reconciler looks again.
    """


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_response(code: int, body: bytes, call: str = "", retry_after: str = "") -> ApiError:
    """The error for a response with an HTTP status of 300 or more (nobody follows redirects).

    `retry_after` is the header of that name; it counts where the body says nothing about it.
    """
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, RecursionError):
        text = body[:300].decode("utf-8", "replace").strip()
        status = Status(message=text or f"the API server answered {code} without a body")
    status.code = code  # Whoever answered: this is what it did.
    if retry_after.isascii() and retry_after.isdecimal():
        status.details = status.details or StatusDetails()
        said = int(retry_after) if len(retry_after) < 10 else A_DAY
        status.details.retry_after_seconds = status.details.retry_after_seconds or said
    return error_from_status(status, call)


def error_from_status(status: Status, call: str = "") -> ApiError:
    """The error that a ``Status`` stands for, such as the object of a watch's ERROR event."""
    if status.reason == "AlreadyExists":
        return AlreadyExists(status, call)
    if status.reason in ("Expired", "Gone"):
        return Gone(status, call)
    kind = _BY_CODE.get(status.code) or (ServerError if status.code >= 500 else ApiError)
    return kind(status, call)
