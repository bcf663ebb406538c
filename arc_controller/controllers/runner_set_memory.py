"""What a pass over a set knows of earlier passes over the same set. Times are the loop's."""

from __future__ import annotations

from typing import Final

from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.controllers.expectations import Expectations
from arc_controller.controllers.runner_set_refusals import Refusals
from arc_controller.controllers.runner_set_status import StatusPace
from arc_controller.runtime.objects import NamespacedName

PACE: Final = 0.1
PACE_EACH: Final = 0.0003
"""Seconds between two passes over a set that asks for nothing more, and so many for each of its
runners: a burst of events is one, and large sets take no larger share of the time."""


class Memories:
    """One `Memory` for each set that there is."""

    def __init__(self) -> None:
        self._memories: dict[NamespacedName, Memory] = {}

    def of(self, obj: EphemeralRunnerSet) -> Memory:
        memory = self._memories.get(obj.key)
        if memory is None or memory.uid != obj.uid:
            memory = self._memories[obj.key] = Memory(obj.uid)
        return memory

    def forget(self, key: NamespacedName) -> None:
        self._memories.pop(key, None)


class Memory:
    """Of one set."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.expectations = Expectations()
        self.refusals = Refusals()
        self.status = StatusPace()
        self.proxy_checked: float | None = None
        self.count = 0
        self._pass: float | None = None
        self._replicas = 0
        self._state: tuple[object, ...] = ()

    def begin_pass(self, obj: EphemeralRunnerSet, now: float) -> float:
        """0 to go on; else the seconds to wait, since a pass began a moment ago.

        More runners, another spec of them, "force this state" and the end of the set never wait.
        """
        spec = obj.spec
        state = (spec.actionable_revision, spec.patch_id == 0, obj.metadata.deletion_timestamp)
        if self._pass is not None and state == self._state and spec.replicas <= self._replicas:
            left = self._pass + max(PACE, PACE_EACH * self.count) - now
            if left > 0:
                return left
        self._pass, self._state, self._replicas = now, state, spec.replicas
        return 0.0
