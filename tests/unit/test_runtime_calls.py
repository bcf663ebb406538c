"""Connections that are kept, given up, replaced and closed, by a server played byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from arc_controller.runtime import calls
from arc_controller.runtime.errors import TransportError
from arc_controller.runtime.http import HttpTransport, PlainConnection
from arc_controller.runtime.retries import RetryPolicy

NO_RETRIES = RetryPolicy(refused=0, broken=0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

Play = Callable[[asyncio.StreamWriter, int], Awaitable[None]]
"""Answers the request of that number (from 0) on its connection."""


@dataclass
class Played:
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    open: int = 0
    connections: int = 0


@asynccontextmanager
async def played(play: Play) -> AsyncIterator[Played]:
    server = Played()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.open += 1
        server.connections += 1
        number = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
                server.requests.append(head + await reader.readexactly(length))
                await play(writer, number)
                number += 1
        server.open -= 1
        writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def ends_when_used_again(answer: bytes = OK) -> Play:
    """The first request of a connection is answered; the second is what it breaks at."""

    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 0:
            writer.write(answer)
        else:
            writer.close()

    return play


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_kept_connection_that_the_server_closed_is_replaced_where_that_is_safe(
    method: str,
) -> None:
    async with played(ends_when_used_again()) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        await transport.request("GET", "/x")
        assert (await transport.request(method, "/y", body=b"{}")).status == 200
        await transport.close()
    assert server.connections == 2
    assert [each.split()[0].decode() for each in server.requests] == ["GET", method, method]


async def test_a_kept_connection_that_was_closed_while_idle_is_not_used_for_a_write() -> None:
    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        for _ in range(3):
            assert (await transport.request("POST", "/x", body=b"{}")).status == 200
            await until(lambda: server.open == 0)
            await asyncio.sleep(0.02)
        await transport.close()
    assert server.connections == 3


async def test_an_answer_that_nobody_asked_for_is_never_taken_for_one() -> None:
    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        for _ in range(3):
            assert (await transport.request("POST", "/x", body=b"{}")).body == b"{}"
        await transport.close()
    assert server.connections == 3


async def test_a_call_that_was_cancelled_takes_its_connection_along() -> None:
    """The answer that comes after all must not be read by the next call."""
    answers = asyncio.Event()

    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        if len(server.requests) == 1:
            await answers.wait()
        writer.write(OK)

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        call = asyncio.create_task(transport.request("GET", "/slow"))
        await until(lambda: bool(server.requests))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await transport.request("GET", "/next")).status == 200
        answers.set()
        await transport.close()
    assert server.connections == 2


async def test_a_call_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.05)

    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        await asyncio.sleep(60)

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        with pytest.raises(TransportError, match="PATCH /x: no answer in time"):
            await transport.request("PATCH", "/x", body=b"{}")
        await transport.close()
    assert len(server.requests) == 1


async def test_connections_that_nobody_needs_any_more_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(calls, "KEEP_ALIVE_SECONDS", 0.1)

    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(OK)

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(20)))
        assert server.open > 1
        await until(lambda: server.open == 0)
        assert (await transport.request("GET", "/x")).status == 200
        await transport.close()


async def test_closing_leaves_no_connection_and_ends_calls() -> None:
    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        if b"/slow" in server.requests[-1]:
            await asyncio.sleep(60)
        writer.write(OK)

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        await asyncio.gather(*(transport.request("GET", "/x") for _ in range(5)))
        call = asyncio.create_task(transport.request("POST", "/slow", body=b"{}"))
        await until(lambda: b"/slow" in server.requests[-1])
        await transport.close()
        with pytest.raises(TransportError, match="POST /slow: "):
            await call


async def test_a_proxy_is_told_the_whole_address_and_its_password() -> None:
    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(OK)

    async with played(play) as proxy:
        options = {"proxy": proxy.url.replace("http://", "http://joe:secret@")}
        connection = PlainConnection("http://api.invalid:8080/base", options)
        transport = HttpTransport(connection, retries=NO_RETRIES, qps=0)
        assert (await transport.request("GET", "/x", query=[("a", "b c")])).status == 200
        await transport.close()
    [request] = proxy.requests
    assert request.startswith(b"GET http://api.invalid:8080/base/x?a=b%20c HTTP/1.1\r\n")
    assert b"\r\nHost: api.invalid:8080\r\n" in request
    assert b"\r\nProxy-Authorization: Basic am9lOnNlY3JldA==\r\n" in request


async def test_a_path_that_is_not_encoded_is_refused_and_disturbs_nothing() -> None:
    async def play(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(OK)

    async with played(play) as server:
        transport = HttpTransport(server.url, retries=NO_RETRIES, qps=0)
        with pytest.raises(ValueError, match="percent-encoded"):
            await transport.request("GET", "/a\r\nX-Evil: 1")
        assert (await transport.request("GET", "/x")).status == 200
        await transport.close()
    assert [each.split()[1] for each in server.requests] == [b"/x"]
