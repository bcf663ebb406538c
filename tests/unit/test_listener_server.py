"""The page that Prometheus scrapes, over a socket."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from arc_controller.listener.metrics import Identity, JobMetrics
from arc_controller.listener.server import serve_metrics


async def fetch(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_the_metrics_are_at_the_endpoint_and_nowhere_else() -> None:
    metrics = [JobMetrics(Identity("linux", "runners"), max_runners=3)]
    async with serve_metrics(metrics, "127.0.0.1", 0, "/m") as port:
        status, text = await fetch(port, "/m?x=1")
        assert status == 200
        assert "gha_max_runners{" in text
        assert await fetch(port, "/metrics") == (404, "the metrics are at /m\n")
        assert await fetch(port, "/m", "POST") == (405, "")
        assert await fetch(port, "/m", "HEAD") == (200, "")


async def test_without_an_endpoint_they_are_at_the_usual_place() -> None:
    async with serve_metrics([], "127.0.0.1", 0) as port:
        assert await fetch(port, "/metrics") == (200, "")


@pytest.mark.parametrize("sent", [b"", b"GET /metrics", b"\x00" * 40_000, b"\r\n\r\n"])
async def test_what_is_no_request_ends_with_its_connection(sent: bytes) -> None:
    async with serve_metrics([], "127.0.0.1", 0) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.close()
        assert await fetch(port, "/metrics") == (200, "")


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with serve_metrics([], "127.0.0.1", 0) as port:
        with pytest.raises(OSError, match=str(port)):
            async with serve_metrics([], "127.0.0.1", port):
                pass
