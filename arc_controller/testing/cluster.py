"""A whole cluster in one process: API server, Actions service, kubelet, managers, listeners.

::

    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        cluster.queue_jobs(3)
        await cluster.until(completed=3, runners=0)
        print(cluster.requests.by_kind("manager"))

It runs under real time or on a `SimulatedLoop`, and on the embedded API server or on any other one
that an `ApiAccess` opens the way to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Protocol

import msgspec
import yaml

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunner,
    EphemeralRunnerSet,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.listener import Patience
from arc_controller.runtime.client import MERGE_PATCH, ApiClient
from arc_controller.runtime.manager import ManagerOptions
from arc_controller.runtime.objects import K, KubeObject, NamespacedName
from arc_controller.runtime.transport import Transport
from arc_controller.testing.actions import FakeActionsService, Job, JobState
from arc_controller.testing.actions import InProcessTransport as ActionsTransport
from arc_controller.testing.apiserver import ADMIN, ApiServer, UserInfo, service_account_user
from arc_controller.testing.kubelet import Behave, FakeKubelet, Listeners, ListenerTasks, well
from arc_controller.testing.kubelet.node import USER_AGENT as KUBELET
from arc_controller.testing.loop import SimulatedLoop
from arc_controller.testing.managers import AnyManager, ManagerHandle, ManagerParts
from arc_controller.testing.observer import Observer
from arc_controller.testing.transport import InProcessTransport
from arc_controller.testing.wires import Requests, Wire

CONTROLLER_NAMESPACE: Final = "arc-systems"
RUNNER_NAMESPACE: Final = "arc-runners"
CREDENTIALS: Final = "github-credentials"
LISTENER: Final = "listener"

Manifest = Mapping[str, Any]


class ApiAccess(Protocol):
    """The way to an API server, for each of those who use it."""

    def manager(self) -> Transport:
        """A new connection as the manager."""

    def listener(self, namespace: str, account: str) -> Transport:
        """A new connection as a listener's service account."""

    def admin(self, user_agent: str) -> Transport:
        """A new connection that may do everything: the kubelet's, the test's."""


class EmbeddedApi:
    """`ApiAccess` to an `ApiServer` in this process.

    ``manager_user`` matters where the server enforces authorization; without, everybody may do
    anything.
    """

    def __init__(self, server: ApiServer, manager_user: UserInfo = ADMIN) -> None:
        self.server = server
        self._manager_user = manager_user

    def manager(self) -> Transport:
        return InProcessTransport(self.server, user=self._manager_user, user_agent="manager")

    def listener(self, namespace: str, account: str) -> Transport:
        user = service_account_user(namespace, account)
        return InProcessTransport(self.server, user=user, user_agent=LISTENER)

    def admin(self, user_agent: str) -> Transport:
        return InProcessTransport(self.server, user_agent=user_agent)


class Cluster:
    """See the module. Everything it starts ends with the ``async with`` block.

    - `api`: the API server; a new embedded one with our CRDs unless given.
    - `service`: the Actions service; a new fake one unless given.
    - `managers`: how many managers, or the managers themselves. Several need leader election.
    - `behave`: how runner pods fare. `config`, `options`: the managers'.
    - `patience`: the listeners'. `listeners`: who runs them; tasks of this process unless given.
    - `sockets`: managers and listeners reach the service over the network, as their config URLs,
      proxies and certificates say; put it on an `HttpActionsService` first.
    - `namespaces`: the controller's, and that of the runners; made if they are not there.
    - `seed`: of every random choice; under simulated time it repeats a run exactly.
    """

    def __init__(
        self,
        *,
        api: ApiAccess | None = None,
        service: FakeActionsService | None = None,
        managers: int | Sequence[AnyManager] = 1,
        behave: Behave = well,
        config: ControllerConfig | None = None,
        options: ManagerOptions | None = None,
        patience: Patience | None = None,
        listeners: Listeners | None = None,
        sockets: bool = False,
        namespaces: tuple[str, str] = (CONTROLLER_NAMESPACE, RUNNER_NAMESPACE),
        seed: int = 0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.now: Callable[[], datetime] = (
            loop.now if isinstance(loop, SimulatedLoop) else lambda: datetime.now(UTC)
        )
        self.random = Random(seed)
        self.requests = Requests()
        self.service = service or FakeActionsService(now=self.now, random=self._random())
        self._own_server: ApiServer | None = None
        if api is None:
            self._own_server = ApiServer(
                crds=custom_resource_definitions(), now=self.now, random=self._random()
            )
            api = EmbeddedApi(self._own_server)
        self.api = api
        self.config = config or ControllerConfig(
            namespace=namespaces[0], image="arc-controller:test"
        )
        self.runner_namespace = namespaces[1]
        self.transport = api.admin("test")
        self.client = ApiClient(self.transport, SCHEME)
        self._own_transports = [self.transport, api.admin("observer"), api.admin(KUBELET)]
        self.observer = Observer(self._own_transports[1], self.now, self._random())
        network = None if sockets else ActionsTransport(self.service)
        self.kubelet = FakeKubelet(
            Wire(self._own_transports[2], "kubelet", self.requests),
            service=self.service,
            listeners=listeners
            or ListenerTasks(
                self._listener_transport,
                network,
                patience=patience,
                now=self.now,
                random=self._random(),
            ),
            behave=behave,
            now=self.now,
            random=self._random(),
        )
        if isinstance(api, EmbeddedApi):
            api.server.pod_logs = self.kubelet.logs
        self.managers: list[AnyManager] = []
        if not isinstance(managers, int):
            self.managers += managers
            managers = 0
        self.managers += [
            ManagerHandle(
                "manager" if managers == 1 else f"manager-{number}",
                ManagerParts(
                    transport=api.manager,
                    actions=network,
                    config=self.config,
                    options=options or ManagerOptions(),
                    requests=self.requests,
                    now=self.now,
                    random=self._random(),
                ),
            )
            for number in range(managers)
        ]
        self._namespaces = namespaces
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    # --- its life

    async def __aenter__(self) -> Cluster:
        try:
            for namespace in self._namespaces:
                await self.apply(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                )
            for part in (self.observer, self.kubelet):
                self._tasks.append(asyncio.create_task(part.start()))
            await self.observer.wait_for_sync()
            await self.kubelet.wait_for_sync()
            for manager in self.managers:
                manager.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for manager in self.managers:
                await manager.stop()
        finally:
            await self._end()
        if error is None:
            self._check()

    async def _end(self) -> None:
        for manager in self.managers:
            await manager.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self._own_transports:
            await transport.close()
        if self._own_server is not None:
            await self._own_server.aclose()

    def _check(self) -> None:
        """Raise what ended a part of the cluster that nobody asked to end."""
        for manager in self.managers:
            if manager.failure is not None:
                raise manager.failure
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    # --- what a user does

    async def apply(self, *manifests: Manifest | str | Path) -> None:
        """Create each object, or merge it into the one that is there. A string is YAML, with any
        number of documents; a path names a file of it. Raises `AssertionError` on a refusal."""
        for manifest in manifests:
            for document in _documents(manifest):
                await self._apply(document)

    async def add_scale_set(self, name: str = "linux", *, namespace: str = "", **spec: Any) -> None:
        """Apply an AutoscalingRunnerSet with sensible defaults, and its credentials. Keywords are
        fields of the spec in snake_case (``max_runners=5``) or as they are written."""
        namespace = namespace or self.runner_namespace
        await self.set_credentials("ghp_of_the_test", namespace=namespace)
        await self.apply(scale_set(name, namespace, **spec))

    async def set_credentials(self, token: str, *, namespace: str = "") -> None:
        """Put a token into the secret that `scale_set` names."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIALS, "namespace": namespace or self.runner_namespace},
            "stringData": {"github_token": token},
        }
        await self.apply(secret)

    async def patch(
        self, kind: type[K], name: str, change: Mapping[str, Any], *, namespace: str = ""
    ) -> K:
        """Send a merge patch as the user."""
        return await self.client.patch(kind, self._key(kind, name, namespace), change)

    async def delete(self, kind: type[KubeObject], name: str, *, namespace: str = "") -> bool:
        """Delete as the user; False if it was gone already."""
        return await self.client.delete(kind, self._key(kind, name, namespace))

    def queue_jobs(self, count: int = 1, **job: Any) -> list[Job]:
        """Queue jobs for the scale set ``scale_set="linux"``; see
        `FakeActionsService.queue_jobs`."""
        job.setdefault("scale_set", "linux")
        return self.service.queue_jobs(count, **job)

    # --- what there is

    def all(self, kind: type[K], namespace: str = "") -> Sequence[K]:
        """The objects of one of our kinds, or the pods."""
        return self.observer.all(kind, namespace)

    def get(self, kind: type[K], name: str, namespace: str = "") -> K | None:
        key = self._key(kind, name, namespace)
        return self.observer.get(kind, key.namespace, key.name)

    @property
    def runners(self) -> Sequence[EphemeralRunner]:
        return self.all(EphemeralRunner)

    async def until(
        self,
        condition: Callable[[], object] | None = None,
        *,
        runners: int | None = None,
        running: int | None = None,
        pods: int | None = None,
        listeners: int | None = None,
        completed: int | None = None,
        registrations: int | None = None,
        objects: int | None = None,
        within: float = 60.0,
    ) -> None:
        """Wait until all that is given holds.

        `runners`: EphemeralRunners; `running`: those with a job; `pods`: runner pods; `listeners`:
        open sessions; `completed`: jobs that ended well; `registrations`: runners at the service;
        `objects`: all of our kinds and all pods. Raises `AssertionError` that shows what there is
        when it does not hold ``within`` so many seconds, and what ended a manager.
        """
        wanted = {
            "runners": runners,
            "running": running,
            "pods": pods,
            "listeners": listeners,
            "completed": completed,
            "registrations": registrations,
            "objects": objects,
        }
        wanted = {name: number for name, number in wanted.items() if number is not None}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            self._check()
            found = {name: getattr(self, f"_count_{name}")() for name in wanted}
            if found == wanted and (condition is None or condition()):
                return
            left = deadline - loop.time()
            if left <= 0:
                raise AssertionError(
                    f"after {within:g} s: wanted {wanted or 'a condition'}, found {found}\n"
                    f"jobs: {dict(self.service.job_counts())}\n{self.observer.describe()}"
                )
            await self.observer.changed(min(left, 0.1))

    async def until_gone(self, *, within: float = 300.0) -> None:
        """Wait until nothing is left: no objects, no registrations, no scale sets, no sessions."""
        await self.until(
            lambda: not self.service.scale_sets and not self.service.sessions,
            objects=0,
            registrations=0,
            within=within,
        )

    # --- what happens to it

    @property
    def manager(self) -> AnyManager:
        """The manager; the first when there are several."""
        return self.managers[0]

    async def restart_manager(self, number: int = 0) -> None:
        """Stop a manager gracefully and start it again."""
        await self.managers[number].stop()
        self.managers[number].start()

    async def kill_manager(self, number: int = 0, *, start_again: bool = True) -> None:
        """SIGKILL, and a new process in its place."""
        await self.managers[number].kill()
        if start_again:
            self.managers[number].start()

    def kill_listeners(self) -> int:
        """SIGKILL every listener; how many there were."""
        return sum(
            self.kubelet.kill(pod.metadata.namespace, pod.metadata.name)
            for pod in self.observer.listener_pods()
        )

    # --- counts for `until`

    def _count_runners(self) -> int:
        return len(self.runners)

    def _count_running(self) -> int:
        return sum(runner.status.phase == "Running" for runner in self.runners)

    def _count_pods(self) -> int:
        return len(self.observer.runner_pods())

    def _count_listeners(self) -> int:
        return len(self.service.sessions)

    def _count_completed(self) -> int:
        return self.service.job_counts()[JobState.COMPLETED]

    def _count_registrations(self) -> int:
        return len(self.service.runners)

    def _count_objects(self) -> int:
        kinds: tuple[type[KubeObject], ...] = (
            AutoscalingRunnerSet,
            AutoscalingListener,
            EphemeralRunnerSet,
            EphemeralRunner,
            Pod,
        )
        return sum(len(self.all(kind)) for kind in kinds)

    # --- small things

    def _random(self) -> Random:
        return Random(self.random.getrandbits(64))

    def _listener_transport(self, namespace: str, account: str) -> Transport:
        return Wire(self.api.listener(namespace, account), LISTENER, self.requests)

    def _key(self, kind: type[KubeObject], name: str, namespace: str) -> NamespacedName:
        if not namespace:
            ours = kind is AutoscalingListener
            namespace = self.config.namespace if ours else self.runner_namespace
        return NamespacedName(namespace, name)

    async def _apply(self, document: Manifest) -> None:
        path = _collection(document)
        name = document["metadata"]["name"]
        body = msgspec.json.encode(document)
        response = await self.transport.request("POST", path, body=body)
        if response.status == 409:
            response = await self.transport.request(
                "PATCH", f"{path}/{name}", body=body, content_type=MERGE_PATCH
            )
        if response.status >= 400:
            kind = document["kind"]
            raise AssertionError(f"{kind} {name} was refused: {response.body.decode()}")


def scale_set(name: str, namespace: str = RUNNER_NAMESPACE, **spec: Any) -> dict[str, Any]:
    """The manifest of an AutoscalingRunnerSet; keywords as in `Cluster.add_scale_set`."""
    given = {_camel(key): value for key, value in spec.items()}
    container = {"name": "runner", "image": "runner:1", "command": ["/home/runner/run.sh"]}
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "githubConfigUrl": "https://github.com/acme",
            "githubConfigSecret": CREDENTIALS,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **given,
        },
    }


def _documents(manifest: Manifest | str | Path) -> Iterable[Manifest]:
    if isinstance(manifest, Path):
        manifest = manifest.read_text()
    if isinstance(manifest, str):
        return [document for document in yaml.safe_load_all(manifest) if document]
    return [manifest]


_PLURALS: Final = {"Namespace": ("namespaces", False), "ClusterRole": ("clusterroles", False)}


def _collection(document: Manifest) -> str:
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural, namespaced = _PLURALS.get(kind, (f"{kind.lower()}s", True))
    if kind == "ClusterRoleBinding":
        namespaced = False
    if not namespaced:
        return f"{root}/{plural}"
    namespace = document["metadata"].get("namespace", "default")
    return f"{root}/namespaces/{namespace}/{plural}"


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    if name == "github_server_tls":
        return "githubServerTLS"
    return head + "".join(part.capitalize() for part in rest)
