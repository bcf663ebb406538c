"""What this process did for a set that its cache may not show yet, and what it has learned.

All of it may be lost with the process: then the cluster is read afresh, and the patch ids on the
runners say which request they answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet

VERIFY_AFTER: Final = 30.0
"""Seconds after which a created runner that the cache still does not show is looked for."""

LINGER: Final = 1.0
LINGER_EACH: Final = 0.005
LONGEST_LINGER: Final = 5.0
"""Seconds for which a runner that went away by itself keeps its place; longer the more of them do.

It has ended its job, and the number of runners that the listener asked for may still count that
job: replacing it at once would create a runner for a job that is already over. If the listener has
not said otherwise by then, the place is free.
"""


class Request(NamedTuple):
    """What a set's spec asks for. The generation tells equal requests of two times apart."""

    generation: int
    patch_id: int
    replicas: int
    revision: int

    @classmethod
    def of(cls, runner_set: EphemeralRunnerSet) -> Request:
        spec = runner_set.spec
        return cls(
            runner_set.metadata.generation, spec.patch_id, spec.replicas, spec.actionable_revision
        )


@dataclass(frozen=True, slots=True)
class _Created:
    runner: EphemeralRunner
    since: float


class Expectations:
    """Of one set. Times are in seconds of the loop's time.

    A runner is *unknown* from the moment its creation is sent until there is an answer. Where none
    comes nobody knows whether it exists, and nothing may be decided before the server was asked.
    """

    def __init__(self) -> None:
        self._created: dict[str, _Created] = {}
        self._unknown: set[str] = set()
        self._removed: set[str] = set()
        self._seen: frozenset[str] = frozenset()
        self._lingering: dict[str, float] = {}
        self._answered: Request | None = None
        self._owed: Request | None = None
        self._first: tuple[int, int] | None = None
        self._latest: tuple[int, int] | None = None
        self._is_new = False
        self.knows_all = False
        """Whether the server was ever asked; see `adopt`."""

    # Runners

    def sent(self, name: str) -> None:
        """The creation of a runner is on its way."""
        self._unknown.add(name)

    def refused(self, name: str) -> None:
        """It certainly was not created."""
        self._unknown.discard(name)

    def created(self, runner: EphemeralRunner, now: float) -> None:
        self._unknown.discard(runner.metadata.name)
        self._created[runner.metadata.name] = _Created(runner, now)

    def removed(self, uid: str) -> None:
        """We deleted it; the cache may not say so yet."""
        self._removed.add(uid)

    @property
    def removed_uids(self) -> frozenset[str]:
        return frozenset(self._removed)

    def complete(self, cached: Sequence[EphemeralRunner], now: float) -> list[EphemeralRunner]:
        """The set's runners: those in the cache, and those that it does not show yet."""
        present = frozenset(runner.uid for runner in cached)
        gone = self._seen - present - self._removed
        if gone:
            self._keep_places(sorted(gone), now)
        self._seen = present
        self._removed &= present
        for runner in cached:
            if not self._created:
                break
            self._created.pop(runner.metadata.name, None)
        return [*cached, *(expected.runner for expected in self._created.values())]

    def must_ask(self, now: float) -> bool:
        """Whether only the server can tell which runners there are; see `settle`."""
        late = any(now - expected.since >= VERIFY_AFTER for expected in self._created.values())
        return late or bool(self._unknown)

    def settle(self, live: Iterable[EphemeralRunner], now: float) -> None:
        """Take in what the server, asked without the cache, has of the set's runners."""
        by_name = {runner.metadata.name: runner for runner in live}
        open_names = {*self._created, *self._unknown}
        self._unknown.clear()
        self._created = {
            name: _Created(by_name[name], now) for name in sorted(open_names) if name in by_name
        }

    def adopt(self, live: Iterable[EphemeralRunner], now: float) -> None:
        """Take in all of the set's runners that the server has: a process that has just become the
        leader may have a cache that is older than what its predecessor did."""
        self.knows_all = True
        self._unknown.clear()
        self._created = {runner.metadata.name: _Created(runner, now) for runner in live}

    def lingering(self, now: float) -> tuple[int, float]:
        """How many places are kept, and in how many seconds the next one is given up."""
        self._lingering = {uid: end for uid, end in self._lingering.items() if end > now}
        if not self._lingering:
            return 0, 0.0
        return len(self._lingering), min(self._lingering.values()) - now

    def inherit(self, count: int, request: Request, now: float) -> None:
        """So many runners are missing for a request that was there before this process was: of
        those that its predecessor made for it some may have ended their jobs a moment ago."""
        if (request.patch_id, request.replicas) == self._first:
            self._keep_places([f"inherited {number}" for number in range(count)], now)

    def _keep_places(self, uids: Sequence[str], now: float) -> None:
        many = len(uids) + len(self._lingering)
        end = now + min(LINGER + LINGER_EACH * many, LONGEST_LINGER)
        self._lingering |= dict.fromkeys(uids, end)

    # Requests

    def see(self, request: Request) -> None:
        """Each pass tells what is asked for. What differs from what was asked for before is a new
        request, even if its id is that of the newest runner: ids start again with each listener."""
        asked = (request.patch_id, request.replicas)
        if self._first is None:
            self._first = asked
        elif asked != self._latest:
            self._is_new = True
        self._latest = asked

    def may_act(self, request: Request, newest_patch_id: int | None) -> bool:
        """The scaling gate. `newest_patch_id` is that of the newest runner of today's revision.

        Patch id 0 means "force this state". Any other is acted on once: acting twice would create
        runners that nobody asked for.
        """
        if request.patch_id == 0 or request == self._owed:
            return True
        if request == self._answered:
            return False
        return self._is_new or request.patch_id != newest_patch_id

    def owe(self, request: Request) -> None:
        """Acting on the request has begun: until it is answered, it is not done."""
        self._owed, self._answered = request, None

    def answer(self, request: Request) -> None:
        """All that the request asked for has been created."""
        self._owed, self._answered, self._is_new = None, request, False

    def reopen(self) -> None:
        """Runners were removed so that scaling replaces them."""
        self._answered = None
