"""Calls over kept connections: a session opens them, we speak HTTP/1.1 over them ourselves.

Addresses, TLS and proxies are the session's business, so that all of it is as the official client's
configuration says. What its request and response objects do for every call costs ten times as much
as the call: see `arc_controller.runtime.http1`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from arc_controller.runtime.http1 import AnswerReader, NotHttp, header_lines, request_bytes
from arc_controller.runtime.sessions import KEEP_ALIVE_SECONDS
from arc_controller.runtime.transport import Response

CALL_SECONDS: Final = 60.0
"""A call takes no longer, and a connection is made within this time."""
LOOK_SECONDS: Final = 5.0
"""So often connections are looked at, so that a call needs no timer of its own."""

_IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})


class CallConnections:
    """At most `limit` connections to one server; each has one call at a time.

    Must be made in the running loop. The session is ours from then on: `close` closes it.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        limit: int,
        timeout: aiohttp.ClientTimeout,
        *,
        headers: Iterable[tuple[str, str]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """``headers`` are sent with every call; ``options`` are what ``session.request`` takes of
        proxy, proxy headers and TLS server name; ``timeout`` is for making a connection.
        """
        self._session = session
        self._url = URL(url, encoded=True)
        self._timeout = timeout
        self._headers = tuple(headers)
        self._options = dict(options or {})
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(limit)
        self._all: dict[_Connection, None] = {}
        self._idle: list[_Connection] = []  # the one that was used last at the end
        self._look: asyncio.TimerHandle | None = None

    async def request(
        self, method: str, target: str, headers: bytes, body: bytes | None
    ) -> Response:
        """One call, any status. ``target`` is path and query, ``headers`` are `header_lines`.

        Raises `OSError` (`TimeoutError` among them) or `aiohttp.ClientError` if there is no
        connection or it breaks, `NotHttp`. Cancelling it gives the connection up; the server may
        have done what was asked, or not.
        """
        async with self._slots:
            connection = self._kept()
            if connection is not None:
                try:
                    return await self._over(connection, method, target, headers, body)
                except ConnectionError:
                    # The server may have closed it while it was idle, as our request was under way.
                    if method not in _IDEMPOTENT or connection.answers:
                        raise
            return await self._over(await self._open(), method, target, headers, body)

    async def close(self) -> None:
        """Close all connections; calls that wait for an answer fail."""
        if self._look is not None:
            self._look.cancel()
        await self._session.close()

    async def _over(
        self, connection: _Connection, method: str, target: str, headers: bytes, body: bytes | None
    ) -> Response:
        answer = await connection.call(method, target, headers, body)
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def _kept(self) -> _Connection | None:
        """The one that was used last, so that those not needed any more grow old."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def _open(self) -> _Connection:
        connector = self._session.connector
        if connector is None:
            raise ConnectionError("the session is closed")
        # What the session would make for every single request; here it stands for the connection.
        options = {**self._options, "headers": self._headers}
        if "proxy" in options:
            options["proxy"] = URL(options["proxy"])
            options["proxy_headers"] = CIMultiDict(options.get("proxy_headers") or {})
        request = aiohttp.ClientRequest(
            "GET", self._url, loop=self._loop, session=self._session, **options
        )
        try:
            async with asyncio.timeout(CALL_SECONDS):
                held = await connector.connect(request, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("no connection in time") from error
        # Only a tunnel hides the proxy from us.
        is_proxied = request.proxy is not None and not request.is_ssl()
        connection = _Connection(
            held,
            header_lines(request.headers.items()),
            str(self._url.origin()) if is_proxied else "",
        )
        self._all[connection] = None
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_at_all)
        return connection

    def _look_at_all(self) -> None:
        now = self._loop.time()
        for connection in self._all:
            connection.look(now)
        self._all = {each: None for each in self._all if each.is_usable}
        self._idle = [each for each in self._idle if each.is_usable]
        self._look = self._loop.call_later(LOOK_SECONDS, self._look_at_all) if self._all else None


class _Connection(asyncio.Protocol):
    """A connection that we hold for good, and its call."""

    def __init__(self, held: Connection, headers: bytes, origin: str) -> None:
        transport = held.transport
        if transport is None:
            raise ConnectionResetError("the connection broke as soon as it was made")
        self._held = held
        self._headers = headers
        self._origin = origin
        self._transport = transport
        # It never hears of us but for the end, for which the session waits when it is closed.
        self._former = transport.get_protocol()
        self._reader = AnswerReader()
        self._answer: asyncio.Future[Response] | None = None
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self.is_usable = True
        transport.set_protocol(self)

    @property
    def answers(self) -> bool:
        """Whether an answer to the last call has begun."""
        return self._reader.has_begun

    async def call(self, method: str, target: str, headers: bytes, body: bytes | None) -> Response:
        self._reader = AnswerReader()
        self._answer = self._loop.create_future()
        self._since = self._loop.time()
        try:
            self._transport.write(
                request_bytes(method, self._origin + target, self._headers + headers, body)
            )
            return await self._answer
        except BaseException:
            self.close()  # what comes now would be taken for the answer to the next call
            raise
        finally:
            self._answer = None
            self._since = self._loop.time()

    def look(self, now: float) -> None:
        """End a call that takes too long, and a connection that nobody has used for a while."""
        if self._answer is None:
            if now - self._since >= KEEP_ALIVE_SECONDS - LOOK_SECONDS:
                self.close()
        elif now - self._since >= CALL_SECONDS - LOOK_SECONDS and not self._answer.done():
            self._answer.set_exception(TimeoutError())

    def close(self) -> None:
        self.is_usable = False
        self._held.close()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done():
            self.close()  # nobody asked
            return
        try:
            response = self._reader.feed(data)
        except NotHttp as error:
            answer.set_exception(error)
            return
        if response is not None:
            self.is_usable = self._reader.is_reusable
            answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        if isinstance(self._former, asyncio.Protocol):
            self._former.connection_lost(exc)
        answer = self._answer
        if answer is None or answer.done():
            return
        if exc is None and self.answers:
            try:
                answer.set_result(self._reader.end())
            except NotHttp as error:
                answer.set_exception(error)
        else:
            answer.set_exception(exc or ConnectionResetError("the server closed the connection"))
