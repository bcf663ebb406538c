"""`Manager`: starts everything in the right order, and stops it in the right order."""

from __future__ import annotations

import asyncio
import random as random_
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import structlog
from prometheus_client import CollectorRegistry

from arc_controller.runtime.cache import Cache, Scope
from arc_controller.runtime.client import ApiClient, CachingClient
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.controller import Controller
from arc_controller.runtime.diagnostics import Diagnostics
from arc_controller.runtime.events import EventRecorder, event_scheme
from arc_controller.runtime.informer import Transform
from arc_controller.runtime.leader import (
    LeaderElection,
    LeaderElector,
    LeadershipLost,
    lease_scheme,
)
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import KubeObject
from arc_controller.runtime.scheme import Scheme
from arc_controller.runtime.servers import Checks, HttpServer, View, metrics_page, parse_address
from arc_controller.runtime.transport import Transport

log = structlog.get_logger(__name__)

CANCEL_TIMEOUT = 3.0
"""Seconds that cancelled work has to clean up. Less than what separates two leaders."""
PATIENCE = 30.0
"""Seconds after which we say what we are waiting for."""
FAREWELL_TIMEOUT = 3.0
"""Seconds for the last events, and for the release of the lease."""


@runtime_checkable
class Runnable(Protocol):
    """Something that runs with the manager.

    ``start`` runs until it is cancelled; it may return earlier if its work is done, and what it
    raises ends the manager. Unless an attribute ``needs_leader_election`` is False it runs only
    while this process is the leader.
    """

    async def start(self) -> None: ...


@runtime_checkable
class Drainable(Protocol):
    """A runnable that can finish what it is doing before it is cancelled."""

    async def drain(self) -> None:
        """Begin nothing new; return when nothing is going on any more. May be cancelled."""


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """How a manager runs. Durations are in seconds; an address of ``""`` or ``"0"`` is off."""

    leader_election: LeaderElection | None = None
    metrics_address: str = ""
    health_address: str = ""
    diagnostics_address: str = ""
    graceful_timeout: float = 30.0
    """How long running reconciles may take to finish when the manager is stopped."""
    sync_period: float | None = None
    """How often everything cached is looked at again, whether it changed or not."""
    component: str = "arc-controller"
    """Who the events say they are from."""
    scopes: Mapping[type[KubeObject], Sequence[Scope]] = field(default_factory=dict)
    """Which part of a kind is cached; all of it unless given."""
    transforms: Mapping[type[KubeObject], Transform[Any]] = field(default_factory=dict)
    """What is done to an object of a kind before it is cached."""


class Manager:
    """Holds what controllers share, and runs them.

    ``client`` reads from the cache where a kind is cached and writes through; ``api_reader``
    always asks the API server. `run` can be called once. All times come from the running loop,
    `now` and `random`; nothing is global.
    """

    def __init__(
        self,
        transport: Transport,
        scheme: Scheme,
        *,
        options: ManagerOptions = ManagerOptions(),
        cache: Cache | None = None,
        registry: CollectorRegistry | None = None,
        now: Now = utc_now,
        random: random_.Random | None = None,
    ) -> None:
        self.options = options
        self.scheme = scheme
        self.now = now
        self.random = random or random_.Random()
        self.metrics = RuntimeMetrics(registry)
        self.cache = cache or Cache(
            transport,
            scheme,
            options.scopes,
            transforms=options.transforms,
            now=now,
            random=self.random,
        )
        self.api_reader = ApiClient(transport, scheme)
        self.client = CachingClient(self.api_reader, self.cache)
        self.events = EventRecorder(
            ApiClient(transport, event_scheme()),
            scheme,
            component=options.component,
            now=now,
            random=self.random,
            metrics=self.metrics,
        )
        self.elector: LeaderElector | None = None
        if options.leader_election is not None:
            self.elector = LeaderElector(
                ApiClient(transport, lease_scheme()),
                options.leader_election,
                now=now,
                random=self.random,
                metrics=self.metrics,
            )
        self.healthz = Checks()
        self.readyz = Checks()
        self.healthz.add("ping", lambda: "")
        self.readyz.add("caches", self._why_not_ready)
        self.elected = asyncio.Event()
        """Set when this process is the leader, or at once if there is no election."""
        self.servers: dict[str, HttpServer] = self._make_servers()
        self._entries = [_Entry(self.events)]
        self._caches: asyncio.Task[None] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._has_synced = self._is_stopping = self._stop_asked = False
        self._hurry = asyncio.Event()

    @property
    def controllers(self) -> list[Controller]:
        return [e.runnable for e in self._entries if isinstance(e.runnable, Controller)]

    def add(self, runnable: Runnable) -> None:
        """Run it with the manager; at once if what it has to wait for has happened already.

        Raises `ValueError` for a controller whose name another one has: they would share logs and
        metrics.
        """
        if isinstance(runnable, Controller) and runnable.name in {c.name for c in self.controllers}:
            raise ValueError(
                f"there is a controller {runnable.name!r} already: give this one a name of its own "
                "with named(…)"
            )
        self._entries.append(_Entry(runnable))
        self._start_runnables()

    def stop(self) -> None:
        """Make `run` stop gracefully and return. May be called at any time, and again."""
        self._stop_asked = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def run(self) -> None:
        """Run until `stop` is called, something fails, or this is cancelled.

        In this order: servers, caches, wait until the caches are filled, runnables that need no
        leader, leader election, the others.

        It stops in the opposite direction: running reconciles get ``graceful_timeout`` to finish,
        then they are cancelled; after that the last events, the caches, the lease (released, so
        that another process can go on at once) and the servers. A second cancellation cuts the
        graceful part short. When the leadership is lost, reconciles are cancelled at once and the
        lease is left alone.

        Raises what a runnable raised, `LeadershipLost`, or `OSError` if a server cannot listen.
        """
        if self._over is not None:
            raise RuntimeError("a manager runs only once")
        self._over = asyncio.get_running_loop().create_future()
        if self._stop_asked:
            self._over.set_result(None)
        starting = self._spawn("start", self._start())
        try:
            await self._over
        finally:
            await self._uninterrupted(self._stop(starting))

    # --- starting ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        for server in self.servers.values():
            await server.start()
            log.info("listening", server=server.name, port=server.port)
        self._caches = self._spawn("caches", self.cache.start())
        await self._fill_caches()
        self._has_synced = True
        self._start_runnables()
        if self.elector is not None:
            await self.elector.acquire()
            self._holding = self._spawn("leader election", self.elector.hold())
        self.elected.set()
        self._start_runnables()

    async def _fill_caches(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self.cache.wait_for_sync()
            except TimeoutError:
                waiting = [each.kind for each in self.cache.informers() if not each.has_synced]
                log.warning(
                    "nothing is reconciled before these kinds can be listed",
                    kinds=[kind.__name__ for kind in waiting],
                )

    def _start_runnables(self) -> None:
        if self._is_stopping or not self._has_synced:
            return
        for entry in self._entries:
            if entry.task is None and (self.elected.is_set() or not entry.needs_leader):
                entry.task = self._spawn(entry.name, self._run_runnable(entry.runnable))

    async def _run_runnable(self, runnable: Runnable) -> None:
        await self.cache.wait_for_sync()  # one that was added late may have brought a new kind
        await runnable.start()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"manager: {name}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
        elif not self._is_stopping or not isinstance(error, LeadershipLost):
            log.error("failed while stopping", task=task.get_name(), exc_info=error)

    # --- stopping ---------------------------------------------------------------------------------

    async def _stop(self, starting: asyncio.Task[None]) -> None:
        self._is_stopping = True
        log.info("stopping", reason=self._reason())
        await _cancel([starting])
        with_leader = [entry for entry in self._entries if entry.needs_leader]
        others = [entry for entry in self._entries if not entry.needs_leader]
        await self._drain(with_leader, self.options.graceful_timeout)
        have_ended = await _cancel(entry.task for entry in with_leader)
        await self._drain(others, FAREWELL_TIMEOUT)
        await _cancel(entry.task for entry in others)
        await _cancel([self._caches])
        if self.elector is not None:
            lost = self._holding is not None and self._holding.done()
            await _cancel([self._holding])
            if have_ended and not lost:
                await self._release(self.elector)
        for server in self.servers.values():
            await server.stop()

    async def _drain(self, entries: Iterable[_Entry], timeout: float) -> None:
        """Let them finish, unless the leadership is lost or somebody is in a hurry."""
        drains = [
            asyncio.ensure_future(entry.runnable.drain())
            for entry in entries
            if isinstance(entry.runnable, Drainable) and entry.is_running
        ]
        if not drains:
            return
        all_drained = asyncio.ensure_future(asyncio.wait(drains))
        hurry = asyncio.ensure_future(self._hurry.wait())
        awaited: list[asyncio.Future[Any]] = [all_drained, hurry]
        if self._holding is not None:
            awaited.append(self._holding)
        try:
            await asyncio.wait(awaited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            helpers: list[asyncio.Future[Any]] = [all_drained, hurry, *drains]
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    async def _release(self, elector: LeaderElector) -> None:
        try:
            async with asyncio.timeout(FAREWELL_TIMEOUT):
                await elector.release()
        except Exception as error:
            log.warning(
                "the lease could not be released, it will run out",
                error=str(error) or type(error).__name__,
            )

    async def _uninterrupted(self, work: Awaitable[None]) -> None:
        """Await `work` to its end. A cancellation meanwhile is a hurry, and raised at the end."""
        task = asyncio.ensure_future(work)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
                self._hurry.set()
        if cancelled is not None:
            raise cancelled
        task.result()

    def _reason(self) -> str:
        over = self._over
        if over is None or not over.done() or over.cancelled():
            return "cancelled"
        error = over.exception()
        return str(error) or type(error).__name__ if error is not None else "asked to"

    # --- servers ----------------------------------------------------------------------------------

    def _make_servers(self) -> dict[str, HttpServer]:
        diagnostics = Diagnostics(self.cache, lambda: self.controllers)
        options = self.options
        wanted: dict[str, tuple[str, dict[str, View]]] = {
            "metrics": (
                options.metrics_address,
                {"/metrics": metrics_page(self.metrics.registry)},
            ),
            "health": (
                options.health_address,
                {"/healthz": self.healthz.page, "/readyz": self.readyz.page},
            ),
            "diagnostics": (options.diagnostics_address, diagnostics.views()),
        }
        servers = {}
        for name, (text, views) in wanted.items():
            address = parse_address(text, f"{name} address")
            if address is not None:
                servers[name] = HttpServer(name, address, views)
        return servers

    def _why_not_ready(self) -> str:
        if self._is_stopping:
            return "stopping"
        return "" if self._has_synced else "not filled yet"


@dataclass(eq=False, slots=True)
class _Entry:
    runnable: Runnable
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.runnable, "name", type(self.runnable).__name__))

    @property
    def needs_leader(self) -> bool:
        return bool(getattr(self.runnable, "needs_leader_election", True))

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()


async def _cancel(tasks: Iterable[asyncio.Task[None] | None]) -> bool:
    """Cancel and wait for the end; False if one went on in spite of it."""
    pending = [task for task in tasks if task is not None and not task.done()]
    for task in pending:
        task.cancel()
    if not pending:
        return True
    _, stubborn = await asyncio.wait(pending, timeout=CANCEL_TIMEOUT)
    for task in stubborn:
        log.error("a task does not end although it was cancelled", task=task.get_name())
    return not stubborn
