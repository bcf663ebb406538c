"""How an EphemeralRunnerSet goes on when the API server refuses the runners that it would create.

A quota, a webhook or labels that are no labels refuse every one of them, and asking again at once
changes nothing. So the next try is one runner, later and later: a set of thousands costs no more
requests than a set of two.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet
from arc_controller.controllers.trouble import Trouble, refusal_reason
from arc_controller.runtime.errors import BadRequest, Forbidden, Invalid

log = structlog.get_logger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0

Refused = Forbidden | Invalid | BadRequest
"""The API server does not want the object as it is; what else goes wrong is left to the queue."""


class Refusals:
    """Of one set. Times are the loop's.

    `trouble` is what to tell the user, None while runners can be created as far as we know.
    """

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        self._tries = 0
        self._retry_at = 0.0
        self._spec: tuple[Any, ...] = ()
        self._count = 0

    def wait(self, obj: EphemeralRunnerSet, count: int, now: float) -> float:
        """Seconds until the next try; 0 once the set makes other runners, or one of its `count`
        runners has gone and may have left its place in the quota."""
        if self.trouble is None:
            return 0.0
        if _spec_of(obj) != self._spec:
            self.over()
        elif count < self._count:
            self._retry_at = now
        self._count = count
        return max(0.0, self._retry_at - now)

    def refused(
        self,
        error: Refused,
        runner: EphemeralRunner,
        obj: EphemeralRunnerSet,
        count: int,
        now: float,
    ) -> float:
        """Note that `runner` was refused while there were `count` others; seconds until the next
        try."""
        self.trouble = _trouble(error, runner, obj)
        self._spec, self._count = _spec_of(obj), count
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self._tries, 16))
        self._tries += 1
        self._retry_at = now + wait
        log.warning("runners are refused", reason=self.trouble.message, next_try=wait)
        return wait

    def over(self) -> None:
        """One was created, or none is wanted any more."""
        self.trouble, self._tries = None, 0


def _spec_of(obj: EphemeralRunnerSet) -> tuple[Any, ...]:
    return obj.spec.ephemeral_runner_spec, obj.spec.ephemeral_runner_metadata


def _trouble(error: Refused, runner: EphemeralRunner, obj: EphemeralRunnerSet) -> Trouble:
    # Each try has another name, and each new wording would be one more write.
    words = error.message.replace(runner.metadata.name, f"{obj.metadata.name}-runner-…")
    return Trouble(refusal_reason(error), f"Runners cannot be created: {words}", by_hand=True)
