"""The world of the demo and of the benchmarks: servers in this process, programs in their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final

from arc_controller.api.crd import custom_resource_definitions
from arc_controller.cli import shipped
from arc_controller.cli.demo_manager import ManagerProcess
from arc_controller.runtime.transport import Transport
from arc_controller.testing.actions import FakeActionsService, HttpActionsService
from arc_controller.testing.actions import InProcessTransport as InProcessActions
from arc_controller.testing.apiserver import ApiServer, HttpApiServer, service_account_user
from arc_controller.testing.kubelet import FakeKubelet, ListenerProcesses, ListenerTasks
from arc_controller.testing.kubelet.behaviour import Behave, well
from arc_controller.testing.kubelet.listeners import token_kubeconfig
from arc_controller.testing.transport import InProcessTransport

MANAGER_NAMESPACE: Final = "arc-systems"
MANAGER_ACCOUNT: Final = "arc-controller"
RUNNER_NAMESPACE: Final = "arc-runners"
SCALE_SET: Final = "sample-runners"
GROUP: Final = "actions.github.com"
NOT_LEFT: Final = frozenset({"events", "leases"})
"""What a cluster forgets by itself."""

_MANAGER: Final = service_account_user(MANAGER_NAMESPACE, MANAGER_ACCOUNT)

Identity = tuple[str, str, str]
"""Resource, namespace and name of an object."""


class World:
    """An API server that enforces RBAC, an Actions service, and a kubelet that runs listeners as
    processes; namespaces, roles and credentials are installed as the manifests in ``config`` say.

    ``async with World(folder) as world``, then `new_manager` and `apply_scale_set`. Leaving it, or
    being cancelled, ends every process that the kubelet started. ``folder`` takes kubeconfigs.
    With ``listener_tasks`` listeners are tasks of this process: hundreds of them fit.
    """

    def __init__(
        self,
        folder: Path,
        random: Random | None = None,
        *,
        behave: Behave = well,
        listener_tasks: bool = False,
    ) -> None:
        self.folder = folder
        self.random = random or Random()
        self.api = ApiServer(
            crds=custom_resource_definitions(), authorization=True, random=self.random
        )
        self.http = HttpApiServer(self.api)
        self.service = FakeActionsService(random=Random(self.random.getrandbits(64)))
        self.actions = HttpActionsService(self.service)
        self.listeners = ListenerProcesses(self._listener_kubeconfig)
        tasks = ListenerTasks(self._listener_transport, InProcessActions(self.service))
        self.kubelet = FakeKubelet(
            InProcessTransport(self.api, user_agent="fake-kubelet"),
            service=self.service,
            listeners=tasks if listener_tasks else self.listeners,
            behave=behave,
            random=Random(self.random.getrandbits(64)),
        )
        self.api.pod_logs = self.kubelet.logs
        self._stack = AsyncExitStack()
        self._at_first: set[Identity] = set()

    async def __aenter__(self) -> World:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.api.aclose)
            await stack.enter_async_context(self.http)
            await stack.enter_async_context(self.actions)
            self._node = asyncio.create_task(self.kubelet.start())
            stack.push_async_callback(self.stop_kubelet)
            self._install(shipped.load("manager/namespace.yaml"))
            self._install(shipped.load("samples/namespaces.yaml"))
            self._install(shipped.manifests("rbac", "rbac/runner_namespace"))
            self._install(shipped.load("samples/github_secret.yaml"))
            self._at_first = self._everything()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def new_manager(
        self, *, command: Sequence[str] | None = None, flags: Sequence[str] | None = None
    ) -> ManagerProcess:
        """The manager's process, not yet started; its account has the rights of the shipped roles.

        Stop it before the world ends.
        """
        given = {"command": command, "flags": flags}
        return ManagerProcess(
            self.http.write_kubeconfig(self.folder / "manager.kubeconfig", _MANAGER),
            self.folder / "manager.log",
            MANAGER_NAMESPACE,
            **{key: value for key, value in given.items() if value is not None},
        )

    def manager_token(self) -> str:
        """A bearer token of the manager's account."""
        return self.http.token(_MANAGER)

    async def stop_kubelet(self) -> None:
        """No pod is played any more, and listeners are killed."""
        await end(self._node)

    def apply_scale_set(self, max_runners: int, name: str = SCALE_SET) -> None:
        """The sample scale set, at our service, for at least so many runners."""
        for manifest in shipped.load("samples/autoscalingrunnerset.yaml"):
            manifest["metadata"]["name"] = name
            spec = manifest["spec"]
            spec["githubConfigUrl"] = self.actions.config_url("my-org/my-repo")
            spec["maxRunners"] = max(spec.get("maxRunners", 0), max_runners)
            self.api.install(manifest)

    async def delete_scale_sets(self) -> None:
        """Ask for the end of every scale set; the manager does the rest."""
        admin = InProcessTransport(self.api, user_agent="demo")
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{RUNNER_NAMESPACE}/autoscalingrunnersets"
        for obj in self.api.store.objects(GROUP, "autoscalingrunnersets", RUNNER_NAMESPACE):
            await admin.request("DELETE", f"{path}/{obj['metadata']['name']}")

    def left(self) -> set[Identity]:
        """Every object that was not there at first and does not go by itself."""
        return self._everything() - self._at_first

    def phases(self, resource: str) -> Counter[str]:
        """How many objects of a resource (of any group) are in which phase."""
        return Counter(
            (each.obj.get("status") or {}).get("phase") or "Pending"
            for each in self.api.store
            if _plural(each.resource) == resource
        )

    def requests(self) -> Mapping[str, Counter[str]]:
        """Requests so far but watches and lists: by ``manager`` and ``listener``, then by kind, as
        in ``patch ephemeralrunners/status``."""
        found: dict[str, Counter[str]] = {"manager": Counter(), "listener": Counter()}
        table = self.api.request_log.table("user", "verb", "resource", "subresource")
        for (user, verb, resource, part), count in table.items():
            who = who_is(user)
            if who and verb not in ("list", "watch"):
                found[who][f"{verb} {resource}{'/' + part if part else ''}"] += count
        return found

    def _install(self, objects: Iterable[Any]) -> None:
        for manifest in objects:
            self.api.install(manifest)

    def _everything(self) -> set[Identity]:
        return {
            (_plural(each.resource), each.namespace, each.name)
            for each in self.api.store
            if _plural(each.resource) not in NOT_LEFT
        }

    def _listener_transport(self, namespace: str, account: str) -> Transport:
        return InProcessTransport(self.api, user=service_account_user(namespace, account))

    async def _listener_kubeconfig(self, namespace: str, account: str) -> Mapping[str, Any]:
        admin = InProcessTransport(self.api, user_agent="fake-kubelet")
        return await token_kubeconfig(admin, {"server": self.http.url}, namespace, account)


def who_is(user: str) -> str:
    """The part of the system that a user is: ``manager``, ``listener``, or empty for others."""
    if user == f"system:serviceaccount:{MANAGER_NAMESPACE}:{MANAGER_ACCOUNT}":
        return "manager"
    return "listener" if user.startswith(f"system:serviceaccount:{MANAGER_NAMESPACE}:") else ""


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _plural(resource: str) -> str:
    return resource.split(".", maxsplit=1)[0]
