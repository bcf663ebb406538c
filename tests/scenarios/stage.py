"""Where a scenario takes place: one API server, namespaces of its own, a cluster around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from arc_controller.controllers.config import ControllerConfig
from arc_controller.runtime.leader import LeaderElection
from arc_controller.runtime.manager import ManagerOptions
from arc_controller.testing.cluster import Cluster
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, LEASE
from tests.scenarios.servers import Server, ask, prepare_runner_namespace

Scenario = Callable[["Stage"], Awaitable[None]]

SCENARIOS: list[Scenario] = []
_GROUP = "/apis/actions.github.com/v1alpha1"
_OURS = (
    f"{_GROUP}/autoscalingrunnersets",
    f"{_GROUP}/autoscalinglisteners",
    f"{_GROUP}/ephemeralrunnersets",
    f"{_GROUP}/ephemeralrunners",
    "/api/v1/pods",
)


def scenario(function: Scenario) -> Scenario:
    """Adds it to `SCENARIOS`; its name is a sentence."""
    SCENARIOS.append(function)
    return function


def name_of(function: Scenario) -> str:
    return str(getattr(function, "__name__", function))


class Stage:
    """What a scenario is given. `namespace` is for its runners; `more_runners` makes another."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.namespace = f"runners-{number}"
        self.namespaces = [self.namespace]

    async def prepare(self) -> None:
        await prepare_runner_namespace(self.server.access, self.namespace)

    async def more_runners(self) -> str:
        """Another namespace for runners, with the manager's permissions."""
        name = f"{self.namespace}-{len(self.namespaces)}"
        await prepare_runner_namespace(self.server.access, name)
        self.namespaces.append(name)
        return name

    @asynccontextmanager
    async def cluster(self, **options: Any) -> AsyncIterator[Cluster]:
        """`Cluster` here: leaders are elected, nobody but the test and the kubelet is admin.

        It must be clean at the end, as `clean_up` leaves it.
        """
        given = {
            "api": self.server.access,
            "namespaces": (CONTROLLER_NAMESPACE, self.namespace),
            "config": ControllerConfig(namespace=CONTROLLER_NAMESPACE, image="arc-controller:test"),
            "options": ManagerOptions(leader_election=LeaderElection(LEASE, CONTROLLER_NAMESPACE)),
            **options,
        }
        async with Cluster(**given) as cluster:
            yield cluster

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One request as the administrator: status and decoded body."""
        return await ask(self.server.access, method, path, body)

    async def strike(self) -> list[str]:
        """Clear the stage by force. Returns what a scenario left behind, if it did."""
        left = [path async for path in self._left()]
        for path in left:
            await self.ask("PATCH", path, {"metadata": {"finalizers": None}})
            await self.ask("DELETE", path, {"gracePeriodSeconds": 0})
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{CONTROLLER_NAMESPACE}/leases/{LEASE}"
        await self.ask("DELETE", lease)
        for namespace in self.namespaces:
            await self.ask("DELETE", f"/api/v1/namespaces/{namespace}")
        return left

    async def _left(self) -> AsyncIterator[str]:
        for collection in _OURS:
            _, found = await self.ask("GET", collection)
            root, _, plural = collection.rpartition("/")
            for item in found["items"]:
                meta = item["metadata"]
                yield f"{root}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


async def eventually(
    condition: Callable[[], Awaitable[object]], what: str, *, within: float = 60.0
) -> Any:
    """Until ``condition`` returns something true, which is then returned."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (found := await condition()):
        assert loop.time() < deadline, f"after {within:g} s still not: {what}"
        await asyncio.sleep(0.05)
    return found
