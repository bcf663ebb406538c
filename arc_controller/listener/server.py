"""The HTTP endpoint that Prometheus scrapes. Importing this loads `prometheus_client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import structlog
from prometheus_client import CollectorRegistry

from arc_controller.listener.config import DEFAULT_METRICS_ENDPOINT
from arc_controller.listener.metrics import Collector, JobMetrics
from arc_controller.runtime.servers import Address, HttpServer, metrics_page


def make_registry(metrics: Iterable[JobMetrics] = ()) -> CollectorRegistry:
    """A registry of its own with the metrics of these listeners."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(metrics))
    return registry


@asynccontextmanager
async def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, endpoint: str = ""
) -> AsyncIterator[int]:
    """Serve what the registry collects while the block runs; yields the port.

    ``host`` ``""`` means all interfaces, ``port`` 0 any free one. Raises `OSError` when the address
    cannot be used.
    """
    path = endpoint or DEFAULT_METRICS_ENDPOINT
    server = HttpServer("metrics", Address(host, port), {path: metrics_page(registry)})
    await server.start()
    try:
        structlog.get_logger(__name__).info("serving metrics", port=server.port, path=path)
        yield server.port
    finally:
        await server.stop()
