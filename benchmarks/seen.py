"""What happened to the objects of runners, and when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

KINDS = ("ephemeralrunners", "pods", "secrets")


class Seen:
    """Fed with every change in the runners' namespace; counts from the last `reset` on."""

    def __init__(self) -> None:
        self.pods_created: list[datetime] = []
        self.last_gone: datetime | None = None
        self.samples: dict[str, Mapping[str, Any]] = {}
        """One object of each kind; the runner has a job."""
        self._alive: set[tuple[str, str]] = set()

    def reset(self) -> None:
        """From here on; what is there already belongs to nobody."""
        self.pods_created.clear()
        self.samples.clear()
        self._alive.clear()
        self.last_gone = None

    @property
    def is_clean(self) -> bool:
        """Whether everything that came since has gone again."""
        return not self._alive

    def added(self, plural: str, obj: Mapping[str, Any]) -> None:
        self._alive.add((plural, obj["metadata"]["name"]))
        if plural == "pods":
            self.pods_created.append(datetime.now(UTC))
        self.changed(plural, obj)

    def changed(self, plural: str, obj: Mapping[str, Any]) -> None:
        if plural in self.samples:
            return
        if plural != "ephemeralrunners" or obj.get("status", {}).get("jobId"):
            self.samples[plural] = obj

    def gone(self, plural: str, name: str) -> None:
        self._alive.discard((plural, name))
        self.last_gone = datetime.now(UTC)
