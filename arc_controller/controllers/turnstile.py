"""Keeps one place that does not answer from having all the workers.

A call of the service may take minutes, retries included, and a worker waits with it. So of the
calls to one place (a host, a scale set) that take long only a few go on; the others are given up,
and no more are begun before the place is quick again. Whoever else needs a worker gets one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from arc_controller.actions import ActionsError
from arc_controller.runtime.clock import loop_time

SLOW: Final = 10.0
"""Seconds after which a call is slow."""
WORKERS_PER_PLACE: Final = 4
"""One in so many workers may wait for one place that is slow."""
LOOK_EVERY: Final = 1.0
REMEMBERED: Final = 60.0
"""Seconds after the end of a slow call for which its place is taken to be slow."""


class ServiceSlow(ActionsError):
    """The place has as many calls waiting as it may have. Try again in `SLOW` seconds."""

    transient = True


@dataclass(eq=False, slots=True)
class _Call:
    task: asyncio.Task[object]
    since: float
    cancelling: int
    given_up: bool = False


@dataclass(slots=True)
class _Place:
    calls: dict[_Call, None] = field(default_factory=dict)  # the oldest first
    slow_until: float = 0.0

    def note(self, call: _Call) -> None:
        """It got an answer."""
        now = loop_time()
        self.slow_until = now if now - call.since < SLOW else now + REMEMBERED


class Turnstile:
    """`share` is how many calls of one place may be slow at the same time. Times are the loop's."""

    def __init__(self, share: int = 4) -> None:
        self._share = max(1, share)
        self._places: dict[Hashable, _Place] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def passing(self, place: Hashable, name: str) -> Iterator[None]:
        """For one call to `place`, which a user knows by `name`.

        Raises `ServiceSlow` at once, or after a while in the middle of the call, which is then
        cancelled; whether it took effect is not known.
        """
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        here, now = self._places.setdefault(place, _Place()), loop_time()
        if now < here.slow_until and len(here.calls) >= self._share:
            raise _slow(name)
        call = _Call(task, now, task.cancelling())
        here.calls[call] = None
        self._watch()
        try:
            yield
        except asyncio.CancelledError:
            if call.given_up and task.uncancel() <= call.cancelling:
                raise _slow(name) from None
            raise
        except BaseException:
            here.note(call)
            raise
        else:
            here.note(call)
        finally:
            del here.calls[call]

    def _watch(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._timer = None
        now, is_busy = loop_time(), False
        for place, here in list(self._places.items()):
            slow = [each for each in here.calls if now - each.since >= SLOW]
            if slow:
                here.slow_until = now + REMEMBERED
            for call in slow[self._share :]:
                if not call.given_up:
                    call.given_up = True
                    call.task.cancel()
            if here.calls or now < here.slow_until:
                is_busy = True
            else:
                del self._places[place]
        if is_busy:
            self._watch()


def place_of(config_url: str) -> tuple[str, str]:
    """The host of a config URL, as a place and as its name, for calls that are not many for one
    scale set."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(config_url))
    return origin.casefold(), origin


def _slow(name: str) -> ServiceSlow:
    return ServiceSlow(
        f"{name} takes more than {SLOW:.0f} s to answer; this waits until others have their answers"
    )
