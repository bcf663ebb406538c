"""The two servers of a comparison: one in this process, one behind HTTP."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp

from arc_controller.testing.apiserver.differential.steps import Step
from arc_controller.testing.apiserver.messages import ADMIN, Object, Request, UserInfo
from arc_controller.testing.apiserver.server import ApiServer


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    warnings: str = ""


class Side(Protocol):
    """One of the two servers."""

    async def request(self, step: Step) -> Answer: ...

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        """Collect the events of a watch; what is called at its end ends it."""


class EmbeddedSide:
    """An `ApiServer` in this process. Turn its controllers off: the other side has none."""

    def __init__(self, api: ApiServer, user: UserInfo = ADMIN) -> None:
        self._api = api
        self._user = user

    async def request(self, step: Step) -> Answer:
        try:
            response = await self._api.handle(self._request(step))
        except Exception as error:
            return _crashed(error)
        assert isinstance(response.body, bytes)
        return Answer(response.status, _decoded(response.body), response.headers.get("Warning", ""))

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        try:
            response = await self._api.handle(self._request(_as_watch(step)))
        except Exception as error:
            return _crashed(error), _nothing
        body = response.body
        if isinstance(body, bytes):
            return Answer(response.status, _decoded(body)), _nothing

        async def follow() -> None:
            async for frame in body:
                events.append(json.loads(frame))

        task = asyncio.get_running_loop().create_task(follow())
        return Answer(response.status, None), lambda: void(task.cancel())

    def _request(self, step: Step) -> Request:
        return Request(
            step.method, step.path, urlencode(step.query), _headers(step), _data(step), self._user
        )


class HttpSide:
    """A server behind a session whose base URL and headers reach it as an administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, step: Step) -> Answer:
        async with self._session.request(
            step.method,
            step.path,
            data=_data(step),
            params=list(step.query),
            headers=_headers(step),
            skip_auto_headers=["Content-Type"],
        ) as response:
            warnings = ", ".join(response.headers.getall("Warning", []))
            return Answer(response.status, _decoded(await response.read()), warnings)

    async def watch(self, step: Step, events: list[Object]) -> tuple[Answer, Callable[[], None]]:
        step = _as_watch(step)
        response = await self._session.get(
            step.path, params=list(step.query), headers=_headers(step)
        )
        if response.status != 200:
            answer = Answer(response.status, _decoded(await response.read()))
            response.close()
            return answer, _nothing

        async def follow() -> None:
            async for line in response.content:
                events.append(json.loads(line))

        task = asyncio.get_running_loop().create_task(follow())

        def stop() -> None:
            task.cancel()
            response.close()

        return Answer(response.status, None), stop


def _as_watch(step: Step) -> Step:
    return replace(step, method="GET", query=(("watch", "1"), *step.query))


def _headers(step: Step) -> dict[str, str]:
    headers = {"User-Agent": "differential/1"}
    if step.accept:
        headers["Accept"] = step.accept
    if step.body is not None or step.raw is not None:
        headers["Content-Type"] = step.content_type
    return headers


def _data(step: Step) -> bytes:
    if step.raw is not None:
        return step.raw.encode()
    return b"" if step.body is None else json.dumps(step.body).encode()


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def _crashed(error: Exception) -> Answer:
    """`handle` never raises for what a client does, so that it did is a difference."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return Answer(0, f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")


def _nothing() -> None:
    """The end of a watch that never began."""


def void(_: object) -> None:
    """Throw a result away."""
