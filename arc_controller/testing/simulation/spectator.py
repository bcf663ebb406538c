"""Sees everything that is said to the API server and to the Actions service, and by whom.

It never asks a controller: what it knows are requests, answers, and what is stored. Invariants are
judged from that, failures are told from that, and its digest says whether two runs were the same.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from arc_controller.actions import HttpRequest, HttpResponse
from arc_controller.testing.actions import Call, FakeActionsService, RunnerRecord
from arc_controller.testing.actions.calls import route
from arc_controller.testing.apiserver import ApiServer, Object, Request, RequestInfo, Response
from arc_controller.testing.apiserver.store import Event

KEPT: Final = 3_000
"""How many entries of the history are kept."""

READS: Final = frozenset({"get", "list", "watch"})
CLUSTER: Final = "cluster"
"""The actor of what happens without a request: garbage collection."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the API server that was answered. ``controller`` is the one whose pass made it,
    as its log context says; empty for listeners."""

    at: float
    agent: str
    controller: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    body: bytes

    @property
    def is_write(self) -> bool:
        return self.verb not in READS

    @property
    def patch(self) -> Object:
        """The body of a patch."""
        found: Object = msgspec.json.decode(self.body)
        return found

    def __str__(self) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        body = f" {self.body.decode(errors='replace')[:300]}" if self.verb == "patch" else ""
        who = f"{self.agent} ({self.controller})" if self.controller else self.agent
        what = f"{self.verb} {self.resource}{part} {self.namespace}/{self.name}"
        return f"{self.at:10.3f}  {who}: {what} -> {self.status}{body}"


@dataclass(frozen=True, slots=True)
class Called:
    """A call of the Actions service that was answered. ``runner``: whom it was about, if it was
    there when the call came. ``status`` 0: the connection broke."""

    at: float
    call: Call
    path: str
    status: int
    runner: RunnerRecord | None
    was_removed: bool

    def __str__(self) -> str:
        about = f" ({self.runner.name})" if self.runner is not None else ""
        path = self.path.rsplit("/_apis/", 1)[-1]
        return f"{self.at:10.3f}  service: {self.call} {path}{about} -> {self.status}"


@dataclass(frozen=True, slots=True)
class Noted:
    """Anything else that a reader of the history wants to know."""

    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:10.3f}  {self.text}"


Entry = Asked | Called | Noted

_asking: ContextVar[tuple[str, str, asyncio.Task[Any] | None]] = ContextVar("asking")


class Spectator:
    """Watches one API server and one Actions service.

    ``on_request``, ``on_call`` and ``on_write`` are told everything, in order and synchronously;
    the last one is told who caused a write.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.history: deque[Entry] = deque(maxlen=KEPT)
        self.on_request: list[Callable[[Asked], None]] = []
        self.on_call: list[Callable[[Called], None]] = []
        self.on_write: list[Callable[[Event, str], None]] = []
        self.before: list[Callable[[Request, RequestInfo], Response | None]] = []
        """May answer a request instead of the server."""
        self.count = 0
        self._digest = hashlib.sha256()
        server.faults = self._hook
        server.store.observe(self._written)

    @property
    def digest(self) -> str:
        """Of all that happened so far."""
        return self._digest.hexdigest()

    def note(self, text: str) -> None:
        self._add(Noted(_now(), text))

    def actor(self) -> str:
        """Who makes the request that is being answered right now."""
        agent, _, task = _asking.get(("", "", None))
        return agent if task is asyncio.current_task() and agent else CLUSTER

    def called(self, called: Called) -> None:
        self._add(called)
        for listener in self.on_call:
            listener(called)

    def _add(self, entry: Entry) -> None:
        self.history.append(entry)
        self.count += 1
        self._digest.update(str(entry).encode())

    async def _hook(self, request: Request, info: RequestInfo) -> Response | None:
        if info.phase == "before":
            controller = structlog.contextvars.get_contextvars().get("controller", "")
            _asking.set((info.user_agent, controller, asyncio.current_task()))
            for rule in self.before:
                answer = rule(request, info)
                if answer is not None:
                    return answer
            return None
        agent, controller, _ = _asking.get()
        response = info.response
        asked = Asked(
            at=_now(),
            agent=agent,
            controller=controller,
            verb=info.verb,
            resource=info.plural,
            subresource=info.subresource,
            namespace=info.namespace,
            name=info.name or _name_of(response, info),
            status=response.status if response is not None else 0,
            body=request.body,
        )
        self._add(asked)
        for listener in self.on_request:
            listener(asked)
        return None

    def _written(self, event: Event) -> None:
        actor = self.actor()
        for listener in self.on_write:
            listener(event, actor)


class WatchedService(FakeActionsService):
    """A fake service that tells a spectator of every call."""

    spectator: Spectator
    on_answer: Callable[[HttpResponse], None] = staticmethod(lambda answer: None)
    """Is shown every answer, also those that get lost on their way."""

    def runner_named(self, name: str) -> RunnerRecord | None:
        return self._ledger.runner_named(name)

    def is_at_work(self, name: str) -> bool:
        """Whether the runner holds a job and its process is there to run it."""
        runner = self._ledger.runner_named(name)
        return runner is not None and runner.job is not None and runner.online

    async def hold_session(self, name: str, seconds: float) -> None:
        """Take the session away from whoever has it, and keep it for a while. Raises KeyError."""
        record = self.scale_set(name)
        self._ledger.close_session(record)
        session = self._ledger.open_session(record, "stranger")
        assert session is not None
        session.polls += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            session.polls -= 1
            if record.session is session:
                self._ledger.close_session(record)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        path = request.url.split("?", 1)[0].split("://", 1)[-1].partition("/")[2]
        call, parts = route(request.method, f"/{path}")
        runner = self.runners.get(int(parts["runner"])) if "runner" in parts else None
        status = 0
        try:
            response = await super().handle(request)
            status = response.status
            return response
        finally:
            removed = runner is not None and runner.removed
            self.spectator.called(Called(_now(), call, f"/{path}", status, runner, removed))

    async def _serve(self, call: Call, parts: dict[str, str], request: HttpRequest) -> HttpResponse:
        response = await super()._serve(call, parts, request)
        self.on_answer(response)
        return response


def _name_of(response: Response | None, info: RequestInfo) -> str:
    """The name that the server gave to what was created."""
    if info.verb != "create" or response is None or response.status >= 400:
        return ""
    assert isinstance(response.body, bytes)
    meta = msgspec.json.decode(response.body, type=_Named).metadata
    return meta.name


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


def _now() -> float:
    return asyncio.get_running_loop().time()
