"""What the server says becomes an error with a name."""

from __future__ import annotations

import msgspec
import pytest

from arc_controller.runtime import errors
from arc_controller.runtime.errors import ApiError, error_from_response


def refusal(code: int, reason: str, message: str = "", **details: object) -> bytes:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return msgspec.json.encode({**status, "message": message, "details": details})


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (418, "", ApiError),
    ],
)
def test_every_refusal_has_its_kind(code: int, reason: str, kind: type[ApiError]) -> None:
    error = error_from_response(code, refusal(code, reason, "no"), "GET /x")
    assert type(error) is kind
    assert (error.code, error.reason, error.message) == (code, reason, "no")
    assert str(error) == "GET /x: no"


def test_an_object_that_exists_is_no_conflict() -> None:
    """A conflict asks for another look; an existing object does not go away by looking."""
    assert not issubclass(errors.AlreadyExists, errors.Conflict)


def test_what_is_not_a_status_is_quoted_shortly() -> None:
    error = error_from_response(502, b"<html>bad gateway</html>" + b"x" * 1000, "GET /x")
    assert isinstance(error, errors.ServerError)
    assert error.message.startswith("<html>bad gateway")
    assert len(error.message) == 300


DEEP = b'{"details":' + b"[" * 5000


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"text"', b"\xff\xfe", b"{", DEEP])
def test_any_body_makes_an_error(body: bytes) -> None:
    error = error_from_response(503, body)
    assert isinstance(error, errors.ServerError)
    assert str(error)


def test_a_status_without_a_message_says_what_the_code_was() -> None:
    assert str(error_from_response(404, b"{}")) == "the API server answered 404"


def test_the_causes_of_an_invalid_object_name_its_fields() -> None:
    cause = {"field": "spec.x", "message": "must be set", "reason": "FieldValueRequired"}
    error = error_from_response(422, refusal(422, "Invalid", causes=[cause]))
    assert error.status.details is not None
    assert error.status.details.causes[0].field == "spec.x"


def test_how_long_to_wait_comes_from_the_body_or_else_from_the_header() -> None:
    def seconds(body: bytes, header: str) -> float:
        error = error_from_response(429, body, retry_after=header)
        assert isinstance(error, errors.TooManyRequests)
        return error.retry_after

    assert seconds(refusal(429, "TooManyRequests", retryAfterSeconds=3), "9") == 3
    assert seconds(refusal(429, "TooManyRequests"), "9") == 9
    assert seconds(b"slow down", "9") == 9
    assert seconds(b"", "Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert seconds(b"", "") == 0


def test_an_exceeded_quota_is_told_from_a_missing_right() -> None:
    quota = error_from_response(403, refusal(403, "Forbidden", "pods: exceeded quota: q"))
    right = error_from_response(403, refusal(403, "Forbidden", "pods is forbidden"))
    assert isinstance(quota, errors.Forbidden)
    assert isinstance(right, errors.Forbidden)
    assert (quota.is_quota_exceeded, right.is_quota_exceeded) == (True, False)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("9" * 5000, 86_400), ("-1", 0), ("²", 0), ("soon", 0)]
)
def test_whatever_the_header_says_is_a_number_of_seconds(header: str, seconds: float) -> None:
    """Python reads no integer of more than 4300 digits."""
    error = error_from_response(429, b"", retry_after=header)
    assert isinstance(error, errors.TooManyRequests)
    assert error.retry_after == seconds


def test_how_long_to_wait_is_never_negative_and_never_more_than_a_day() -> None:
    def retry_after(seconds: int) -> float:
        error = error_from_response(429, refusal(429, "", retryAfterSeconds=seconds))
        assert isinstance(error, errors.TooManyRequests)
        return error.retry_after

    assert [retry_after(seconds) for seconds in (-5, 5, 2**62)] == [0, 5, 86_400]


def test_the_code_of_the_answer_counts_and_not_what_its_body_says() -> None:
    assert isinstance(error_from_response(404, refusal(200, "")), errors.NotFound)
