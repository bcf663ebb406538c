"""Runners that went without us: their registrations are still at the service.

Somebody took the finalizers off by hand, or another leader let go of a runner that this one had
just registered. The service would keep such a registration for days, and count it as a runner that
waits for a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from cachetools import TTLCache

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.v1alpha1 import EphemeralRunner
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.runner_registration import Registrar
from arc_controller.controllers.trouble import trouble_of
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import Forbidden
from arc_controller.runtime.objects import NamespacedName

log = structlog.get_logger(__name__)

JOB_STILL_RUNNING_RETRY: Final = 30.0
"""Seconds until the service is asked again about a runner that it says holds a job."""
REMEMBERED: Final = 10_000
PATIENCE: Final = 3600.0
"""Seconds for which it is tried to take back the registration of a runner that is gone."""
EVENT_WITHIN: Final = 600.0
"""Seconds after which the event of a deletion is not waited for any more."""


class Departures:
    """Tells the runners that we let go from those that went some other way.

    What it remembers is of this process: a runner that goes while no manager runs is not noticed.
    Forgetting that one was let go costs a question to the service and nothing else.
    """

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._let_go: TTLCache[str, None] = TTLCache(REMEMBERED, EVENT_WITHIN, timer=loop_time)
        self._gone: TTLCache[str, None] = TTLCache(REMEMBERED, PATIENCE, timer=loop_time)
        self._left: TTLCache[NamespacedName, EphemeralRunner] = TTLCache(
            REMEMBERED, PATIENCE, timer=loop_time
        )

    @contextmanager
    def letting_go(self, runner: EphemeralRunner) -> Iterator[None]:
        """Around the write that takes our finalizers off; if it fails, nothing was let go."""
        self._let_go[runner.uid] = None  # before: the event may be here before the answer
        try:
            yield
        except BaseException:
            self._let_go.pop(runner.uid, None)
            raise

    def went_without_us(self, runner: EphemeralRunner) -> bool:
        """For each runner that is gone: whether it went without us. `settle` is due then."""
        if self._let_go.pop(runner.uid, _UNKNOWN) is None:
            return False
        self._gone[runner.uid] = None
        self._left[runner.key] = runner
        return True

    def is_gone(self, runner: EphemeralRunner) -> bool:
        """Whether the runner is known to have gone without us, whatever a late cache shows."""
        return runner.uid in self._gone

    async def settle(self, key: NamespacedName) -> Result:
        """Take back the registration of the runner that had this key, if it is owed.

        Raises `ApiError` and transient `ActionsError`.
        """
        runner = self._left.get(key)
        if runner is None:
            return Result()
        try:
            await self._registrar.unregister(runner)
        except JobStillRunning:
            return Result(requeue_after=JOB_STILL_RUNNING_RETRY)
        except (InputError, ActionsError, Forbidden) as error:
            trouble = trouble_of(error)
            if trouble is None or trouble.retry is None:
                raise
            log.warning(
                "a runner is gone and its registration cannot be removed",
                runner=str(key),
                reason=trouble.message,
            )
            return Result(requeue_after=trouble.retry)
        self._left.pop(key, None)
        log.info("a runner went without us; the service does not know it any more", runner=str(key))
        return Result()


_UNKNOWN: Final = object()
