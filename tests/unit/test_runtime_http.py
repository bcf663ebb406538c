"""The HTTP transport over real sockets: retries, limits, watches, metrics, closing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from arc_controller.runtime.errors import (
    ApiError,
    ConfigurationError,
    Gone,
    TransportError,
    Unauthorized,
)
from arc_controller.runtime.http import HttpTransport, PlainConnection
from arc_controller.runtime.retries import RetryPolicy

Answer = web.StreamResponse | Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = RetryPolicy(refused=3, broken=2, base=0.001, cap=0.01)


@dataclass
class Server:
    """Plays answers, one a request; the last one again and again."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: set[object] = field(default_factory=set)
    active: int = 0
    most_active: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            answer = self.answers.pop(0) if self.answers else web.json_response({})
            return answer if isinstance(answer, web.StreamResponse) else await answer(request)
        finally:
            self.active -= 1

    def count(self) -> int:
        return len(self.requests)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    yield server
    await runner.cleanup()


@asynccontextmanager
async def transport_to(server: Server, **options: Any) -> AsyncIterator[HttpTransport]:
    options = {"retries": QUICK, "random": Random(1), "qps": 0, **options}
    transport = HttpTransport(options.pop("connection", server.url), **options)
    try:
        yield transport
    finally:
        await transport.close()


def refusal(status: int, retry_after: str = "") -> web.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return web.Response(status=status, headers=headers)


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """Answers every request with these bytes and closes the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()


# --- calls ----------------------------------------------------------------------------------------


async def test_a_call_carries_method_path_query_body_and_type(server: Server) -> None:
    server.answers = [web.json_response({"a": 1}, status=201, headers={"X-Kind": "y"})]
    async with transport_to(server, user_agent="me/1") as transport:
        response = await transport.request(
            "PATCH",
            "/api/v1/pods/a%20b",
            query=[("labelSelector", "a in (b,c),d!=e"), ("limit", "5")],
            body=b"{}",
            content_type="application/merge-patch+json",
        )

    assert (response.status, response.body) == (201, b'{"a": 1}')
    assert response.headers["x-kind"] == "y"
    [request] = server.requests
    assert (request.method, request.raw_path.partition("?")[0]) == ("PATCH", "/api/v1/pods/a%20b")
    assert dict(request.query) == {"labelSelector": "a in (b,c),d!=e", "limit": "5"}
    assert request.content_type == "application/merge-patch+json"
    assert server.bodies == [b"{}"]
    assert request.headers["User-Agent"] == "me/1"
    assert request.headers["Accept"] == "application/json"
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x01 garbage\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    ],
)
async def test_whatever_comes_that_is_no_answer_is_a_transport_error(answer: bytes) -> None:
    async with raw_server(answer) as url:
        transport = HttpTransport(url, retries=RetryPolicy(refused=0, broken=0))
        with pytest.raises(TransportError, match="GET /x: ") as caught:
            await transport.request("GET", "/x")
        assert len(str(caught.value)) < 400
        with pytest.raises(TransportError, match="WATCH /x: "):
            async with transport.stream("/x") as lines:
                async for _ in lines:
                    pass
                raise TransportError("WATCH /x: ended")  # without an error: a stream may end
        await transport.close()


@pytest.mark.parametrize(
    "url",
    ["", "localhost:6443", "ftp://host", "https://", "https://host:99999", "https://a b"],
)
def test_a_url_that_is_none_is_refused_with_what_would_be_right(url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used: write https://host or"):
        HttpTransport(url)


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        HttpTransport("ftp://me:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "the proxy answered 407 Proxy Auth",
        ),
        (b"garbage\r\n\r\n", "the answer is no HTTP: Bad status line"),
    ],
)
async def test_a_proxys_password_is_in_no_error_and_no_traceback(answer: bytes, said: str) -> None:
    """aiohttp's errors quote the proxy's URL, and a chained error is in every traceback."""

    def told(error: TransportError) -> str:
        return "".join(traceback.format_exception(error))

    async with raw_server(answer) as url:
        proxy = url.replace("http://", "http://joe:secret@")
        connection = PlainConnection("https://api.invalid", {"proxy": proxy})
        transport = HttpTransport(connection, retries=RetryPolicy(refused=0, broken=0))
        with pytest.raises(TransportError, match=said) as call:
            await transport.request("GET", "/x")
        with pytest.raises(TransportError, match=said) as watch:
            async with transport.stream("/x"):
                pass
        await transport.close()
    assert "secret" not in told(call.value) + told(watch.value)


async def test_credentials_that_no_header_can_carry_are_a_transport_error(server: Server) -> None:
    """Not a ValueError from deep inside, which would end the process."""

    class Credentials(PlainConnection):
        async def authorization(self) -> str:
            return "Bearer first\nX-Evil: secret"

    async with transport_to(server, connection=Credentials(server.url)) as transport:
        with pytest.raises(TransportError, match="a character that no HTTP header may") as caught:
            await transport.request("GET", "/x")
        assert "secret" not in str(caught.value)
    assert server.count() == 0


async def test_a_call_during_which_the_transport_is_closed_is_a_transport_error(
    server: Server,
) -> None:
    class Slow(PlainConnection):
        async def authorization(self) -> str:
            await asyncio.sleep(0.05)
            return ""

    async with transport_to(server, connection=Slow(server.url)) as transport:
        await transport.request("GET", "/x")
        call = asyncio.create_task(transport.request("GET", "/x"))
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(TransportError, match="the transport is closed"):
            await call


async def test_a_refusal_is_an_answer_like_any_other(server: Server) -> None:
    server.answers = [refusal(404)]
    async with transport_to(server) as transport:
        assert (await transport.request("GET", "/x")).status == 404


async def test_redirects_are_not_followed(server: Server) -> None:
    server.answers = [web.Response(status=302, headers={"Location": "http://elsewhere.invalid/"})]
    async with transport_to(server) as transport:
        assert (await transport.request("GET", "/x")).status == 302


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "PUT", "DELETE"])
async def test_too_many_requests_is_asked_again_whatever_the_method(
    server: Server, method: str
) -> None:
    server.answers = [refusal(429, "0"), refusal(429)]
    async with transport_to(server) as transport:
        assert (await transport.request(method, "/x", body=b"{}")).status == 200
    assert server.bodies == [b"{}"] * 3


@pytest.mark.parametrize(
    ("call", "retry_after", "sent"),
    [
        ("GET json", "", 2),
        ("GET json", "0", 2),
        ("PATCH merge-patch+json", "", 1),
        ("PATCH merge-patch+json", "0", 2),
        ("PATCH json-patch+json", "0", 1),
        ("PUT json", "0", 2),
        ("DELETE json", "", 1),
        ("DELETE json", "0", 2),
        ("POST json", "", 1),
        ("POST json", "0", 1),
    ],
)
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_failing_server_is_asked_again_only_where_that_is_safe(
    server: Server, status: int, call: str, retry_after: str, sent: int
) -> None:
    method, type_ = call.split()
    server.answers = [refusal(status, retry_after)]
    async with transport_to(server) as transport:
        response = await transport.request(
            method, "/x", body=b"{}", content_type=f"application/{type_}"
        )
    assert server.count() == sent
    assert response.status == (200 if sent == 2 else status)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422, 501])
async def test_what_will_not_get_better_is_not_asked_again(server: Server, status: int) -> None:
    server.answers = [refusal(status, "0")]
    async with transport_to(server) as transport:
        await transport.request("GET", "/x")
    assert server.count() == 1


async def test_retries_end_with_the_last_answer(server: Server) -> None:
    server.answers = [refusal(503) for _ in range(10)]
    async with transport_to(server) as transport:
        assert (await transport.request("GET", "/x")).status == 503
    assert server.count() == 1 + QUICK.refused


async def test_a_broken_connection_is_tried_again_for_reads(server: Server) -> None:
    server.answers = [hang_up, hang_up]
    async with transport_to(server) as transport:
        assert (await transport.request("GET", "/x")).status == 200
    assert server.count() >= 3


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_write_is_never_replayed_when_it_may_have_taken_effect(
    server: Server, method: str
) -> None:
    server.answers = [web.json_response({}), hang_up]
    async with transport_to(server) as transport:
        await transport.request("GET", "/warm")  # Over a connection that was used before, too.
        with pytest.raises(TransportError, match=f"{method} /x: "):
            await transport.request(method, "/x", body=b"{}")
    assert [request.method for request in server.requests] == ["GET", method]


async def test_a_server_that_is_not_there_is_a_transport_error_for_reads_and_writes() -> None:
    transport = HttpTransport("http://127.0.0.1:1", retries=QUICK, qps=0)
    registry = CollectorRegistry()
    counted = HttpTransport("http://127.0.0.1:1", retries=QUICK, qps=0, registry=registry)
    with pytest.raises(TransportError, match="GET /x: Cannot connect"):
        await transport.request("GET", "/x")
    with pytest.raises(TransportError, match="WATCH /x: Cannot connect"):
        async with transport.stream("/x"):
            pass
    # It was surely not sent: even a POST is tried again.
    with pytest.raises(TransportError, match="POST /x: Cannot connect"):
        await counted.request("POST", "/x", body=b"{}")
    labels = {"code": "<error>", "method": "POST", "host": "127.0.0.1:1"}
    assert registry.get_sample_value("rest_client_requests_total", labels) == 1 + QUICK.broken
    await transport.close()
    await counted.close()


async def test_a_call_that_takes_too_long_is_given_up(server: Server) -> None:
    released = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    server.answers = [wait]
    async with transport_to(server) as transport:
        with pytest.raises(TransportError, match=r"GET /x: no answer within 0.05 s"):
            await transport.request("GET", "/x", timeout=0.05)
        released.set()


async def test_a_timeout_covers_the_retries(server: Server) -> None:
    server.answers = [refusal(429, "5") for _ in range(10)]
    async with transport_to(server, retries=RetryPolicy()) as transport:
        with pytest.raises(TransportError, match="no answer within"):
            await transport.request("GET", "/x", timeout=0.05)
    assert server.count() == 1


def test_the_server_is_left_alone_for_as_long_as_it_asks_up_to_a_cap() -> None:
    policy = RetryPolicy(base=0.1, cap=30)
    random = Random(1)
    assert 7 <= policy.delay(0, "7", random) <= 7.1
    assert 30 <= policy.delay(0, "3600", random) <= 30.1
    for attempt in range(20):
        longest = min(30, 0.1 * 2**attempt)
        assert longest / 2 <= policy.delay(attempt, "", random) <= longest
        assert policy.delay(attempt, "tomorrow", random) <= longest


async def test_connections_are_kept_and_used_again(server: Server) -> None:
    async with transport_to(server) as transport:
        for _ in range(20):
            await transport.request("GET", "/x")
    assert len(server.peers) == 1


async def test_watches_do_not_take_the_connections_of_calls(server: Server) -> None:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(60)
        return response

    server.answers = [watch] * 130
    async with transport_to(server) as transport, contextlib.AsyncExitStack() as stack:
        for _ in range(130):  # More than there are connections for calls.
            await stack.enter_async_context(transport.stream("/watch"))
        assert (await transport.request("GET", "/x")).status == 200


async def test_calls_share_a_bounded_number_of_connections(server: Server) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return web.Response()

    server.answers = [slow] * 300
    async with transport_to(server) as transport:
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(300)))
    assert server.count() == 300
    assert 1 < server.most_active <= 100


async def test_a_cancelled_call_leaves_the_transport_usable(server: Server) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(10)
        return web.Response()

    server.answers = [slow] * 150
    async with transport_to(server) as transport:
        calls = [asyncio.create_task(transport.request("GET", "/x")) for _ in range(150)]
        while server.active < 100:
            await asyncio.sleep(0.005)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        server.answers = []
        assert (await transport.request("GET", "/x")).status == 200


async def test_requests_leave_at_the_rate_that_was_asked_for(server: Server) -> None:
    loop = asyncio.get_running_loop()
    async with transport_to(server, qps=50, burst=5) as transport:
        started = loop.time()
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(10)))
        # Five at once, five more at 50 a second: it cannot be faster than that.
        assert loop.time() - started >= 0.1


async def test_leases_do_not_wait_behind_a_burst(server: Server) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader"
    async with transport_to(server, qps=0.001, burst=1) as transport:
        await transport.request("GET", "/x")
        waiting = asyncio.create_task(transport.request("GET", "/x"))
        assert (await transport.request("PUT", leases, body=b"{}")).status == 200
        assert not waiting.done()
        waiting.cancel()


# --- credentials ----------------------------------------------------------------------------------


@dataclass
class Badge:
    """A connection with credentials that can be renewed."""

    url: str
    token: str = "old"
    fresh: str = "new"
    renewals: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def open_session(self, connections: int) -> aiohttp.ClientSession:
        return PlainConnection(self.url).open_session(connections)

    async def authorization(self) -> str:
        return f"Bearer {self.token}"

    async def renew(self) -> bool:
        self.renewals += 1
        changed = self.token != self.fresh
        self.token = self.fresh
        return changed


async def check_badge(request: web.Request) -> web.StreamResponse:
    allowed = request.headers.get("Authorization") == "Bearer new"
    return web.Response(status=200 if allowed else 401)


async def test_refused_credentials_are_renewed_once(server: Server) -> None:
    server.answers = [check_badge] * 4
    badge = Badge(server.url)
    async with transport_to(server, connection=badge) as transport:
        assert (await transport.request("POST", "/x", body=b"{}")).status == 200
        assert (badge.renewals, server.count()) == (1, 2)

        badge.token = badge.fresh = "wrong"
        assert (await transport.request("GET", "/x")).status == 401
        assert server.count() == 3


async def test_refused_credentials_of_a_watch_are_renewed_once(server: Server) -> None:
    server.answers = [check_badge] * 4
    badge = Badge(server.url)
    async with transport_to(server, connection=badge) as transport:
        async with transport.stream("/x") as lines:
            assert [line async for line in lines] == []
        badge.token = badge.fresh = "wrong"
        with pytest.raises(Unauthorized):
            async with transport.stream("/x"):
                pass
    assert server.count() == 3


async def test_no_header_and_no_body_is_ever_logged(
    server: Server, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [refusal(429, "0"), hang_up, refusal(503, "0")]
    badge = Badge(server.url, token="TOPSECRET", fresh="TOPSECRET")
    with caplog.at_level(logging.DEBUG):
        async with transport_to(server, connection=badge) as transport:
            for method in ("GET", "PATCH"):
                await transport.request(method, "/x", body=b"TOPSECRET")
    written = caplog.text + "".join(capsys.readouterr())
    assert "TOPSECRET" not in written


# --- watches --------------------------------------------------------------------------------------


def chunks(*parts: bytes, breaks: bool = False) -> Answer:
    async def write(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.002)
        if breaks:
            assert request.transport is not None
            request.transport.abort()
        return response

    return write


async def watch(transport: HttpTransport) -> list[bytes]:
    async with transport.stream("/watch", query=[("watch", "true")]) as lines:
        return [line async for line in lines]


@pytest.mark.parametrize(
    "parts",
    [
        (b"a\nbb\nccc\n",),
        (b"a\n", b"bb\n", b"ccc\n"),
        (b"a", b"\nb", b"b\ncc", b"c\n"),
        (b"\n\na\n\nbb\nccc\n\n",),
        (b"a\nbb\nccc\nhalf an ev",),
    ],
)
async def test_a_watch_yields_whole_lines_however_they_arrive(
    server: Server, parts: tuple[bytes, ...]
) -> None:
    server.answers = [chunks(*parts)]
    async with transport_to(server) as transport:
        assert await watch(transport) == [b"a", b"bb", b"ccc"]
    assert dict(server.requests[0].query) == {"watch": "true"}


async def test_an_event_may_be_larger_than_any_buffer(server: Server) -> None:
    line = b"x" * 5_000_000
    server.answers = [chunks(line, b"\nsmall\n")]
    async with transport_to(server) as transport:
        assert await watch(transport) == [line, b"small"]


async def test_a_watch_that_breaks_is_a_transport_error(server: Server) -> None:
    server.answers = [chunks(b"a\n", breaks=True)]
    seen: list[bytes] = []
    async with transport_to(server) as transport:
        with pytest.raises(TransportError, match="WATCH /watch: the connection broke"):
            async with transport.stream("/watch") as lines:
                async for line in lines:
                    seen.append(line)
    assert seen == [b"a"]


async def test_a_refused_watch_raises_what_the_server_said(server: Server) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    server.answers = [web.json_response(status, status=410)]
    async with transport_to(server) as transport:
        with pytest.raises(Gone, match="WATCH /watch: too old"):
            await watch(transport)


async def test_a_redirected_watch_is_refused_and_not_read_as_events(server: Server) -> None:
    server.answers = [web.Response(status=302, text="<html>")]
    async with transport_to(server) as transport:
        with pytest.raises(ApiError) as caught:
            async with transport.stream("/x"):
                pass
    assert caught.value.code == 302


async def test_leaving_a_watch_closes_its_connection(server: Server) -> None:
    closed = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"tick\n")
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            closed.set()
            raise

    server.answers = [endless, endless]
    async with transport_to(server) as transport:
        async with transport.stream("/watch") as lines:
            assert await anext(lines) == b"tick"
        await asyncio.wait_for(closed.wait(), 5)

        closed.clear()
        task = asyncio.create_task(watch(transport))
        while server.count() < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 5)


# --- metrics and the end --------------------------------------------------------------------------


async def test_requests_are_counted_under_the_names_that_dashboards_know(server: Server) -> None:
    registry = CollectorRegistry()
    server.answers = [refusal(429, "0"), web.Response(), refusal(404), chunks(b"a\n")]
    async with transport_to(server, registry=registry, qps=1000, burst=10) as transport:
        await transport.request("PATCH", "/x", body=b"{}")
        await transport.request("GET", "/x")
        await watch(transport)

    host = server.url.removeprefix("http://")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**labels, "host": host})

    assert value("rest_client_requests_total", code="429", method="PATCH") == 1
    assert value("rest_client_requests_total", code="200", method="PATCH") == 1
    assert value("rest_client_requests_total", code="404", method="GET") == 1
    assert value("rest_client_requests_total", code="200", method="GET") == 1
    assert value("rest_client_request_retries_total", code="429", verb="PATCH") == 1
    assert value("rest_client_request_duration_seconds_count", verb="PATCH") == 2
    assert value("rest_client_request_duration_seconds_count", verb="WATCH") == 1
    assert value("rest_client_rate_limiter_duration_seconds_count", verb="PATCH") == 2


async def test_a_closed_transport_says_so_and_may_be_closed_again(server: Server) -> None:
    async with transport_to(server) as transport:
        await transport.request("GET", "/x")
        await transport.close()
        await transport.close()
        with pytest.raises(TransportError, match="closed"):
            await transport.request("GET", "/x")
        with pytest.raises(TransportError, match="closed"):
            await watch(transport)


async def test_a_server_behind_a_path_is_reached(server: Server) -> None:
    async with transport_to(server, connection=f"{server.url}/k8s/clusters/c/") as transport:
        await transport.request("GET", "/api")
    assert server.requests[0].path == "/k8s/clusters/c/api"
