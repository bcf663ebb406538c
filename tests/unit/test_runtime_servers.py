"""Probes, metrics and diagnostics over HTTP; logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry

from arc_controller.api import SCHEME
from arc_controller.runtime.cache import Cache
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.diagnostics import Diagnostics, table
from arc_controller.runtime.logs import configure_logging
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.servers import (
    Address,
    CannotListen,
    Checks,
    HttpServer,
    Page,
    PageRequest,
    metrics_page,
    parse_address,
)
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.transport import InProcessTransport


@pytest.mark.parametrize(
    "text, address",
    [
        ("", None),
        ("0", None),
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8080", Address("::1", 8080)),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:http", ":65536", ":-1", "a:b:1"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=f"metrics address '{text}': "):
        parse_address(text, "metrics address")


def test_a_port_that_is_none_is_told_by_its_range() -> None:
    with pytest.raises(ValueError, match=r"a port is a number from 0 .any free one. to 65535"):
        parse_address(":99999")


async def fetch(server: HttpServer, path: str, **headers: str) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.text()


async def test_pages_are_served_until_the_server_stops() -> None:
    server = HttpServer("test", Address("127.0.0.1", 0), {"/": lambda _: Page(b"hello")})
    assert server.port == 0
    await server.start()
    assert await fetch(server, "/") == (200, "text/plain; charset=utf-8", "hello")
    assert (await fetch(server, "/nothing"))[0] == 404
    port = server.port
    await server.stop()
    await server.stop()
    with pytest.raises(OSError, match=str(port)):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_taken_port_is_an_error_that_says_whose() -> None:
    first = HttpServer("metrics", Address("127.0.0.1", 0), {})
    await first.start()
    second = HttpServer("health", Address("127.0.0.1", first.port), {})
    said = f"^the health server cannot listen on 127.0.0.1:{first.port}: address already in use$"
    with pytest.raises(CannotListen, match=said):
        await second.start()
    await first.stop()


async def test_metrics_come_as_text_or_openmetrics() -> None:
    registry = CollectorRegistry()
    RuntimeMetrics(registry).controller("runner", 3)
    server = HttpServer("metrics", Address("127.0.0.1", 0), {"/metrics": metrics_page(registry)})
    await server.start()
    status, content_type, text = await fetch(server, "/metrics")
    assert (status, content_type.split(";")[0]) == (200, "text/plain")
    assert 'controller_runtime_max_concurrent_reconciles{controller="runner"} 3.0' in text
    _, content_type, text = await fetch(
        server, "/metrics", Accept="application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    await server.stop()


def test_checks_say_ok_or_what_is_wrong() -> None:
    checks = Checks()
    checks.add("ping", lambda: "")
    assert checks.page(PageRequest()) == Page(b"ok")
    problem = ["not filled yet"]
    checks.add("caches", lambda: problem[0])
    page = checks.page(PageRequest())
    assert page.status == 500
    assert page.body == b"[+]ping ok\n[-]caches failed: not filled yet\ncheck failed\n"
    problem[0] = ""
    verbose = checks.page(PageRequest({"verbose": ""}))
    assert (verbose.status, verbose.body) == (200, b"[+]ping ok\n[+]caches ok\ncheck passed\n")


def test_a_check_that_fails_itself_is_a_failure() -> None:
    checks = Checks()
    checks.add("odd", lambda: str(1 // 0))
    assert checks.failures() == {"odd": "integer division or modulo by zero"}
    with pytest.raises(ValueError, match="there is a check 'odd' already"):
        checks.add("odd", lambda: "")


class Waits:
    async def reconcile(self, key: NamespacedName) -> Result:
        await asyncio.sleep(3600)
        return Result()


async def test_diagnostics_show_tasks_queues_informers_and_memory() -> None:
    cache = Cache(InProcessTransport(ApiServer()), SCHEME)
    from arc_controller.api.core import ConfigMap

    cache.informer(ConfigMap)
    controller = Controller("runner", Waits())
    running = [asyncio.create_task(cache.start()), asyncio.create_task(controller.start())]
    await cache.wait_for_sync()
    controller.queue.add(NamespacedName("default", "busy"))
    await asyncio.sleep(0.01)
    controller.queue.add(NamespacedName("default", "waiting"))
    views = Diagnostics(cache, lambda: [controller]).views()
    server = HttpServer("diagnostics", Address("127.0.0.1", 0), views)
    await server.start()

    async def rows(path: str) -> list[dict[str, object]]:
        _, content_type, text = await fetch(server, f"{path}?format=json")
        assert content_type == "application/json"
        found: list[dict[str, object]] = json.loads(text)
        return found

    (queue,) = await rows("/queues")
    assert (queue["ready"], queue["active"], queue["working_on"]) == (1, 1, "default/busy")
    (informer,) = await rows("/informers")
    assert (informer["kind"], informer["objects"], informer["synced"]) == ("ConfigMap", 0, True)
    tasks = {row["task"] for row in await rows("/tasks")}
    assert {"runner-worker-0", "informer ConfigMap"} <= tasks
    assert "tracemalloc" in {row["what"] for row in await rows("/memory")}
    _, _, text = await fetch(server, "/queues")
    assert text.splitlines()[0].split() == list(queue)
    _, _, index = await fetch(server, "/")
    assert "/tasks\n/queues\n/informers\n/memory\n" in index

    await server.stop()
    for task in running:
        task.cancel()
    await asyncio.wait(running)


def test_a_table_has_columns() -> None:
    assert table([]) == "none\n"
    assert table([{"a": 1, "b": "x"}, {"a": 200, "b": ""}]) == "a    b\n1    x\n200\n"


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


def at_noon() -> datetime:
    return datetime(2025, 1, 1, 12, tzinfo=UTC)


@pytest.mark.usefixtures("restored_logging")
def test_json_logs_have_context_and_one_line_each() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream, now=at_noon)
    log = structlog.get_logger()
    with structlog.contextvars.bound_contextvars(controller="runner"):
        log.info("created", pod="a")
    log.debug("not shown")
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        log.error("failed", exc_info=error)
    logging.getLogger("library").warning("from a %s", "library")
    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first == {
        "controller": "runner",
        "level": "info",
        "msg": "created",
        "pod": "a",
        "ts": "2025-01-01T12:00:00.000Z",
    }
    assert "RuntimeError: broken" in second["exception"]
    assert (third["msg"], third["level"]) == ("from a library", "warning")


@pytest.mark.usefixtures("restored_logging")
def test_text_logs_are_for_people_and_show_no_local_variables() -> None:
    stream = io.StringIO()
    configure_logging("debug", "text", stream=stream, now=at_noon)
    secret = "hunter2"
    try:
        raise RuntimeError(f"broken after {len(secret)} characters")
    except RuntimeError as error:
        structlog.get_logger().error("failed", exc_info=error)
    text = stream.getvalue()
    assert "2025-01-01T12:00:00.000Z" in text
    assert "RuntimeError: broken after 7 characters" in text
    assert "'hunter2'" not in text.replace('secret = "hunter2"', "")


@pytest.mark.parametrize(
    "level, format_, message",
    [
        ("loud", "text", "log level 'loud': use one of debug, info, warn, error"),
        ("info", "xml", "log format 'xml': use text or json"),
    ],
)
def test_unknown_log_settings_are_refused(level: str, format_: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure_logging(level, format_)
