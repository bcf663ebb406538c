"""The runners of a set, sorted by what scaling may do with them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain

from arc_controller.api.v1alpha1 import Annotation, EphemeralRunner, Phase, integer_annotation

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SortedRunners:
    """Every runner is in exactly one of the lists, each ordered from the oldest to the newest."""

    deleting: list[EphemeralRunner] = field(default_factory=list)
    pending: list[EphemeralRunner] = field(default_factory=list)
    running: list[EphemeralRunner] = field(default_factory=list)
    finished: list[EphemeralRunner] = field(default_factory=list)
    failed: list[EphemeralRunner] = field(default_factory=list)
    outdated: list[EphemeralRunner] = field(default_factory=list)
    """Refused as too old although they were built from today's spec: they condemn the set."""
    stale_outdated: list[EphemeralRunner] = field(default_factory=list)
    """Refused as too old, but built from a spec that has been replaced since."""

    @property
    def total(self) -> int:
        """The capacity: failed runners count, or a broken template would create without end."""
        return len(self.pending) + len(self.running) + len(self.failed)

    @property
    def count(self) -> int:
        """All of them."""
        return sum(map(len, self._lists))

    @property
    def idle(self) -> list[EphemeralRunner]:
        """Those without a job, in the order in which they may go: pending before running."""
        return [r for r in (*self.pending, *self.running) if not r.status.has_job]

    @property
    def over(self) -> list[EphemeralRunner]:
        """Those in a phase that is never left."""
        return [*self.finished, *self.failed, *self.outdated, *self.stale_outdated]

    def __iter__(self) -> Iterator[EphemeralRunner]:
        return chain.from_iterable(self._lists)

    def newest_patch_id(self, revision: int) -> int | None:
        """The patch id of the newest runner of that revision, whatever has become of it; None
        without one."""
        newest = [
            next((each for each in reversed(runners) if revision_of(each) == revision), None)
            for runners in self._lists
        ]
        own = [runner for runner in newest if runner is not None]
        return patch_id_of(max(own, key=_age)) if own else None

    @property
    def _lists(self) -> tuple[list[EphemeralRunner], ...]:
        return (
            self.deleting,
            self.pending,
            self.running,
            self.finished,
            self.failed,
            self.outdated,
            self.stale_outdated,
        )


def sort_runners(
    runners: Iterable[EphemeralRunner], applied_revision: int, removed: Container[str] = ()
) -> SortedRunners:
    """Sort them: deleting first, then by phase.

    `removed` holds the uids of runners that were deleted although these objects do not show it yet.
    """
    result = SortedRunners()
    by_phase: dict[str, list[EphemeralRunner]] = {
        Phase.RUNNING: result.running,
        Phase.SUCCEEDED: result.finished,
        Phase.FAILED: result.failed,
        Phase.OUTDATED: result.outdated,
    }
    for runner in sorted(runners, key=_age):
        if runner.metadata.deletion_timestamp is not None or runner.metadata.uid in removed:
            result.deleting.append(runner)
            continue
        place = by_phase.get(runner.status.phase, result.pending)
        if place is result.outdated and is_stale(runner, applied_revision):
            place = result.stale_outdated
        place.append(runner)
    return result


def is_stale(runner: EphemeralRunner, applied_revision: int) -> bool:
    """Whether what happened to the runner says nothing about today's spec."""
    return revision_of(runner) < applied_revision


def revision_of(runner: EphemeralRunner) -> int:
    """The revision of the spec that the runner was built from; 0 if its stamp is missing or
    garbage."""
    return integer_annotation(runner.metadata.annotations, Annotation.ACTIONABLE_REVISION)


def patch_id_of(runner: EphemeralRunner) -> int:
    """The request of the listener that the runner was created for; 0 if that is unknown."""
    return integer_annotation(runner.metadata.annotations, Annotation.PATCH_ID)


def _age(runner: EphemeralRunner) -> tuple[datetime, int, str]:
    # Creation times have whole seconds. Within one, the patch ids say who came first.
    metadata = runner.metadata
    patch_id = _number(metadata.annotations.get(Annotation.PATCH_ID, "0"))
    return metadata.creation_timestamp or _LONG_AGO, patch_id, metadata.name


@lru_cache(maxsize=1024)
def _number(text: str) -> int:
    """Thousands of runners share a few of them."""
    return integer_annotation({"": text}, "")
