"""What can go wrong, by name. No message here ever contains a token, a JIT config or a password."""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import ClassVar

import msgspec

from .http import REDACTED, HttpRequest, HttpResponse, redact_url

_MESSAGE_LIMIT = 500
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later without anybody changing anything.

    True for connections that failed or broke, timeouts, bodies that are empty or cut short, 429 and
    5xx; false for every named refusal, and for anything that is not an :class:`ActionsError`.
    """
    return isinstance(error, ActionsError) and error.transient


class ActionsError(Exception):
    """The root of everything that this package raises on purpose."""

    transient: ClassVar[bool] = False


class InvalidConfigUrl(ActionsError, ValueError):
    """The config URL does not name an enterprise, organisation or repository."""


class InvalidCredentials(ActionsError, ValueError):
    """The credentials are incomplete, contradictory, or their key cannot be read."""


class InvalidProxy(ActionsError, ValueError):
    """A proxy setting cannot be used."""


class InvalidCertificates(ActionsError, ValueError):
    """The extra CA certificates cannot be read."""


class VaultError(ActionsError):
    """The vault did not hand out the secret."""


class ClientClosed(ActionsError):
    """The client was closed while, or before, it was used."""


class CallError(ActionsError):
    """A call that did not end well: ``method`` and ``url`` (redacted) say which."""

    def __init__(self, method: str, url: str, reason: str) -> None:
        self.method = method
        self.url = redact_url(url)
        self.reason = reason
        super().__init__(f"{method} {self.url}: {reason}")


class ConnectionFailed(CallError):
    """There was no connection, or it broke before the answer was whole."""

    transient = True


class RequestNotSent(CallError):
    """HTTP cannot carry the request: an address or a header, often a token that the service gave,
    holds what is not allowed there."""


class CallTimeout(CallError):
    """The call, its retries included, took longer than it may."""

    transient = True


class MalformedResponse(CallError):
    """The status was a success but the body is empty, cut short or not what was agreed."""

    transient = True


class UnexpectedResult(CallError):
    """The answer is well formed but not usable, for example two scale sets of one name."""


class RunnerGroupNotFound(UnexpectedResult):
    """No runner group of that name is visible to this config URL."""


class ActionsApiError(CallError):
    """The service answered with an error.

    ``type_name`` and ``message`` are the service's own words, ``activity_id`` and ``request_id``
    what GitHub's support asks for; all are ``""`` when the service did not say. ``retry_after`` is
    in seconds, None when not given.
    """

    def __init__(
        self,
        method: str,
        url: str,
        status: int,
        *,
        type_name: str = "",
        message: str = "",
        activity_id: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.type_name = type_name
        self.message = message
        self.activity_id = activity_id
        self.request_id = request_id
        self.retry_after = retry_after
        ids = ", ".join(
            f"{name} {value}"
            for name, value in (("ActivityId", activity_id), ("X-GitHub-Request-Id", request_id))
            if value
        )
        text = ": ".join(part for part in (_short(type_name), message) if part)
        reason = f"status {status}"
        if text:
            reason += f", {text}"
        if ids:
            reason += f" ({ids})"
        super().__init__(method, url, reason)


class BadRequest(ActionsApiError):
    """A 4xx without a name of its own."""


class Unauthorized(ActionsApiError):
    """401: the token or the credentials are not accepted."""


class MessageQueueTokenExpired(Unauthorized):
    """401 from the message queue: renew the session and try again once."""


class Forbidden(ActionsApiError):
    """403: the credentials are known but may not do this."""


class NotFound(ActionsApiError):
    """404 without a more exact name."""


class Conflict(ActionsApiError):
    """409 without a more exact name."""


class TooManyRequests(ActionsApiError):
    """429, or a 403 that asks to come back later."""

    transient = True


class ServerError(ActionsApiError):
    """5xx."""

    transient = True


class AgentExists(ActionsApiError):
    """A runner of that name is registered already."""


class AgentNotFound(ActionsApiError):
    """No such runner is registered."""


class JobStillRunning(ActionsApiError):
    """The runner holds a job and cannot be removed."""


class ScaleSetNotFound(ActionsApiError):
    """The service does not know the scale set: it was deleted or, unused for days, forgotten."""


class SessionConflict(ActionsApiError):
    """Another session holds the scale set's message queue."""


class SessionNotFound(ActionsApiError):
    """The message session is over: open a new one."""


_BY_TYPE_NAME: tuple[tuple[str, type[ActionsApiError]], ...] = (
    ("AgentExistsException", AgentExists),
    ("AgentNotFoundException", AgentNotFound),
    ("JobStillRunningException", JobStillRunning),
    ("RunnerScaleSetNotFoundException", ScaleSetNotFound),
    ("RunnerScaleSetSessionConflictException", SessionConflict),
    ("RunnerScaleSetSessionNotFoundException", SessionNotFound),
)
_BY_STATUS: dict[int, type[ActionsApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def error_from_response(
    request: HttpRequest,
    response: HttpResponse,
    *,
    now: datetime,
    secrets: tuple[str, ...] = (),
    by_status: dict[int, type[ActionsApiError]] | None = None,
) -> ActionsApiError:
    """The named error that an answer stands for.

    A ``typeName`` that is known wins over the status; ``by_status`` wins over the usual names of
    statuses. Whatever the service says, the ``secrets`` are cut out of its words.
    """
    type_name, message = _words(response)
    retry_after = _retry_after(response.header("retry-after"), now)
    kind = next((kind for name, kind in _BY_TYPE_NAME if name in type_name), None)
    if kind is None and response.status == 403 and retry_after is not None:
        kind = TooManyRequests
    if kind is None:
        kind = (by_status or {}).get(response.status) or _BY_STATUS.get(response.status)
    if kind is None:
        kind = ServerError if response.status >= 500 else BadRequest
    return kind(
        request.method,
        request.url,
        response.status,
        type_name=scrub(type_name, secrets)[:_MESSAGE_LIMIT],
        message=scrub(message, secrets)[:_MESSAGE_LIMIT],
        activity_id=scrub(response.header("activityid"), secrets),
        request_id=scrub(response.header("x-github-request-id"), secrets),
        retry_after=retry_after,
    )


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """The text with every one of the secrets replaced.

    What is shorter than 8 characters is no secret of GitHub's, and would only garble the text.
    """
    known = sorted({secret for secret in secrets if len(secret) >= 8}, key=len, reverse=True)
    if not known:
        return text
    return re.sub("|".join(map(re.escape, known)), REDACTED, text)


def without_byte_order_mark(body: bytes) -> bytes:
    """The body as JSON parsers want it."""
    return body.removeprefix(_BYTE_ORDER_MARK)


def _words(response: HttpResponse) -> tuple[str, str]:
    body = without_byte_order_mark(response.body).strip()
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    if isinstance(content, dict):
        type_name, message = content.get("typeName"), content.get("message")
        return (
            type_name if isinstance(type_name, str) else "",
            " ".join(message.split()) if isinstance(message, str) else "",
        )
    text = body.decode("utf-8", "replace")
    if text.startswith("<"):
        return "", "an HTML page instead of an answer of the service"
    return "", " ".join(text.split())


def _retry_after(value: str, now: datetime) -> float | None:
    """Seconds from a ``Retry-After`` header, which holds seconds or an HTTP date."""
    value = value.strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _short(type_name: str) -> str:
    """``GitHub.Services.AgentExistsException, GitHub.Services`` → ``AgentExistsException``."""
    return type_name.split(",", maxsplit=1)[0].rsplit(".", 1)[-1].strip()
