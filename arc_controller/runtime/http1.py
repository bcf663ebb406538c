"""HTTP/1.1 messages, as far as calls to an API server need them: no sockets here.

RFC 9112. A client library builds some twenty objects for a request of a few hundred bytes; this
costs a tenth of that, which is what a manager with a thousand runners lives on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from multidict import CIMultiDict

from arc_controller.runtime.transport import Response

LONGEST_HEAD: Final = 64 * 1024
LONGEST_LINE: Final = 4 * 1024
"""Of a chunk's size with its extensions, and of a trailer."""

_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?", re.ASCII)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD: Final = re.compile(rf"\r\n({_TOKEN.pattern}):[ \t]*([^\r\n]*)")
_LONGEST_LENGTH: Final = 18
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")
_TARGET: Final = re.compile(r"[!-~]+")
_BODILESS: Final = frozenset({204, 304})


class NotHttp(Exception):
    """What came is no answer; the text says why."""


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Raises `ValueError` for what no header may hold; the value is not quoted."""
    lines = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or any(char in value for char in "\r\n\0"):
            raise ValueError(f"header {name!r} cannot be sent: a line break or the like is in it")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


def request_bytes(method: str, target: str, headers: bytes, body: bytes | None) -> bytes:
    """A whole request; `headers` are lines from `header_lines`, without the length.

    Raises `ValueError` for a target that is not percent-encoded.
    """
    if not _TARGET.fullmatch(target):
        raise ValueError(f"the path {target!r} has to be percent-encoded")
    line = f"{method} {target} HTTP/1.1\r\n".encode("ascii")
    if body is None:
        # Without a length, a server would have to guess that a POST has no body.
        length = b"" if method in ("GET", "DELETE") else b"Content-Length: 0\r\n"
        return b"%b%b%b\r\n" % (line, headers, length)
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (line, headers, len(body), body)


class AnswerReader:
    """Reads the answer to one request, however its bytes are cut. Interim answers are skipped.

    `feed` and `end` raise `NotHttp`; after that, or after an answer, the reader is used up.
    """

    __slots__ = (
        "_after_chunk",
        "_headers",
        "_in_trailers",
        "_missing",
        "_parts",
        "_read_body",
        "_rest",
        "_status",
        "has_begun",
        "is_reusable",
    )

    def __init__(self) -> None:
        self.has_begun = False
        """Whether anything came."""
        self.is_reusable = False
        """After an answer: whether the connection may be used for another request."""
        self._status = 0
        self._rest = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._after_chunk = self._in_trailers = False

    def feed(self, data: bytes) -> Response | None:
        """More bytes; the answer, when it is whole."""
        self.has_begun = True
        if self._rest:
            data, self._rest = self._rest + data, b""
        while not self._status:
            end = data.find(b"\r\n\r\n")
            if max(end, 0 if end >= 0 else len(data)) > LONGEST_HEAD:
                raise NotHttp(f"its head is longer than {LONGEST_HEAD} bytes")
            if end < 0:
                self._rest = data
                return None
            self._read_head(data[:end])
            data = data[end + 4 :]
        return self._read_body(data)

    def end(self) -> Response:
        """The connection ended; the answer, if that is what ends it."""
        if not self._status or self._read_body != self._read_until_end:
            raise NotHttp("it is cut short")
        return self._response()

    def _read_head(self, head: bytes) -> None:
        text = head.decode("latin-1")
        match = _STATUS_LINE.match(text)
        if match is None:
            raise NotHttp(f"bad status line {text[:60]!r}")
        headers, at = CIMultiDict[str](), match.end()
        while at < len(text):
            field = _FIELD.match(text, at)
            if field is None:
                raise NotHttp(f"bad header {text[at : at + 60]!r}")
            headers.add(field[1], field[2].rstrip(" \t"))
            at = field.end()
        status = int(match[2])
        if status == 101:
            raise NotHttp("it speaks another protocol now, which nobody asked for")
        if status < 200:
            return
        self._status, self._headers = status, headers
        keeps = match[1] == "1" and "close" not in headers.get("Connection", "").lower()
        self._frame(keeps)

    def _frame(self, keeps: bool) -> None:
        """Where the body ends: RFC 9112, section 6.3."""
        headers = self._headers
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NotHttp("it is compressed, which nobody asked for")
        coding = headers.get("Transfer-Encoding")
        lengths = set(headers.getall("Content-Length", ()))
        self.is_reusable = keeps
        self._read_body = self._read_length
        if self._status in _BODILESS:
            return
        if coding is not None:
            if coding.lower() != "chunked" or lengths:
                raise NotHttp("it is unclear where it ends")
            self._read_body = self._read_chunks
        elif lengths:
            length = lengths.pop()
            is_number = length.isascii() and length.isdecimal() and len(length) <= _LONGEST_LENGTH
            if lengths or not is_number:
                raise NotHttp(f"bad length {length[:30]!r}")
            self._missing = int(length)
        else:
            self.is_reusable = False
            self._read_body = self._read_until_end

    def _read_length(self, data: bytes) -> Response | None:
        self._missing -= len(data)
        if self._missing < 0:
            data = self._cut(data, len(data) + self._missing)
        self._parts.append(data)
        return None if self._missing > 0 else self._response()

    def _read_until_end(self, data: bytes) -> Response | None:
        self._parts.append(data)
        return None

    def _read_chunks(self, data: bytes) -> Response | None:
        at = 0
        while True:
            if self._missing:
                piece = data[at : at + self._missing]
                at += len(piece)
                self._missing -= len(piece)
                self._parts.append(piece)
                if self._missing:
                    return None
                self._after_chunk = True
            end = data.find(b"\r\n", at)
            if (end if end >= 0 else len(data)) - at > LONGEST_LINE:
                raise NotHttp("a line between its chunks is too long")
            if end < 0:
                self._rest = data[at:]
                return None
            line, at = data[at:end], end + 2
            if self._after_chunk:
                if line:
                    raise NotHttp("a chunk of it is longer than it says")
                self._after_chunk = False
            elif not self._in_trailers:
                size = line.partition(b";")[0].strip(b" \t")
                if not _CHUNK_SIZE.fullmatch(size):
                    raise NotHttp(f"bad chunk size {size[:30]!r}")
                self._missing = int(size, 16)
                self._in_trailers = not self._missing
            elif not line:
                self._cut(data, at)
                return self._response()

    def _cut(self, data: bytes, end: int) -> bytes:
        """What belongs to the answer. What is behind it answers nothing that was asked."""
        if len(data) > end:
            self.is_reusable = False
        return data[:end]

    def _response(self) -> Response:
        return Response(self._status, b"".join(self._parts), self._headers)
