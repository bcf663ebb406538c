"""Simulated time: hours of waiting in milliseconds, and one seed reproduces one failure.

An ordinary asyncio program runs unmodified on `SimulatedLoop`, as long as it has no sockets,
threads or subprocesses: when nothing is ready, time jumps to the next timer. ::

    @simulated
    async def test_an_hour_passes():
        await asyncio.sleep(3600)
        assert asyncio.get_running_loop().time() == 3600

Tasks and futures of the loop hash by the order in which they were made, so that sets of them (those
of `asyncio.wait` and `asyncio.TaskGroup` among others) are iterated in the same order in every run.
A program that iterates over a ``set`` of other objects with the default hash depends on memory
addresses, and over one of strings on PYTHONHASHSEED; no seed can reproduce that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

T = TypeVar("T")
P = ParamSpec("P")

START = datetime(2025, 1, 1, tzinfo=UTC)
STEPS_AT_ONE_INSTANT = 1_000_000


class Deadlock(Exception):
    """Nothing is ready and no timer is set: the program would wait forever."""


class Livelock(Exception):
    """The program keeps running callbacks although time stands still."""


def run_simulated(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    start: datetime = START,
    shuffle: bool = True,
) -> T:
    """Run `main` on a new `SimulatedLoop` and return its result.

    With `shuffle` the order of callbacks that are ready at the same moment is drawn from `seed`;
    without, it is asyncio's own (first in, first out). What `main` leaves running is cancelled
    and awaited. An exception gets a note with the seed. Raises `Deadlock`, `Livelock`.
    """
    loop = SimulatedLoop(seed=seed, start=start, shuffle=shuffle)
    try:
        result = loop.run_until_complete(main)
    except BaseException as error:
        error.add_note(f"simulated with seed={seed}, at {loop.now().isoformat()}")
        with contextlib.suppress(Deadlock, Livelock):  # the first error is the one that counts
            loop.finish()
        raise
    loop.finish()
    return result


def now() -> datetime:
    """The simulated wall clock of the running loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise RuntimeError("now() is the clock of a SimulatedLoop; the running loop is another one")
    return loop.now()


@overload
def simulated(test: Callable[P, Coroutine[Any, Any, None]], /) -> Callable[P, None]: ...


@overload
def simulated(
    *, seeds: Iterable[int] = (0,), start: datetime = START, shuffle: bool = True
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]: ...


def simulated(
    test: Callable[P, Coroutine[Any, Any, None]] | None = None,
    /,
    *,
    seeds: Iterable[int] = (0,),
    start: datetime = START,
    shuffle: bool = True,
) -> Any:
    """Decorator: the async test becomes a plain one that runs once per seed in simulated time."""
    seeds = tuple(seeds)

    def decorate(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            for seed in seeds:
                run_simulated(test(*args, **kwargs), seed=seed, start=start, shuffle=shuffle)

        return run

    return decorate if test is None else decorate(test)


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time, no sockets, no threads and a seeded order of callbacks.

    ``time()`` starts at 0 and moves only when nothing is ready. The wall clock `now` starts at
    `start` and moves along; `jump_wall_clock` sets it off, as an operator or NTP would.
    """

    def __init__(self, *, seed: int = 0, start: datetime = START, shuffle: bool = True) -> None:
        super().__init__()
        self._now = 0.0
        self._start = start
        self._order = random.Random(seed) if shuffle else None
        self._steps = 0
        self._made = 0
        self.set_task_factory(_new_task)

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def next_number(self) -> int:
        """1, 2, 3 …: what tasks and futures hash by."""
        self._made += 1
        return self._made

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._now)

    def jump_wall_clock(self, by: timedelta) -> None:
        """Set the wall clock forward or back; loop time, and so every timer, is unaffected."""
        self._start += by

    def finish(self) -> None:
        """Cancel what still runs, let it clean up, and close the loop."""
        try:
            self._cancel_all()
            if not self.is_closed():
                self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.close()

    def _cancel_all(self) -> None:
        pending = _by_name(asyncio.all_tasks(self))
        if not pending:
            return
        for task in pending:
            task.cancel()
        self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))

    def _run_once(self) -> None:
        # The one method of BaseEventLoop that touches time and input; the rest is inherited.
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock("every task waits, and no timer is set:\n" + _describe(self))
            self._advance(timers[0].when())
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        self._count(len(ready))
        batch = list(ready)
        ready.clear()
        if self._order is not None:
            self._order.shuffle(batch)
        for index, handle in enumerate(batch):
            if handle.cancelled():
                continue
            try:
                handle._run()  # it reports Exceptions itself; only BaseExceptions get here
            except BaseException:
                ready.extendleft(reversed(batch[index + 1 :]))
                raise

    def _advance(self, when: float) -> None:
        if when > self._now:
            self._now, self._steps = when, 0

    def _count(self, callbacks: int) -> None:
        self._steps += callbacks
        if self._steps > STEPS_AT_ONE_INSTANT:
            self._steps = 0
            raise Livelock(
                f"{STEPS_AT_ONE_INSTANT} callbacks ran and time still stands at {self._now:g} s:\n"
                + _describe(self)
            )

    def _write_to_self(self) -> None:
        """call_soon_threadsafe is fine from this thread, and there are no others."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> NoReturn:
        raise RuntimeError(f"no threads in a simulation: {func!r} must not use an executor")


class _Future(asyncio.Future[Any]):
    def __init__(self, *, loop: SimulatedLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.next_number()

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: SimulatedLoop, **kwargs: Any):
        self._number = loop.next_number()  # first: asyncio registers the task by its hash
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self._number


def _new_task(loop: Any, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
    return _Task(coro, loop=loop, **kwargs)


def _by_name(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    # all_tasks is a set; names (Task-1, Task-2, …) bring back the order of creation.
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


def _describe(loop: asyncio.AbstractEventLoop) -> str:
    lines = []
    for task in _by_name(asyncio.all_tasks(loop)):
        stack = task.get_stack(limit=1)
        where = ""
        if stack:
            code = stack[-1].f_code
            where = f" at {code.co_filename}:{stack[-1].f_lineno} in {code.co_name}"
        name = getattr(task.get_coro(), "__qualname__", "?")
        lines.append(f"  {task.get_name()} ({name}){where}")
    return "\n".join(lines)
