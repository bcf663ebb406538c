"""Scenarios, several at once: most of their time they wait.

A manager looks after the whole cluster, so each has an API server to itself while it runs; a few
servers are lent to one scenario after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import chain, count
from types import TracebackType

import pytest

from arc_controller.testing.mutations import mutations_detected
from tests.scenarios import verdict
from tests.scenarios.servers import Server
from tests.scenarios.stage import SCENARIOS, Scenario, Stage, name_of


class Servers:
    """At most so many servers, each opened when it is first needed and closed with the block."""

    def __init__(
        self, opened: Callable[[], AbstractAsyncContextManager[Server]], most: int
    ) -> None:
        self.all: list[Server] = []
        self._opened = opened
        self._room = asyncio.Semaphore(most)
        self._free: list[Server] = []
        self._stack = AsyncExitStack()
        self._numbers = count(1)

    async def __aenter__(self) -> Servers:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def stage(self, number: int = 0) -> AsyncIterator[Stage]:
        """A stage on a server that nobody else uses meanwhile. It must be left empty. Its number is
        new unless given, and names its namespaces."""
        async with self._room:
            server = self._free.pop() if self._free else await self._another()
            try:
                stage = Stage(server, number or next(self._numbers))
                left: list[str] = []
                try:
                    await stage.prepare()
                    yield stage
                finally:
                    left = await stage.strike()
                assert left == []
            finally:
                self._free.append(server)

    async def _another(self) -> Server:
        server = await self._stack.enter_async_context(self._opened())
        self.all.append(server)
        return server


def selected(request: pytest.FixtureRequest) -> list[Scenario]:
    """The scenarios that this session of pytest runs in the file of ``request``."""
    items = [item for item in request.session.items if item.path == request.path]
    calls = [call for item in items if (call := getattr(item, "callspec", None))]
    return [call.params["scenario"] for call in calls]


class Runs:
    """The ``wanted`` ones of all ``scenarios``, running until the block ends."""

    def __init__(
        self,
        servers: Servers,
        wanted: Sequence[Scenario],
        scenarios: Sequence[Scenario] = SCENARIOS,
    ) -> None:
        self._servers = servers
        self._wanted = wanted
        self._scenarios = scenarios
        self._tasks: dict[Scenario, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Runs:
        for scenario in self._wanted:
            self._tasks[scenario] = asyncio.create_task(self._run(scenario), name=name_of(scenario))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def end_of(self, scenario: Scenario) -> None:
        """Return when the scenario is over. Raises what it raised."""
        await self._tasks[scenario]

    def refusals(self) -> list[str]:
        return list(chain.from_iterable(verdict.refusals(server) for server in self._servers.all))

    def unused(self) -> list[str]:
        """The rules nobody needed. Skips the test when not every scenario came to its end."""
        self._skip_unless_all_ended()
        return verdict.unused(self._servers.all)

    def unused_by_listeners(self) -> list[str]:
        """As `unused`, of what the manager grants to listeners."""
        self._skip_unless_all_ended()
        return verdict.unused_by_listeners(self._servers.all)

    async def _run(self, scenario: Scenario) -> None:
        async with self._servers.stage() as stage:
            with mutations_detected(by_this_task=True):
                await scenario(stage)

    def _skip_unless_all_ended(self) -> None:
        ended = [task for task in self._tasks.values() if task.done() and not task.cancelled()]
        if len(ended) < len(self._scenarios) or any(task.exception() for task in ended):
            pytest.skip("not all scenarios were run to their end")
