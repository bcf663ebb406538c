"""Controllers: who is retried when, what is logged, and how they stop."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from arc_controller.runtime.controller import Controller, Result, TerminalError
from arc_controller.runtime.errors import AlreadyExists, BadRequest, Conflict, NotFound, Status
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ratelimiters import ExponentialBackoff
from arc_controller.runtime.workqueue import WorkQueue
from arc_controller.testing.loop import simulated

KEY = NamespacedName("default", "a")
OTHER = NamespacedName("default", "b")

Behaviour = Callable[[NamespacedName, int], Awaitable[Result | None]]


class Scripted:
    """A reconciler that records its calls and does what it is told on the n-th one."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.calls: list[tuple[NamespacedName, float]] = []
        self.running = 0
        self.most_running = 0

    async def reconcile(self, key: NamespacedName) -> Result:
        self.calls.append((key, asyncio.get_running_loop().time()))
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            result: Any = await self._behaviour(key, len(self.calls))
            return result  # type: ignore[no-any-return]
        finally:
            self.running -= 1

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.calls]


@asynccontextmanager
async def running(controller: Controller) -> Any:
    task = asyncio.create_task(controller.start())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def controller_of(behaviour: Behaviour, **options: Any) -> tuple[Controller, Scripted]:
    reconciler = Scripted(behaviour)
    queue = WorkQueue[NamespacedName](rate_limiter=ExponentialBackoff(base=1, cap=8))
    options.setdefault("random", random.Random(1))
    return Controller("test", reconciler, queue, **options), reconciler


@contextmanager
def errors_logged() -> Iterator[list[dict[str, Any]]]:
    errors: list[dict[str, Any]] = []
    with capture_logs() as logs:
        yield errors
    errors += [dict(line) for line in logs if line["log_level"] == "error"]


@simulated
async def test_a_success_is_not_repeated_and_forgets_failures() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call < 3:
            raise RuntimeError("not yet")
        return Result()

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(1000)
    assert reconciler.times == [0, 1, 3]
    assert controller.queue.num_requeues(KEY) == 0


@simulated
async def test_an_error_is_logged_once_with_its_traceback_and_context() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            raise RuntimeError("broken")
        return Result()

    controller, _ = controller_of(behaviour)
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert [(e["event"], e["error"], e["failures"]) for e in errors] == [
        ("reconcile failed", "broken", 1)
    ]
    assert isinstance(errors[0]["exc_info"], RuntimeError)


@simulated
async def test_an_api_error_says_it_all_without_a_traceback() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            raise BadRequest(Status(message="no such field", code=400), "POST /api")
        return Result()

    controller, _ = controller_of(behaviour)
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert [(e["error"], e["exc_info"]) for e in errors] == [("POST /api: no such field", None)]


@simulated
@pytest.mark.parametrize("kind", [NotFound, AlreadyExists])
async def test_what_a_late_cache_leads_to_is_an_error_only_if_it_stays_so(kind: type[Any]) -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call <= 4:
            raise kind(Status(message="so it is", code=404))
        return Result()

    controller, scripted = controller_of(behaviour)
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert [each["failures"] for each in errors] == [3, 4]
    assert len(scripted.calls) == 5


@simulated
async def test_an_expected_error_is_retried_and_logged_without_a_traceback() -> None:
    class ServiceAway(Exception):
        pass

    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            raise ServiceAway("no answer from the service")
        return Result()

    controller, scripted = controller_of(behaviour, expected_errors=[ServiceAway])
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert [(e["error"], e["exc_info"]) for e in errors] == [("no answer from the service", None)]
    assert len(scripted.calls) == 2


@simulated
async def test_a_conflict_is_looked_at_again_promptly_and_is_no_error() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call <= 2:
            raise Conflict(Status(message="the object has been modified", code=409))
        return Result()

    controller, reconciler = controller_of(behaviour)
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert errors == []
    assert len(reconciler.calls) == 3
    first, second, third = reconciler.times
    assert 0.01 <= second - first <= 0.02
    assert 0.02 <= third - second <= 0.04


@simulated
async def test_conflicts_of_concurrent_writes_are_conflicts_too() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            raise ExceptionGroup("writes", [Conflict(Status()), Conflict(Status())])
        if call == 2:
            raise ExceptionGroup("writes", [Conflict(Status()), RuntimeError("worse")])
        return Result()

    controller, reconciler = controller_of(behaviour)
    with errors_logged() as errors:
        async with running(controller):
            controller.queue.add(KEY)
            await asyncio.sleep(100)
    assert len(reconciler.calls) == 3
    assert len(errors) == 1


@simulated
async def test_an_endless_conflict_slows_down() -> None:
    async def behaviour(_key: NamespacedName, _call: int) -> Result:
        raise Conflict(Status())

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(60)
    assert 30 <= len(reconciler.calls) <= 80


@simulated
async def test_requeue_after_comes_back_once_after_that_time() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        return Result(requeue_after=60) if call == 1 else Result()

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(1000)
    assert reconciler.times == [0, 60]


@simulated
async def test_requeue_after_does_not_put_off_what_was_added_meanwhile() -> None:
    async def behaviour(key: NamespacedName, call: int) -> Result:
        if call == 1:
            controller.queue.add(key)
            return Result(requeue_after=60)
        return Result()

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(1000)
    assert reconciler.times == [0, 0]


@simulated
async def test_a_terminal_error_waits_for_a_change() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            raise TerminalError("spec.image is empty")
        return Result()

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(1000)
        assert reconciler.times == [0]
        controller.queue.add(KEY)
        await asyncio.sleep(1)
    assert reconciler.times == [0, 1000]


async def _waits_for_something_cancelled(_key: NamespacedName, call: int) -> Result:
    if call == 1:
        raise asyncio.CancelledError
    return Result()


async def _raises_a_base_exception_group(_key: NamespacedName, call: int) -> Result:
    if call == 1:
        raise BaseExceptionGroup("odd", [asyncio.CancelledError()])
    return Result()


async def _asks_for_a_wrong_delay(_key: NamespacedName, call: int) -> Result:
    """A mistake in one reconciler, not a reason to end the process."""
    if call == 1:
        return Result(requeue_after="60")  # type: ignore[arg-type]
    return Result()


async def _returns_nothing(_key: NamespacedName, call: int) -> Result | None:
    return None if call == 1 else Result()


@pytest.mark.parametrize(
    "behaviour",
    [
        _waits_for_something_cancelled,
        _raises_a_base_exception_group,
        _returns_nothing,
        _asks_for_a_wrong_delay,
    ],
)
@simulated
async def test_workers_survive(behaviour: Behaviour) -> None:
    controller, reconciler = controller_of(behaviour)
    async with running(controller) as task:
        controller.queue.add(KEY)
        await asyncio.sleep(100)
        assert not task.done()
    assert reconciler.times == [0, 1]


@simulated
async def test_a_reconcile_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call == 1:
            await asyncio.sleep(3600)
        return Result()

    registry = CollectorRegistry()
    controller, reconciler = controller_of(
        behaviour, reconcile_timeout=30, metrics=RuntimeMetrics(registry)
    )
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(100)
    assert reconciler.times == [0, 31]
    name = "controller_runtime_reconcile_timeouts_total"
    assert registry.get_sample_value(name, {"controller": "test"}) == 1


@simulated
async def test_workers_are_concurrent_but_never_on_one_key() -> None:
    on: list[NamespacedName] = []

    async def behaviour(key: NamespacedName, _call: int) -> Result:
        assert key not in on
        on.append(key)
        controller.queue.add(key)
        await asyncio.sleep(10)
        on.remove(key)
        return Result()

    controller, reconciler = controller_of(behaviour, max_concurrent_reconciles=3)
    async with running(controller):
        controller.queue.add(KEY)
        controller.queue.add(OTHER)
        await asyncio.sleep(100)
    assert reconciler.most_running == 2


@simulated
async def test_draining_lets_running_reconciles_finish_and_begins_no_other() -> None:
    finished = []

    async def behaviour(key: NamespacedName, _call: int) -> Result:
        await asyncio.sleep(10)
        finished.append(key)
        return Result(requeue_after=1)

    controller, reconciler = controller_of(behaviour)
    async with running(controller) as task:
        controller.queue.add(KEY)
        controller.queue.add(OTHER)
        await asyncio.sleep(1)
        await controller.drain()
        assert finished == [KEY]
        assert asyncio.get_running_loop().time() == 10
        await task
    assert len(reconciler.calls) == 1


@simulated
async def test_cancelling_ends_running_reconciles_before_start_returns() -> None:
    ended = []

    async def behaviour(key: NamespacedName, _call: int) -> Result:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            ended.append(key)
        return Result()

    controller, _ = controller_of(behaviour, max_concurrent_reconciles=2)
    async with running(controller) as task:
        controller.queue.add(KEY)
        controller.queue.add(OTHER)
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait([task])
        assert set(ended) == {KEY, OTHER}
        assert task.cancelled()


@simulated
async def test_a_resync_looks_at_everything_once_a_period_spread_over_it() -> None:
    async def behaviour(_key: NamespacedName, _call: int) -> Result:
        return Result()

    keys = [NamespacedName("default", str(number)) for number in range(1200)]
    controller, reconciler = controller_of(behaviour, resync=lambda: keys, sync_period=60)
    async with running(controller):
        await asyncio.sleep(60)
        assert reconciler.calls == []
        await asyncio.sleep(60)
    assert {key for key, _ in reconciler.calls} == set(keys)
    per_second = [sum(1 for time in reconciler.times if int(time) == s) for s in range(60, 120)]
    assert max(per_second) <= 50


@simulated
async def test_the_metrics_count_every_outcome() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        await asyncio.sleep(0.3)
        match call:
            case 1:
                raise RuntimeError("broken")
            case 2:
                raise Conflict(Status())
            case 3:
                return Result(requeue_after=1)
            case _:
                return Result()

    registry = CollectorRegistry()
    controller, _ = controller_of(
        behaviour, metrics=RuntimeMetrics(registry), max_concurrent_reconciles=2
    )

    def metric(name: str, **labels: str) -> float | None:
        labels = {"controller": "test", **labels}
        return registry.get_sample_value(f"controller_runtime_{name}", labels)

    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(0.1)
        assert metric("active_workers") == 1
        await asyncio.sleep(100)
    results = ("success", "error", "requeue", "requeue_after")
    assert [metric("reconcile_total", result=result) for result in results] == [1, 1, 1, 1]
    assert metric("reconcile_errors_total") == 1
    assert metric("reconcile_time_seconds_count") == 4
    assert metric("reconcile_time_seconds_sum") == pytest.approx(1.2)
    assert metric("active_workers") == 0
    assert metric("max_concurrent_reconciles") == 2


@pytest.mark.parametrize("seconds", ["60", True, timedelta(minutes=1)])
def test_a_result_takes_seconds_and_nothing_else(seconds: Any) -> None:
    with pytest.raises(TypeError, match="it is a number of seconds"):
        Result(requeue_after=seconds)


@pytest.mark.parametrize("seconds", [math.nan, math.inf])
def test_a_result_takes_a_time_that_comes(seconds: float) -> None:
    with pytest.raises(ValueError, match="it is a finite number of seconds"):
        Result(requeue_after=seconds)


def test_a_controller_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="max_concurrent_reconciles is 0, it must be at least 1"):
        controller_of(_returns_nothing, max_concurrent_reconciles=0)


@simulated
async def test_a_pass_that_only_put_its_work_off_does_not_end_a_run_of_failures() -> None:
    async def behaviour(_key: NamespacedName, call: int) -> Result:
        if call % 2:
            raise RuntimeError("not yet")
        return Result(requeue_after=0.5, postponed=True)

    controller, reconciler = controller_of(behaviour)
    async with running(controller):
        controller.queue.add(KEY)
        await asyncio.sleep(30)
    waits = [later - earlier for earlier, later in itertools.pairwise(reconciler.times)]
    assert waits[:8] == [1, 0.5, 2, 0.5, 4, 0.5, 8, 0.5]


def test_a_pass_that_put_its_work_off_says_until_when() -> None:
    with pytest.raises(ValueError, match="until when"):
        Result(postponed=True)
