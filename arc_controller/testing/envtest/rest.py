"""The few HTTP calls that set up a server. Small on purpose: tests of a client bring their own."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

from arc_controller.testing.envtest.assets import EnvtestError
from arc_controller.testing.envtest.clientconfig import ClientConfig

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class RestError(EnvtestError):
    """The API server refused a request; carries the `Answer`."""

    def __init__(self, method: str, path: str, answer: Answer) -> None:
        super().__init__(f"{method} {path}: {answer.status} {answer.message}")
        self.answer = answer


@dataclass(frozen=True)
class Answer:
    """Status code and decoded body (a string where it is not JSON)."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        if isinstance(self.body, dict):
            return str(self.body.get("message", ""))
        return str(self.body)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


class Rest:
    """Requests of one user. An async context manager: it holds a connection pool."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Rest:
        trust = ssl.create_default_context(cafile=str(self.config.ca_file))
        self._session = aiohttp.ClientSession(
            self.config.url,
            headers={"Authorization": f"Bearer {self.config.token}"},
            connector=aiohttp.TCPConnector(ssl=trust),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def try_request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request, whatever the answer. Raises `aiohttp.ClientError` without an answer."""
        if self._session is None:
            raise EnvtestError("Rest is used outside of `async with`")
        async with self._session.request(
            method,
            path,
            data=None if body is None else json.dumps(body).encode(),
            params=params,
            headers={"Content-Type": content_type, **(headers or {})},
        ) as response:
            content = await response.read()
            try:
                return Answer(response.status, json.loads(content))
            except ValueError:
                return Answer(response.status, content.decode(errors="replace"))

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        params: dict[str, str] | None = None,
    ) -> Any:
        """As `try_request`, returning the body. Raises `RestError` on a status of 300 or more."""
        answer = await self.try_request(
            method, path, body, content_type=content_type, params=params
        )
        if not answer.ok:
            raise RestError(method, path, answer)
        return answer.body
