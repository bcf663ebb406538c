"""The HTTP transport: one pool of connections for calls, one for watches.

How to reach the server and how to prove who asks comes from a `Connection`: the official client's
configuration (`officialclient`) or a pod's own token (`incluster`).
"""

from __future__ import annotations

import asyncio
import random as random_
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
import structlog
from multidict import CIMultiDict
from yarl import URL

import arc_controller
from arc_controller.runtime import sessions
from arc_controller.runtime.errors import TransportError, error_from_response
from arc_controller.runtime.ratelimit import TokenBucket
from arc_controller.runtime.retries import Call, NoAnswer, RetryPolicy
from arc_controller.runtime.transport import Response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from arc_controller.runtime.httpmetrics import TransportMetrics

CALL_SECONDS = 60.0
"""One attempt of a call takes no longer."""
CONNECT_SECONDS = 10.0
CALL_CONNECTIONS = 100
MOST_PREPARED = 16
URGENT = "/apis/coordination.k8s.io/"
"""Leases: a leader that waited behind its own burst would lose its office."""

_log = structlog.get_logger(__name__)


class Connection(Protocol):
    """Where the API server is and how to prove who asks."""

    @property
    def url(self) -> str:
        """``https://host:port``, with a path if the server is behind one; no slash at the end."""

    @property
    def options(self) -> Mapping[str, Any]:
        """More arguments for `aiohttp.ClientSession.request`: proxy, TLS server name."""

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        """A new session with that many connections at most (0: any number)."""

    async def authorization(self) -> str:
        """The value of the ``Authorization`` header; empty for none. Called for every request."""

    async def renew(self) -> bool:
        """The server refused the credentials: get others. False if there are none to get."""


@dataclass(frozen=True, slots=True)
class PlainConnection:
    """A server without TLS and without credentials, such as ``kubectl proxy``."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=sessions.connector(connections), **sessions.session_options()
        )

    async def authorization(self) -> str:
        return ""

    async def renew(self) -> bool:
        return False


class HttpTransport:
    """`Transport` over HTTP/1.1 with keep-alive connections.

    - 429 is answered by waiting and asking again, whatever the method: the server did nothing.
    - 500, 502, 503 and 504 are repeated for GET; for PATCH, PUT and DELETE only when the server
      says ``Retry-After``, and for POST never: the first one may have taken effect.
    - A connection that could not be made is tried again; one that broke only for GET. Otherwise
      `TransportError` leaves the question open whether a write took effect. (A kept connection
      that the server closed is replaced by aiohttp for PUT and DELETE, too: both are idempotent.)
    - 401 is answered once by renewing the credentials.
    - At most `qps` requests a second leave, after a burst of `burst` (``qps=0``: no limit); those
      about leases do not wait.

    Logs name method, path and status, never headers or bodies. Every method may be cancelled at
    any moment. Raises `ConfigurationError` for a connection whose URL cannot be used.
    """

    def __init__(
        self,
        connection: Connection | str,
        *,
        qps: float = 100.0,
        burst: int = 200,
        user_agent: str = "",
        registry: CollectorRegistry | None = None,
        retries: RetryPolicy | None = None,
        random: random_.Random | None = None,
    ) -> None:
        if isinstance(connection, str):
            connection = PlainConnection(connection.rstrip("/"))
        self._connection = connection
        self._limiter = TokenBucket(qps, burst)
        self._retries = retries or RetryPolicy()
        self._random = random or random_.Random()
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": user_agent or f"arc_controller/{arc_controller.__version__}",
        }
        self._prepared: dict[tuple[str, str], CIMultiDict[str]] = {}
        self._metrics = _metrics(registry, sessions.host_of(connection.url))
        self._base = URL(connection.url, encoded=True)
        self._calls: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._closed = False

    @classmethod
    async def from_environment(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        qps: float = 100.0,
        burst: int = 200,
        user_agent: str = "",
        registry: CollectorRegistry | None = None,
    ) -> HttpTransport:
        """The cluster that ``kubectl`` would talk to, or the one that this process runs in.

        The first that exists of: `kubeconfig`, the files in ``KUBECONFIG``, a pod's service
        account, ``~/.kube/config``. Raises `ConfigurationError`.
        """
        from arc_controller.runtime import officialclient

        connection = await officialclient.connect(
            officialclient.find_kubeconfig(kubeconfig), context
        )
        return cls(connection, qps=qps, burst=burst, user_agent=user_agent, registry=registry)

    @property
    def url(self) -> str:
        return self._connection.url

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """One call, retries included; `timeout` is for all of it, in seconds. Any status.

        Raises `TransportError` when there was no answer.
        """
        call = Call(method, path, content_type)
        if timeout is None:
            return await self._persist(call, self._url(path, query), body)
        try:
            async with asyncio.timeout(timeout):
                return await self._persist(call, self._url(path, query), body)
        except TimeoutError:
            raise TransportError(f"{call}: no answer within {timeout:g} s") from None

    def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A watch, on a connection of its own. Not retried: its reader knows where to resume."""
        return self._stream(path, query)

    async def close(self) -> None:
        """Close all connections. Later calls raise `TransportError`; closing again does nothing."""
        self._closed = True
        sessions, self._calls, self._watches = (self._calls, self._watches), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    # --- calls ------------------------------------------------------------------------------------

    async def _persist(self, call: Call, url: URL, body: bytes | None) -> Response:
        refused = broken = 0
        renewed = False
        while True:
            waited = 0.0 if call.path.startswith(URGENT) else await self._limiter.acquire()
            if self._metrics is not None:
                self._metrics.waited(call.method, waited)
            try:
                response = await self._send(call, url, body)
            except NoAnswer as error:
                if not (error.unsent or call.method == "GET") or broken >= self._retries.broken:
                    raise TransportError(f"{call}: {error}") from None
                delay = self._retries.delay(broken, "", self._random)
                broken += 1
                reason = str(error)
            else:
                if response.status == 401 and not renewed and await self._connection.renew():
                    renewed = True
                    continue
                retry_after = response.headers.get("Retry-After", "")
                if refused >= self._retries.refused or not call.may_repeat(
                    response.status, retry_after
                ):
                    return response
                delay = self._retries.delay(refused, retry_after, self._random)
                refused += 1
                reason = str(response.status)
            _log.debug("call is repeated", call=str(call), reason=reason, after=round(delay, 3))
            if self._metrics is not None:
                self._metrics.repeated(call.method, reason[:3])
            await asyncio.sleep(delay)

    async def _send(self, call: Call, url: URL, body: bytes | None) -> Response:
        authorization = await self._authorization()
        session = self._session(calls=True)  # after the await, during which it may be closed
        headers = self._headers_of(authorization, "" if body is None else call.content_type)
        started = asyncio.get_running_loop().time()
        code = "<error>"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await session.request(
                    call.method,
                    url,
                    data=None if body is None else aiohttp.BytesPayload(body),
                    headers=headers,
                    timeout=_TIMEOUT,
                    allow_redirects=False,
                    **self._connection.options,
                )
                # Reading to the end, or failing to, gives the connection back.
                content = await answer.read()
            code = str(answer.status)
            return Response(answer.status, content, answer.headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(error) from None
        finally:
            self._count(call.method, code, started)

    # --- watches ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._limiter.acquire()
        answer = await self._open(path, self._url(path, query))
        try:
            async with aclosing(_lines(answer, f"WATCH {path}")) as lines:
                yield lines
        finally:
            answer.close()

    async def _open(self, path: str, url: URL) -> aiohttp.ClientResponse:
        call = f"WATCH {path}"
        renewed = False
        while True:
            started = asyncio.get_running_loop().time()
            code = "<error>"
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    headers = self._headers_of(await self._authorization())
                    answer = await self._session(calls=False).get(
                        url,
                        headers=headers,
                        timeout=_TIMEOUT,
                        allow_redirects=False,
                        **self._connection.options,
                    )
                    code = str(answer.status)
                    if answer.status < 300:
                        return answer
                    async with answer:
                        body = await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise TransportError(f"{call}: {NoAnswer(error)}") from None
            finally:
                self._count("WATCH", code, started)
            if answer.status == 401 and not renewed and await self._connection.renew():
                renewed = True
                continue
            retry_after = answer.headers.get("Retry-After", "")
            raise error_from_response(answer.status, body, call, retry_after)

    # --- what both need ---------------------------------------------------------------------------

    def _session(self, *, calls: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise TransportError("the transport is closed")
        if calls:
            if self._calls is None:
                self._calls = self._open_session(CALL_CONNECTIONS)
            return self._calls
        if self._watches is None:
            self._watches = self._open_session(0)
        return self._watches

    def _open_session(self, connections: int) -> aiohttp.ClientSession:
        session = self._connection.open_session(connections)
        session.headers.update(self._headers)
        return session

    async def _authorization(self) -> str:
        authorization = await self._connection.authorization()
        if authorization and not authorization.isprintable():
            raise TransportError("the credentials hold a character that no HTTP header may have")
        return authorization

    def _headers_of(self, authorization: str, content_type: str = "") -> CIMultiDict[str]:
        """Those beside the session's. There are few kinds of them: each is made once."""
        kind = (authorization, content_type)
        headers = self._prepared.get(kind)
        if headers is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()  # tokens come and go
            fields = {"Authorization": authorization, "Content-Type": content_type}
            headers = self._prepared[kind] = CIMultiDict(
                (name, value) for name, value in fields.items() if value
            )
        return headers

    def _url(self, path: str, query: Sequence[tuple[str, str]]) -> URL:
        if query:
            text = f"{self._connection.url}{path}?{urlencode(query, quote_via=quote)}"
            return URL(text, encoded=True)
        return self._base.with_path(f"{self._base.raw_path.rstrip('/')}{path}", encoded=True)

    def _count(self, verb: str, code: str, started: float) -> None:
        if self._metrics is not None:
            seconds = asyncio.get_running_loop().time() - started
            self._metrics.answered(verb, code, seconds)


# Nothing but connections: asyncio's own timeouts cost less than aiohttp's.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)


async def _lines(answer: aiohttp.ClientResponse, call: str) -> AsyncGenerator[bytes, None]:
    parts: list[bytes] = []
    try:
        async for chunk in answer.content.iter_any():
            first, *rest = chunk.split(b"\n")
            parts.append(first)
            for following in rest:
                line = b"".join(parts)
                parts = [following]
                if line and not line.isspace():
                    yield line
    except (aiohttp.ClientError, OSError) as error:
        raise TransportError(f"{call}: the connection broke: {NoAnswer(error)}") from None
    # What is left is half an event: the server ends each with a newline.


def _metrics(registry: CollectorRegistry | None, host: str) -> TransportMetrics | None:
    if registry is None:
        return None
    from arc_controller.runtime.httpmetrics import TransportMetrics

    return TransportMetrics(registry, host)
