"""Wires between a process and its servers: they count what passes, and can be cut.

A test that kills a process inside this one cuts its wires first: whatever the process's tasks still
do while they are cancelled reaches nobody, as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from arc_controller import actions
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.transport import Response, Transport

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class Requests:
    """Requests to the API server, counted by who sent them, verb and resource."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """(who, ``"patch ephemeralrunners/status"``) → how many."""

    def add(self, who: str, method: str, path: str, *, watch: bool = False) -> None:
        self.counts[who, request_kind(method, path, watch=watch)] += 1

    def by_kind(self, who: str = "") -> Counter[str]:
        """Counts by verb and resource, of one sender or of all."""
        found: Counter[str] = Counter()
        for (sender, kind), count in self.counts.items():
            if not who or sender == who:
                found[kind] += count
        return found

    def total(self, who: str = "", *, watches: bool = False) -> int:
        """How many, without watches and the lists that begin them unless asked for."""
        return sum(
            count
            for kind, count in self.by_kind(who).items()
            if watches or not kind.startswith(("watch ", "list "))
        )

    def writes(self, who: str = "") -> int:
        """How many that change something, leases and events aside."""
        return sum(
            count
            for kind, count in self.by_kind(who).items()
            if not kind.startswith(("get ", "list ", "watch "))
            and not kind.endswith((" leases", " events"))
        )

    def clear(self) -> None:
        self.counts.clear()


def request_kind(method: str, path: str, *, watch: bool = False) -> str:
    """``"patch ephemeralrunners/status"`` for a request's method and path."""
    match = _PATH.fullmatch(path)
    if match is None:
        return f"{method.lower()} {path}"
    verb = _VERBS.get(method, "")
    if not verb:
        verb = "watch" if watch else "get" if match["name"] else "list"
    resource = match["resource"]
    part = f"/{match['subresource']}" if match["subresource"] else ""
    return f"{verb} {resource}{part}"


class Wire:
    """`Transport` through another one: counts into ``requests`` as ``who``, until it is cut."""

    def __init__(self, inner: Transport, who: str = "", requests: Requests | None = None) -> None:
        self._inner = inner
        self._who = who
        self._requests = requests
        self._cut = asyncio.Event()

    @property
    def is_cut(self) -> bool:
        return self._cut.is_set()

    def cut(self) -> None:
        """From now on nothing passes. A request on its way may or may not have taken effect."""
        self._cut.set()

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
        self._check(method, path)
        if self._requests is not None:
            self._requests.add(self._who, method, path)
        response = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        )
        self._check(method, path)
        return response

    def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(path, query)

    async def close(self) -> None:
        await self._inner.close()

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._check("WATCH", path)
        if self._requests is not None:
            self._requests.add(self._who, "GET", path, watch=True)
        async with self._inner.stream(path, query=query) as lines:
            yield self._lines(lines, path)

    async def _lines(self, lines: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
        async for line in lines:
            self._check("WATCH", path)
            yield line

    def _check(self, method: str, path: str) -> None:
        if self._cut.is_set():
            raise TransportError(f"{method} {path}: the wire is cut")


class ActionsWire:
    """The same for the network of an Actions client."""

    def __init__(self, inner: actions.HttpTransport) -> None:
        self._inner = inner
        self._is_cut = False

    def cut(self) -> None:
        """From now on nothing passes: calls are never answered."""
        self._is_cut = True

    async def send(self, request: actions.HttpRequest) -> actions.HttpResponse:
        if self._is_cut:
            await _forever()
        response = await self._inner.send(request)
        if self._is_cut:
            await _forever()
        return response

    async def aclose(self) -> None:
        """The inner one is shared, and not ours to close."""


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended, however much it would like to tidy up. Never raises."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
