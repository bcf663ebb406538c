"""A forward proxy with CONNECT and credentials, which decides itself where a host name leads."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from urllib.parse import urlsplit


class FakeProxy:
    """Listens on 127.0.0.1. ``hosts`` maps a name to the port on 127.0.0.1 that plays it; others
    are refused with 502. With ``user`` and ``password`` anybody else is refused with 407.

    ``requests`` holds ``METHOD TARGET`` of everything that was let through, ``refused`` counts the
    rest. ``status`` makes it answer everything with that status.
    """

    def __init__(
        self, hosts: Mapping[str, int], *, user: str | None = None, password: str = ""
    ) -> None:
        self.hosts = dict(hosts)
        self.requests: list[str] = []
        self.refused = 0
        self.status: int | None = None
        self.port = 0
        self._wanted: str | None = None
        if user is not None:
            self._wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, version = first.split(" ", 2)
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        if self.status is not None:
            await self._refuse(writer, f"{self.status} Out of order")
            return
        if self._wanted is not None and headers.get("proxy-authorization") != self._wanted:
            await self._refuse(writer, "407 Proxy Authentication Required")
            return
        parts = urlsplit(target if "://" in target else f"//{target}")
        port = self.hosts.get(parts.hostname or "")
        if port is None:
            await self._refuse(writer, "502 Bad Gateway")
            return
        self.requests.append(f"{method} {target}")
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", port)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
                kept = [line for line in lines if not line.lower().startswith("proxy-")]
                kept = [line for line in kept if not line.lower().startswith("connection:")]
                again = [f"{method} {path} {version}", *kept, "Connection: close", "", ""]
                upstream.write("\r\n".join(again).encode("latin-1"))
            await asyncio.gather(_pump(reader, upstream), _pump(upstream_reader, writer))
        finally:
            upstream.close()

    async def _refuse(self, writer: asyncio.StreamWriter, status: str) -> None:
        self.refused += 1
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
