"""The HTTP endpoint that Prometheus scrapes: one page, one request a connection.

aiohttp's server half would cost a listener two megabytes for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import structlog

from arc_controller.listener.config import DEFAULT_METRICS_ENDPOINT
from arc_controller.listener.metrics import CONTENT_TYPE, JobMetrics, exposition

REQUEST_SECONDS: Final = 10.0
"""A client has this long to send its request and to read the answer."""


@asynccontextmanager
async def serve_metrics(
    metrics: Sequence[JobMetrics], host: str, port: int, endpoint: str = ""
) -> AsyncIterator[int]:
    """Serve the metrics while the block runs; yields the port.

    ``host`` ``""`` means all interfaces, ``port`` 0 any free one. A list that grows meanwhile is
    seen. Raises `OSError` when the address cannot be used.
    """
    path = endpoint or DEFAULT_METRICS_ENDPOINT

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, path, metrics))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host or None, port, limit=16 * 1024)
    try:
        actual = int(server.sockets[0].getsockname()[1])
        structlog.get_logger(__name__).info("serving metrics", port=actual, path=path)
        yield actual
    finally:
        server.close()


def _response(head: bytes, path: str, metrics: Sequence[JobMetrics]) -> bytes:
    method, _, rest = head.partition(b" ")
    asked = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    status, body, content_type = HTTPStatus.OK, "", "text/plain; charset=utf-8"
    if asked != path:
        status, body = HTTPStatus.NOT_FOUND, f"the metrics are at {path}\n"
    elif method not in (b"GET", b"HEAD"):
        status = HTTPStatus.METHOD_NOT_ALLOWED
    else:
        body, content_type = exposition(metrics), CONTENT_TYPE
    content = body.encode()
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if method == b"HEAD" else content)
