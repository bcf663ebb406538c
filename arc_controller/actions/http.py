"""Bytes out, bytes in: what the client asks of a network, so that a simulation can be one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

REDACTED = "[redacted]"

# What a URL may show of its query: none of these ever holds a secret.
_SHOWN_QUERY = frozenset(
    {"api-version", "name", "runnerGroupId", "groupName", "agentName", "lastMessageId"}
)


class HttpRequest:
    """One request. ``url`` is absolute and already percent-encoded."""

    __slots__ = ("body", "headers", "method", "url")

    def __init__(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.method = method
        self.url = url
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.body = body

    def header(self, name: str, default: str = "") -> str:
        """The value of a header, whatever the case of its name."""
        return self.headers.get(name.lower(), default)

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {redact_url(self.url)}, {len(self.body)} bytes)"


class HttpResponse:
    """One whole response: the body has been read."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.body = body

    def header(self, name: str, default: str = "") -> str:
        """The value of a header, whatever the case of its name."""
        return self.headers.get(name.lower(), default)

    def __repr__(self) -> str:
        return f"HttpResponse({self.status}, {len(self.body)} bytes)"


class HttpTransport(Protocol):
    """A network. The default one is :class:`~arc_controller.actions.network.AiohttpTransport`."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send the request and read the whole answer, whatever its status; follow no redirect.

        Raises :class:`~arc_controller.actions.ConnectionFailed` when there is no whole answer.
        Cancelling gives up the exchange; the request may or may not have taken effect.
        """
        ...

    async def aclose(self) -> None:
        """Close what is open. May be called more than once."""
        ...


def redact_url(url: str) -> str:
    """The URL without credentials and without query values that could be secret."""
    try:
        parts = urlsplit(url)
        netloc = parts.netloc.rpartition("@")[2]
        query = urlencode(
            [
                (k, v if k in _SHOWN_QUERY else REDACTED)
                for k, v in parse_qsl(parts.query, keep_blank_values=True)
            ],
            safe="[]",
        )
    except ValueError:
        return re.sub(r"//[^/@]*@", "//", url)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))
