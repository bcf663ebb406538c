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

import structlog

from arc_controller.cli.demo_input import lines
from arc_controller.cli.demo_manager import resident_mib
from arc_controller.cli.demo_view import Snapshot, View, make_view
from arc_controller.cli.demo_world import RUNNER_NAMESPACE, SCALE_SET, World, end, who_is
from arc_controller.testing.actions import JobState
from arc_controller.testing.apiserver import HttpApiServer

MOST_JOBS = 10_000
STAYS_UP = 5.0
"""Seconds that a manager must run before its end is taken for an accident."""


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
        self._queued = 0
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
        self._world = world = await stack.enter_async_context(World(folder, self._random))
        # kubectl sends its token over TLS only; without one it may look at nothing.
        door = await stack.enter_async_context(HttpApiServer(world.api, tls=True))
        self._manager = world.new_manager(command=self._manager_command)
        stack.push_async_callback(self._manager.stop)
        await self._manager.start()

        kubeconfig = door.write_kubeconfig(folder / "kubeconfig", namespace=RUNNER_NAMESPACE)
        self._hint = f"kubectl --kubeconfig {kubeconfig} get ars,ers,er,pods -A"
        self._view.say(f"API server at {door.url}, Actions service at {world.actions.url}")
        self._view.say(f"To look around while it runs: {self._hint}")
        self._view.say(f"The manager's log: {self._manager.log}")

    # --- the play

    async def _play(self) -> int:
        options = self._options
        self._world.apply_scale_set(options.jobs)
        self._queue(options.jobs)
        self._queued_at = asyncio.get_running_loop().time()
        killing = asyncio.create_task(self._kill_manager())
        try:
            if await self._until(self._jobs_are_over):
                await self._until(lambda: not self._runner_names())
            if options.keep:
                await self._stay()
            requests = self._world.requests()
            if not options.keep:
                await self._tear_down()
        finally:
            if options.kill_manager_at is not None and not killing.done():
                self._view.say("everything was over before the manager was to be killed")
            await end(killing)
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

    def _queue(self, jobs: int) -> None:
        for _ in range(jobs):
            seconds = self._options.job_seconds * self._random.uniform(0.5, 1.5)
            self._world.service.queue_jobs(1, scale_set=SCALE_SET, duration=seconds)
        self._queued += jobs

    async def _stay(self) -> None:
        """Until interrupted: take more jobs, and start a manager that ended again, as a Deployment
        does. It returns when one does not stay up."""
        self._view.say("Everything stays up until you interrupt it (Ctrl-C).")
        self._view.say("To queue more jobs, type how many and press Enter.")
        loop = asyncio.get_running_loop()
        started = -STAYS_UP
        with lines(self._take_line):
            while True:
                await self._step()
                failure = self._manager.failure()
                if not failure:
                    continue
                self._view.say(failure)
                if loop.time() - started < STAYS_UP:
                    self._view.say("it does not stay up")
                    return
                self._view.say("it is started again")
                started = loop.time()
                await self._manager.start()

    def _take_line(self, line: str) -> None:
        if not line:
            return
        if not line.isdecimal() or len(line) > 9 or not 1 <= int(line) <= MOST_JOBS:
            self._view.say(f"{line!r} is not a number of jobs, 1 to {MOST_JOBS}")
            return
        self._queue(int(line))
        self._view.say(f"{line} more jobs are queued")

    async def _tear_down(self) -> None:
        await self._world.delete_scale_sets()
        await self._until(lambda: not self._world.left() and not self._world.service.runners)

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
        for child in self._world.listeners.running.values():
            self._memory.listener = max(self._memory.listener, resident_mib(child.pid))
        await asyncio.sleep(0.2)

    # --- what there is

    def _jobs_are_over(self) -> bool:
        return all(job.is_over for job in self._world.service.jobs)

    def _runner_names(self) -> list[str]:
        return [name for kind, _, name in self._world.left() if kind == "ephemeralrunners"]

    def _show(self) -> None:
        world = self._world
        requests: Counter[str] = Counter()
        for (user,), count in world.api.request_log.table("user").items():
            if who := who_is(user):
                requests[who] += count
        loop = asyncio.get_running_loop()
        self._view.show(
            Snapshot(
                seconds=loop.time() - self._queued_at,
                jobs={str(state): count for state, count in world.service.job_counts().items()},
                runners=world.phases("ephemeralrunners"),
                pods=world.phases("pods"),
                requests=requests,
                queued=self._queued,
                hint=self._hint,
            )
        )

    # --- the end

    def _report(self, requests: Mapping[str, Counter[str]]) -> None:
        jobs = self._queued
        created = self._world.kubelet.started["runner"]
        self._view.say("")
        self._view.say(
            f"runner pods: {created} for {jobs} jobs; manager starts: {self._manager.starts}"
        )
        for who, kinds in requests.items():
            self._view.say(f"{who}: {sum(kinds.values()) / jobs:.2f} API requests per job")
            for kind, count in kinds.most_common():
                self._view.say(f"  {count / jobs:6.2f}  {kind}")
        memory = self._memory
        self._view.say(
            f"memory: manager {memory.manager:.0f} MiB, listener {memory.listener:.0f} MiB "
            "(with a kubeconfig; less in a cluster)"
        )

    def _last_line(self) -> int:
        counts = self._world.service.job_counts()
        completed = counts[JobState.COMPLETED]
        lost = self._queued - completed
        left = self._world.left()
        registrations = len(self._world.service.runners)
        for kind, namespace, name in sorted(left):
            self._view.say(f"left: {kind} {namespace}/{name}")
        print(
            f"demo: {completed} jobs completed, {lost} lost, {len(left)} objects left, "
            f"{registrations} registrations left",
            flush=True,
        )
        return 0 if not lost and not left and not registrations else 1
