"""The embedded API server on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from arc_controller.testing.apiserver import ApiServer, HttpApiServer, UserInfo

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def http() -> AsyncIterator[HttpApiServer]:
    api = ApiServer()
    async with HttpApiServer(api) as server:
        yield server
    await api.aclose()


@pytest.fixture
async def session(http: HttpApiServer) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {http.token()}"}
    async with aiohttp.ClientSession(http.url, headers=headers) as session:
        yield session


async def test_requests_come_in_over_http(session: aiohttp.ClientSession) -> None:
    async with session.post(PATH, json={"metadata": {"name": "a"}}) as response:
        assert response.status == 201
    async with session.get(f"{PATH}/a") as response:
        assert (await response.json())["metadata"]["name"] == "a"
    async with session.get("/readyz") as response:
        assert await response.text() == "ok"


async def test_a_wrong_token_is_nobody(http: HttpApiServer) -> None:
    async with aiohttp.ClientSession(http.url) as session:
        headers = {"Authorization": "Bearer wrong"}
        async with session.get(PATH, headers=headers) as response:
            assert response.status == 401
            assert (await response.json())["reason"] == "Unauthorized"


async def test_tokens_are_users(http: HttpApiServer) -> None:
    headers = {"Authorization": f"Bearer {http.token(UserInfo('jane', ('dev',)))}"}
    async with (
        aiohttp.ClientSession(http.url, headers=headers) as session,
        session.get(PATH) as response,
    ):
        assert response.status == 200
    assert http.api.request_log.requests_by(user="jane") == 1


async def test_a_watch_streams_and_ends_with_the_connection(
    http: HttpApiServer, session: aiohttp.ClientSession
) -> None:
    async with session.get(PATH, params={"watch": "true"}) as response:
        async with session.post(PATH, json={"metadata": {"name": "a"}}):
            pass
        line = await response.content.readline()
        assert line.startswith(b'{"type":"ADDED"')
        assert http.api.open_watches == 1
        response.close()
    for _ in range(200):
        if not http.api.open_watches:
            break
        await asyncio.sleep(0.01)
    assert http.api.open_watches == 0
