"""What a set has acted on, recorded so that no later decision can be fooled by a lagging cache.

Both records are made from uncached reads, with the lock, again from the start on a conflict.
"""

from __future__ import annotations

from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet, SetPhase
from arc_controller.controllers.runner_sorting import sort_runners
from arc_controller.runtime.client import Reader, StatusWriter
from arc_controller.runtime.errors import Conflict
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ownership import is_controlled_by

ATTEMPTS = 5


async def patch_applied_actionable_revision_status(
    client: StatusWriter, api_reader: Reader, key: NamespacedName, target: int
) -> bool:
    """Record that `target` has been acted on, and derive the phase; says whether anything was sent.

    The revision never goes back. The phase is judged, both ways, against the revision that is
    recorded then, which may be later than `target`. Set and runners are read through `api_reader`,
    which must be uncached: the lock covers the set alone, so cached runners could smuggle in a
    phase that is no longer true. On a conflict everything is read again.

    Raises `Conflict` when several attempts in a row met one, and other `ApiError`s. A set that is
    gone is left alone.
    """
    for attempt in range(ATTEMPTS):
        live = await api_reader.find(EphemeralRunnerSet, key)
        if live is None:
            return False
        runners = await runners_of(api_reader, live)
        runner_set = LazyCopy(live)
        _record(runner_set, runners, target)
        try:
            return await runner_set.patch_status(client)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def patch_finished_runner_cleanup_status(
    client: StatusWriter, api_reader: Reader, runner_set: EphemeralRunnerSet, patch_id: int
) -> bool:
    """Record that the gap which finished runners leave belongs to this request; says whether
    anything was sent.

    An equality test, not a maximum: patch ids start again with each listener. Raises `Conflict`
    when several attempts in a row met one, and other `ApiError`s.
    """
    for attempt in range(ATTEMPTS):
        live = await api_reader.find(EphemeralRunnerSet, runner_set.key)
        if live is None or live.uid != runner_set.uid:
            return False
        if live.status.finished_runner_cleanup_patch_id == patch_id:
            return False
        changed = LazyCopy(live)
        changed.mutate().status.finished_runner_cleanup_patch_id = patch_id
        try:
            return await changed.patch_status(client)
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def runners_of(api_reader: Reader, runner_set: EphemeralRunnerSet) -> list[EphemeralRunner]:
    """The set's runners as the server has them now.

    The server has no index of owners, and labels may be excluded from propagation: so all of the
    namespace are read, and the owner is checked here.
    """
    found = await api_reader.list(EphemeralRunner, namespace=runner_set.metadata.namespace)
    return [runner for runner in found if is_controlled_by(runner, runner_set)]


def _record(
    runner_set: LazyCopy[EphemeralRunnerSet], runners: list[EphemeralRunner], target: int
) -> None:
    status = runner_set.obj.status
    applied = max(status.applied_actionable_revision, target)
    phase = SetPhase.OUTDATED if sort_runners(runners, applied).outdated else SetPhase.RUNNING
    advanced = applied > status.applied_actionable_revision
    if not advanced and status.phase == phase:
        return
    changed = runner_set.mutate().status
    changed.applied_actionable_revision = applied
    changed.phase = phase
    if advanced:
        changed.finished_runner_cleanup_patch_id = 0
