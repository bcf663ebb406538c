"""Errors in the words of a condition: stable, useful, and without secrets."""

from __future__ import annotations

import pytest

from arc_controller.actions import (
    BadRequest,
    CallTimeout,
    ConnectionFailed,
    Forbidden,
    InvalidConfigUrl,
    InvalidCredentials,
    MalformedResponse,
    NotFound,
    RunnerGroupNotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    VaultError,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.trouble import trouble_of
from arc_controller.controllers.turnstile import ServiceSlow
from arc_controller.runtime import errors as api

WHERE = ("GET", "https://service/path?token=s3cret")


@pytest.mark.parametrize(
    ("error", "reason", "by_hand"),
    [
        (InputError("CredentialsNotFound", "the secret ci/x does not exist"), None, True),
        (InvalidConfigUrl("no"), "InvalidConfigUrl", True),
        (InvalidCredentials("no"), "InvalidCredentials", True),
        (VaultError("no"), "VaultFailed", False),
        (RunnerGroupNotFound(*WHERE, "no runner group"), "RunnerGroupNotFound", True),
        (Unauthorized(*WHERE, 401), "Unauthorized", True),
        (Forbidden(*WHERE, 403, message="not yours"), "Forbidden", True),
        (ConnectionFailed(*WHERE, "refused"), "ServiceUnavailable", False),
        (ServerError(*WHERE, 503), "ServiceUnavailable", False),
        (BadRequest(*WHERE, 400, message="bad name"), "ServiceError", False),
        (api.Forbidden(api.Status(message="roles is forbidden", code=403)), "Forbidden", True),
        (api.Invalid(api.Status(message="spec.x: wrong", code=422)), "Invalid", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_trouble_has_a_reason_and_says_who_can_help(
    error: Exception, reason: str | None, by_hand: bool
) -> None:
    trouble = trouble_of(error)
    assert trouble is not None
    assert trouble.reason == (reason or "CredentialsNotFound")
    assert trouble.by_hand is by_hand
    assert trouble.message
    assert "s3cret" not in trouble.message


REST = "https://ghes.typo/api/v3"


@pytest.mark.parametrize(
    ("error", "reason", "sentence"),
    [
        (
            ConnectionFailed(
                "GET", f"{REST}/x?token=s3cret", "ghes.typo:443 cannot be reached: Name not known"
            ),
            "ServiceUnavailable",
            "the Actions service cannot be reached at https://ghes.typo: Name not known; "
            "are githubConfigUrl, proxy and network right?",
        ),
        (
            CallTimeout("GET", f"{REST}/x", "no answer within 120 s"),
            "ServiceUnavailable",
            "the Actions service cannot be reached at https://ghes.typo: no answer within 120 s; "
            "are githubConfigUrl, proxy and network right?",
        ),
        (
            ServerError("GET", f"{REST}/x", 503, message="busy 17"),
            "ServiceUnavailable",
            "the Actions service at https://ghes.typo answers with status 503",
        ),
        (
            TooManyRequests("GET", f"{REST}/x", 429, retry_after=3600),
            "RateLimited",
            "https://ghes.typo limits how often we may ask (status 429); "
            "this is tried again when it says so",
        ),
        (
            MalformedResponse("GET", f"{REST}/x", "status 200, the body is empty"),
            "ServiceUnavailable",
            "the answer of https://ghes.typo cannot be understood; is it the Actions service, and "
            "does no proxy or login page answer in its place?",
        ),
        *(
            (
                NotFound("POST", f"{REST}/{path}/actions/runners/registration-token", 404),
                "ConfigUrlNotFound",
                f"https://ghes.typo knows no {what}, or does not show it to the credentials in "
                "githubConfigSecret (404); is githubConfigUrl spelled right, and may the token, or "
                "the GitHub App, manage its runners?",
            )
            for path, what in (
                ("orgs/acne", "organization 'acne'"),
                ("repos/acme/ap%20p", "repository 'acme/ap p'"),
                ("enterprises/acne", "enterprise 'acne'"),
            )
        ),
        (
            NotFound("POST", f"{REST}/app/installations/42/access_tokens", 404),
            "ConfigUrlNotFound",
            "https://ghes.typo knows no installation 42 of the GitHub App (404); are "
            "github_app_installation_id and github_app_id in githubConfigSecret right, and is the "
            "app still installed?",
        ),
        (
            NotFound("POST", f"{REST}/actions/runner-registration", 404),
            "ConfigUrlNotFound",
            "https://ghes.typo does not answer as GitHub does (404 for "
            "/api/v3/actions/runner-registration); is the host in githubConfigUrl right?",
        ),
        (
            NotFound("GET", "https://service/agents/7", 404, message="no page"),
            "ServiceError",
            "the Actions service says no: no page",
        ),
    ],
)
def test_the_commonest_mistakes_are_told_with_place_and_cause(
    error: Exception, reason: str, sentence: str
) -> None:
    trouble = trouble_of(error)
    assert trouble is not None
    assert (trouble.reason, trouble.message) == (reason, sentence)


@pytest.mark.parametrize(
    "error",
    [
        api.Conflict(api.Status(code=409)),
        api.NotFound(api.Status(code=404)),
        api.AlreadyExists(api.Status(code=409)),
        api.ServerError(api.Status(code=500)),
        api.TooManyRequests(api.Status(code=429)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_passes_by_itself_is_no_trouble(error: Exception) -> None:
    assert trouble_of(error) is None


def test_the_sentence_stays_the_same_while_the_trouble_does() -> None:
    first, second = (
        trouble_of(BadRequest(*WHERE, 400, message="bad name", activity_id=id_, request_id=id_))
        for id_ in ("1", "2")
    )
    assert first == second


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (VaultError("vaultConfig.azureKeyVault is missing"), 30.0),
        (TooManyRequests(*WHERE, 429, retry_after=900.0), 900.0),
        (TooManyRequests(*WHERE, 429), 60.0),
        (TooManyRequests(*WHERE, 429, retry_after=1e9), 3600.0),
        (ServiceSlow("https://ghes takes more than 10 s to answer"), 10.0),
        (InputError("CredentialsNotFound", "the secret ci/x does not exist"), 60.0),
        (Unauthorized(*WHERE, 401), 10.0),
        (ServerError(*WHERE, 503), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_how_long_trouble_is_left_alone(error: Exception, seconds: float | None) -> None:
    trouble = trouble_of(error)
    assert trouble is not None
    assert trouble.retry == seconds
