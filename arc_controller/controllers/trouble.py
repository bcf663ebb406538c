"""What went wrong, in the words of a condition: one CamelCase reason and one sentence.

A sentence must stay the same while the trouble does (no request ids, no times): it is written into
a status, and each new wording would be one more write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import unquote, urlsplit

from arc_controller.actions import (
    ActionsApiError,
    ActionsError,
    CallError,
    Forbidden,
    InvalidCertificates,
    InvalidConfigUrl,
    InvalidCredentials,
    InvalidProxy,
    MalformedResponse,
    NotFound,
    RunnerGroupNotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    VaultError,
    is_transient,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.turnstile import SLOW, ServiceSlow
from arc_controller.runtime import errors as api
from arc_controller.runtime.objects import KubeObject

REPAIRED_BY_HAND = 60.0
"""Seconds after which something that only a person can repair is looked at again."""
REFUSED_RETRY = 10.0
"""Seconds after which credentials that the service refused are tried, or looked at, again."""
VAULT_RETRY = 30.0
"""Seconds between two tries of a vault: its mistakes are as often of the spec as of the vault."""
LIMITED_RETRY, LONGEST_LIMIT = 60.0, 3600.0
"""Seconds that the service is left alone when it says that it is asked too much: if it does not say
for how long, and at most."""

GIVE_UP_AFTER = timedelta(minutes=10)
"""How long a deletion waits for credentials that are gone. Its namespace waits with it, and a
secret that was deleted too will not come back; the service forgets what is idle by itself."""
UNREACHABLE_GIVE_UP_AFTER = timedelta(hours=1)
"""The same for a service that is away: it may never come back."""

_SPEC_ERRORS: tuple[tuple[type[ActionsError], str], ...] = (
    (InvalidConfigUrl, "InvalidConfigUrl"),
    (InvalidCredentials, "InvalidCredentials"),
    (InvalidProxy, "InvalidProxy"),
    (InvalidCertificates, "InvalidCertificates"),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """`by_hand`: waiting alone does not help, somebody has to change something. `pause` is after
    how many seconds it is worth another try, if that is known."""

    reason: str
    message: str
    by_hand: bool
    pause: float | None = None

    @property
    def retry(self) -> float | None:
        """Seconds until another try; None leaves that to the queue's backoff."""
        if self.pause is not None or not self.by_hand:
            return self.pause
        return REFUSED_RETRY if self.reason == UNAUTHORIZED.reason else REPAIRED_BY_HAND


UNAUTHORIZED = Trouble(
    "Unauthorized",
    "the service does not accept the credentials in githubConfigSecret; "
    "are they expired or revoked?",
    by_hand=True,
)


def trouble_of(error: Exception) -> Trouble | None:
    """What to tell the user of an error; None for one that says nothing to them."""
    if isinstance(error, InputError):
        return Trouble(error.reason, str(error), by_hand=True)
    if isinstance(error, ActionsError):
        return _service_trouble(error)
    if isinstance(error, api.Conflict | api.NotFound | api.AlreadyExists):
        return None
    if isinstance(error, api.Forbidden | api.Invalid | api.BadRequest):
        return Trouble(type(error).__name__, f"the API server says no: {error}", by_hand=True)
    return None


def refusal_reason(refusal: api.ApiError) -> str:
    """The reason to give for an object that the API server does not want; a quota has its own."""
    if isinstance(refusal, api.Forbidden) and refusal.is_quota_exceeded:
        return "QuotaExceeded"
    trouble = trouble_of(refusal)
    return trouble.reason if trouble is not None else type(refusal).__name__


def is_hopeless(error: Exception, obj: KubeObject, now: datetime) -> bool:
    """Whether the deletion of `obj` has waited long enough for the error to be repaired, or for a
    service that is away to come back."""
    trouble, since = trouble_of(error), obj.metadata.deletion_timestamp
    if trouble is None or since is None:
        return False
    return now - since >= (GIVE_UP_AFTER if trouble.by_hand else UNREACHABLE_GIVE_UP_AFTER)


def _service_trouble(error: ActionsError) -> Trouble:
    for kind, reason in _SPEC_ERRORS:
        if isinstance(error, kind):
            return Trouble(reason, str(error), by_hand=True)
    if isinstance(error, VaultError):
        return Trouble("VaultFailed", str(error), by_hand=False, pause=VAULT_RETRY)
    if isinstance(error, RunnerGroupNotFound):
        return Trouble("RunnerGroupNotFound", error.reason, by_hand=True)
    if isinstance(error, Unauthorized):
        return UNAUTHORIZED
    if isinstance(error, Forbidden):
        return Trouble(
            "Forbidden",
            "the credentials in githubConfigSecret may not manage runners of githubConfigUrl: "
            f"{_words(error)}",
            by_hand=True,
        )
    if isinstance(error, NotFound) and (unknown := _unknown_place(error)):
        return Trouble("ConfigUrlNotFound", unknown, by_hand=True)
    if isinstance(error, ServiceSlow):
        return Trouble("ServiceSlow", str(error), by_hand=False, pause=SLOW)
    if isinstance(error, TooManyRequests):
        pause = limited_for(error)
        return Trouble(*_unavailable(error), by_hand=False, pause=pause)
    if is_transient(error):
        return Trouble(*_unavailable(error), by_hand=False)
    return Trouble("ServiceError", f"the Actions service says no: {_words(error)}", by_hand=False)


def limited_for(error: TooManyRequests) -> float:
    """Seconds for which the service shall not be asked."""
    asked = LIMITED_RETRY if error.retry_after is None else error.retry_after
    return min(asked, LONGEST_LIMIT)


_PLACE = re.compile(
    r"/(?:(?P<enterprise>enterprises)|(?P<organization>orgs)|(?P<repository>repos))/(?P<name>.+)"
    r"/actions/runners/registration-token$"
)
_INSTALLATION = re.compile(r"/app/installations/(?P<id>\d+)/access_tokens$")


def _unknown_place(error: NotFound) -> str:
    """What a 404 while signing in means; empty for any other."""
    origin, path = _origin(error), urlsplit(error.url).path
    if installation := _INSTALLATION.search(path):
        return (
            f"{origin} knows no installation {installation['id']} of the GitHub App (404); "
            "are github_app_installation_id and github_app_id in githubConfigSecret right, "
            "and is the app still installed?"
        )
    if place := _PLACE.search(path):
        return (
            f"{origin} knows no {_kind(place)} {unquote(place['name'])!r}, or "
            "does not show it to the credentials in githubConfigSecret (404); is githubConfigUrl "
            "spelled right, and may the token, or the GitHub App, manage its runners?"
        )
    if path.endswith("/actions/runner-registration"):
        return (
            f"{origin} does not answer as GitHub does (404 for {path}); "
            "is the host in githubConfigUrl right?"
        )
    return ""


def _kind(place: re.Match[str]) -> str:
    return next(kind for kind in ("enterprise", "organization", "repository") if place[kind])


def _unavailable(error: ActionsError) -> tuple[str, str]:
    """Reason and sentence for what passes by itself, with the host and what it did."""
    if isinstance(error, TooManyRequests):
        return "RateLimited", (
            f"{_origin(error)} limits how often we may ask (status {error.status}); "
            "this is tried again when it says so"
        )
    if isinstance(error, ServerError):
        return "ServiceUnavailable", (
            f"the Actions service at {_origin(error)} answers with status {error.status}"
        )
    if isinstance(error, MalformedResponse):
        return "ServiceUnavailable", (
            f"the answer of {_origin(error)} cannot be understood; is it the Actions service, and "
            "does no proxy or login page answer in its place?"
        )
    if isinstance(error, CallError):
        cause = error.reason.removeprefix(f"{urlsplit(error.url).hostname}:")
        cause = re.sub(r"^\d+ cannot be reached: ", "", cause)
        return "ServiceUnavailable", (
            f"the Actions service cannot be reached at {_origin(error)}: {cause}; "
            "are githubConfigUrl, proxy and network right?"
        )
    return "ServiceUnavailable", "the Actions service cannot be reached"


def _origin(error: CallError) -> str:
    parts = urlsplit(error.url)
    return f"{parts.scheme}://{parts.netloc}"


def _words(error: ActionsError) -> str:
    if isinstance(error, ActionsApiError):
        return error.message or f"status {error.status}"
    return error.reason if isinstance(error, CallError) else str(error)
