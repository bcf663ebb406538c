"""A manager with many scale sets, while nothing happens.

``python -m benchmarks.idle [--scale-sets 100] [--minutes 3] [--json FILE]``

The manager is a process of its own; the listeners are tasks of this one, like the servers. What it
sends in that time is listed by kind: there must be no write, and what it reads says what it costs
to notice a change that nobody announces (rotated credentials, say).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from arc_controller.cli.demo_manager import FLAGS, ManagerProcess
from arc_controller.cli.demo_world import World, who_is
from benchmarks.measurement import LIFTED
from benchmarks.processes import usage
from benchmarks.report import Row, table

SETTLING: Final = 20.0
"""Seconds without a write that count as nothing happening."""
CORE_SHARE: Final = 0.01
READS: Final = frozenset({"get", "list", "watch"})


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """``cpu_share`` is of one core; memory is in MiB; requests are those of the manager."""

    scale_sets: int
    seconds: float
    writes: dict[str, int]
    reads: dict[str, int]
    cpu_share: float
    memory: float
    listeners_polling: int

    @property
    def is_within_budget(self) -> bool:
        return not self.writes and self.cpu_share <= CORE_SHARE


async def measure(
    scale_sets: int, seconds: float, *, settling: float = SETTLING, seed: int = 1
) -> Idle:
    """Start everything, wait until it is quiet, and watch the manager for so many seconds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        world = await stack.enter_async_context(World(folder, Random(seed), listener_tasks=True))
        manager = world.new_manager(flags=(*FLAGS, *LIFTED))
        stack.push_async_callback(manager.stop)
        await manager.start()
        for number in range(scale_sets):
            world.apply_scale_set(10, f"set-{number:03}")
        while _polling(world) < scale_sets:
            await _step(manager)
        await _until_quiet(world, manager, settling)

        before, requests, started = usage(manager.pid), _requests(world), _time()
        while _time() < started + seconds:
            await _step(manager)
        took = _time() - started
        after, sent = usage(manager.pid), _requests(world) - requests
        return Idle(
            scale_sets=scale_sets,
            seconds=took,
            writes={kind: n for kind, n in sent.items() if kind.split()[0] not in READS},
            reads={kind: n for kind, n in sent.items() if kind.split()[0] in READS},
            cpu_share=(after.cpu - before.cpu) / took,
            memory=after.resident,
            listeners_polling=_polling(world),
        )


async def _until_quiet(world: World, manager: ManagerProcess, settling: float) -> None:
    writes, since = -1, _time()
    while _time() - since < settling:
        sent = _requests(world)
        now = sum(n for kind, n in sent.items() if kind.split()[0] not in READS)
        if now != writes:
            writes, since = now, _time()
        await _step(manager)


async def _step(manager: ManagerProcess) -> None:
    if failure := manager.failure():
        raise RuntimeError(failure)
    await asyncio.sleep(0.5)


def _polling(world: World) -> int:
    return sum(session.polls > 0 for session in world.service.sessions.values())


def _requests(world: World) -> Counter[str]:
    found: Counter[str] = Counter()
    table = world.api.request_log.table("user", "verb", "resource", "subresource")
    for (user, verb, resource, part), count in table.items():
        if who_is(user) == "manager":
            found[f"{verb} {resource}{'/' + part if part else ''}"] += count
    return found


def _time() -> float:
    return asyncio.get_running_loop().time()


def main() -> int:
    import structlog
    import uvloop

    parser = argparse.ArgumentParser(
        prog="idle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale-sets", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long to watch")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        idle = runner.run(measure(options.scale_sets, 60 * options.minutes))
    rows = [
        Row("scale sets", [str(idle.scale_sets)]),
        Row("seconds watched", [f"{idle.seconds:.0f}"]),
        Row("writes", [str(sum(idle.writes.values()))]),
        *(Row(f"  {kind}", [str(count)]) for kind, count in sorted(idle.writes.items())),
        Row("reads", [str(sum(idle.reads.values()))]),
        *(Row(f"  {kind}", [str(count)]) for kind, count in sorted(idle.reads.items())),
        Row("share of a core", [f"{idle.cpu_share:.2%}"]),
        Row("MiB", [f"{idle.memory:.1f}"]),
    ]
    print(table(rows))
    print(
        f"{'kept' if idle.is_within_budget else 'BROKEN'}: 0 writes, ≤ {CORE_SHARE:.0%} of a core"
    )
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(idle)))
    return 0 if idle.is_within_budget else 1


if __name__ == "__main__":
    sys.exit(main())
