"""The benchmarks themselves: they run, count everything, and write what they print."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import idle
from benchmarks.burst import Report, budgets, table_of
from benchmarks.measurement import Burst, Plan, Quantiles, Used
from benchmarks.report import Row, table

JOBS = 10


async def run(*arguments: str) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(240):
            output = (await child.communicate())[0].decode()
    except BaseException:
        if child.returncode is None:
            child.terminate()
            await child.wait()
        raise
    assert child.returncode is not None
    return child.returncode, output


async def test_a_burst_is_measured_from_nothing_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "burst.json"
    status, output = await run(
        "benchmarks.burst", "--jobs", str(JOBS), "--only-lifted", "--json", str(path)
    )
    assert status == 0
    assert "manager: requests per runner" in output
    assert "last job started, s" in output

    report: dict[str, Any] = json.loads(path.read_text())
    (burst,) = report["bursts"]
    assert burst["jobs"] == burst["completed"] == burst["runners"] == JOBS
    assert burst["objects_left"] == burst["registrations_left"] == 0
    manager = burst["requests"]["manager"]
    for kind in (
        "create ephemeralrunners",
        "create secrets",
        "create pods",
        "delete ephemeralrunners",
        "delete pods",
        "delete secrets",
        "patch ephemeralrunners",
    ):
        assert manager[kind] == JOBS
    assert manager["patch ephemeralrunners/status"] >= JOBS
    listener = burst["requests"]["listener"]
    assert JOBS <= listener["patch ephemeralrunners/status"] <= listener["get ephemeralrunners"]
    assert burst["fixed"]["manager"]["create autoscalinglisteners"] == 1
    assert burst["fixed"]["manager"]["delete pods"] == 1
    for program in ("manager", "listener", "world"):
        assert 0 < burst[program]["cpu_starting"] <= burst[program]["cpu"]
        assert 0 < burst[program]["idle_memory"] <= burst[program]["peak_memory"]
    for what in ("pod_created", "job_started"):
        assert 0 < burst[what]["p50"] <= burst[what]["p99"] <= burst[what]["last"]
    assert burst["floor"]["requests"] == 10 * JOBS
    assert burst["floor"]["client_cpu"] > 0
    assert {budget["jobs"] for budget in report["budgets"]} == {JOBS}


async def test_images_that_take_time_cost_one_more_status_and_nothing_else() -> None:
    from benchmarks.burst import measure

    burst = await measure(Plan(jobs=3, pull=2.0, floor=False))
    assert burst.completed == 3
    assert burst.requests["manager"]["patch ephemeralrunners/status"] == 6
    assert burst.per_runner("manager") * 3 == sum(burst.requests["manager"].values())
    assert burst.job_started.p50 > 2.0


async def test_an_idle_manager_writes_nothing() -> None:
    measured = await idle.measure(2, 3.0, settling=3.0)
    assert measured.listeners_polling == 2
    assert measured.writes == {}
    assert measured.memory > 0


def burst_of(**changes: Any) -> Burst:
    used = Used(cpu=1.0, cpu_starting=0.5, idle_memory=50.0, peak_memory=60.0)
    values: dict[str, Any] = {
        "jobs": 1000,
        "server": "embedded",
        "limits": "lifted",
        "pull": 0.0,
        "completed": 1000,
        "objects_left": 0,
        "registrations_left": 0,
        "runners": 1000,
        "pod_created": Quantiles(1.0, 2.0, 3.0),
        "job_started": Quantiles(1.0, 2.0, 3.0),
        "clean_after": 5.0,
        "requests": {
            "manager": {"create pods": 9000, "create events": 3},
            "listener": {"get ephemeralrunners": 2001},
        },
        "fixed": {"manager": {"create pods": 1}, "listener": {}},
        "manager": used,
        "listener": used,
        "world": used,
    }
    return Burst(**{**values, **changes})


def test_requests_for_the_set_do_not_count_as_those_of_a_runner() -> None:
    held = {budget.name: budget for budget in budgets(burst_of())}
    assert held["manager, requests per runner"].value == 9.0
    assert held["manager, requests per runner"].is_kept
    assert held["listener, requests per runner"].value == 2.001
    assert not held["listener, requests per runner"].is_kept


@pytest.mark.parametrize("changes", [{"jobs": 100}, {"limits": "default"}, {"pull": 3.0}])
def test_times_have_a_budget_only_where_it_was_set(changes: dict[str, Any]) -> None:
    assert "last job started, s" in {budget.name for budget in budgets(burst_of())}
    names = {budget.name for budget in budgets(burst_of(**changes))}
    assert "last job started, s" not in names
    assert "manager, requests per runner" in names


def test_the_table_has_a_column_for_each_burst() -> None:
    lines = table_of([burst_of(), burst_of(jobs=100)]).splitlines()
    assert lines[0].split() == ["1000", "jobs", "100", "jobs"]
    assert any(line.split()[-2:] == ["9.00", "9.00"] for line in lines)
    assert not any(line.startswith("raw client") for line in lines)


def test_columns_are_aligned_to_the_right() -> None:
    assert table([Row("a", ["1", "10"]), Row("long", ["100", "2"])]) == (
        "a       1   10\nlong  100    2"
    )


def test_a_report_can_be_read_back() -> None:
    import msgspec

    report = Report([burst_of()], budgets(burst_of()))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
