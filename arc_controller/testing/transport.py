"""A transport without sockets: straight into an API server that lives in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import quote, urlencode

from arc_controller.runtime.errors import TransportError, error_from_response
from arc_controller.runtime.transport import Response
from arc_controller.testing.apiserver import messages


class Handler(Protocol):
    """What is needed of an API server; `arc_controller.testing.apiserver.ApiServer` has it."""

    async def handle(self, request: messages.Request) -> messages.Response: ...


Listener = Callable[[str, str, int], None]


class InProcessTransport:
    """`Transport` over `ApiServer.handle`, as one user.

    Every call passes through the event loop at least once on its way there and back, so that
    callers interleave as they do over a network. `on_response` is told method, path and status of
    every answer (watches have the method ``WATCH``). After `close` everything raises
    `TransportError`, running watches included.
    """

    def __init__(
        self,
        api_server: Handler,
        *,
        user: messages.UserInfo | None = messages.ADMIN,
        user_agent: str = "arc_controller/in-process",
        on_response: Listener | None = None,
    ) -> None:
        self._api_server = api_server
        self._user = user
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._on_response = on_response
        self._closed = False
        self._watches: list[AsyncIterator[bytes]] = []

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
        request = self._request(method, path, query, body, content_type)
        try:
            async with asyncio.timeout(timeout):
                response = await self._handle(request)
        except TimeoutError:
            raise TransportError(f"{method} {path}: no answer within {timeout:g} s") from None
        self._note(method, path, response.status)
        return Response(response.status, await _whole(response.body), response.headers)

    def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(path, query)

    async def close(self) -> None:
        self._closed = True
        for frames in self._watches:
            await _end(frames)

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._handle(self._request("GET", path, query, None, ""))
        self._note("WATCH", path, response.status)
        if response.status >= 400:
            retry_after = response.headers.get("Retry-After", "")
            body = await _whole(response.body)
            raise error_from_response(response.status, body, f"WATCH {path}", retry_after)
        if isinstance(response.body, bytes):
            raise TransportError(f"WATCH {path}: the answer is not a stream")
        frames = response.body
        self._watches.append(frames)
        try:
            yield self._lines(frames, path)
        finally:
            self._watches = [other for other in self._watches if other is not frames]
            await _end(frames)

    async def _lines(self, frames: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
        async for frame in frames:
            for line in frame.splitlines():
                yield line
        if self._closed:
            raise TransportError(f"WATCH {path}: the transport is closed")

    async def _handle(self, request: messages.Request) -> messages.Response:
        if self._closed:
            raise TransportError(f"{request.method} {request.path}: the transport is closed")
        await asyncio.sleep(0)
        response = await self._api_server.handle(request)
        await asyncio.sleep(0)
        return response

    def _request(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None,
        content_type: str,
    ) -> messages.Request:
        headers = self._headers
        if body is not None:
            headers = {**headers, "Content-Type": content_type}
        return messages.Request(
            method=method,
            path=path,
            query=urlencode(query, quote_via=quote),
            headers=headers,
            body=body or b"",
            user=self._user,
        )

    def _note(self, method: str, path: str, status: int) -> None:
        if self._on_response is not None:
            self._on_response(method, path, status)


async def _whole(body: bytes | AsyncIterator[bytes]) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"".join([part async for part in body])


async def _end(frames: AsyncIterator[bytes]) -> None:
    aclose: Callable[[], Awaitable[None]] | None = getattr(frames, "aclose", None)
    if aclose is not None:
        await aclose()
