"""``arcctl demo``: the main job from nothing to nothing, with real processes."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from arc_controller.api.crd import custom_resource_definitions
from arc_controller.cli import shipped
from arc_controller.cli.demo_manager import ManagerProcess, resident_mib
from arc_controller.cli.demo_view import Snapshot, View, make_view
from arc_controller.testing.actions import FakeActionsService, HttpActionsService, JobState
from arc_controller.testing.apiserver import ApiServer, HttpApiServer, service_account_user
from arc_controller.testing.kubelet import FakeKubelet, ListenerProcesses
from arc_controller.testing.kubelet.listeners import token_kubeconfig
from arc_controller.testing.transport import InProcessTransport

MANAGER_NAMESPACE: Final = "arc-systems"
MANAGER_ACCOUNT: Final = "arc-controller"
RUNNER_NAMESPACE: Final = "arc-runners"
SCALE_SET: Final = "sample-runners"
GROUP: Final = "actions.github.com"
OURS: Final = ("autoscalingrunnersets", "autoscalinglisteners", "ephemeralrunnersets")
NOT_LEFT: Final = frozenset({"events", "leases"})
"""What a cluster forgets by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    jobs: int = 20
    keep: bool = False
    kill_manager_at: float | str | None = None
    """Seconds after the jobs were queued, or ``random``."""
    job_seconds: float = 2.0
    timeout: float = 140.0


@dataclass(slots=True)
class Memory:
    """The highest resident memory seen, in MiB."""

    manager: float = 0.0
    listener: float = 0.0


class Demo:
    """Everything in one object: `run` is the demo, from start to its last line."""

    def __init__(
        self,
        options: DemoOptions,
        random: Random | None = None,
        *,
        view: View | None = None,
        manager_command: tuple[str, ...] | None = None,
    ) -> None:
        self._options = options
        self._random = random or Random()
        self._view = view or make_view()
        self._manager_command = manager_command
        self._memory = Memory()
        self._queued_at = 0.0
        self._hint = ""

    async def run(self) -> int:
        """The exit status: 0 only if no job was lost and nothing was left. Cancelling it ends every
        process that it started."""
        try:
            async with AsyncExitStack() as stack:
                await self._set_up(stack)
                return await self._play()
        finally:
            self._view.close()

    # --- setting up

    async def _set_up(self, stack: AsyncExitStack) -> None:
        # Its own log lines would tear the table; what happens is in the manager's log and in pods'.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arcctl-demo-")))
        self._api = ApiServer(
            crds=custom_resource_definitions(), authorization=True, random=self._random
        )
        stack.push_async_callback(self._api.aclose)
        self._http = await stack.enter_async_context(HttpApiServer(self._api))
        self._service = FakeActionsService(random=Random(self._random.getrandbits(64)))
        self._actions = await stack.enter_async_context(HttpActionsService(self._service))

        self._listeners = ListenerProcesses(self._listener_kubeconfig)
        self._kubelet = FakeKubelet(
            InProcessTransport(self._api, user_agent="fake-kubelet"),
            service=self._service,
            listeners=self._listeners,
            random=Random(self._random.getrandbits(64)),
        )
        self._api.pod_logs = self._kubelet.logs
        node = asyncio.create_task(self._kubelet.start())
        stack.push_async_callback(_end, node)

        self._install(shipped.load("manager/namespace.yaml"))
        self._install(shipped.load("samples/namespaces.yaml"))
        self._install(shipped.manifests("rbac", "rbac/runner_namespace"))
        self._install(shipped.load("samples/github_secret.yaml"))
        self._at_first = self._everything()

        account = service_account_user(MANAGER_NAMESPACE, MANAGER_ACCOUNT)
        self._manager = ManagerProcess(
            self._http.write_kubeconfig(folder / "manager.kubeconfig", account),
            folder / "manager.log",
            MANAGER_NAMESPACE,
            **({"command": self._manager_command} if self._manager_command else {}),
        )
        stack.push_async_callback(self._manager.stop)
        await self._manager.start()

        kubeconfig = self._http.write_kubeconfig(folder / "kubeconfig", namespace=RUNNER_NAMESPACE)
        self._hint = f"kubectl --kubeconfig {kubeconfig} get ars,ers,er,pods -A"
        self._view.say(f"API server at {self._http.url}, Actions service at {self._actions.url}")
        self._view.say(f"To look around while it runs: {self._hint}")
        self._view.say(f"The manager's log: {self._manager.log}")

    def _install(self, objects: Any) -> None:
        for manifest in objects:
            self._api.install(manifest)

    async def _listener_kubeconfig(self, namespace: str, account: str) -> Mapping[str, Any]:
        admin = InProcessTransport(self._api, user_agent="fake-kubelet")
        return await token_kubeconfig(admin, {"server": self._http.url}, namespace, account)

    # --- the play

    async def _play(self) -> int:
        options = self._options
        for manifest in shipped.load("samples/autoscalingrunnerset.yaml"):
            spec = manifest["spec"]
            spec["githubConfigUrl"] = self._actions.config_url("my-org/my-repo")
            spec["maxRunners"] = max(spec.get("maxRunners", 0), options.jobs)
            self._api.install(manifest)
        for _ in range(options.jobs):
            seconds = options.job_seconds * self._random.uniform(0.5, 1.5)
            self._service.queue_jobs(1, scale_set=SCALE_SET, duration=seconds)
        self._queued_at = asyncio.get_running_loop().time()
        killing = asyncio.create_task(self._kill_manager())
        try:
            if await self._until(self._jobs_are_over):
                await self._until(lambda: not self._runner_names())
            if options.keep:
                await self._stay()
            requests = Counter(
                self._api.request_log.table("user", "verb", "resource", "subresource")
            )
            await self._tear_down()
        finally:
            if options.kill_manager_at is not None and not killing.done():
                self._view.say("everything was over before the manager was to be killed")
            await _end(killing)
        self._show()
        self._view.close()
        self._report(requests)
        return self._last_line()

    async def _kill_manager(self) -> None:
        moment = self._options.kill_manager_at
        if moment is None:
            return
        if isinstance(moment, str):
            longest = 2.5 + self._options.job_seconds + self._options.jobs / 40
            moment = self._random.uniform(0.0, longest)
        seconds = float(moment)
        await asyncio.sleep(seconds)
        await self._manager.kill()
        self._view.say(f"the manager was killed {seconds:.1f} s after the jobs were queued")
        await self._manager.start()

    async def _stay(self) -> None:
        self._view.say("Everything stays up until you interrupt it (Ctrl-C).")
        while True:
            await self._step()

    async def _tear_down(self) -> None:
        stored = self._api.store.get(GROUP, "autoscalingrunnersets", RUNNER_NAMESPACE, SCALE_SET)
        if stored is not None:
            admin = InProcessTransport(self._api, user_agent="demo")
            path = f"/apis/{GROUP}/v1alpha1/namespaces/{RUNNER_NAMESPACE}/autoscalingrunnersets"
            await admin.request("DELETE", f"{path}/{SCALE_SET}")
        await self._until(lambda: not self._left() and not self._service.runners)

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Show and wait; False when the time is up or the manager ended by itself."""
        loop = asyncio.get_running_loop()
        while not condition():
            if loop.time() - self._queued_at > self._options.timeout:
                self._view.say(f"gave up after {self._options.timeout:.0f} s")
                self._view.say(self._manager.last_lines())
                return False
            if failure := self._manager.failure():
                await asyncio.sleep(0.5)  # killed on purpose, it is started again at once
                if self._manager.failure():
                    self._view.say(failure)
                    return False
            await self._step()
        return True

    async def _step(self) -> None:
        self._show()
        self._memory.manager = max(self._memory.manager, resident_mib(self._manager.pid))
        for child in self._listeners.running.values():
            self._memory.listener = max(self._memory.listener, resident_mib(child.pid))
        await asyncio.sleep(0.2)

    # --- what there is

    def _jobs_are_over(self) -> bool:
        return all(job.is_over for job in self._service.jobs)

    def _runner_names(self) -> list[str]:
        return [name for kind, _, name in self._left() if kind == "ephemeralrunners"]

    def _everything(self) -> set[tuple[str, str, str]]:
        """(resource, namespace, name) of every object that does not go by itself."""
        return {
            (each.resource.split(".")[0], each.namespace, each.name)
            for each in self._api.store
            if each.resource.split(".")[0] not in NOT_LEFT
        }

    def _left(self) -> set[tuple[str, str, str]]:
        return self._everything() - self._at_first

    def _show(self) -> None:
        runners: Counter[str] = Counter()
        pods: Counter[str] = Counter()
        for each in self._api.store:
            resource = each.resource.split(".")[0]
            phase = (each.obj.get("status") or {}).get("phase") or "Pending"
            if resource == "ephemeralrunners":
                runners[phase] += 1
            elif resource == "pods":
                pods[phase] += 1
        requests: Counter[str] = Counter()
        for (user,), count in self._api.request_log.table("user").items():
            if who := _who(user):
                requests[who] += count
        loop = asyncio.get_running_loop()
        self._view.show(
            Snapshot(
                seconds=loop.time() - self._queued_at,
                jobs={str(state): count for state, count in self._service.job_counts().items()},
                runners=runners,
                pods=pods,
                requests=requests,
                queued=self._options.jobs,
                hint=self._hint,
            )
        )

    # --- the end

    def _report(self, requests: Mapping[tuple[str, ...], int]) -> None:
        jobs = self._options.jobs
        created = self._kubelet.started["runner"]
        self._view.say("")
        self._view.say(
            f"runner pods: {created} for {jobs} jobs; manager starts: {self._manager.starts}"
        )
        for who in ("manager", "listener"):
            kinds: Counter[str] = Counter()
            for (user, verb, resource, part), count in requests.items():
                if _who(user) == who and verb not in ("list", "watch"):
                    kinds[f"{verb} {resource}{'/' + part if part else ''}"] += count
            self._view.say(f"{who}: {sum(kinds.values()) / jobs:.2f} API requests per job")
            for kind, count in kinds.most_common():
                self._view.say(f"  {count / jobs:6.2f}  {kind}")
        memory = self._memory
        self._view.say(
            f"memory: manager {memory.manager:.0f} MiB, listener {memory.listener:.0f} MiB "
            "(with a kubeconfig; less in a cluster)"
        )

    def _last_line(self) -> int:
        counts = self._service.job_counts()
        completed = counts[JobState.COMPLETED]
        lost = self._options.jobs - completed
        left = self._left()
        registrations = len(self._service.runners)
        for kind, namespace, name in sorted(left):
            self._view.say(f"left: {kind} {namespace}/{name}")
        print(
            f"demo: {completed} jobs completed, {lost} lost, {len(left)} objects left, "
            f"{registrations} registrations left",
            flush=True,
        )
        return 0 if not lost and not left and not registrations else 1


def _who(user: str) -> str:
    """The part of the system that a user is; empty for others."""
    if user == f"system:serviceaccount:{MANAGER_NAMESPACE}:{MANAGER_ACCOUNT}":
        return "manager"
    return "listener" if user.startswith(f"system:serviceaccount:{MANAGER_NAMESPACE}:") else ""


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
