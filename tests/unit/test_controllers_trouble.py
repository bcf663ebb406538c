"""Errors in the words of a condition: stable, useful, and without secrets."""

from __future__ import annotations

import pytest

from arc_controller.actions import (
    BadRequest,
    ConnectionFailed,
    Forbidden,
    InvalidConfigUrl,
    InvalidCredentials,
    RunnerGroupNotFound,
    ServerError,
    Unauthorized,
    VaultError,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.trouble import trouble_of
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
