"""How long the listener waits for what."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long what is tried again; all in seconds.

    ``handling`` and ``closing`` together must stay below the pod's grace period (60 s).
    """

    conflict: float = 300.0
    refusal: float = 300.0
    handling: float = 30.0
    closing: float = 15.0
    recording: float = 10.0
    """A message waits no longer to be acknowledged for its started jobs to be recorded."""
    acquiring: float = 20.0
    """Started jobs and the desired count wait no longer for jobs to be acquired."""
    second_look: float = 3.0
    """When to decide again after a job ended, if no message comes. The runner of that job may have
    counted as capacity for the next one when we decided first; longer than it takes to exit."""
    together: float = 0.5
    """Decisions that are not urgent wait this long for more of them, to be written as one."""
    min_wait: float = 1.0
    max_wait: float = 30.0


class Backoff:
    """Waits that double from ``shortest`` to ``longest`` seconds, with jitter downwards."""

    def __init__(self, shortest: float, longest: float, random: Random) -> None:
        self._shortest = shortest
        self._longest = longest
        self._random = random
        self._step = shortest

    def next(self) -> float:
        step, self._step = self._step, min(self._longest, self._step * 2)
        return step * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._step = self._shortest

    async def sleep(self) -> None:
        await asyncio.sleep(self.next())
