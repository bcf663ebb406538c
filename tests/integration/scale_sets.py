"""A cluster for the tests of scale sets and listeners, in one process and in simulated time.

The manager runs the two controllers under test. Pods are played by the fake kubelet (a listener's
pod just runs); the controllers of runners are absent, their part is played by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import msgspec

from arc_controller.actions import ActionsClient, Credentials, ProxySettings, UserAgent
from arc_controller.api import SCHEME
from arc_controller.api.core import Pod, PodManifest, Secret
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.scheme import build_scheme
from arc_controller.api.v1alpha1 import (
    LISTENING_SINCE,
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    Finalizer,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import Inputs
from arc_controller.controllers.scopes import cache_scopes
from arc_controller.controllers.service import ActionsClients
from arc_controller.controllers.wiring import add_scale_set_controllers
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.events import Event
from arc_controller.runtime.manager import Manager, ManagerOptions
from arc_controller.runtime.objects import Condition, K, NamespacedName, find_condition
from arc_controller.runtime.scheme import Resource, Scheme
from arc_controller.testing.actions import FakeActionsService
from arc_controller.testing.actions import InProcessTransport as ServiceTransport
from arc_controller.testing.apiserver import ApiServer, RequestRecord
from arc_controller.testing.kubelet import FakeKubelet
from arc_controller.testing.loop import now
from arc_controller.testing.transport import InProcessTransport
from tests.integration.waiting import until

CONTROLLER = "arc-systems"
RUNNERS = "ci"
NAME = "linux"
KEY = NamespacedName(RUNNERS, NAME)
URL = "https://github.com/acme"
MANAGER = "manager"
CONFIG = ControllerConfig(
    namespace=CONTROLLER, image="ghcr.io/acme/arc:0.14.0", version="0.14.0", log_level="debug"
)


def scale_set(
    name: str = NAME,
    namespace: str = RUNNERS,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """The manifest of an AutoscalingRunnerSet, as a user writes it."""
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/version": "0.14.0", **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "githubConfigUrl": URL,
            "githubConfigSecret": "github",
            "template": {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}},
            **spec,
        },
    }


@dataclass
class World:
    """The cluster, the service, and a pair of hands (`admin`)."""

    api: ApiServer
    service: FakeActionsService
    kubelet: FakeKubelet
    admin: ApiClient
    config: ControllerConfig = CONFIG
    _managers: list[asyncio.Task[None]] = field(default_factory=list)
    manager: Manager | None = None
    clients: ActionsClients | None = None
    sessions: bool = True
    """Whether the service gives listeners their sessions."""

    # --- what a user does

    def install(self, *manifests: Mapping[str, Any]) -> None:
        for manifest in manifests:
            self.api.install(manifest)

    def secret(self, name: str, namespace: str = RUNNERS, **values: str) -> None:
        self.install(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace},
                "stringData": values,
            }
        )

    async def edit(self, key: NamespacedName = KEY, **spec: Any) -> None:
        """Merge into the spec of an AutoscalingRunnerSet."""
        await self.admin.patch(AutoscalingRunnerSet, key, {"spec": spec})

    # --- what there is

    async def get(self, kind: type[K], key: NamespacedName = KEY) -> K:
        return await self.admin.get(kind, key)

    async def scale_set(self, key: NamespacedName = KEY) -> AutoscalingRunnerSet:
        return await self.admin.get(AutoscalingRunnerSet, key)

    async def runner_set(self, key: NamespacedName = KEY) -> EphemeralRunnerSet:
        return await self.admin.get(EphemeralRunnerSet, key)

    async def listeners(self) -> list[AutoscalingListener]:
        return list(await self.admin.list(AutoscalingListener))

    async def listener(self) -> AutoscalingListener:
        """The one listener."""
        (only,) = await self.listeners()
        return only

    async def pod(self) -> PodManifest:
        """The one listener's pod, with its spec."""
        key = (await self.listener()).key
        return await self.get_manifest(key)

    async def get_manifest(self, key: NamespacedName) -> PodManifest:
        path = SCHEME.path(Pod, key)
        response = await self.admin._transport.request("GET", path)
        assert response.status == 200, response.body
        return msgspec.json.decode(response.body, type=PodManifest)

    async def config_file(self) -> dict[str, Any]:
        key = (await self.listener()).key
        secret = await self.get(Secret, NamespacedName(key.namespace, f"{key.name}-config"))
        content: dict[str, Any] = msgspec.json.decode(secret.data["config.json"])
        return content

    async def condition(self, type_: str, key: NamespacedName = KEY) -> Condition:
        found = find_condition((await self.scale_set(key)).status.conditions, type_)
        assert found is not None, f"there is no condition {type_}"
        return found

    async def events(self) -> list[tuple[str, str]]:
        """(kind, reason) of everything recorded."""
        return [
            (event.involved_object.kind, event.reason) for event in await self.admin.list(Event)
        ]

    # --- what the controllers of runners would do

    async def runner_set_status(self, key: NamespacedName = KEY, **status: Any) -> None:
        await self.admin.patch_status(EphemeralRunnerSet, key, {"status": status})

    async def condemn(self) -> None:
        """The set of runners finds that its newest revision is too old for the service."""
        revision = (await self.runner_set()).spec.actionable_revision
        await self.runner_set_status(phase="Outdated", appliedActionableRevision=revision)

    async def apply_revision(self) -> None:
        """The set of runners has got rid of its old runners."""
        revision = (await self.runner_set()).spec.actionable_revision
        await self.runner_set_status(phase="Running", appliedActionableRevision=revision)

    async def _begin_to_listen(self) -> None:
        """What a listener says first, once the service has given it the session."""
        while True:
            await asyncio.sleep(0.25)
            if not self.sessions:
                continue
            for listener in await self.admin.list(AutoscalingListener):
                pod = await self.admin.find(Pod, listener.key)
                spec = listener.spec
                key = NamespacedName(
                    spec.autoscaling_runner_set_namespace, spec.ephemeral_runner_set_name
                )
                runner_set = await self.admin.find(EphemeralRunnerSet, key)
                if pod is None or runner_set is None or not pod.status.container_statuses:
                    continue
                running = pod.status.container_statuses[0].state.running
                since = runner_set.metadata.annotations.get(LISTENING_SINCE, "")
                if running is None or since >= running["startedAt"]:
                    continue
                said = {LISTENING_SINCE: now().strftime("%Y-%m-%dT%H:%M:%SZ")}
                await self.admin.patch(EphemeralRunnerSet, key, {"metadata": {"annotations": said}})

    async def _finish_runner_sets(self) -> None:
        """Let go of sets that are being deleted, as their controller does once they are empty."""
        while True:
            await asyncio.sleep(1.0)
            for obj in await self.admin.list(EphemeralRunnerSet):
                if obj.is_being_deleted and Finalizer.EPHEMERAL_RUNNER_SET in (
                    obj.metadata.finalizers
                ):
                    await self.admin.patch(
                        EphemeralRunnerSet, obj.key, {"metadata": {"finalizers": None}}
                    )

    # --- time

    async def settle(self, seconds: float = 5.0) -> None:
        """Let so many (simulated) seconds pass."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> None:
        """Until `condition()` (awaited if need be) holds."""
        await until(condition, seconds, every=0.1)

    # --- what the manager did

    def requests(self) -> list[RequestRecord]:
        """What the manager asked for since the log was cleared, watches and events left out."""
        return [
            record
            for record in self.api.request_log
            if record.user_agent == MANAGER
            and record.verb not in ("watch",)
            and record.resource != "events"
        ]

    def calls(self) -> list[str]:
        """The same as text, ``patch autoscalingrunnersets/status``."""
        return [_text(record) for record in self.requests()]

    def writes(self) -> list[str]:
        return [_text(r) for r in self.requests() if r.verb not in ("get", "list")]

    def patches(self, resource: str, subresource: str = "") -> list[dict[str, Any]]:
        return [
            record.patch
            for record in self.requests()
            if (record.verb, record.resource, record.subresource)
            == ("patch", resource, subresource)
        ]

    # --- the manager's life

    def start_manager(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        transport = InProcessTransport(self.api, user_agent=MANAGER)
        manager = self.manager = Manager(
            transport,
            SCHEME,
            options=ManagerOptions(scopes=cache_scopes(self.config), sync_period=60.0),
            now=now,
            random=Random(1),
        )
        manager.cache.detect_mutations = True
        network = ServiceTransport(self.service)

        def factory(
            config_url: str,
            credentials: Credentials,
            *,
            proxy: ProxySettings | None,
            root_cas: tuple[str, ...],
            user_agent: UserAgent,
        ) -> ActionsClient:
            return ActionsClient(
                config_url,
                credentials,
                proxy=proxy,
                root_cas=root_cas,
                user_agent=user_agent,
                transport=network,
                now=now,
                random=Random(2),
            )

        self.clients = ActionsClients(Inputs(manager.client), factory=factory)
        add_scale_set_controllers(manager, self.config, self.clients)
        self._managers.append(asyncio.create_task(manager.run()))

    async def stop_manager(self) -> None:
        assert self.manager is not None
        self.manager.stop()
        await self._managers.pop()
        self.manager.cache.check_mutations()

    async def restart_manager(self, **changes: Any) -> None:
        await self.stop_manager()
        self.start_manager(**changes)
        await self.settle()


@asynccontextmanager
async def world(*, start: bool = True, **changes: Any) -> AsyncIterator[World]:
    """A cluster with the namespaces, the credentials secret and a running manager."""
    api = ApiServer(crds=_crds(), now=now, random=Random(3))
    service = FakeActionsService(now=now)
    transport = InProcessTransport(api, user_agent="admin")
    scheme = _scheme()
    admin = ApiClient(transport, scheme)
    kubelet = FakeKubelet(InProcessTransport(api, user_agent="kubelet"), now=now, random=Random(4))
    here = World(api, service, kubelet, admin)
    for namespace in (CONTROLLER, RUNNERS):
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    here.secret("github", github_token="token-1")
    helpers = [
        asyncio.create_task(kubelet.start()),
        asyncio.create_task(here._finish_runner_sets()),
        asyncio.create_task(here._begin_to_listen()),
    ]
    if start:
        here.start_manager(**changes)
    try:
        yield here
        if here._managers:
            await here.stop_manager()
    finally:
        for task in [*helpers, *here._managers]:
            task.cancel()
        await asyncio.gather(*helpers, *here._managers, return_exceptions=True)
        await api.aclose()
        await service.aclose()


def scale_set_id(obj: AutoscalingRunnerSet) -> int:
    return int(obj.metadata.annotations[Annotation.RUNNER_SCALE_SET_ID])


@cache
def _crds() -> list[dict[str, Any]]:
    return list(custom_resource_definitions())


def _scheme() -> Scheme:
    scheme = build_scheme()
    scheme.register(Event, Resource("", "v1", "Event", "events"))
    return scheme


def _text(record: RequestRecord) -> str:
    part = f"/{record.subresource}" if record.subresource else ""
    return f"{record.verb} {record.resource}{part}"
