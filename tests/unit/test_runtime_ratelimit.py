"""The request limiter, in simulated time."""

from __future__ import annotations

import asyncio

import pytest

from arc_controller.runtime.ratelimit import TokenBucket
from arc_controller.testing.loop import simulated


def time() -> float:
    return asyncio.get_running_loop().time()


@simulated
async def test_a_burst_passes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    passed: list[float] = []

    async def caller() -> None:
        await bucket.acquire()
        passed.append(round(time(), 6))

    await asyncio.gather(*(caller() for _ in range(8)))

    assert sorted(passed) == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]


@simulated
async def test_an_idle_bucket_fills_up_to_its_burst_and_no_further() -> None:
    bucket = TokenBucket(rate=10, burst=2)
    for _ in range(2):
        await bucket.acquire()
    await asyncio.sleep(1000)

    waits = [await bucket.acquire() for _ in range(3)]

    assert waits == pytest.approx([0, 0, 0.1])


@simulated
async def test_callers_pass_in_the_order_in_which_they_asked() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    passed: list[int] = []

    async def caller(number: int) -> None:
        await asyncio.sleep(number / 100)
        await bucket.acquire()
        passed.append(number)

    await asyncio.gather(*(caller(number) for number in range(6)))

    assert passed == [0, 1, 2, 3, 4, 5]


@simulated
async def test_a_cancelled_wait_takes_no_token() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    await bucket.acquire()
    waiting = asyncio.create_task(bucket.acquire())
    await asyncio.sleep(0.5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await bucket.acquire()

    assert time() == pytest.approx(1.0)


@simulated
async def test_no_rate_means_no_limit() -> None:
    bucket = TokenBucket(rate=0, burst=0)
    for _ in range(1000):
        assert await bucket.acquire() == 0.0
    assert time() == 0.0


def test_a_rate_without_a_burst_is_refused() -> None:
    with pytest.raises(ValueError, match="burst is 0"):
        TokenBucket(rate=5, burst=0)
