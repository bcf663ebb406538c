"""Managers and listeners as real processes: killed, stopped, handing over to each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from arc_controller.cli.demo_manager import COMMAND, ManagerProcess
from arc_controller.runtime.leader import LeaderElection
from arc_controller.runtime.manager import ManagerOptions
from arc_controller.testing.actions import HttpActionsService, JobState
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.kubelet import ListenerProcesses
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, LEASE
from tests.scenarios.stage import Stage, clean_up, eventually, hasty_service, scenario

FLAGS = ("--auto-scaling-runner-set-only", "--metrics-addr=0", "--log-level=info")
ELECTED = ("--enable-leader-election", f"--leader-election-id={LEASE}")
QUICK_ELECTION = LeaderElection(
    LEASE, CONTROLLER_NAMESPACE, lease_duration=6.0, renew_deadline=4.5, retry_period=0.5
)


class ProcessHandle:
    """`arc_controller.testing.managers.AnyManager`, the process ``manager``."""

    def __init__(
        self,
        name: str,
        kubeconfig: Path,
        folder: Path,
        flags: tuple[str, ...],
        environ: Mapping[str, str],
    ) -> None:
        self.name = name
        self._process = ManagerProcess(
            kubeconfig,
            folder / f"{name}.log",
            CONTROLLER_NAMESPACE,
            command=("env", *(f"{key}={value}" for key, value in environ.items()), *COMMAND),
            flags=FLAGS + flags,
        )
        self._starting: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._starting is not None

    @property
    def failure(self) -> BaseException | None:
        if self._starting is None or not self._starting.done():
            return None  # nobody wants it to run, or it is about to
        said = self._process.failure()
        return RuntimeError(f"{self.name}: {said}") if said else None

    @failure.setter
    def failure(self, value: BaseException | None) -> None:
        raise AttributeError("a process ends by itself")

    def start(self) -> None:
        self._starting = asyncio.create_task(self._process.start())

    async def stop(self) -> None:
        if self._starting is not None:
            await self._starting
            self._starting = None
            status = await self._process.stop()
            assert status == 0, f"{self.name}: status {status}\n{self.log()}"

    async def kill(self) -> None:
        if self._starting is not None:
            await self._starting
            self._starting = None
            await self._process.kill()

    def log(self) -> str:
        return self._process.last_lines(60)


@asynccontextmanager
async def processes(
    stage: Stage,
    *,
    managers: int = 1,
    flags: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Cluster, str]]:
    """A cluster whose managers and listeners are processes, and the URL of its service.

    ``flags`` and ``environ`` are added to the managers' own."""
    service = hasty_service()
    access = stage.server.access
    async with HttpActionsService(service) as http:
        with TemporaryDirectory(prefix="managers-") as name:
            folder = Path(name)
            kubeconfig = folder / "kubeconfig"
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(json.dumps(access.manager_kubeconfig()))
            handles = [
                ProcessHandle(
                    f"manager-{number}", kubeconfig, folder, flags + stage.flags, environ or {}
                )
                for number in range(managers)
            ]
            async with stage.cluster(
                service=service,
                sockets=True,
                managers=handles,
                listeners=ListenerProcesses(access.listener_kubeconfig),
            ) as cluster:
                try:
                    yield cluster, http.config_url("acme")
                except BaseException:
                    for handle in handles:
                        print(f"--- {handle.name}\n{handle.log()}")
                    raise


@scenario
async def a_manager_process_killed_in_mid_burst_starts_again_and_every_job_is_run(
    stage: Stage,
) -> None:
    async with processes(stage) as (cluster, url):
        await cluster.add_scale_set("linux", github_config_url=url, max_runners=6)
        await cluster.until(listeners=1)
        cluster.queue_jobs(12, duration=1)
        await cluster.until(lambda: len(cluster.service.runners) >= 2)
        await cluster.kill_manager()
        await cluster.until(
            lambda: all(job.is_over for job in cluster.service.jobs), runners=0, registrations=0
        )
        assert cluster.service.job_counts()[JobState.COMPLETED] == 12
        await clean_up(cluster)


@scenario
async def a_manager_process_that_is_stopped_hands_over_at_once(stage: Stage) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{CONTROLLER_NAMESPACE}/leases/{LEASE}"

    async def holder() -> str:
        status, found = await stage.ask("GET", lease)
        return str(found["spec"].get("holderIdentity", "")) if status == 200 else ""

    async with processes(stage, managers=2, flags=ELECTED) as (cluster, url):
        await cluster.add_scale_set("linux", github_config_url=url, max_runners=6)
        await cluster.until(listeners=1)
        first = await holder()
        logs = [manager.log() for manager in cluster.managers if isinstance(manager, ProcessHandle)]
        (leader,) = (number for number, log in enumerate(logs) if "became the leader" in log)
        cluster.queue_jobs(6, duration=2)
        await cluster.until(lambda: len(cluster.service.runners) >= 2)
        await cluster.managers[leader].stop()

        async def another() -> bool:
            return await holder() not in ("", first)

        await eventually(another, "the other manager leads", within=10)
        cluster.queue_jobs(2, duration=0.5)
        await cluster.until(completed=8, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_leader_that_dies_is_followed_by_the_other_manager(stage: Stage) -> None:
    options = replace(ManagerOptions(), leader_election=QUICK_ELECTION)
    async with stage.cluster(managers=2, options=options) as cluster:
        await cluster.add_scale_set("linux", max_runners=6)
        await cluster.until(listeners=1)
        leaders = [number for number, each in enumerate(cluster.managers) if _leads(each)]
        assert len(leaders) == 1
        cluster.queue_jobs(6, duration=1)
        await cluster.until(lambda: len(cluster.service.runners) >= 2)
        await cluster.kill_manager(leaders[0], start_again=False)
        cluster.queue_jobs(2, duration=0.5)
        await cluster.until(completed=8, runners=0, registrations=0)
        assert _leads(cluster.managers[1 - leaders[0]])
        await clean_up(cluster)


@scenario
async def an_api_server_that_restarts_in_mid_burst_costs_no_job(stage: Stage) -> None:
    # No lease: on a busy machine it is away for longer than a leader may be silent.
    async with stage.cluster(options=ManagerOptions()) as cluster:
        await cluster.add_scale_set("linux", max_runners=6)
        await cluster.until(listeners=1)
        cluster.queue_jobs(10, duration=1)
        await cluster.until(lambda: len(cluster.service.runners) >= 2)
        await stage.server.restart()
        cluster.queue_jobs(2, duration=0.5)
        await cluster.until(completed=12, runners=0, registrations=0)
        await clean_up(cluster)


def _leads(manager: object) -> bool:
    running = getattr(manager, "manager", None)
    return running is not None and running.elected.is_set()
