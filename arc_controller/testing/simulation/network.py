"""The network between our processes and the API server, with everything that goes wrong on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final
from urllib.parse import quote, urlencode

from arc_controller.runtime.errors import TransportError, error_from_response
from arc_controller.runtime.transport import Response, Transport
from arc_controller.testing.apiserver import (
    ADMIN,
    ApiServer,
    UserInfo,
    Watch,
    messages,
    service_account_user,
)
from arc_controller.testing.apiserver import errors as api_errors
from arc_controller.testing.simulation.plan import ApiTrouble, HeldWrites, StaleCache, WatchTrouble

LATENCY: Final = (0.0005, 0.02)
"""Seconds that a request travels on a good day."""
HANG: Final = (30.0, 60.0)
"""After how many seconds a client gives up on a request without an answer."""

STALE_STEP: Final = 5.0

MANAGER: Final = "manager"
LISTENER: Final = "listener"

GONE_EVENT: Final = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},'
    b'"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}'
)


@dataclass(eq=False, slots=True)
class Tripwire:
    """Cuts a process off at its n-th request from now on, before or after that takes effect."""

    requests: int
    effect: bool
    then: Callable[[], None]

    def trips(self) -> bool:
        self.requests -= 1
        return self.requests <= 0


class Network:
    """Connects processes to the API server, and is where the faults in force are listed.

    Faults strike managers and listeners. The user, the kubelet and other controllers of the
    cluster always get through at once: what they do is part of the workload.
    """

    def __init__(self, server: ApiServer, random: Random) -> None:
        self.server = server
        self.random = random
        self.troubles: list[ApiTrouble] = []
        self.outages: list[str] = []
        """Who is cut off (a fault's ``who``)."""
        self.watch_troubles: list[WatchTrouble] = []
        self.stale: list[StaleCache] = []
        self.held: list[HeldWrites] = []
        self._connections: dict[Connection, None] = {}
        self._flying: dict[asyncio.Task[Response], None] = {}

    # For `arc_controller.testing.cluster.Cluster`

    def manager(self) -> Transport:
        return self.connect(MANAGER, ADMIN)

    def listener(self, namespace: str, account: str) -> Transport:
        return self.connect(f"{LISTENER}/{account}", service_account_user(namespace, account))

    def admin(self, user_agent: str) -> Transport:
        return Direct(self.server, user_agent)

    # For the simulation

    def connect(self, agent: str, user: UserInfo) -> Connection:
        connection = Connection(self, agent, user)
        self._connections[connection] = None
        return connection

    def connections(self, agent: str) -> list[Connection]:
        """The open ones whose user agent begins like this."""
        return [each for each in self._connections if each.agent.startswith(agent)]

    def break_watches(self, who: str = "*") -> None:
        for connection in list(self._connections):
            if who == "*" or connection.agent.startswith(who):
                connection.break_watches()

    async def aclose(self) -> None:
        for task in list(self._flying):
            task.cancel()
        await asyncio.gather(*self._flying, return_exceptions=True)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def launch(self, delivery: asyncio.Task[Response]) -> None:
        """Let a request arrive whatever becomes of its sender."""
        self._flying[delivery] = None
        delivery.add_done_callback(self._landed)

    def _landed(self, delivery: asyncio.Task[Response]) -> None:
        del self._flying[delivery]
        if not delivery.cancelled():
            delivery.exception()  # the sender may be gone

    def is_out(self, agent: str) -> bool:
        return any(who == "*" or agent.startswith(who) for who in self.outages)

    def is_stale(self, agent: str, path: str) -> bool:
        if not self.stale or not agent.startswith(MANAGER):
            return False
        plural = path.rsplit("/", 1)[-1]
        return any(
            (not fault.resources or plural in fault.resources)
            and (fault.index < 0 or agent.startswith(f"{MANAGER}-{fault.index}/"))
            for fault in self.stale
        )


class Direct:
    """`Transport` without faults."""

    def __init__(self, server: ApiServer, agent: str, user: UserInfo = ADMIN) -> None:
        self.server = server
        self.agent = agent
        self._user = user
        self._headers = {"Accept": "application/json", "User-Agent": agent}
        self._watches: dict[Watch, None] = {}
        self._is_closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        await asyncio.sleep(0)
        return await self._deliver(method, path, query, body, content_type)

    def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(path, query)

    async def close(self) -> None:
        self._is_closed = True
        for watch in list(self._watches):
            await watch.aclose()

    async def _deliver(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None,
        content_type: str,
    ) -> Response:
        response = await self._handle(method, path, query, body, content_type)
        assert isinstance(response.body, bytes)
        return Response(response.status, response.body, response.headers)

    async def _handle(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: bytes | None,
        content_type: str,
    ) -> messages.Response:
        if self._is_closed:
            raise TransportError(f"{method} {path}: the connection is closed")
        headers = self._headers
        if body is not None:
            headers = {**headers, "Content-Type": content_type}
        return await self.server.handle(
            messages.Request(
                method=method,
                path=path,
                query=urlencode(query, quote_via=quote),
                headers=headers,
                body=body or b"",
                user=self._user,
            )
        )

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        response = await self._handle("GET", path, query, None, "")
        if not isinstance(response.body, Watch):
            assert isinstance(response.body, bytes)
            raise error_from_response(response.status, response.body, f"WATCH {path}")
        watch = response.body
        self._watches[watch] = None
        try:
            yield self._lines(watch, path)
        finally:
            self._watches.pop(watch, None)
            self._left(watch)
            await watch.aclose()

    def _left(self, watch: Watch) -> None:
        """The stream is not read any more."""

    def _lines(self, watch: Watch, path: str) -> AsyncIterator[bytes]:
        return watch


class Connection(Direct):
    """One process's way to the API server, through all faults in force."""

    def __init__(self, network: Network, agent: str, user: UserInfo) -> None:
        super().__init__(network.server, agent, user)
        self._network = network
        self._broken: dict[Watch, None] = {}
        self._is_cut = False
        self.tripwire: Tripwire | None = None

    def cut(self) -> None:
        """The process is dead: nothing more gets out, and nothing in."""
        self._is_cut = True

    def _left(self, watch: Watch) -> None:
        self._broken.pop(watch, None)

    def break_watches(self) -> None:
        for watch in list(self._watches):
            self._broken[watch] = None
            watch.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        network, random = self._network, self._network.random
        await asyncio.sleep(random.uniform(*LATENCY))
        self._check(method, path)
        if network.is_out(self.agent):
            raise TransportError(f"{method} {path}: connection refused")
        is_write = method != "GET"
        if not is_write and _is_reflector() and network.is_stale(self.agent, path):
            return _refusal(504, "Timeout", "the request timed out")
        delivery = (method, path, query, body, content_type)
        if is_write and network.held and self.agent.startswith(MANAGER):
            wait = random.uniform(0.0, max(fault.seconds for fault in network.held))
            flight = asyncio.create_task(self._fly(wait, delivery))
            network.launch(flight)
            response = await asyncio.shield(flight)
        else:
            response = await self._troubled(delivery, is_write)
        self._check(method, path)
        return response

    async def close(self) -> None:
        self._network.forget(self)
        await super().close()

    async def _troubled(
        self, delivery: tuple[str, str, Sequence[tuple[str, str]], bytes | None, str], write: bool
    ) -> Response:
        method, path = delivery[:2]
        trouble = self._trouble()
        how = trouble.how if trouble is not None else ""
        if trouble is not None and how in ("slow", "hang"):
            random = self._network.random
            seconds = random.uniform(*HANG) if how == "hang" else random.uniform(0, trouble.seconds)
            if how == "hang" and random.random() < 0.5:
                await self._arrive(delivery)
            await asyncio.sleep(seconds)
            self._check(method, path)
            if how == "hang":
                raise TransportError(f"{method} {path}: no answer in {seconds:.0f} s")
        if how == "before":
            raise TransportError(f"{method} {path}: the connection was reset")
        if how == "refused":
            return _refusal(500, "InternalError", "etcdserver: request timed out")
        if how == "throttled":
            return _refusal(429, "TooManyRequests", "the server has received too many requests")
        if how == "conflict" and write and method in ("PATCH", "PUT"):
            message = "the object has been modified; please apply your changes to the latest one"
            return _refusal(409, "Conflict", message)
        response = await self._arrive(delivery)
        if how == "after":
            raise TransportError(f"{method} {path}: the connection was reset")
        if how == "failed":
            return _refusal(500, "InternalError", "etcdserver: leader changed")
        return response

    async def _fly(
        self, wait: float, delivery: tuple[str, str, Sequence[tuple[str, str]], bytes | None, str]
    ) -> Response:
        await asyncio.sleep(wait)
        was_closed, self._is_closed = self._is_closed, False  # it left before
        try:
            return await self._deliver(*delivery)
        finally:
            self._is_closed = was_closed

    async def _arrive(
        self, delivery: tuple[str, str, Sequence[tuple[str, str]], bytes | None, str]
    ) -> Response:
        wire = self.tripwire
        if wire is None or not wire.trips():
            return await self._deliver(*delivery)
        self.tripwire = None
        if wire.effect:
            await self._deliver(*delivery)
        self.cut()
        wire.then()
        raise TransportError(f"{delivery[0]} {delivery[1]}: the process is dead")

    def _trouble(self) -> ApiTrouble | None:
        """At most one strikes."""
        random = self._network.random
        for trouble in self._network.troubles:
            if trouble.who != "*" and not self.agent.startswith(trouble.who):
                continue
            if random.random() < trouble.rate:
                return trouble
        return None

    def _check(self, method: str, path: str) -> None:
        if self._is_cut:
            raise TransportError(f"{method} {path}: the process is dead")

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await asyncio.sleep(self._network.random.uniform(*LATENCY))
        self._check("WATCH", path)
        if self._network.is_out(self.agent):
            raise TransportError(f"WATCH {path}: connection refused")
        async with super()._stream(path, query) as lines:
            yield lines

    def _lines(self, watch: Watch, path: str) -> AsyncIterator[bytes]:
        return _Lines(self, watch, path)

    def check_watch(self, watch: Watch, path: str) -> None:
        """Raises `TransportError` if the stream is broken."""
        self._check("WATCH", path)
        if watch in self._broken or self._network.is_out(self.agent):
            raise TransportError(f"WATCH {path}: the stream broke")

    async def pass_through(self, watch: Watch, path: str) -> bytes | None:
        """What happens to an event on its way: None to let it pass, else what comes instead."""
        network = self._network
        self.check_watch(watch, path)
        for trouble in network.watch_troubles:
            if trouble.how == "late":
                await asyncio.sleep(network.random.uniform(0.0, trouble.seconds))
            elif network.random.random() < trouble.rate:
                if trouble.how == "gone":
                    return GONE_EVENT
                raise TransportError(f"WATCH {path}: the stream broke")
        while network.is_stale(self.agent, path):
            self.check_watch(watch, path)
            await asyncio.sleep(STALE_STEP)
        self.check_watch(watch, path)
        return None


class _Lines:
    """An iterator, not a generator: whose end would depend on the garbage collector."""

    def __init__(self, connection: Connection, watch: Watch, path: str) -> None:
        self._connection = connection
        self._watch = watch
        self._path = path

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> bytes:
        try:
            line = await self._watch.__anext__()
        except StopAsyncIteration:
            self._connection.check_watch(self._watch, self._path)
            raise
        instead = await self._connection.pass_through(self._watch, self._path)
        return line if instead is None else instead


def _refusal(code: int, reason: str, message: str) -> Response:
    error = api_errors.StatusError(code, reason, message)
    answer = error.response()
    assert isinstance(answer.body, bytes)
    return Response(code, answer.body, answer.headers)


def _is_reflector() -> bool:
    task = asyncio.current_task()
    return task is not None and task.get_name().startswith("reflector ")
