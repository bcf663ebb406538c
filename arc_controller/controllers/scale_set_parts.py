"""The two things that a scale set owns in the cluster: its set of runners and its listener."""

from __future__ import annotations

from collections.abc import Sequence

from arc_controller.api.v1alpha1 import (
    LISTENING_SINCE,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
)
from arc_controller.controllers.context import Context
from arc_controller.controllers.drift import Unwritable, is_same_listener, is_same_runner_spec
from arc_controller.controllers.indexes import RUNNER_SETS_OF_SCALE_SET
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.meta import is_foreign, same_metadata, set_metadata
from arc_controller.controllers.scale_set import new_ephemeral_runner_set, new_listener
from arc_controller.runtime.lazycopy import LazyCopy


class Parts:
    """Rows 6 and 7. Everything raises `ApiError`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._unwritable = Unwritable()

    # The set of runners.

    async def runner_set(self, obj: AutoscalingRunnerSet) -> EphemeralRunnerSet | None:
        """The cached one. Raises `InputError` if somebody else has its name."""
        found = await self._client.find(EphemeralRunnerSet, obj.key)
        if found is not None and is_foreign(found, obj):
            raise InputError(
                "NameTaken",
                f"the EphemeralRunnerSet {found.key} belongs to somebody else; delete it",
            )
        return found

    async def remove_other_runner_sets(self, obj: AutoscalingRunnerSet) -> None:
        """Other controllers named them differently."""
        owned = await self._client.list(
            EphemeralRunnerSet, index=(RUNNER_SETS_OF_SCALE_SET, obj.uid)
        )
        for other in owned:
            if other.key != obj.key and not other.is_being_deleted:
                await self._client.delete(EphemeralRunnerSet, other.key, uid=other.uid)

    async def ensure_runner_set(
        self, obj: AutoscalingRunnerSet, runner_set: EphemeralRunnerSet | None
    ) -> EphemeralRunnerSet:
        """Create it, or bring it up to date; a new runner spec gets the next revision."""
        wanted = new_ephemeral_runner_set(obj, self._context.config)
        if runner_set is None:
            return await self._client.create(wanted)

        changed = LazyCopy(runner_set)
        if not self.has_runner_spec(runner_set, wanted):
            spec = changed.mutate().spec
            spec.ephemeral_runner_spec = wanted.spec.ephemeral_runner_spec
            spec.ephemeral_runner_metadata = wanted.spec.ephemeral_runner_metadata
            applied = runner_set.status.applied_actionable_revision
            spec.actionable_revision = max(spec.actionable_revision, applied) + 1
        if not same_metadata(runner_set.metadata, wanted.metadata):
            since = runner_set.metadata.annotations.get(LISTENING_SINCE)
            set_metadata(changed, wanted.metadata)
            if since is not None:  # the listener's own
                changed.mutate().metadata.annotations[LISTENING_SINCE] = since

        if await changed.patch(self._client):
            revision = changed.obj.spec.actionable_revision
            if revision != runner_set.spec.actionable_revision:
                self._unwritable.note(runner_set.uid, wanted.spec, changed.obj.spec)
                message = f"new runners are made from revision {revision} of the runner spec"
                self._context.events.event(obj, "Normal", "RunnerSpecChanged", message)
        return changed.obj

    def has_runner_spec(self, actual: EphemeralRunnerSet, wanted: EphemeralRunnerSet) -> bool:
        """Whether the same runners come out, as far as the API server can store what is wanted."""
        return is_same_runner_spec(actual.spec, wanted.spec) or self._unwritable.is_known(
            actual.uid, wanted.spec, actual.spec
        )

    # The listener.

    async def ensure_listener(
        self, obj: AutoscalingRunnerSet, listeners: Sequence[AutoscalingListener]
    ) -> AutoscalingListener | None:
        """The listener, or None while another one has to stop before it."""
        wanted = new_listener(obj, self._context.config)
        current: AutoscalingListener | None = None
        for listener in listeners:
            if listener.is_being_deleted:
                continue
            if is_same_listener(listener, wanted, self._unwritable):
                current = listener
                continue
            await self._client.delete(AutoscalingListener, listener.key, uid=listener.uid)
            message = f"the listener {listener.key} is replaced: what it is made from has changed"
            self._context.events.event(obj, "Normal", "ListenerReplaced", message)
        if current is not None or listeners:
            return current
        created = await self._client.create(wanted)
        self._unwritable.note(created.uid, wanted.spec, created.spec)
        return created

    async def stop(self, listeners: Sequence[AutoscalingListener]) -> None:
        for listener in listeners:
            if not listener.is_being_deleted:
                await self._client.delete(AutoscalingListener, listener.key, uid=listener.uid)
