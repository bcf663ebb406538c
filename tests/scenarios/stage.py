"""Where a scenario takes place: one API server, namespaces of its own, a cluster around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.controllers.config import ControllerConfig
from arc_controller.runtime.leader import LeaderElection
from arc_controller.runtime.manager import ManagerOptions
from arc_controller.testing.actions import FakeActionsService
from arc_controller.testing.cluster import Cluster
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, LEASE
from tests.scenarios.servers import Server, ask, collection_path, create, make_namespace

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

    LIMITS: Final = {"cpu": "2", "memory": "2Gi"}

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number
        self.namespace = f"runners-{number}"
        self.namespaces = [self.namespace]

    async def prepare(self) -> None:
        await make_namespace(self.server.access, self.namespace)
        await self.permit(self.namespace)

    async def more_runners(self) -> str:
        """Another namespace for runners, with the manager's permissions."""
        name = await self._more()
        await self.permit(name)
        return name

    async def more_runners_without_permissions(self) -> str:
        """Another one where the manager may do nothing yet: what it is refused is not judged."""
        name = await self._more()
        self.server.unjudged.add(name)
        return name

    async def permit(self, namespace: str) -> None:
        """Give the manager what it may do in a namespace of runners."""
        await create(self.server.access, *self.server.permissions.runners(namespace))

    @property
    def flags(self) -> tuple[str, ...]:
        """What the command line of a manager here must say."""
        return tuple(f"--watch-single-namespace={each}" for each in self._watched)

    @property
    def _watched(self) -> tuple[str, ...]:
        return (self.namespace,) if self.server.permissions.single_namespace else ()

    @asynccontextmanager
    async def cluster(self, **options: Any) -> AsyncIterator[Cluster]:
        """`Cluster` here: leaders are elected, nobody but the test and the kubelet is admin.

        It must be clean at the end, as `clean_up` leaves it.
        """
        given: dict[str, Any] = {
            "api": self.server.access,
            "namespaces": (CONTROLLER_NAMESPACE, self.namespace),
            "config": ControllerConfig(namespace=CONTROLLER_NAMESPACE, image="arc-controller:test"),
            "options": ManagerOptions(leader_election=LeaderElection(LEASE, CONTROLLER_NAMESPACE)),
            "service": hasty_service(),
            **options,
        }
        given["config"] = replace(given["config"], watch_namespaces=self._watched)
        async with Cluster(**given) as cluster:
            yield cluster

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One request as the administrator: status and decoded body."""
        return await ask(self.server.access, method, path, body)

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        return f"{collection_path(manifest)}/{manifest['metadata']['name']}"

    async def until_absent(self, path: str, *, within: float = 30.0) -> None:
        async def absent() -> bool:
            return (await self.ask("GET", path))[0] == 404

        await eventually(absent, f"{path} is gone", within=within)

    async def until_quota_counts(self, name: str, used: str = "") -> None:
        """Until the quota is enforced and, if given, says that so many pods are used."""

        async def counts() -> bool:
            path = f"/api/v1/namespaces/{self.namespace}/resourcequotas/{name}"
            _, found = await self.ask("GET", path)
            shown = (found.get("status") or {}).get("used", {}).get("pods")
            return shown is not None and used in ("", shown)

        await eventually(counts, f"quota {name} counts")

    @asynccontextmanager
    async def limits(self, namespace: str) -> AsyncIterator[None]:
        """Meanwhile `LIMITS` are written into every container that has none.

        The embedded server knows no LimitRange: there nothing happens."""
        if not self.server.is_real:
            yield
            return
        name = f"limits-{self.number}"
        manifest = {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"limits": [{"type": "Container", "default": self.LIMITS}]},
        }
        await create(self.server.access, manifest)
        try:
            yield
        finally:
            await self.ask("DELETE", self.path_of(manifest))

    async def restrict_pods(self) -> None:
        """Admission refuses pods, but those that promise not to run as root; returns when it does.

        On a real server it is the standard ``restricted`` of pod security."""
        await self.server.restrict_pods(self.namespace)
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}

        async def refused() -> bool:
            path = f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All"
            return (await self.ask("POST", path, pod))[0] == 403

        await eventually(refused, "pods are refused")

    async def delete_namespace(self) -> None:
        """Delete the runners' namespace: what happens there from now on is not judged."""
        await self.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.server.unjudged.add(self.namespace)

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

    async def _more(self) -> str:
        name = f"{self.namespace}-{len(self.namespaces)}"
        await make_namespace(self.server.access, name)
        self.namespaces.append(name)
        return name

    async def _left(self) -> AsyncIterator[str]:
        for collection in _OURS:
            _, found = await self.ask("GET", collection)
            root, _, plural = collection.rpartition("/")
            for item in found["items"]:
                meta = item["metadata"]
                yield f"{root}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


def hasty_service() -> FakeActionsService:
    """A service that notices in seconds what the real one notices in a minute."""
    return FakeActionsService(poll_timeout=5.0, session_timeout=1.0, lost_after=0.0)


async def clean_up(cluster: Cluster, name: str = "linux") -> None:
    """Delete the scale set, and wait until nothing at all is left of it."""
    await cluster.delete(AutoscalingRunnerSet, name)
    await cluster.until_gone(within=60)


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
