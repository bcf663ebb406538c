"""Reading HTTP/1.1 answers and writing requests, without a socket."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.runtime.http1 import AnswerReader, NotHttp, header_lines, request_bytes
from arc_controller.runtime.transport import Response

FIELDS = b"Content-Type: application/json\r\nRetry-After:  7 \r\n"


def read(data: bytes, cuts: list[int] | None = None) -> tuple[AnswerReader, Response | None]:
    """What a reader makes of the bytes when they come cut at these places."""
    reader = AnswerReader()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for begin, end in pairwise(places):
        if begin < end and (answer := reader.feed(data[begin:end])) is not None:
            return reader, answer
    return reader, None


def with_length(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status.encode(),
        FIELDS,
        len(body),
        body,
    )


def chunked(parts: list[bytes], trailers: bytes = b"") -> bytes:
    chunks = b"".join(b"%x;note=1\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (
        FIELDS,
        chunks,
        trailers,
    )


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


@given(st.binary(max_size=300), CUTS)
def test_an_answer_with_a_length_is_the_same_however_it_is_cut(
    body: bytes, cuts: list[int]
) -> None:
    reader, answer = read(with_length(body), cuts)
    assert answer is not None
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (200, body, "7")
    assert reader.is_reusable


@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from([b"", b"X-Sum: 1\r\n"]), CUTS)
def test_a_chunked_answer_is_the_same_however_it_is_cut(
    parts: list[bytes], trailers: bytes, cuts: list[int]
) -> None:
    reader, answer = read(chunked(parts, trailers), cuts)
    assert answer is not None
    assert answer.body == b"".join(parts)
    assert reader.is_reusable


@given(st.binary(max_size=400), CUTS)
def test_whatever_comes_is_an_answer_or_unfinished_or_no_http(data: bytes, cuts: list[int]) -> None:
    for head in (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        with suppress(NotHttp):
            reader, answer = read(head + data, cuts)
            assert (answer or reader.end()).status >= 200


def test_interim_answers_are_skipped() -> None:
    _, answer = read(
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + with_length(b"x"), [5, 60]
    )
    assert answer is not None
    assert answer.body == b"x"


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_some_answers_have_no_body_whatever_they_say(status: str) -> None:
    reader, answer = read(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\n" % status.encode())
    assert answer is not None
    assert answer.body == b""
    assert reader.is_reusable


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader, answer = read(b"HTTP/1.1 200 OK\r\n\r\nab", [18])
    assert answer is None
    assert reader.feed(b"c") is None
    assert reader.end().body == b"abc"
    assert not reader.is_reusable


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
        with_length(b"x") + b"HTTP/1.1 200 OK\r\n",
        chunked([b"x"]) + b"y",
    ],
)
def test_a_connection_is_not_used_again_when_it_ends_or_says_more_than_was_asked(
    data: bytes,
) -> None:
    reader, answer = read(data)
    assert answer is not None
    assert answer.body == b"x"
    assert not reader.is_reusable


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"garbage\r\n\r\n", "bad status line"),
        (b"HTTP/2 200\r\n\r\n", "bad status line"),
        (b"HTTP/1.1 200 OK\nX: y\r\n\r\n", "bad"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "bad header"),
        (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "bad header"),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", "bad header"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "bad length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "bad length"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "unclear where it ends",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "unclear where it ends"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "compressed"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "its head is longer"),
        (chunked([])[:-5] + b"-1\r\n", "bad chunk size"),
        (chunked([])[:-5] + b"1" * 5000, "a line between its chunks"),
        (chunked([])[:-5] + b"1\r\nxy\r\n", "longer than it says"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(data: bytes, why: str) -> None:
    with pytest.raises(NotHttp, match=why):
        read(data)


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 200", with_length(b"abc")[:-1], chunked([b"abc"])[:-2]]
)
def test_an_answer_that_is_cut_short_is_none(data: bytes) -> None:
    reader, answer = read(data)
    assert answer is None
    with pytest.raises(NotHttp, match="cut short"):
        reader.end()


def test_a_request_says_how_long_its_body_is() -> None:
    headers = header_lines([("Host", "h"), ("Accept", "*/*")])
    assert request_bytes("GET", "/a?b=c", headers, None) == (
        b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n"
    )
    assert request_bytes("POST", "/a", b"", b"{}").endswith(b"Content-Length: 2\r\n\r\n{}")
    assert request_bytes("POST", "/a", b"", None).endswith(b"Content-Length: 0\r\n\r\n")


@pytest.mark.parametrize("target", ["", "/a b", "/a\r\nX: y", "/ä", "/a\x00"])
def test_a_target_that_is_not_encoded_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="percent-encoded"):
        request_bytes("GET", target, b"", None)


@pytest.mark.parametrize(
    ("name", "value"), [("X", "a\r\nY: b"), ("X", "a\0"), ("X\n", "a"), ("", "")]
)
def test_a_header_that_would_be_two_is_refused_and_not_quoted(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent") as caught:
        header_lines([(name, value)])
    assert "Y: b" not in str(caught.value)
