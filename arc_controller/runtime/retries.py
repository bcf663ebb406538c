"""Which requests may be sent again, and when."""

from __future__ import annotations

import random as random_
from dataclasses import dataclass

import aiohttp

JSON_PATCH = "application/json-patch+json"

LONGEST_REASON = 300

_PASSING = frozenset({500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how many seconds, a call is sent again.

    `delay` is what the server asked for with ``Retry-After`` (not more than `cap`), or a jittered
    exponential backoff from `base`.
    """

    refused: int = 8
    """Retries after 429, or 5xx where the call may be repeated."""
    broken: int = 3
    """Retries after a connection that could not be made or broke."""
    base: float = 0.1
    cap: float = 30.0

    def delay(self, attempt: int, retry_after: str, random: random_.Random) -> float:
        if retry_after.isascii() and retry_after.isdecimal():
            return min(self.cap, float(retry_after)) + random.uniform(0, self.base)
        return min(self.cap, self.base * 2.0**attempt) * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as far as it matters for trying it again."""

    method: str
    path: str
    content_type: str

    def may_repeat(self, status: int, retry_after: str) -> bool:
        """Whether a call that was answered like this may be sent again without harm."""
        if status == 429:
            return True
        if status not in _PASSING or self.method == "POST" or self.content_type == JSON_PATCH:
            return False
        return self.method == "GET" or bool(retry_after)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class NoAnswer(Exception):
    """A request that got no answer; `unsent` if the server has surely not seen it.

    It says all that aiohttp's error says but URLs, which may hold a proxy's password: raise it (and
    what is made of it) ``from None``.
    """

    def __init__(self, error: Exception) -> None:
        self.unsent = isinstance(
            error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
        ) and not isinstance(error, aiohttp.ClientSSLError)
        if isinstance(error, TimeoutError):
            text = "no connection in time" if self.unsent else "no answer in time"
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = getattr(error.certificate_error, "verify_message", error.certificate_error)
            text = (
                f"the certificate of {error.host}:{error.port} is not accepted: {reason} "
                "(CERTIFICATE_VERIFY_FAILED)"
            )
        elif isinstance(error, aiohttp.ClientHttpProxyError):
            text = f"the proxy answered {error.status} {error.message}"
        elif isinstance(error, aiohttp.ClientResponseError):
            text = f"the answer is no HTTP: {error.message}"
        else:
            text = str(error) or type(error).__name__
        super().__init__(" ".join(text.split())[:LONGEST_REASON])
