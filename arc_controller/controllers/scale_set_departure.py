"""Registrations at places that a scale set has left.

Another config URL is another registration. The old one is removed at the old place, once nothing of
ours works there any more: nobody listens to it, and the service may send it jobs. An annotation
keeps what is needed for that; the credentials are still those of the old secret. This is best
effort: nothing ever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from arc_controller.actions import (
    ActionsError,
    InvalidConfigUrl,
    ScaleSetNotFound,
    parse_config_url,
)
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
    Proxy,
    ServerTLS,
    Vault,
)
from arc_controller.controllers.context import Context
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.scale_set import is_copy, registered_name, scale_set_id
from arc_controller.controllers.service import Access
from arc_controller.controllers.trouble import GIVE_UP_AFTER, trouble_of
from arc_controller.runtime.errors import ApiError
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import Wire

log = structlog.get_logger(__name__)

DEPARTED: Final = "actions.github.com/departed-registrations"
LOOK_AGAIN: Final = 30.0
"""Seconds between two looks at a place that has been left."""
PATIENCE: Final = 10.0
"""Seconds for one look: whoever moves away from a server that does not answer need not wait."""
LONGEST_JOB: Final = timedelta(days=5)
"""After this no job of ours can still run there: GitHub ends them."""


class Departed(Wire):
    """A registration that was left, since when, and how to get there."""

    id: int
    name: str
    since: datetime
    github_config_url: str
    github_config_secret: str
    proxy: Proxy | None = None
    github_server_tls: ServerTLS | None = None
    vault_config: Vault | None = None

    def access(self, namespace: str) -> Access:
        return Access(
            self.github_config_url,
            self.github_config_secret,
            namespace,
            self.proxy,
            self.github_server_tls,
            self.vault_config,
        )


@dataclass(frozen=True, slots=True)
class Departures:
    context: Context

    async def note(
        self, scale_set: LazyCopy[AutoscalingRunnerSet], runner_set: EphemeralRunnerSet
    ) -> bool:
        """Remember where the runners still are registered, if the spec now names another place;
        says whether it does.

        To be called before the runner set is brought up to date. Raises `ApiError`.
        """
        obj, spec = scale_set.obj, runner_set.spec.ephemeral_runner_spec
        if not spec.runner_scale_set_id or _is_same_place(
            spec.github_config_url, obj.spec.github_config_url
        ):
            return False
        annotations = obj.metadata.annotations
        left = Departed(
            id=spec.runner_scale_set_id,
            name=annotations.get(Annotation.RUNNER_SCALE_SET_NAME) or registered_name(obj),
            since=self.context.now().replace(microsecond=0),
            github_config_url=spec.github_config_url,
            github_config_secret=spec.github_config_secret,
            proxy=spec.proxy,
            github_server_tls=spec.github_server_tls,
            vault_config=spec.vault_config,
        )
        known = departed(obj)
        if not any(_is_same(each, left) for each in known):
            _write(scale_set, [*known, left])
            await scale_set.patch(self.context.client)
        return True

    async def settle(
        self, scale_set: LazyCopy[AutoscalingRunnerSet], listeners: Sequence[AutoscalingListener]
    ) -> float | None:
        """Remove the registrations that nothing of ours uses any more; the seconds until the next
        look, if some are left. Raises `ApiError` when that cannot be written down."""
        obj = scale_set.obj
        known = departed(obj)
        if not known:
            return None
        here = obj.spec.github_config_url
        if any(not _is_same_place(each.spec.github_config_url, here) for each in listeners):
            return LOOK_AGAIN
        left = [each for each in known if not await self._is_settled(obj, each)]
        if left != known:
            _write(scale_set, left)
            await scale_set.patch(self.context.client)
        return LOOK_AGAIN if left else None

    async def abandon(self, obj: AutoscalingRunnerSet) -> None:
        """The scale set goes, its runners are gone: one attempt at each that is left."""
        for each in departed(obj):
            if not await self._is_settled(obj, each):
                self._leave_behind(obj, each, "the scale set was deleted")

    async def _is_settled(self, obj: AutoscalingRunnerSet, left: Departed) -> bool:
        if self._is_in_use(obj, left) or await self._is_shared(obj, left):
            return True
        age = self.context.now() - left.since
        try:
            async with asyncio.timeout(PATIENCE):
                client = await self.context.service.for_access(left.access(obj.metadata.namespace))
                found = await client.get_runner_scale_set_by_id(left.id)
                if found.name.casefold() != left.name.casefold():
                    return True  # the id is somebody else's now
                if found.statistics is not None and found.statistics.total_registered_runners:
                    if age < LONGEST_JOB:
                        return False
                    self._leave_behind(obj, left, "it still has runners")
                    return True
                await client.delete_runner_scale_set(left.id)
        except TimeoutError:
            log.info("no answer where a scale set was left", id=left.id, url=left.github_config_url)
            return age >= LONGEST_JOB
        except ScaleSetNotFound:
            return True
        except (InputError, ActionsError, ApiError) as error:
            trouble = trouble_of(error)
            if age < GIVE_UP_AFTER or (trouble is not None and not trouble.by_hand):
                log.info("cannot remove a scale set that was left", id=left.id, reason=str(error))
                return age >= LONGEST_JOB
            self._leave_behind(obj, left, trouble.message if trouble else str(error))
            return True
        message = f"scale set {left.id} was removed from {left.github_config_url}"
        self.context.events.event(obj, "Normal", "DepartedScaleSetRemoved", message)
        return True

    def _is_in_use(self, obj: AutoscalingRunnerSet, left: Departed) -> bool:
        """Whether it is the registration that `obj` has now: two URLs may name one place, as when
        an organisation or a server is renamed."""
        return (
            scale_set_id(obj) == left.id and registered_name(obj).casefold() == left.name.casefold()
        )

    async def _is_shared(self, obj: AutoscalingRunnerSet, left: Departed) -> bool:
        """Whether another object stands for it."""
        others = await self.context.client.list(AutoscalingRunnerSet)
        return any(other.uid != obj.uid and self._is_in_use(other, left) for other in others)

    def _leave_behind(self, obj: AutoscalingRunnerSet, left: Departed, why: str) -> None:
        message = f"scale set {left.id} stays registered at {left.github_config_url}: {why}"
        self.context.events.event(obj, "Warning", "ScaleSetLeftBehind", message)


def departed(obj: AutoscalingRunnerSet) -> list[Departed]:
    """What the annotation says; nothing if somebody made garbage of it, or it is another
    object's."""
    text = obj.metadata.annotations.get(DEPARTED)
    if not text or is_copy(obj):
        return []
    try:
        return msgspec.json.decode(text, type=list[Departed])
    except msgspec.DecodeError:
        return []


def _write(scale_set: LazyCopy[AutoscalingRunnerSet], left: list[Departed]) -> None:
    annotations = scale_set.mutate().metadata.annotations
    if left:
        annotations[DEPARTED] = msgspec.json.encode(left).decode()
    else:
        annotations.pop(DEPARTED, None)


def _is_same(one: Departed, other: Departed) -> bool:
    return one.id == other.id and _is_same_place(one.github_config_url, other.github_config_url)


def _is_same_place(one: str, other: str) -> bool:
    return one == other or _place(one) == _place(other)


def _place(config_url: str) -> str:
    try:
        return parse_config_url(config_url).url.casefold()
    except InvalidConfigUrl:
        return config_url
