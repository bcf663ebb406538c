"""A small client without a socket: what tests of the server, and simple tests with it, need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode

from arc_controller.testing.apiserver.messages import (
    JSON,
    Object,
    Request,
    Response,
    UserInfo,
    decode_json,
    encode_json,
)
from arc_controller.testing.apiserver.patch import MERGE
from arc_controller.testing.apiserver.server import ApiServer


class LocalClient:
    """Sends requests to an `ApiServer` in the same process, as one user."""

    def __init__(
        self, api: ApiServer, user: UserInfo | None = None, user_agent: str = "local/1.0"
    ) -> None:
        self.api = api
        self._user = user
        self._user_agent = user_agent

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Response:
        """One request. Query parameters are keywords; `continue_` loses its underscore."""
        data = b""
        given = {"User-Agent": self._user_agent, **(headers or {})}
        if body is not None:
            data = body if isinstance(body, bytes) else encode_json(body)
            given["Content-Type"] = content_type
        parameters = {key.rstrip("_"): _text(value) for key, value in query.items()}
        request = Request(method, path, urlencode(parameters), given, data, self._user)
        return await self.api.handle(request)

    async def get(self, path: str, **query: Any) -> Response:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Response:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Response:
        return await self.send("PUT", path, body, **query)

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE, **query: Any
    ) -> Response:
        return await self.send("PATCH", path, body, content_type=content_type, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Response:
        return await self.send("DELETE", path, body, **query)

    async def watch(self, path: str, **query: Any) -> AsyncIterator[Object]:
        """The decoded events of a watch. Close the iterator to end it."""
        response = await self.send("GET", path, watch="true", **query)
        if isinstance(response.body, bytes):
            raise AssertionError(f"not a watch: {response.status} {response.body!r}")
        body = response.body
        try:
            async for frame in body:
                for line in frame.splitlines():
                    yield decode_json(line)
        finally:
            closing = getattr(body, "aclose", None)
            if closing is not None:
                await closing()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
