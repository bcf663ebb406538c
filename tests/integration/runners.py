"""A cluster for the tests of runners and their sets: one process, no sockets, simulated time.

The manager runs the two controllers under test. The test is the user, the listener and, unless a
kubelet is asked for, the node: it says what becomes of a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml

from arc_controller.actions import (
    ActionsClient,
    ConnectionFailed,
    Credentials,
    HttpRequest,
    HttpResponse,
    ProxySettings,
    RunnerScaleSet,
    UserAgent,
    credentials_from_mapping,
)
from arc_controller.api.core import Pod, PodManifest, Secret
from arc_controller.api.scheme import SCHEME, build_scheme
from arc_controller.api.v1alpha1 import (
    Annotation,
    EphemeralRunner,
    EphemeralRunnerSet,
    Finalizer,
)
from arc_controller.controllers import ephemeral_runner, ephemeral_runner_set
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import Inputs
from arc_controller.controllers.scopes import cache_scopes
from arc_controller.controllers.service import ActionsClients
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.events import Event
from arc_controller.runtime.manager import Manager, ManagerOptions
from arc_controller.runtime.objects import Condition, K, NamespacedName, find_condition
from arc_controller.runtime.scheme import Resource
from arc_controller.testing.actions import FakeActionsService
from arc_controller.testing.actions import InProcessTransport as ServiceTransport
from arc_controller.testing.apiserver import ApiServer, RequestRecord
from arc_controller.testing.apiserver.messages import Request, Response
from arc_controller.testing.apiserver.routing import RequestInfo
from arc_controller.testing.kubelet import FakeKubelet
from arc_controller.testing.loop import now
from arc_controller.testing.transport import InProcessTransport
from tests.integration.waiting import until

NAMESPACE = "ci"
SET = NamespacedName(NAMESPACE, "linux")
RUNNER = NamespacedName(NAMESPACE, "linux-runner-abcde")
URL = "https://github.com/acme"
MANAGER = "manager"
CONFIG = ControllerConfig(namespace="arc-systems", image="ghcr.io/acme/arc:1", version="0.14.0")
CRDS = sorted(Path(__file__).parents[2].glob("config/crd/actions.github.com_*.yaml"))
FINALIZERS = [Finalizer.EPHEMERAL_RUNNER, Finalizer.RUNNER_REGISTRATION]
PAT = credentials_from_mapping({"github_token": "token-1"}, "the test")
POD_TEMPLATE = {"containers": [{"name": "runner", "image": "runner:1"}]}


class Network(ServiceTransport):
    """One process's way to the service, which can be cut."""

    cut = False

    async def send(self, request: HttpRequest) -> HttpResponse:
        if self.cut:
            raise ConnectionFailed(request.method, request.url, "the process is dead")
        response = await super().send(request)
        if self.cut:
            raise ConnectionFailed(request.method, request.url, "the process is dead")
        return response


class Connection(InProcessTransport):
    """One process's way to the API server, whose watches can be held up."""

    def __init__(self, api: ApiServer) -> None:
        super().__init__(api, user_agent=MANAGER)
        self.held: set[str] = set()

    async def _lines(self, frames: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
        async for line in super()._lines(frames, path):
            while path.rpartition("/")[2] in self.held:
                await asyncio.sleep(0.1)
            yield line


@dataclass
class _Refusal:
    verb: str
    resource: str
    phase: str
    answer: Response
    times: int


@dataclass
class Cluster:
    """The cluster and the service; what is done to them, and what there is."""

    api: ApiServer
    service: FakeActionsService
    network: Network
    kubelet: FakeKubelet
    admin: ApiClient
    config: ControllerConfig = CONFIG
    scale_set_id: int = 0
    other_scale_set_id: int = 0
    manager: Manager | None = None
    _run: asyncio.Task[None] | None = None
    _transport: Connection | None = None
    most_at_once: int = 0
    _refusals: list[_Refusal] = field(default_factory=list)
    _delays: dict[tuple[str, str], float] = field(default_factory=dict)
    _slow: int = 0

    # --- the user

    def install(self, *manifests: Mapping[str, Any]) -> None:
        for manifest in manifests:
            self.api.install(manifest)

    def add_secret(self, name: str, **values: str) -> None:
        self.install(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "stringData": values,
            }
        )

    def runner_spec(self, pod: Mapping[str, Any] = POD_TEMPLATE, **spec: Any) -> dict[str, Any]:
        return {
            "githubConfigUrl": URL,
            "githubConfigSecret": "github",
            "runnerScaleSetId": self.scale_set_id,
            "spec": pod,
            **spec,
        }

    def add_set(
        self,
        replicas: int = 0,
        patch_id: int = 0,
        *,
        runner_spec: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        """As the AutoscalingRunnerSet controller makes one, and a listener patches it."""
        self.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunnerSet",
                "metadata": {
                    "name": SET.name,
                    "namespace": SET.namespace,
                    "finalizers": [Finalizer.EPHEMERAL_RUNNER_SET],
                    **(metadata or {}),
                },
                "spec": {
                    "replicas": replicas,
                    "patchID": patch_id,
                    "ephemeralRunnerSpec": runner_spec or self.runner_spec(),
                    **spec,
                },
            }
        )

    def add_runner(
        self, name: str = RUNNER.name, *, finalizers: Sequence[str] = FINALIZERS, **spec: Any
    ) -> None:
        """One that no set owns."""
        self.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunner",
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "finalizers": list(finalizers),
                },
                "spec": self.runner_spec(**spec),
            }
        )

    async def add_runner_of_set(
        self,
        name: str,
        *,
        revision: int | str | None = 0,
        patch_id: int | None = 0,
        finalizers: Sequence[str] = (),
        **status: Any,
    ) -> None:
        """One that the set owns, with a past: the status it has."""
        owner = await self.runner_set()
        annotations = {}
        if revision is not None:
            annotations[Annotation.ACTIONABLE_REVISION] = str(revision)
        if patch_id is not None:
            annotations[Annotation.PATCH_ID] = str(patch_id)
        reference = msgspec.to_builtins(SCHEME.owner_reference(owner))
        self.install(
            {
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunner",
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "annotations": annotations,
                    "finalizers": list(finalizers),
                    "ownerReferences": [reference],
                },
                "spec": self.runner_spec(),
            }
        )
        if status:
            await self.runner_status(name, **status)

    async def ask(self, replicas: int, patch_id: int, **spec: Any) -> None:
        """The listener's merge patch."""
        patch = {"spec": {"replicas": replicas, "patchID": patch_id, **spec}}
        await self.admin.patch(EphemeralRunnerSet, SET, patch)

    async def set_status(self, **status: Any) -> None:
        await self.admin.patch_status(EphemeralRunnerSet, SET, {"status": status})

    async def runner_status(self, name: str = RUNNER.name, **status: Any) -> None:
        key = NamespacedName(NAMESPACE, name)
        await self.admin.patch_status(EphemeralRunner, key, {"status": status})

    async def job_started(self, name: str = RUNNER.name, request_id: int = 41) -> None:
        """The listener's promotion."""
        await self.runner_status(
            name, phase="Running", jobRequestId=request_id, jobId=f"job-{request_id}"
        )

    async def delete(self, kind: type[Any], key: NamespacedName) -> None:
        await self.admin.delete(kind, key)

    def refuse(
        self,
        verb: str,
        resource: str,
        code: int,
        reason: str,
        message: str = "no",
        *,
        times: int = 1_000_000,
        after: bool = False,
    ) -> None:
        """Refuse so many of the manager's requests, `after` they took effect or before."""
        body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason}
        content = msgspec.json.encode({**body, "message": message})
        answer = Response(code, {"Content-Type": "application/json"}, content)
        phase = "after" if after else "before"
        self._refusals.append(_Refusal(verb, resource, phase, answer, times))

    def accept(self) -> None:
        """Refuse nothing any more."""
        self._refusals.clear()

    def slow_down(self, verb: str, resource: str, seconds: float) -> None:
        """Every such request of the manager takes that long, before it takes effect."""
        self._delays[verb, resource] = seconds

    def hold_watch(self, resource: str) -> None:
        """From now on the manager hears of no change of these objects but its own."""
        assert self._transport is not None
        self._transport.held.add(resource)

    def release_watches(self) -> None:
        assert self._transport is not None
        self._transport.held.clear()

    async def _faults(self, request: Request, info: RequestInfo) -> Response | None:
        if info.user_agent != MANAGER:
            return None
        resource = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
        if info.phase == "before" and (seconds := self._delays.get((info.verb, resource))):
            self._slow += 1
            self.most_at_once = max(self.most_at_once, self._slow)
            await asyncio.sleep(seconds)
            self._slow -= 1
        for refusal in self._refusals:
            if (refusal.verb, refusal.resource, refusal.phase) != (info.verb, resource, info.phase):
                continue
            if refusal.times > 0:
                refusal.times -= 1
                return refusal.answer
        return None

    # --- the node

    async def pod_status(self, name: str = RUNNER.name, **status: Any) -> None:
        await self.admin.patch_status(Pod, NamespacedName(NAMESPACE, name), {"status": status})

    async def pod_runs(self, name: str = RUNNER.name, ready: bool = True) -> None:
        await self.pod_status(name, **running(ready))

    async def runner_exits(self, code: int, name: str = RUNNER.name, **status: Any) -> None:
        await self.pod_status(name, **exited(code, **status))

    # --- what there is

    async def runner(self, name: str = RUNNER.name) -> EphemeralRunner:
        return await self.admin.get(EphemeralRunner, NamespacedName(NAMESPACE, name))

    async def runner_set(self) -> EphemeralRunnerSet:
        return await self.admin.get(EphemeralRunnerSet, SET)

    async def runners(self) -> list[EphemeralRunner]:
        found = await self.admin.list(EphemeralRunner, namespace=NAMESPACE)
        return sorted(found, key=lambda runner: runner.metadata.name)

    async def names(self) -> list[str]:
        return [runner.metadata.name for runner in await self.runners()]

    async def exists(self, kind: type[K], name: str = RUNNER.name) -> bool:
        return await self.admin.find(kind, NamespacedName(NAMESPACE, name)) is not None

    async def pod(self, name: str = RUNNER.name) -> PodManifest:
        path = SCHEME.path(Pod, NamespacedName(NAMESPACE, name))
        response = await InProcessTransport(self.api, user_agent="admin").request("GET", path)
        assert response.status == 200, response.body
        return msgspec.json.decode(response.body, type=PodManifest)

    async def secret(self, name: str = RUNNER.name) -> Secret:
        return await self.admin.get(Secret, NamespacedName(NAMESPACE, name))

    async def condition(self, type_: str, name: str = RUNNER.name) -> Condition:
        found = find_condition((await self.runner(name)).status.conditions, type_)
        assert found is not None, f"there is no condition {type_}"
        return found

    async def set_condition(self, type_: str) -> Condition:
        found = find_condition((await self.runner_set()).status.conditions, type_)
        assert found is not None, f"there is no condition {type_}"
        return found

    async def events(self) -> list[tuple[str, str]]:
        """(kind, reason) of everything recorded, without repeats."""
        found = await self.admin.list(Event, namespace=NAMESPACE)
        return sorted({(event.involved_object.kind, event.reason) for event in found})

    def registered(self) -> dict[str, int]:
        """The runners that the service knows, with their ids."""
        return {record.name: record.id for record in self.service.runners.values()}

    # --- time

    async def settle(self, seconds: float = 5.0) -> None:
        """Let so many (simulated) seconds pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> None:
        """Until `condition()` (awaited if need be) holds."""
        await until(condition, seconds)

    # --- what the manager did

    def requests(self) -> list[RequestRecord]:
        """What the manager asked for since the log was cleared, watches and events left out."""
        return [
            record
            for record in self.api.request_log
            if record.user_agent == MANAGER
            and record.verb != "watch"
            and record.resource != "events"
        ]

    def calls(self, *, without: str = "") -> list[str]:
        """The same as text, ``patch ephemeralrunners/status``."""
        texts = [request_text(record) for record in self.requests()]
        return [text for text in texts if not without or without not in text]

    def writes(self) -> list[str]:
        return [request_text(r) for r in self.requests() if r.verb not in ("get", "list")]

    def patches(self, resource: str, subresource: str = "") -> list[dict[str, Any]]:
        return [
            record.patch
            for record in self.requests()
            if (record.verb, record.resource, record.subresource)
            == ("patch", resource, subresource)
        ]

    def forget(self) -> None:
        """Clear the log."""
        self.api.request_log.clear()

    # --- the manager's life

    def start_manager(self) -> Manager:
        transport = self._transport = Connection(self.api)
        self.network = Network(self.service)
        manager = self.manager = Manager(
            transport,
            SCHEME,
            options=ManagerOptions(scopes=cache_scopes(self.config), sync_period=None),
            now=now,
            random=Random(1),
        )
        manager.cache.detect_mutations = True
        clients = ActionsClients(Inputs(manager.client), factory=self.client)
        ephemeral_runner.add_to_manager(manager, self.config, clients)
        ephemeral_runner_set.add_to_manager(manager, self.config, clients)
        self._run = asyncio.create_task(manager.run())
        return manager

    async def stop_manager(self) -> None:
        assert self.manager is not None
        assert self._run is not None
        self.manager.stop()
        await self._run
        self._run = None
        self.manager.cache.check_mutations()

    async def kill_manager(self) -> None:
        """SIGKILL: nothing that it was about to do happens any more."""
        assert self._run is not None
        assert self._transport is not None
        await self._transport.close()
        self.network.cut = True
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)
        self._run = None

    def client(
        self,
        config_url: str,
        credentials: Credentials,
        *,
        proxy: ProxySettings | None = None,
        root_cas: tuple[str, ...] = (),
        user_agent: UserAgent | None = None,
    ) -> ActionsClient:
        return ActionsClient(
            config_url,
            credentials,
            user_agent=user_agent,
            transport=self.network,
            now=now,
            random=Random(2),
        )


@asynccontextmanager
async def cluster(
    *, manager: bool = True, kubelet: bool = False, seed: int = 3, **config: Any
) -> AsyncIterator[Cluster]:
    """The cluster, with a namespace, credentials, a registered scale set and a running manager."""
    api = ApiServer(crds=crds(), now=now, random=Random(seed))
    service = FakeActionsService(now=now)
    transport = InProcessTransport(api, user_agent="admin")
    node = FakeKubelet(
        InProcessTransport(api, user_agent="kubelet"), service=service, now=now, random=Random(4)
    )
    here = Cluster(
        api,
        service,
        Network(service),
        node,
        ApiClient(transport, _scheme()),
        replace(CONFIG, **config),
    )
    api.faults = here._faults
    here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    here.add_secret("github", github_token="token-1")
    async with here.client(URL, PAT) as client:
        here.scale_set_id = (await client.create_runner_scale_set(RunnerScaleSet(name="linux"))).id
        other = await client.create_runner_scale_set(RunnerScaleSet(name="other"))
        here.other_scale_set_id = other.id
    helpers = [asyncio.create_task(node.start())] if kubelet else []
    if manager:
        here.start_manager()
    try:
        yield here
        if here._run is not None:
            await here.stop_manager()
    finally:
        tasks = [*helpers, *([here._run] if here._run is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.aclose()
        await service.aclose()


@cache
def crds() -> tuple[dict[str, Any], ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(yaml.load(path.read_text(), Loader=loader) for path in CRDS)


def running(ready: bool = True) -> dict[str, Any]:
    """The status of a pod whose runner runs."""
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [_container("runner", {"running": {}}, ready)],
    }


def exited(code: int, *, phase: str = "", **status: Any) -> dict[str, Any]:
    """The status of a pod whose runner has ended."""
    end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
    return {
        "phase": phase or ("Succeeded" if code == 0 else "Failed"),
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [_container("runner", {"terminated": end}, False)],
        **status,
    }


def request_text(record: RequestRecord) -> str:
    part = f"/{record.subresource}" if record.subresource else ""
    return f"{record.verb} {record.resource}{part}"


def is_locked(patch: Mapping[str, Any]) -> bool:
    """Whether a patch carries the version that it was computed from."""
    return bool(patch.get("metadata", {}).get("resourceVersion"))


def _container(name: str, state: Mapping[str, Any], ready: bool) -> dict[str, Any]:
    return {
        "name": name,
        "image": "runner:1",
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


def _scheme() -> Any:
    scheme = build_scheme()
    scheme.register(Event, Resource("", "v1", "Event", "events"))
    return scheme
