"""The HTTP endpoint that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from arc_controller.listener.config import DEFAULT_METRICS_ENDPOINT
from arc_controller.listener.metrics import JobMetrics, exposition

if TYPE_CHECKING:
    from aiohttp import web


@asynccontextmanager
async def serve_metrics(
    metrics: Sequence[JobMetrics],
    host: str,
    port: int,
    endpoint: str = DEFAULT_METRICS_ENDPOINT,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the metrics while the block runs; yields the address that is listened on.

    ``host`` ``""`` means all interfaces, ``port`` 0 any free one. A list that grows while we serve
    is seen. Raises `OSError` when the address cannot be used.
    """
    from aiohttp import web  # the server half of aiohttp, which only this needs

    async def scrape(_: web.Request) -> web.Response:
        body, content_type = exposition(*metrics)
        return web.Response(body=body, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get(endpoint or DEFAULT_METRICS_ENDPOINT, scrape)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        address = runner.addresses[0]
        structlog.get_logger(__name__).info("serving metrics", port=address[1], path=endpoint)
        yield str(address[0]), int(address[1])
    finally:
        await runner.cleanup()
