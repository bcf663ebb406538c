"""The transport without sockets behaves like the one with them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from arc_controller.runtime.errors import ApiError, Forbidden, NotFound, TransportError
from arc_controller.testing.apiserver import ApiServer, messages
from arc_controller.testing.loop import simulated
from arc_controller.testing.transport import InProcessTransport

PODS = "/api/v1/namespaces/default/configmaps"
BODY = b'{"metadata":{"name":"a"},"data":{"k":"v"}}'


async def make(transport: InProcessTransport) -> None:
    assert (await transport.request("POST", PODS, body=BODY)).status == 201


@simulated
async def test_calls_reach_the_server_with_query_type_and_user() -> None:
    seen: list[messages.Request] = []

    class Spy:
        async def handle(self, request: messages.Request) -> messages.Response:
            seen.append(request)
            return messages.json_response(200, {"ok": True}, {"Retry-After": "3"})

    told: list[tuple[str, str, int]] = []
    user = messages.service_account_user("ns", "manager")
    transport = InProcessTransport(
        Spy(),
        user=user,
        on_response=lambda method, path, status: told.append((method, path, status)),
    )

    response = await transport.request(
        "PATCH",
        "/x",
        query=[("labelSelector", "a in (b,c)")],
        body=b"{}",
        content_type="application/merge-patch+json",
    )

    assert (response.status, response.body) == (200, b'{"ok":true}')
    assert response.headers["Retry-After"] == "3"
    [request] = seen
    assert (request.method, request.path) == ("PATCH", "/x")
    assert request.query == "labelSelector=a%20in%20%28b%2Cc%29"
    assert request.header("content-type") == "application/merge-patch+json"
    assert request.user is user
    assert told == [("PATCH", "/x", 200)]


@simulated
async def test_a_watch_yields_one_event_a_line() -> None:
    transport = InProcessTransport(ApiServer())
    async with transport.stream(PODS, query=[("watch", "true")]) as lines:
        await make(transport)
        event = msgspec.json.decode(await anext(lines))
    assert event["type"] == "ADDED"
    assert event["object"]["metadata"]["name"] == "a"


@simulated
async def test_leaving_a_watch_ends_it_on_the_server() -> None:
    server = ApiServer()
    transport = InProcessTransport(server)
    async with transport.stream(PODS, query=[("watch", "true")]):
        assert server.open_watches == 1
    assert server.open_watches == 0

    async def follow() -> None:
        async with transport.stream(PODS, query=[("watch", "true")]) as lines:
            async for _ in lines:
                pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(1)
    assert server.open_watches == 1
    task.cancel()
    await asyncio.wait([task])
    assert server.open_watches == 0


@simulated
async def test_a_watch_ends_when_the_server_ends_it() -> None:
    server = ApiServer()
    transport = InProcessTransport(server)
    async with transport.stream(PODS, query=[("watch", "true"), ("timeoutSeconds", "7")]) as lines:
        assert [line async for line in lines] == []
    assert asyncio.get_running_loop().time() == 7


@simulated
async def test_a_refused_watch_raises_what_the_server_said() -> None:
    transport = InProcessTransport(ApiServer())
    with pytest.raises(NotFound):
        async with transport.stream("/api/v1/nonsense", query=[("watch", "true")]):
            pass
    nobody = InProcessTransport(ApiServer(authorization=True), user=messages.ANONYMOUS)
    with pytest.raises(Forbidden) as caught:
        async with nobody.stream(PODS, query=[("watch", "true")]):
            pass
    assert isinstance(caught.value, ApiError)


@simulated
async def test_closing_ends_watches_and_refuses_calls() -> None:
    transport = InProcessTransport(ApiServer())

    async def follow() -> None:
        async with transport.stream(PODS, query=[("watch", "true")]) as lines:
            async for _ in lines:
                pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(1)
    await transport.close()
    await transport.close()
    with pytest.raises(TransportError, match="closed"):
        await task
    with pytest.raises(TransportError, match="closed"):
        await make(transport)


@simulated
async def test_a_call_may_have_a_time_limit() -> None:
    class Slow:
        async def handle(self, request: messages.Request) -> messages.Response:
            await asyncio.sleep(100)
            return messages.json_response(200, {})

    with pytest.raises(TransportError, match="GET /x: no answer within 5 s"):
        await InProcessTransport(Slow()).request("GET", "/x", timeout=5)
    assert asyncio.get_running_loop().time() == 5
