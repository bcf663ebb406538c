"""The work queue keeps its one promise, whatever order calls and cancellations come in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.ratelimiters import ExponentialBackoff
from arc_controller.runtime.workqueue import QueueShutDown, WorkQueue
from arc_controller.testing.loop import SimulatedLoop, simulated


def time() -> float:
    return asyncio.get_running_loop().time()


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@simulated
async def test_an_item_added_often_is_handed_out_once() -> None:
    queue = WorkQueue[str]()
    for item in ("a", "b", "a", "a"):
        queue.add(item)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


@simulated
async def test_a_delay_that_is_not_a_number_is_refused() -> None:
    """In the loop's heap of timers it would be neither before nor after any other."""
    queue = WorkQueue[str]("mine")
    with pytest.raises(ValueError, match="queue 'mine': 'a' is to be added after nan seconds"):
        queue.add_after("a", math.nan)
    assert queue.delayed == 0


@simulated
async def test_an_item_added_while_it_is_processed_comes_again_after_done() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b"
    queue.done("a")
    assert await queue.get() == "a"


@simulated
async def test_a_busy_item_does_not_get_ahead_of_items_that_wait() -> None:
    queue = WorkQueue[str]()
    queue.add("busy")
    await queue.get()
    queue.add("busy")
    queue.add("waiting")
    queue.done("busy")
    assert [await queue.get(), await queue.get()] == ["waiting", "busy"]


@simulated
async def test_a_delayed_item_comes_when_its_time_has_come() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 30)
    assert (len(queue), queue.delayed) == (0, 1)
    await queue.get()
    assert time() == 30


@simulated
async def test_of_two_delays_the_earlier_wins_in_either_order() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 30)
    queue.add_after("a", 10)
    queue.add_after("b", 20)
    queue.add_after("b", 40)
    handed_out = [(await queue.get(), time()) for _ in range(2)]
    assert handed_out == [("a", 10), ("b", 20)]
    assert queue.delayed == 0


@simulated
async def test_an_add_overtakes_a_delay_and_nothing_comes_twice() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 30)
    queue.add("a")
    await queue.get()
    queue.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.get(), 100)


@simulated
async def test_a_delay_does_not_put_off_an_item_that_is_ready() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add_after("a", 30)
    await queue.get()
    assert time() == 0


@simulated
async def test_a_delay_that_ends_while_the_item_is_processed_is_not_lost() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 10)
    await asyncio.sleep(20)
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


@simulated
async def test_retries_wait_longer_each_time_until_the_item_is_forgotten() -> None:
    queue = WorkQueue[str](rate_limiter=ExponentialBackoff[Hashable](base=1, cap=5))
    waited = []
    for _ in range(5):
        before = time()
        queue.add_rate_limited("a")
        await queue.get()
        queue.done("a")
        waited.append(time() - before)
    assert waited == [1, 2, 4, 5, 5]
    assert queue.num_requeues("a") == 5
    queue.forget("a")
    assert queue.num_requeues("a") == 0


@simulated(seeds=range(20))
async def test_a_cancelled_getter_passes_its_item_on() -> None:
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await settle()
    queue.add("a")
    first.cancel()  # at the very moment at which it was woken
    assert await second == "a"
    assert first.cancelled()


@simulated
async def test_shutting_down_hands_out_what_is_due_and_then_nothing() -> None:
    queue = WorkQueue[str]()
    for item in ("busy", "ready"):
        queue.add(item)
    await queue.get()
    queue.add("busy")
    queue.add_after("later", 1)
    queue.shut_down()
    queue.add("ignored")
    assert await queue.get() == "ready"
    last = asyncio.create_task(queue.get())
    end = asyncio.create_task(queue.get())
    await settle()
    queue.done("busy")
    await asyncio.wait([last, end])
    outcomes = {repr(task.exception() or task.result()) for task in (last, end)}
    assert outcomes == {"'busy'", "QueueShutDown('')"}


@simulated
async def test_shutting_down_without_draining_wakes_every_getter() -> None:
    queue = WorkQueue[str]()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    queue.shut_down(drain=False)
    await asyncio.wait(getters)
    assert all(isinstance(getter.exception(), QueueShutDown) for getter in getters)


@simulated
async def test_giving_back_what_nobody_has_is_an_error() -> None:
    queue = WorkQueue[str]("q")
    queue.add("a")
    with pytest.raises(ValueError, match="'q': 'a' is not being processed"):
        queue.done("a")


@simulated
async def test_the_metrics_say_what_the_queue_did() -> None:
    registry = CollectorRegistry()
    queue = WorkQueue[str]("q", metrics=RuntimeMetrics(registry).queue("q"))

    def metric(name: str) -> float | None:
        return registry.get_sample_value(f"workqueue_{name}", {"name": "q", "controller": "q"})

    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert metric("depth") == 2
    assert metric("adds_total") == 2
    await asyncio.sleep(3)
    await queue.get()
    assert metric("queue_duration_seconds_sum") == 3
    await asyncio.sleep(5)
    assert metric("unfinished_work_seconds") == 5
    assert metric("longest_running_processor_seconds") == 5
    queue.add_rate_limited("a")
    queue.done("a")
    assert metric("work_duration_seconds_sum") == 5
    assert metric("retries_total") == 1
    assert metric("longest_running_processor_seconds") == 0


ITEMS = st.sampled_from("abc")
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.5, 8.0])


class WorkQueueMachine(RuleBasedStateMachine):
    """Against a model: per item, when at the earliest and at the latest it has to come."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop(seed=1)
        self.queue = WorkQueue[str](rate_limiter=ExponentialBackoff[Hashable](base=1, cap=4))
        self.getters: list[asyncio.Task[tuple[str, float]]] = []
        self.due: dict[str, float] = {}
        self.failures: dict[str, int] = {}
        self.held: list[str] = []
        self.is_settled = True

    def call(self, function: Callable[..., object], *args: object) -> None:
        # Not by run_until_complete: woken getters would run before the model knows of the call.
        asyncio._set_running_loop(self.loop)
        try:
            function(*args)
        finally:
            asyncio._set_running_loop(None)
        self.is_settled = False

    async def work(self) -> tuple[str, float]:
        return await self.queue.get(), self.loop.time()

    def collect(self) -> None:
        for getter in list(self.getters):
            if getter.done():
                self.getters.remove(getter)
                if not getter.cancelled():
                    self.handed_out(*getter.result())

    def handed_out(self, item: str, when: float) -> None:
        assert item not in self.held, f"{item} is with two workers"
        assert item in self.due, f"nobody asked for {item}"
        assert self.due.pop(item) <= when, f"{item} came too early"
        self.held.append(item)

    def is_due(self, item: str) -> bool:
        return item in self.due and self.due[item] <= self.loop.time()

    def plan(self, item: str, delay: float) -> None:
        when = self.loop.time() + delay
        self.due[item] = min(when, self.due.get(item, when))

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.call(self.queue.add, item)
        self.plan(item, 0)

    @rule(item=ITEMS, delay=DELAYS)
    def add_after(self, item: str, delay: float) -> None:
        self.call(self.queue.add_after, item, delay)
        self.plan(item, delay)

    @rule(item=ITEMS)
    def add_rate_limited(self, item: str) -> None:
        self.call(self.queue.add_rate_limited, item)
        self.plan(item, min(4, 2 ** self.failures.get(item, 0)))
        self.failures[item] = self.failures.get(item, 0) + 1
        assert self.queue.num_requeues(item) == self.failures[item]

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        self.call(self.queue.forget, item)
        self.failures.pop(item, None)

    @precondition(lambda self: len(self.getters) < 3)
    @rule()
    def start_worker(self) -> None:
        self.getters.append(self.loop.create_task(self.work()))
        self.is_settled = False

    @precondition(lambda self: self.getters)
    @rule(data=st.data())
    def cancel_worker(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.getters)).cancel()
        self.is_settled = False

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.held))
        self.held.remove(item)
        self.call(self.queue.done, item)

    @rule()
    def one_pass_of_the_loop(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        self.collect()

    @rule(seconds=DELAYS)
    def wait(self, seconds: float) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            await settle()

        self.loop.run_until_complete(run())
        self.collect()
        self.is_settled = True

    @invariant()
    def no_worker_waits_while_an_item_is_due(self) -> None:
        if self.is_settled and self.getters:
            assert [i for i in self.due if self.is_due(i) and i not in self.held] == []

    @invariant()
    def the_length_is_what_is_ready(self) -> None:
        if self.is_settled:
            ready = [i for i in self.due if self.is_due(i) and i not in self.held]
            assert len(self.queue) == len(ready)
            assert self.queue.active == len(self.held)

    def teardown(self) -> None:
        async def drain() -> list[str]:
            await asyncio.sleep(100)
            for getter in self.getters:
                getter.cancel()
            await settle()
            self.collect()
            for item in self.held:
                self.queue.done(item)
            self.queue.shut_down()
            left: list[str] = []
            while True:
                try:
                    item = await self.queue.get()
                except QueueShutDown:
                    return left
                left.append(item)
                self.queue.done(item)

        try:
            left = self.loop.run_until_complete(drain())
            assert sorted(left) == sorted(self.due)
        finally:
            self.loop.finish()


TestWorkQueueAgainstAModel = WorkQueueMachine.TestCase
TestWorkQueueAgainstAModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
