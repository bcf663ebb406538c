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
from typing import Literal

import msgspec

from arc_controller.cli.demo_manager import FLAGS, ManagerProcess
from arc_controller.cli.demo_world import SCALE_SET
from arc_controller.testing.actions.model import Job, JobState
from arc_controller.testing.kubelet.behaviour import PodBehaviour
from benchmarks import floor
from benchmarks.processes import Usage, usage
from benchmarks.stage import OpenStage, Stage, embedded

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
    server: Literal["embedded", "real"] = "embedded"
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
    server: str
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


async def run(plan: Plan) -> Burst:
    """Play it, from an empty cluster to an empty cluster. Raises `TimeoutError`."""

    def behave(_pod: object) -> PodBehaviour:
        return PodBehaviour(pull=plan.pull)

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        stage = await stack.enter_async_context(_stage_on(plan.server)(folder, plan.seed, behave))
        manager = stage.new_manager(flags=(*FLAGS, *(LIFTED if plan.lifted else ())))
        stack.push_async_callback(manager.stop)
        await manager.start()
        async with asyncio.timeout(plan.timeout):
            return await _Play(plan, stage, manager).run()


def _stage_on(server: str) -> OpenStage:
    if server == "real":
        from benchmarks.real import real

        return real
    return embedded


class _Play:
    def __init__(self, plan: Plan, stage: Stage, manager: ManagerProcess) -> None:
        self._plan = plan
        self._stage = stage
        self._manager = manager

    async def run(self) -> Burst:
        plan, stage, seen = self._plan, self._stage, self._stage.seen
        await stage.apply_scale_set(plan.jobs)
        await self._until(self._listener_polls)
        await self._until_quiet()
        before, before_requests = self._usages(), _copied(stage.requests())
        seen.reset()

        queued = datetime.now(UTC)
        jobs = stage.service.queue_jobs(plan.jobs, scale_set=SCALE_SET, duration=plan.timeout)
        await self._until(lambda: all(job.state is JobState.RUNNING for job in jobs))
        await self._until_quiet()  # every runner has been told
        running = self._usages()
        for job in jobs:
            stage.service.end_job(job)
        await self._until(lambda: seen.is_clean and all(job.is_over for job in jobs))
        clean = seen.last_gone or queued
        after = self._usages()
        await self._until_quiet()
        requests = _difference(stage.requests(), before_requests)

        await stage.delete_scale_sets()
        while await stage.left() > 0:
            await asyncio.sleep(STEP)
        await self._until_quiet()
        fixed = _difference(stage.requests(), requests)
        result = self._result(
            jobs,
            queued=queued,
            clean=clean,
            requests=requests,
            fixed=fixed,
            left=await stage.left(),
        )
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
        *,
        queued: datetime,
        clean: datetime,
        requests: dict[str, dict[str, int]],
        fixed: dict[str, dict[str, int]],
        left: int,
    ) -> Burst:
        plan, stage = self._plan, self._stage
        finished = max((job.finished for job in jobs if job.finished is not None), default=queued)
        nothing = Used(0.0, 0.0, 0.0, 0.0)
        return Burst(
            jobs=plan.jobs,
            server=plan.server,
            limits="lifted" if plan.lifted else "default",
            pull=plan.pull,
            completed=stage.service.job_counts()[JobState.COMPLETED],
            objects_left=left,
            registrations_left=len(stage.service.runners),
            runners=stage.kubelet.started["runner"],
            pod_created=_quantiles(stage.seen.pods_created, queued),
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
        samples, stage = self._stage.seen.samples, self._stage
        if not self._plan.floor or len(samples) < 3:
            return None
        await self._manager.stop()
        await stage.stop_kubelet()
        first, then = floor.steps(
            floor.Samples(
                runner=samples["ephemeralrunners"], secret=samples["secrets"], pod=samples["pods"]
            )
        )
        play = floor.Play(
            url=stage.url,
            ca_pem=stage.ca_pem,
            token=stage.manager_token(),
            runners=runners,
            first=first,
            then=then,
        )
        before = stage.usage().cpu
        measured = await floor.measure(play, stage.folder)
        return msgspec.structs.replace(measured, server_cpu=stage.usage().cpu - before)

    def _usages(self) -> dict[str, Usage]:
        running = [each.pid for each in self._stage.listeners.running.values()]
        return {
            "manager": usage(self._manager.pid) if self._manager.pid else Usage(),
            "listener": usage(running[0]) if running else Usage(),
            "world": self._stage.usage(),
        }

    def _listener_polls(self) -> bool:
        return any(session.polls for session in self._stage.service.sessions.values())

    async def _until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        requests, since = self._stage.requests(), loop.time()
        while loop.time() - since < SETTLING:
            await asyncio.sleep(STEP)
            if (now := self._stage.requests()) != requests:
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
