"""Runs a plan from its first action to the last check."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from arc_controller.testing.loop import Deadlock, Livelock, run_simulated
from arc_controller.testing.simulation.deeds import perform, prepare
from arc_controller.testing.simulation.ending import (
    Baseline,
    delete_everything,
    settle,
    stay_quiet,
)
from arc_controller.testing.simulation.invariants import ALL, Invariant, Violation
from arc_controller.testing.simulation.leaks import captured_logs
from arc_controller.testing.simulation.plan import Plan
from arc_controller.testing.simulation.spectator import Entry
from arc_controller.testing.simulation.world import World

COLLECT_EVERY: Final = 900.0
"""Simulated seconds between two garbage collections: at fixed moments, since what ends with them
(generators, exceptions that nobody asked for) is part of what happens."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a simulation ended. ``digest`` is of everything that was said in it."""

    plan: Plan
    violation: Violation | None
    digest: str
    seconds: float
    entries: int
    lines: int
    jobs: dict[str, int] = field(default_factory=dict)
    history: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def failed(self) -> bool:
        return self.violation is not None


def run_plan(plan: Plan, invariants: Iterable[type[Invariant]] = ALL) -> Outcome:
    """Simulate the plan. Deterministic: one plan has one outcome."""
    simulation = _Simulation(plan, tuple(invariants))
    with _collected_by_hand():
        return run_simulated(simulation.run(), seed=plan.seed)


class _Simulation:
    def __init__(self, plan: Plan, invariants: tuple[type[Invariant], ...]) -> None:
        self._plan = plan
        self._invariants = invariants

    async def run(self) -> Outcome:
        with captured_logs() as logs:
            world = World(self._plan, self._invariants)
            logs.leaks, logs.note = world.leaks, world.spectator.note
            violation = await self._judge(world)
            outcome = self._outcome(world, violation)
            await world.end()
        return outcome

    async def _judge(self, world: World) -> Violation | None:
        collector = asyncio.create_task(_collect_garbage())
        story = asyncio.create_task(self._story(world))
        try:
            both: list[asyncio.Future[Any]] = [story, world.violated]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if world.violated.done():
                return world.violated.result()
            story.result()
            return None
        finally:
            for task in (story, collector):
                task.cancel()
            await asyncio.gather(story, collector, return_exceptions=True)

    async def _story(self, world: World) -> None:
        await world.start()
        baseline = Baseline(world)
        await prepare(world)
        with_secrets = Baseline(world)
        async with asyncio.TaskGroup() as group:
            for action in self._plan.actions:
                group.create_task(perform(world, action))
        await asyncio.sleep(max(0.0, self._plan.length - world.loop.time()))
        world.spectator.note("all faults are over")
        await settle(world)
        await stay_quiet(world)
        await delete_everything(world, with_secrets)
        await stay_quiet(world)
        del baseline

    def _outcome(self, world: World, violation: Violation | None) -> Outcome:
        return Outcome(
            plan=self._plan,
            violation=violation,
            digest=world.spectator.digest,
            seconds=world.loop.time(),
            entries=world.spectator.count,
            lines=world.leaks.lines,
            jobs={str(state): count for state, count in sorted(world.service.job_counts().items())},
            history=tuple(world.spectator.history),
        )


async def _collect_garbage() -> None:
    while True:
        await asyncio.sleep(COLLECT_EVERY)
        gc.collect()


@contextmanager
def _collected_by_hand() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


__all__ = ["Deadlock", "Livelock", "Outcome", "run_plan"]
