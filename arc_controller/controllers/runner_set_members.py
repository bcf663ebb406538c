"""The runners of a set: listed, created and deleted, and nothing twice because a cache is late.

Expectations are kept here, so whoever decides may take the list for the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from arc_controller.actions import ActionsError, JobStillRunning
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet, Phase
from arc_controller.controllers.expectations import Request
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.revision import runners_of
from arc_controller.controllers.runner_fanout import each
from arc_controller.controllers.runner_registration import Registrar
from arc_controller.controllers.runner_set_memory import Memory
from arc_controller.controllers.runner_set_refusals import Refused
from arc_controller.controllers.runner_sorting import SortedRunners, sort_runners
from arc_controller.controllers.trouble import is_hopeless
from arc_controller.controllers.turnstile import Turnstile, place_of
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.clock import Now, loop_time
from arc_controller.runtime.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Forbidden,
    Invalid,
    ServerError,
)
from arc_controller.runtime.ownership import controller_of

OWNER_INDEX: Final = "owner"
"""The field index of runners by the uid of the set that controls them."""


class Members:
    """`client` reads runners from a cache that has `OWNER_INDEX`; `api_reader` never does."""

    def __init__(
        self,
        client: Client,
        api_reader: Reader,
        registrar: Registrar,
        turnstile: Turnstile,
        *,
        now: Now,
    ) -> None:
        self._turnstile = turnstile
        self._client = client
        self._api_reader = api_reader
        self._registrar = registrar
        self._now = now

    async def of(self, obj: EphemeralRunnerSet, memory: Memory) -> SortedRunners:
        """All that there are, sorted."""
        expectations, now = memory.expectations, loop_time()
        if expectations.must_ask(now):
            expectations.settle(await runners_of(self._api_reader, obj), now)
        cached = await self._client.list(
            EphemeralRunner, namespace=obj.metadata.namespace, index=(OWNER_INDEX, obj.uid)
        )
        memory.count = len(cached)
        return sort_runners(
            expectations.complete(cached, now),
            obj.status.applied_actionable_revision,
            expectations.removed_uids,
        )

    async def adopt(self, obj: EphemeralRunnerSet, missing: int, memory: Memory) -> None:
        """Ask the server once which runners there are: a new process knows only its cache."""
        expectations = memory.expectations
        expectations.adopt(await runners_of(self._api_reader, obj), loop_time())
        if obj.status.phase:  # somebody has acted on it before
            expectations.inherit(missing, Request.of(obj), loop_time())

    async def live(self, obj: EphemeralRunnerSet) -> EphemeralRunnerSet | None:
        """The set as the server has it; None if it asks for something else than the cached one.

        A cache may be hours late, that of a new leader most of all, and neither creating nor
        removing runners can be taken back.
        """
        live = await self._api_reader.find(EphemeralRunnerSet, obj.key)
        if live is None or live.uid != obj.uid or Request.of(live) != Request.of(obj):
            return None
        return live

    async def create(
        self, obj: EphemeralRunnerSet, runners: Sequence[EphemeralRunner], memory: Memory
    ) -> tuple[list[EphemeralRunner | Exception], float]:
        """What became of each, and the seconds until the next try if the API server refused one:
        then no more are sent. What failed may exist all the same."""
        refusals: list[tuple[Refused, EphemeralRunner]] = []

        async def create_one(runner: EphemeralRunner) -> EphemeralRunner:
            if refusals:
                raise refusals[0][0]
            try:
                return await self._create(runner, memory)
            except (Forbidden, Invalid, BadRequest) as error:
                refusals.append((error, runner))
                raise

        results = await each(runners, create_one)
        created = sum(isinstance(result, EphemeralRunner) for result in results)
        if created:
            memory.refusals.over()
        if not refusals:
            return results, 0.0
        count = memory.count + created
        return results, memory.refusals.refused(*refusals[0], obj, count, loop_time())

    async def _create(self, runner: EphemeralRunner, memory: Memory) -> EphemeralRunner:
        name = runner.metadata.name
        memory.expectations.sent(name)
        try:
            created = await self._client.create(runner)
        except (AlreadyExists, ServerError):
            raise  # it may exist: perhaps it was our own first attempt that made it
        except ApiError:
            memory.expectations.refused(name)
            raise
        memory.expectations.created(created, loop_time())
        return created

    async def remove(
        self,
        runners: Sequence[EphemeralRunner],
        memory: Memory,
        last_of: EphemeralRunnerSet | None = None,
    ) -> list[bool | Exception]:
        """Delete runners, those that may be at work only after they are unregistered.

        True for each that was deleted, False for one that turned out to run a job. Raises
        `ServiceSlow` when too many sets wait for the service there. Of a set that is
        being deleted (`last_of`) they are not kept for ever when nobody may ask the service.
        """

        async def remove_one(runner: EphemeralRunner) -> bool:
            status, version = runner.status, ""
            if _may_be_at_work(runner):
                try:
                    await self._registrar.unregister(runner)
                except JobStillRunning:
                    return False
                except (InputError, ActionsError, Forbidden) as error:
                    if last_of is None or not is_hopeless(error, last_of, self._now()):
                        raise
            elif not status.is_done:
                # Not registered as far as we know: not if it has changed since.
                version = runner.metadata.resource_version
            await self._client.delete(
                EphemeralRunner, runner.key, uid=runner.uid, resource_version=version
            )
            memory.expectations.removed(runner.uid)
            return True

        asked = next((each for each in runners if _may_be_at_work(each)), None)
        if asked is None:
            return await each(runners, remove_one)
        with self._turnstile.passing(*place_of(asked.spec.github_config_url)):
            return await each(runners, remove_one)


def _may_be_at_work(runner: EphemeralRunner) -> bool:
    status = runner.status
    return bool(status.runner_id and not status.is_done) or status.phase == Phase.RUNNING


def owner_uid(runner: EphemeralRunner) -> Iterable[str]:
    """For `OWNER_INDEX`."""
    owner = controller_of(runner)
    return (owner.uid,) if owner is not None else ()
