"""A burst on a real API server, with etcd and the controllers that clusters have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from arc_controller.api import SCHEME
from arc_controller.api.core import PodManifest, Secret
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import EphemeralRunner
from arc_controller.cli import shipped
from arc_controller.cli.demo_manager import ManagerProcess
from arc_controller.cli.demo_world import (
    GROUP,
    MANAGER_ACCOUNT,
    MANAGER_NAMESPACE,
    RUNNER_NAMESPACE,
    SCALE_SET,
    end,
    who_is,
)
from arc_controller.runtime.cache import Cache, Scope
from arc_controller.runtime.objects import KubeObject
from arc_controller.runtime.scheme import Resource, Scheme
from arc_controller.testing.actions import FakeActionsService, HttpActionsService
from arc_controller.testing.envtest import ClientConfig, Envtest
from arc_controller.testing.httpaccess import HttpAccess
from arc_controller.testing.kubelet import FakeKubelet, ListenerProcesses
from arc_controller.testing.kubelet.behaviour import Behave
from benchmarks.processes import Usage, usage
from benchmarks.seen import Seen
from benchmarks.stage import Stage

SETS: Final = f"/apis/{GROUP}/v1alpha1/namespaces/{RUNNER_NAMESPACE}/autoscalingrunnersets"
LISTED: Final = {
    "autoscalingrunnersets": f"/apis/{GROUP}/v1alpha1",
    "autoscalinglisteners": f"/apis/{GROUP}/v1alpha1",
    "ephemeralrunnersets": f"/apis/{GROUP}/v1alpha1",
    "ephemeralrunners": f"/apis/{GROUP}/v1alpha1",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
}
"""Everything that we make, and its group."""


class _Audited(msgspec.Struct, rename="camel"):
    verb: str = ""
    user: dict[str, Any] = msgspec.field(default_factory=dict)
    object_ref: dict[str, Any] = msgspec.field(default_factory=dict)
    stage: str = ""


class AuditCount:
    """Counts the audit log's requests as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._counts: dict[str, Counter[str]] = {"manager": Counter(), "listener": Counter()}
        self._decode = msgspec.json.Decoder(_Audited).decode

    def read(self) -> Mapping[str, Counter[str]]:
        """By program and kind, without lists and watches."""
        for line in self._new_lines():
            event = self._decode(line)
            who = who_is(event.user.get("username", ""))
            if not who or event.verb in ("list", "watch") or event.stage != "ResponseComplete":
                continue
            about = event.object_ref
            part = f"/{about['subresource']}" if "subresource" in about else ""
            self._counts[who][f"{event.verb} {about.get('resource', '')}{part}"] += 1
        return self._counts

    def _new_lines(self) -> Iterator[bytes]:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield line


class _Feed:
    """An informer's handler that feeds `Seen`."""

    def __init__(self, seen: Seen, plural: str, scheme: Scheme) -> None:
        self._seen = seen
        self._plural = plural
        self._scheme = scheme

    def on_add(self, obj: KubeObject, initial: bool) -> None:
        self._seen.added(self._plural, self._plain(obj))

    def on_update(self, old: KubeObject, new: KubeObject) -> None:
        self._seen.changed(self._plural, self._plain(new))

    def on_delete(self, obj: KubeObject) -> None:
        self._seen.gone(self._plural, obj.metadata.name)

    def _plain(self, obj: KubeObject) -> Mapping[str, Any]:
        plain: Mapping[str, Any] = msgspec.json.decode(self._scheme.encode(obj))
        return plain


class RealStage:
    """kube-apiserver, etcd and kube-controller-manager; service and kubelet are this process."""

    def __init__(
        self,
        env: Envtest,
        folder: Path,
        *,
        manager: ClientConfig,
        actions: HttpActionsService,
        random: Random,
        behave: Behave,
    ) -> None:
        self.folder = folder
        self.service = actions.service
        self.seen = Seen()
        self.url = env.admin.url
        self.ca_pem = env.admin.ca_pem
        self._env = env
        self._actions = actions
        self._manager = manager
        self._access = HttpAccess(
            self.url,
            admin_token=env.admin.token,
            manager_token=manager.token,
            ca_pem=self.ca_pem,
        )
        self.listeners = ListenerProcesses(self._access.listener_kubeconfig)
        self.transport = self._access.admin("fake-kubelet")
        self.kubelet = FakeKubelet(
            self.transport,
            service=self.service,
            listeners=self.listeners,
            behave=behave,
            random=random,
        )
        self.cache = self._watch_runners()
        self._audit = AuditCount(env.folder / "audit.log")
        self._node: asyncio.Task[None] | None = None
        self._at_first = 0

    async def start(self) -> None:
        self._node = asyncio.create_task(self.kubelet.start())
        await self.kubelet.wait_for_sync()
        await self.cache.wait_for_sync()
        self._at_first = await self._count()

    def manager_token(self) -> str:
        return self._manager.token

    def new_manager(self, *, flags: Sequence[str]) -> ManagerProcess:
        return ManagerProcess(
            self._manager.kubeconfig_file,
            self.folder / "manager.log",
            MANAGER_NAMESPACE,
            flags=flags,
        )

    async def apply_scale_set(self, max_runners: int) -> None:
        for manifest in shipped.load("samples/autoscalingrunnerset.yaml"):
            spec = manifest["spec"]
            spec["githubConfigUrl"] = self._actions.config_url("my-org/my-repo")
            spec["maxRunners"] = max(spec.get("maxRunners", 0), max_runners)
            await self._env.rest.request("POST", SETS, manifest)

    async def delete_scale_sets(self) -> None:
        await self._env.rest.request("DELETE", f"{SETS}/{SCALE_SET}")

    async def stop_kubelet(self) -> None:
        if self._node is not None:
            await end(self._node)

    async def left(self) -> int:
        return await self._count() - self._at_first

    def requests(self) -> Mapping[str, Counter[str]]:
        return {who: Counter(kinds) for who, kinds in self._audit.read().items()}

    def usage(self) -> Usage:
        parts = [usage(), *(usage(each.pid) for each in self._env.processes.values() if each.pid)]
        return Usage(
            sum(part.cpu for part in parts),
            sum(part.resident for part in parts),
            sum(part.peak for part in parts),
        )

    async def _count(self) -> int:
        found = 0
        for plural, group in LISTED.items():
            for namespace in (MANAGER_NAMESPACE, RUNNER_NAMESPACE):
                answer = await self._env.rest.request(
                    "GET", f"{group}/namespaces/{namespace}/{plural}"
                )
                found += len(answer["items"])
        return found

    def _watch_runners(self) -> Cache:
        scheme = Scheme()
        pods = Resource("", "v1", "Pod", "pods")
        scheme.register(EphemeralRunner, SCHEME.resource(EphemeralRunner))
        scheme.register(PodManifest, pods)
        scheme.register(Secret, SCHEME.resource(Secret))
        kinds: tuple[type[KubeObject], ...] = (EphemeralRunner, PodManifest, Secret)
        scopes = {kind: [Scope(RUNNER_NAMESPACE)] for kind in kinds}
        cache = Cache(self.transport, scheme, scopes=scopes)
        for kind in kinds:
            plural = scheme.resource(kind).plural
            cache.informer(kind).add_handler(_Feed(self.seen, plural, scheme))
        return cache


@asynccontextmanager
async def real(folder: Path, seed: int, behave: Behave) -> AsyncIterator[Stage]:
    """A real API server (see ``make envtest``), for as long as the block runs.

    Raises `arc_controller.testing.envtest.AssetsMissing`.
    """
    random = Random(seed)
    async with AsyncExitStack() as stack:
        env = await stack.enter_async_context(
            Envtest(custom_resource_definitions(), controller_manager=True, audit=True)
        )
        for namespace in (MANAGER_NAMESPACE, RUNNER_NAMESPACE):
            await env.namespace(namespace)
        for manifest in (
            *shipped.manifests("rbac", "rbac/runner_namespace"),
            *shipped.load("samples/github_secret.yaml"),
        ):
            await env.rest.request("POST", _collection(manifest), manifest)
        manager = await env.service_account(MANAGER_NAMESPACE, MANAGER_ACCOUNT)
        service = FakeActionsService(random=Random(random.getrandbits(64)))
        actions = await stack.enter_async_context(HttpActionsService(service))
        stage = RealStage(
            env, folder, manager=manager, actions=actions, random=random, behave=behave
        )
        stack.push_async_callback(stage.transport.close)
        watching = asyncio.create_task(stage.cache.start())
        stack.push_async_callback(end, watching)
        stack.push_async_callback(stage.stop_kubelet)
        await stage.start()
        yield stage


def _collection(manifest: Mapping[str, Any]) -> str:
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"{root}/namespaces/{namespace}" if namespace else root
    return f"{where}/{manifest['kind'].lower()}s"
