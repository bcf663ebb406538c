"""One simulated cluster: the real managers, controllers and listeners, unmodified, in a world where
everything that can go wrong does.

The API server, the Actions service and the kubelet are the ones of `arc_controller.testing`; the
network between them and our processes is `arc_controller.testing.simulation.network`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, Final

from arc_controller.api.core import PodManifest
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.controllers.config import ControllerConfig
from arc_controller.runtime.leader import LeaderElection, LeadershipLost
from arc_controller.runtime.manager import ManagerOptions
from arc_controller.testing.actions import InProcessTransport as ActionsTransport
from arc_controller.testing.apiserver import (
    ADMIN,
    ApiServer,
    Object,
    Request,
    RequestInfo,
    Response,
    Stored,
)
from arc_controller.testing.apiserver import errors as api_errors
from arc_controller.testing.cluster import CONTROLLER_NAMESPACE, RUNNER_NAMESPACE, Cluster
from arc_controller.testing.kubelet import Disruption, DisruptionKind, PodBehaviour
from arc_controller.testing.loop import START, SimulatedLoop
from arc_controller.testing.managers import ManagerHandle, ManagerParts
from arc_controller.testing.simulation import facts
from arc_controller.testing.simulation.invariants import ALL, Invariant, Scene, Violation
from arc_controller.testing.simulation.leaks import Leaks
from arc_controller.testing.simulation.network import MANAGER, Connection, Network, Tripwire
from arc_controller.testing.simulation.plan import Plan, PodTrouble, Quota
from arc_controller.testing.simulation.spectator import Spectator, WatchedService

LEASE: Final = "arc-controller"
SUPERVISION: Final = 5.0
"""How soon a manager that ended by itself is started again."""
HISTORY: Final = 20_000


class World:
    """A cluster for one plan. `violation` is the first thing that must not be."""

    def __init__(self, plan: Plan, invariants: Iterable[type[Invariant]] = ALL) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "a simulation needs a SimulatedLoop"
        self.loop = loop
        self.plan = plan
        self.random = Random(plan.seed)
        self.violated: asyncio.Future[Violation] = loop.create_future()
        self.server = ApiServer(
            crds=custom_resource_definitions(),
            now=self._steady,
            random=self._random(),
            history=HISTORY,
        )
        self.store = self.server.store
        self.service = WatchedService(
            now=self._steady, random=self._random(), queue_token_lifetime=timedelta(minutes=20)
        )
        self.service.add_runner_group("extra")
        self.spectator = self.service.spectator = Spectator(self.server)
        self.network = Network(self.server, self._random())
        self.leaks = Leaks(self.fail, self.fail)
        self.service.on_answer = self.leaks.learn
        scene = Scene(self.store, self.service, plan, self.fail)
        for invariant in (kind(scene) for kind in invariants):
            self.spectator.on_request.append(invariant.on_request)
            self.spectator.on_call.append(invariant.on_call)
            self.spectator.on_write.append(invariant.on_write)
        self.spectator.on_write.append(self.leaks.on_write)
        self.spectator.before.append(self._enforce_quota)
        self.config = ControllerConfig(
            namespace=CONTROLLER_NAMESPACE,
            image="arc-controller:1",
            exclude_label_prefixes=("private.",),
        )
        self.cluster = Cluster(
            api=self.network,
            service=self.service,
            behave=self._behave,
            config=self.config,
            seed=self.random.getrandbits(32),
        )
        self.managers = [
            SimulatedManager(self, f"{MANAGER}-{index}", elected=plan.managers > 1)
            for index in range(plan.managers)
        ]
        self.cluster.managers[:] = self.managers
        self.pod_troubles: list[PodTrouble] = []
        self.quotas: list[Quota] = []
        self._pods = self._random()
        self._supervisor: asyncio.Task[None] | None = None

    # --- its life

    async def start(self) -> None:
        await self.cluster.__aenter__()
        self._supervisor = asyncio.create_task(self._supervise())

    async def end(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        for manager in self.managers:
            await manager.kill()
        await self.network.aclose()
        await self.cluster.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        await self.service.aclose()
        await self.server.aclose()

    def fail(self, name: str, text: str) -> None:
        """Something is not as it must be; the first such thing counts."""
        violation = Violation(name, text, self.loop.time())
        self.spectator.note(f"VIOLATION {violation}")
        if not self.violated.done():
            self.violated.set_result(violation)

    # --- what there is

    def objects(self, resource: str, namespace: str = "") -> list[Object]:
        return [stored.obj for stored in self.store.scan(resource, namespace)]

    def scale_sets(self) -> list[Object]:
        return self.objects(facts.SCALE_SETS)

    def pick(self, stored: list[Stored], where: float) -> Stored | None:
        """One of them; ``where`` goes from 0 to 1."""
        if not stored:
            return None
        return stored[min(int(where * len(stored)), len(stored) - 1)]

    def runner_pods(self) -> list[Stored]:
        return self.store.scan(facts.PODS, RUNNER_NAMESPACE)

    def listener_pods(self) -> list[Stored]:
        return self.store.scan(facts.PODS, CONTROLLER_NAMESPACE)

    # --- what goes wrong by itself

    async def _supervise(self) -> None:
        """What keeps a Deployment's pods running."""
        while True:
            await asyncio.sleep(SUPERVISION)
            for manager in list(self.managers):
                failure, manager.failure = manager.failure, None
                if failure is not None and not isinstance(failure, LeadershipLost):
                    self.fail("managers do not crash", f"{manager.name}: {failure!r}")
                if manager.is_wanted and not manager.is_running:
                    self.spectator.note(f"{manager.name} is started again after {failure!r}")
                    await manager.kill()
                    manager.start()

    def _behave(self, pod: PodManifest) -> PodBehaviour:
        random = self._pods
        normal = PodBehaviour(
            schedule=random.uniform(0.0, 1.0),
            pull=random.uniform(0.0, 5.0),
            start=random.uniform(0.0, 2.0),
            terminates_in=random.uniform(0.0, 10.0),
        )
        trouble = next(iter(self.pod_troubles), None)
        if trouble is None:
            return normal
        chance = random.random()
        if chance < trouble.stuck:
            until = trouble.at + trouble.lasts - self.loop.time()
            return replace(normal, schedule=max(0.0, until))
        if chance >= trouble.stuck + trouble.share:
            return normal
        if trouble.code >= 0:
            crash = Disruption(DisruptionKind.CRASHED, trouble.seconds, trouble.code)
            return replace(normal, disruption=crash)
        kind = random.choice(("exit", "init", "never-connects", *DisruptionKind))
        code = random.choice((0, 1, 1, 2, 7, 137, random.randint(1, 255)))
        if kind == "exit":
            return replace(normal, exit_code=code)
        if kind == "init":
            return replace(normal, init_exit_code=code or 1)
        if kind == "never-connects":
            return replace(normal, connects=False, exit_code=code)
        disruption = Disruption(DisruptionKind(kind), random.uniform(0.0, 60.0), code)
        return replace(normal, disruption=disruption)

    def _enforce_quota(self, request: Request, info: RequestInfo) -> Response | None:
        creates_pod = (info.verb, info.plural, info.subresource) == ("create", "pods", "")
        if not self.quotas or not creates_pod:
            return None
        limit = min(quota.pods for quota in self.quotas)
        if info.namespace != RUNNER_NAMESPACE or len(self.runner_pods()) < limit:
            return None
        message = (
            f"pods is forbidden: exceeded quota: pods, requested: pods=1, used: pods={limit}, "
            f"limited: pods={limit}"
        )
        return api_errors.StatusError(403, "Forbidden", message).response()

    # --- small things

    def _steady(self) -> Any:
        """The clock of everybody but us."""
        return START + timedelta(seconds=self.loop.time())

    def _random(self) -> Random:
        return Random(self.random.getrandbits(64))


class SimulatedManager(ManagerHandle):
    """A manager whose every incarnation has a name of its own, and that dies at a given request."""

    def __init__(self, world: World, name: str, *, elected: bool) -> None:
        self._world = world
        self._elected = elected
        self._incarnation = 0
        self.is_wanted = False
        cluster = world.cluster
        super().__init__(
            name,
            ManagerParts(
                transport=self._connect,
                actions=ActionsTransport(world.service),
                config=world.config,
                options=ManagerOptions(),
                requests=cluster.requests,
                now=cluster.now,
                random=Random(world.random.getrandbits(64)),
            ),
        )

    @property
    def agent(self) -> str:
        return f"{self.name}/{self._incarnation}"

    def start(self) -> None:
        self._incarnation += 1
        self.is_wanted = True
        election = None
        if self._elected:
            election = LeaderElection(
                LEASE,
                CONTROLLER_NAMESPACE,
                identity=self.agent,
                lease_duration=30.0,
                renew_deadline=20.0,
                retry_period=5.0,
            )
        options = replace(self._parts.options, leader_election=election)
        self._parts = replace(self._parts, options=options)
        self._world.spectator.note(f"{self.agent} starts")
        super().start()

    async def stop(self) -> None:
        self.is_wanted = False
        await super().stop()

    async def die(self, requests: int, effect: bool) -> None:
        """SIGKILL, at the n-th request from now on."""
        connections = self._world.network.connections(self.agent)
        if not self.is_running or not connections:
            return
        dead = asyncio.Event()
        if requests:
            connections[0].tripwire = Tripwire(requests, effect, dead.set)
            try:
                async with asyncio.timeout(60.0):
                    await dead.wait()
            except TimeoutError:
                connections[0].tripwire = None
        connections[0].cut()
        self.is_wanted = False
        self._world.spectator.note(f"{self.agent} is killed")
        await self.kill()

    def _connect(self) -> Connection:
        return self._world.network.connect(self.agent, ADMIN)


Waiter = Callable[[], list[str]]
"""Says what is not as it should be; empty when all is well."""
