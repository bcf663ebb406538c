"""One burst of jobs in a world of its own, measured.

``python -m benchmarks.measurement PLAN`` runs the plan (JSON) in a process of its own, whose CPU
then is that of the API server, the Actions service and the kubelet, and prints a `Burst`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from arc_controller.cli.demo_manager import FLAGS, ManagerProcess
from arc_controller.cli.demo_world import GROUP, RUNNER_NAMESPACE, SCALE_SET, World
from arc_controller.testing.actions.model import Job, JobState
from arc_controller.testing.apiserver.store import Event
from arc_controller.testing.kubelet.behaviour import PodBehaviour
from benchmarks import floor
from benchmarks.processes import Usage, usage

LIFTED = ("--k8s-client-rate-limiter-qps=100000", "--k8s-client-rate-limiter-burst=100000")
STEP = 0.2
SETTLING = 1.5
"""Seconds without a request that count as nothing to do."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``lifted``: without the manager's own rate limit. ``pull``: seconds that images take.

    All jobs are queued at once and end at once, as soon as the last one has started.
    """

    jobs: int
    lifted: bool = True
    pull: float = 0.0
    floor: bool = True
    timeout: float = 600.0
    seed: int = 1


class Quantiles(msgspec.Struct, frozen=True):
    """Seconds."""

    p50: float = 0.0
    p99: float = 0.0
    last: float = 0.0


class Used(msgspec.Struct, frozen=True):
    """By one program: CPU seconds from the first job queued until everything was clean, and those
    until all jobs ran; MiB."""

    cpu: float
    cpu_starting: float
    idle_memory: float
    peak_memory: float


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """What happened. Seconds count from the moment the jobs were queued.

    ``requests`` are those of the burst by program and kind, ``fixed`` those for the scale set
    itself, before the first job and after the last.
    """

    jobs: int
    limits: str
    pull: float
    completed: int
    objects_left: int
    registrations_left: int
    runners: int
    pod_created: Quantiles
    job_started: Quantiles
    clean_after: float
    """Seconds from the end of the last job until no runner, pod or secret of one was left."""
    requests: dict[str, dict[str, int]]
    fixed: dict[str, dict[str, int]]
    manager: Used
    listener: Used
    world: Used
    floor: floor.Floor | None = None

    def per_runner(self, program: str) -> float:
        return sum(self.requests[program].values()) / max(1, self.runners)

    @property
    def runners_per_job(self) -> float:
        return self.runners / self.jobs


class _Watcher:
    """When pods came and when the last thing of a runner went, by the store's own events."""

    def __init__(self, world: World) -> None:
        self.pods_created: list[datetime] = []
        self.last_gone: datetime | None = None
        self.samples: dict[str, Mapping[str, Any]] = {}
        world.api.store.observe(self._on_event)

    def _on_event(self, event: Event) -> None:
        stored = event.stored
        if stored.namespace != RUNNER_NAMESPACE:
            return
        plural = stored.resource.split(".")[0]
        if plural not in ("ephemeralrunners", "pods", "secrets"):
            return
        if event.type == "DELETED":
            self.last_gone = datetime.now(UTC)
        elif event.type == "ADDED" and plural == "pods":
            self.pods_created.append(datetime.now(UTC))
        if plural not in self.samples and (plural != "ephemeralrunners" or _has_job(stored.obj)):
            self.samples[plural] = stored.obj


def _has_job(obj: Mapping[str, Any]) -> bool:
    return bool(obj.get("status", {}).get("jobId"))


async def run(plan: Plan) -> Burst:
    """Play it, from an empty cluster to an empty cluster. Raises `TimeoutError`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))

        def behave(_pod: object) -> PodBehaviour:
            return PodBehaviour(pull=plan.pull)

        world = await stack.enter_async_context(World(folder, Random(plan.seed), behave=behave))
        manager = world.new_manager(flags=(*FLAGS, *(LIFTED if plan.lifted else ())))
        stack.push_async_callback(manager.stop)
        await manager.start()
        async with asyncio.timeout(plan.timeout):
            return await _Play(plan, world, manager).run()


class _Play:
    def __init__(self, plan: Plan, world: World, manager: ManagerProcess) -> None:
        self._plan = plan
        self._world = world
        self._manager = manager
        self._watcher = _Watcher(world)

    async def run(self) -> Burst:
        plan, world = self._plan, self._world
        world.apply_scale_set(plan.jobs)
        await self._until(self._listener_polls)
        await self._until_quiet()
        before, before_requests = self._usages(), _copied(world.requests())
        watcher = self._watcher
        watcher.samples.clear()
        secrets = self._secrets()

        queued = datetime.now(UTC)
        jobs = world.service.queue_jobs(plan.jobs, scale_set=SCALE_SET, duration=plan.timeout)
        await self._until(lambda: all(job.state is JobState.RUNNING for job in jobs))
        await self._until_quiet()  # every runner has been told
        running = self._usages()
        for job in jobs:
            world.service.end_job(job)

        def is_clean() -> bool:
            stored = world.api.store
            return (
                not stored.count(f"ephemeralrunners.{GROUP}", RUNNER_NAMESPACE)
                and not stored.count("pods", RUNNER_NAMESPACE)
                and self._secrets() <= secrets
                and all(job.is_over for job in jobs)
            )

        await self._until(is_clean)
        clean = watcher.last_gone or queued
        after = self._usages()
        await self._until_quiet()
        requests = _difference(world.requests(), before_requests)

        await world.delete_scale_sets()
        await self._until(lambda: not world.left())
        fixed = _difference(world.requests(), requests)
        result = self._result(jobs, queued, clean, requests, fixed)
        used = {
            name: Used(
                cpu=after[name].cpu - before[name].cpu,
                cpu_starting=running[name].cpu - before[name].cpu,
                idle_memory=before[name].resident,
                peak_memory=after[name].peak,
            )
            for name in before
        }
        result = msgspec.structs.replace(
            result, manager=used["manager"], listener=used["listener"], world=used["world"]
        )
        return msgspec.structs.replace(result, floor=await self._floor(result.runners))

    def _result(
        self,
        jobs: list[Job],
        queued: datetime,
        clean: datetime,
        requests: dict[str, dict[str, int]],
        fixed: dict[str, dict[str, int]],
    ) -> Burst:
        plan, world = self._plan, self._world
        finished = max((job.finished for job in jobs if job.finished is not None), default=queued)
        nothing = Used(0.0, 0.0, 0.0, 0.0)
        return Burst(
            jobs=plan.jobs,
            limits="lifted" if plan.lifted else "default",
            pull=plan.pull,
            completed=world.service.job_counts()[JobState.COMPLETED],
            objects_left=len(world.left()),
            registrations_left=len(world.service.runners),
            runners=world.kubelet.started["runner"],
            pod_created=_quantiles(self._watcher.pods_created, queued),
            job_started=_quantiles(
                [job.runner_assigned for job in jobs if job.runner_assigned is not None], queued
            ),
            clean_after=(clean - finished).total_seconds(),
            requests=requests,
            fixed=fixed,
            manager=nothing,
            listener=nothing,
            world=nothing,
        )

    async def _floor(self, runners: int) -> floor.Floor | None:
        samples, world = self._watcher.samples, self._world
        if not self._plan.floor or len(samples) < 3:
            return None
        await self._manager.stop()
        await world.stop_kubelet()
        first, then = floor.steps(
            floor.Samples(
                runner=samples["ephemeralrunners"], secret=samples["secrets"], pod=samples["pods"]
            )
        )
        play = floor.Play(world.http.url, world.manager_token(), runners, first, then)
        before = usage().cpu
        measured = await floor.measure(play, world.folder)
        return msgspec.structs.replace(measured, server_cpu=usage().cpu - before)

    def _usages(self) -> dict[str, Usage]:
        running = [each.pid for each in self._world.listeners.running.values()]
        return {
            "manager": usage(self._manager.pid) if self._manager.pid else Usage(),
            "listener": usage(running[0]) if running else Usage(),
            "world": usage(),
        }

    def _listener_polls(self) -> bool:
        return any(session.polls for session in self._world.service.sessions.values())

    def _secrets(self) -> int:
        return self._world.api.store.count("secrets", RUNNER_NAMESPACE)

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        requests, since = self._world.requests(), loop.time()
        while loop.time() - since < SETTLING:
            await asyncio.sleep(STEP)
            if (now := self._world.requests()) != requests:
                requests, since = now, loop.time()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if failure := self._manager.failure():
                raise RuntimeError(failure)
            await asyncio.sleep(STEP)


def _copied(requests: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {who: dict(kinds) for who, kinds in requests.items()}


def _difference(
    later: Mapping[str, Mapping[str, int]], earlier: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """By how much each count grew, the most grown first."""
    return {
        who: dict((Counter(kinds) - Counter(earlier.get(who, {}))).most_common())
        for who, kinds in later.items()
    }


def _quantiles(moments: list[datetime], since: datetime) -> Quantiles:
    seconds = sorted((moment - since).total_seconds() for moment in moments)
    if not seconds:
        return Quantiles()
    return Quantiles(
        seconds[len(seconds) // 2],
        seconds[min(len(seconds) * 99 // 100, len(seconds) - 1)],
        seconds[-1],
    )


def main() -> None:
    import structlog
    import uvloop

    gc.set_threshold(100_000, 50, 100)  # the servers are not what is measured
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        burst = runner.run(run(plan))
    sys.stdout.write(msgspec.json.encode(burst).decode())


if __name__ == "__main__":
    main()
