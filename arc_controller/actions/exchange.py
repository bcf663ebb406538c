"""One call over the transport: timeouts, redirects, retries, and errors with a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from .errors import (
    ActionsApiError,
    CallTimeout,
    MalformedResponse,
    error_from_response,
    is_transient,
    without_byte_order_mark,
)
from .http import HttpRequest, HttpResponse, HttpTransport
from .retries import RetryPolicy, with_retries

T = TypeVar("T")

_REDIRECTS = frozenset({301, 302, 307, 308})
_MAX_REDIRECTS = 3


class Exchange:
    """Sends requests and reads answers. Knows nothing of what is asked."""

    def __init__(
        self,
        transport: HttpTransport,
        *,
        user_agent: str,
        policy: RetryPolicy,
        now: Callable[[], datetime],
        random: Random,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._transport = transport
        self._user_agent = user_agent
        self._policy = policy
        self._now = now
        self._random = random
        self._secrets = secrets

    async def call(
        self,
        method: str,
        url: str,
        *,
        authorization: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        retry_on: frozenset[int] = frozenset(),
        by_status: dict[int, type[ActionsApiError]] | None = None,
        read: Callable[[HttpResponse], T],
    ) -> T:
        """Make one call, retried as the policy says, and ``read`` its answer.

        ``authorization`` is the whole header. Statuses in ``retry_on`` are retried beside the
        usual ones. A body that ``read`` cannot decode is :class:`MalformedResponse`; it is retried
        for GET only, since elsewhere the call did take effect.

        Raises :class:`CallError` in one of its kinds. When cancelled, the call may or may not have
        taken effect.
        """
        sent = {
            "accept": "application/json",
            "user-agent": self._user_agent,
            "authorization": authorization,
            **(headers or {}),
        }
        content = b""
        if body is not None:
            content = msgspec.json.encode(body)
            sent["content-type"] = "application/json"
        request = HttpRequest(method, url, sent, content)
        secrets = (*self._secrets, authorization.partition(" ")[2])

        async def attempt() -> T:
            response = await self._send(request)
            if response.status >= 300:
                raise error_from_response(
                    request, response, now=self._now(), secrets=secrets, by_status=by_status
                )
            return _read(request, response, read)

        def retry(error: BaseException) -> bool:
            if isinstance(error, MalformedResponse):
                return method == "GET"
            return is_transient(error) or (
                isinstance(error, ActionsApiError) and error.status in retry_on
            )

        # One timeout a call is enough until it has failed once: it nearly never does.
        deadline = asyncio.get_running_loop().time() + self._policy.total_timeout
        try:
            return await attempt()
        except Exception as error:
            if not retry(error):
                raise
            first_failure = error
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await with_retries(
                    attempt,
                    first_failure,
                    deadline=deadline,
                    policy=self._policy,
                    retry=retry,
                    random=self._random,
                )
        except TimeoutError:
            if not limit.expired():
                raise
        raise CallTimeout(
            method, url, f"no success within {self._policy.total_timeout:.0f} s, retries included"
        )

    async def _send(self, request: HttpRequest) -> HttpResponse:
        seconds = min(self._policy.attempt_timeout, self._policy.total_timeout)
        try:
            async with asyncio.timeout(seconds) as limit:
                response = await self._transport.send(request)
                for _ in range(_MAX_REDIRECTS):
                    target = _redirect(request, response)
                    if target is None:
                        break
                    again = HttpRequest(request.method, target, request.headers, request.body)
                    response = await self._transport.send(again)
                return response
        except TimeoutError:
            if not limit.expired():
                raise
        raise CallTimeout(request.method, request.url, f"no answer within {seconds:.0f} s")


def _redirect(request: HttpRequest, response: HttpResponse) -> str | None:
    """Where to ask again, or None. GitHub redirects what was renamed; the token stays at home."""
    location = response.header("location")
    if response.status not in _REDIRECTS or not location:
        return None
    target = urljoin(request.url, location)
    here, there = urlsplit(request.url), urlsplit(target)
    return target if (here.scheme, here.netloc) == (there.scheme, there.netloc) else None


def _read(request: HttpRequest, response: HttpResponse, read: Callable[[HttpResponse], T]) -> T:
    response.body = without_byte_order_mark(response.body)
    try:
        return read(response)
    except msgspec.DecodeError as error:
        reason = (
            "the body is empty"
            if not response.body.strip()
            else f"the body is not what was agreed: {error}"
        )
    except UnicodeDecodeError:
        reason = "the body is not UTF-8"
    # Not chained: the decoder's error holds on to nothing, but its traceback holds the body.
    raise MalformedResponse(request.method, request.url, f"status {response.status}, {reason}")
