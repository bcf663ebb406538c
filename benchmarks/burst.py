"""Bursts of jobs against the budgets.

``python -m benchmarks.burst [--jobs 100 1000] [--server real] [--json FILE]``

Every burst has a world of its own in a fresh process: API server, Actions service, kubelet; the
manager and the listener are processes beside it. All jobs are queued at once, and end at once when
the last one has started. Each size is run with the manager's rate limit lifted and, unless told
otherwise, the smallest one again with the limit that it has by default, and with images that take
time.

The floor is a raw HTTP client that sends the same requests to the same server and does nothing
else. CPU seconds grow on a busy machine: compare them with the floor of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.floor import Floor
from benchmarks.measurement import Burst, Plan
from benchmarks.report import Row, table

BUDGET_JOBS: Final = 1000
SLOW_PULL: Final = 3.0
PER_RUNNER: Final = (
    "create ephemeralrunners",
    "create secrets",
    "create pods",
    "patch ephemeralrunners/status",
    "delete ephemeralrunners",
    "delete pods",
    "delete secrets",
    "patch ephemeralrunners",
    "get ephemeralrunners",
)
"""What is sent for every single runner; the rest is for the scale set, coalesced."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a burst must not exceed. ``jobs`` says for which size it holds; 0 is any."""

    name: str
    limit: float
    jobs: int = 0
    value: float = 0.0

    @property
    def is_kept(self) -> bool:
        return self.value <= self.limit


class Report(msgspec.Struct, frozen=True):
    """What is written as JSON."""

    bursts: list[Burst]
    budgets: list[Budget]


async def measure(plan: Plan) -> Burst:
    """Run the plan in a process of its own."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.measurement",
        msgspec.json.encode(plan).decode(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await child.communicate()
    except asyncio.CancelledError:
        child.terminate()
        await child.wait()
        raise
    if child.returncode:
        raise SystemExit(f"burst of {plan.jobs}: the measurement ended with {child.returncode}")
    return msgspec.json.decode(output, type=Burst)


def budgets(burst: Burst) -> list[Budget]:
    """The budgets that apply to a burst, with what it took."""
    jobs = burst.jobs
    applying = [
        Budget(
            name="manager, requests per runner", limit=9, jobs=jobs, value=_own(burst, "manager")
        ),
        Budget(
            name="listener, requests per runner", limit=2, jobs=jobs, value=_own(burst, "listener")
        ),
        Budget(name="runners created per job", limit=1.02, jobs=jobs, value=burst.runners_per_job),
        Budget(name="manager, MiB idle", limit=70, jobs=jobs, value=burst.manager.idle_memory),
    ]
    if jobs == BUDGET_JOBS and burst.limits == "lifted" and not burst.pull:
        applying += [
            Budget(name="last job started, s", limit=12, jobs=jobs, value=burst.job_started.last),
            Budget(
                name="clean after the last job, s", limit=10, jobs=jobs, value=burst.clean_after
            ),
            Budget(name="manager, CPU s", limit=10, jobs=jobs, value=burst.manager.cpu),
            Budget(name="manager, MiB peak", limit=85, jobs=jobs, value=burst.manager.peak_memory),
        ]
    return applying


def _own(burst: Burst, program: str) -> float:
    """Requests per runner that are sent for single runners."""
    kinds = burst.requests[program]
    return sum(kinds.get(kind, 0) for kind in PER_RUNNER) / max(1, burst.runners)


def _shared(burst: Burst, program: str) -> int:
    kinds = burst.requests[program]
    return sum(count for kind, count in kinds.items() if kind not in PER_RUNNER)


def table_of(bursts: Sequence[Burst]) -> str:
    """All of it, with one column for each burst."""
    return table(_rows(bursts))


def _rows(bursts: Sequence[Burst]) -> Iterator[Row]:

    def row(name: str, show: str, values: Sequence[float]) -> Row:
        return Row(name, [format(value, show) for value in values])

    yield Row("", [f"{b.jobs} jobs" for b in bursts])
    yield Row("API server", [b.server for b in bursts])
    yield Row("rate limit of the manager", [b.limits for b in bursts])
    yield Row("images take", [f"{b.pull:g} s" for b in bursts])
    yield Row.blank(len(bursts))
    yield row("jobs completed", "d", [b.completed for b in bursts])
    yield row("objects, registrations left", "d", [b.objects_left for b in bursts])
    yield row("runners created per job", ".3f", [b.runners_per_job for b in bursts])
    for program in ("manager", "listener"):
        yield Row.blank(len(bursts))
        yield row(f"{program}: requests per runner", ".2f", [_own(b, program) for b in bursts])
        kinds = dict.fromkeys(kind for b in bursts for kind in b.requests[program])
        for kind in kinds:
            if kind in PER_RUNNER:
                counts = [b.requests[program].get(kind, 0) / max(1, b.runners) for b in bursts]
                yield row(f"  {kind}", ".2f", counts)
        yield row(f"{program}: requests for the set", "d", [_shared(b, program) for b in bursts])
        for kind in kinds:
            if kind not in PER_RUNNER:
                yield row(f"  {kind}", "d", [b.requests[program].get(kind, 0) for b in bursts])
        fixed = [sum(b.fixed[program].values()) for b in bursts]
        yield row(f"{program}: requests without any job", "d", fixed)
    yield Row.blank(len(bursts))
    yield row("pod created, p50 s", ".2f", [b.pod_created.p50 for b in bursts])
    yield row("pod created, p99 s", ".2f", [b.pod_created.p99 for b in bursts])
    yield row("job started, p50 s", ".2f", [b.job_started.p50 for b in bursts])
    yield row("last job started, s", ".2f", [b.job_started.last for b in bursts])
    yield row("  per runner, ms", ".1f", [1000 * b.job_started.last / b.jobs for b in bursts])
    yield row("clean after the last job, s", ".2f", [b.clean_after for b in bursts])
    yield Row.blank(len(bursts))
    yield row("manager: CPU s", ".2f", [b.manager.cpu for b in bursts])
    yield row("  until all jobs ran", ".2f", [b.manager.cpu_starting for b in bursts])
    yield row("  per runner, ms", ".2f", [1000 * b.manager.cpu / b.jobs for b in bursts])
    yield row("listener: CPU s", ".2f", [b.listener.cpu for b in bursts])
    yield row("servers and kubelet: CPU s", ".2f", [b.world.cpu for b in bursts])
    yield row("  until all jobs ran", ".2f", [b.world.cpu_starting for b in bursts])
    yield row("manager: MiB idle", ".1f", [b.manager.idle_memory for b in bursts])
    yield row("manager: MiB peak", ".1f", [b.manager.peak_memory for b in bursts])
    yield row("listener: MiB peak", ".1f", [b.listener.peak_memory for b in bursts])
    if any(b.floor for b in bursts):
        yield Row.blank(len(bursts))
        yield from _floor_rows(bursts)


def _floor_rows(bursts: Sequence[Burst]) -> Iterator[Row]:
    def row(name: str, show: str, value: Callable[[Burst, Floor], float]) -> Row:
        return Row(name, [format(value(b, b.floor), show) if b.floor else "" for b in bursts])

    yield row("raw client: requests", "d", lambda _, floor: floor.requests)
    yield row("raw client: until started, s", ".2f", lambda _, floor: floor.first_seconds)
    yield row("raw client: until clean, s", ".2f", lambda _, floor: floor.then_seconds)
    yield row("raw client: CPU s", ".2f", lambda _, floor: floor.client_cpu)
    yield row("raw client: server's CPU s", ".2f", lambda _, floor: floor.server_cpu)
    yield row(
        "manager and listener / raw client",
        ".2f",
        lambda b, floor: (b.manager.cpu + b.listener.cpu) / floor.client_cpu,
    )


def plans(options: argparse.Namespace) -> list[Plan]:
    sizes = sorted(options.jobs)
    common: dict[str, Any] = {"server": options.server, "seed": options.seed}
    made = [Plan(jobs=jobs, **common) for jobs in sizes]
    if not options.only_lifted:
        made.append(Plan(jobs=sizes[0], lifted=False, **common))
        made.append(Plan(jobs=sizes[0], pull=SLOW_PULL, floor=False, **common))
    return made


async def _main(options: argparse.Namespace) -> int:
    bursts = []
    for plan in plans(options):
        bursts.append(await measure(plan))
    held = [budget for burst in bursts for budget in budgets(burst)]
    print(table_of(bursts))
    print()
    for budget in held:
        word = "kept  " if budget.is_kept else "BROKEN"
        print(f"{word} {budget.name}: {budget.value:.2f} ≤ {budget.limit:g} ({budget.jobs} jobs)")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(Report(bursts, held))))
    lost = any(b.completed < b.jobs or b.objects_left or b.registrations_left for b in bursts)
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="burst", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, BUDGET_JOBS])
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--only-lifted", action="store_true", help="no other runs of the smallest")
    parser.add_argument(
        "--server", choices=("embedded", "real"), default="embedded", help="real: see make envtest"
    )
    parser.add_argument("--seed", type=int, default=1)
    return asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
