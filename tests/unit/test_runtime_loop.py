"""Simulated time is faithful to asyncio, and says what is wrong where it cannot go on."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from arc_controller.testing import loop as loop_
from arc_controller.testing.loop import (
    Deadlock,
    Livelock,
    SimulatedLoop,
    now,
    run_simulated,
    simulated,
)


def simulated_loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


@simulated
async def test_hours_pass_at_once_and_both_clocks_agree() -> None:
    await asyncio.sleep(7 * 3600)
    assert asyncio.get_running_loop().time() == 7 * 3600
    assert now() == datetime(2025, 1, 1, 7, tzinfo=UTC)


@simulated(start=datetime(2030, 5, 1, tzinfo=UTC))
async def test_the_wall_clock_starts_where_it_is_told_and_may_jump() -> None:
    assert now() == datetime(2030, 5, 1, tzinfo=UTC)
    timer = asyncio.create_task(asyncio.sleep(10))
    simulated_loop().jump_wall_clock(timedelta(hours=-1))
    await timer
    assert now() == datetime(2030, 4, 30, 23, 0, 10, tzinfo=UTC)
    assert asyncio.get_running_loop().time() == 10


@simulated
async def test_timeouts_expire_in_simulated_time() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.sleep(61)
    assert asyncio.get_running_loop().time() == 60


@simulated
async def test_queues_events_and_groups_work() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    seen = []

    async def produce() -> None:
        for number in range(3):
            await queue.put(number)
            await asyncio.sleep(1)

    async def consume() -> None:
        for _ in range(3):
            seen.append(await queue.get())

    async with asyncio.TaskGroup() as group:
        group.create_task(consume())
        group.create_task(produce())
    assert seen == [0, 1, 2]


async def finishing_order() -> list[str]:
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(work(name))
    return order


def test_one_seed_is_one_order_and_other_seeds_are_others() -> None:
    orders = [tuple(run_simulated(finishing_order(), seed=seed)) for seed in range(5)]
    again = [tuple(run_simulated(finishing_order(), seed=seed)) for seed in range(5)]
    assert orders == again
    assert len(set(orders)) > 1


def test_without_shuffling_the_order_is_that_of_asyncio() -> None:
    assert run_simulated(finishing_order(), shuffle=False) == asyncio.run(finishing_order())


def test_a_deadlock_is_an_error_that_names_who_waits() -> None:
    async def waits_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"waits_forever\) at .*test_runtime_loop.py") as caught:
        run_simulated(waits_forever(), seed=7)
    assert caught.value.__notes__ == ["simulated with seed=7, at 2025-01-01T00:00:00+00:00"]


def test_what_cannot_be_cancelled_does_not_hide_the_deadlock() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_simulated(stubborn())


def test_a_busy_loop_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_, "STEPS_AT_ONE_INSTANT", 1000)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="spins"):
        run_simulated(spins())


@simulated
async def test_threads_are_refused() -> None:
    with pytest.raises(RuntimeError, match="no threads in a simulation"):
        await asyncio.to_thread(threading.get_ident)


@simulated
async def test_sockets_are_refused() -> None:
    with pytest.raises(RuntimeError, match="no threads in a simulation"):
        await asyncio.open_connection("localhost", 80)


def test_tasks_left_behind_are_cancelled_and_cleaned_up() -> None:
    cleaned = []

    async def left_behind() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            cleaned.append(asyncio.get_running_loop().time())

    async def main() -> str:
        asyncio.create_task(left_behind())  # noqa: RUF006
        await asyncio.sleep(5)
        return "result"

    assert run_simulated(main()) == "result"
    assert cleaned == [6]


def test_the_clock_of_a_simulation_is_not_there_outside_of_one() -> None:
    async def ask() -> None:
        now()

    with pytest.raises(RuntimeError, match="SimulatedLoop"):
        asyncio.run(ask())


def test_a_simulated_test_runs_once_per_seed() -> None:
    seen = []

    @simulated(seeds=range(3))
    async def test() -> None:
        seen.append(await asyncio.sleep(1, "run"))

    test()
    assert seen == ["run"] * 3
