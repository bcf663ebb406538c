"""How often, how long and how far apart a call is tried. Sleeps on the loop's own time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState

from .errors import ActionsApiError

T = TypeVar("T")

log = logging.getLogger("arc_controller.actions")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``retries`` after the first attempt, waits that double from ``min_wait`` up to ``max_wait``
    with jitter, a limit for each attempt and one for the whole call. All times in seconds."""

    retries: int = 4
    min_wait: float = 1.0
    max_wait: float = 30.0
    attempt_timeout: float = 120.0
    total_timeout: float = 300.0

    def wait(self, attempt: int, random: Random) -> float:
        """The wait after the ``attempt``-th failure (from 1): between half of the step and it."""
        step = min(self.max_wait, self.min_wait * 2.0 ** (attempt - 1))
        return max(self.min_wait, step * random.uniform(0.5, 1.0))


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    first_failure: Exception,
    *,
    deadline: float,
    policy: RetryPolicy,
    retry: Callable[[BaseException], bool],
    random: Random,
) -> T:
    """Call ``attempt`` until it succeeds, ``retry`` says no to its error, or the policy is used up.

    It was called once already, with ``first_failure``: most calls never get here. A ``Retry-After``
    that is longer than our own wait is honoured; one that does not fit into what is left until
    ``deadline`` (in the loop's time) ends the call at once with the service's error, so that the
    caller can decide. The last error is raised as it is. Cancellation ends it at any point.
    """
    loop = asyncio.get_running_loop()
    failed = [first_failure]

    async def first_failed() -> T:
        if failed:
            raise failed.pop()
        return await attempt()

    def wait(state: RetryCallState) -> float:
        own = policy.wait(state.attempt_number, random)
        asked = _retry_after(state)
        return own if asked is None else max(own, asked)

    def stop(state: RetryCallState) -> bool:
        if state.attempt_number > policy.retries:
            return True
        return loop.time() + (_retry_after(state) or policy.min_wait) >= deadline

    def before_sleep(state: RetryCallState) -> None:
        log.warning("%s; trying again in %.1f s", _error(state), state.upcoming_sleep)

    retrying = AsyncRetrying(
        sleep=asyncio.sleep,
        stop=stop,
        wait=wait,
        retry=lambda state: (error := _error(state)) is not None and retry(error),
        before_sleep=before_sleep,
        reraise=True,
    )
    return await retrying(first_failed)


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _retry_after(state: RetryCallState) -> float | None:
    error = _error(state)
    return error.retry_after if isinstance(error, ActionsApiError) else None
