"""A runner's registration at the Actions service, and the secret that keeps it here.

The order of effects makes a crash harmless: the service registers first, the secret keeps the
answer, the status repeats the id. Whatever is missing after a crash, the runner's name finds the
registration again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import structlog
from cachetools import LRUCache, TTLCache

from arc_controller.actions import (
    ActionsClient,
    ActionsError,
    AgentExists,
    JitRunnerConfig,
    JobStillRunning,
    Runner,
    is_transient,
)
from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet, EphemeralRunnerSpec
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.runner_pod import build_jit_secret, runner_id_in, work_folder
from arc_controller.controllers.turnstile import Turnstile
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.errors import AlreadyExists, BadRequest, Forbidden, Invalid
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ownership import controller_of, is_controlled_by

log = structlog.get_logger(__name__)

T = TypeVar("T")
ATTEMPTS = 3
REMEMBERED_SECRETS = 20_000
REMEMBERED_ANSWERS = 2_000
ANSWER_IS_GOOD_FOR = 600.0
"""Seconds for which a registration that no secret could keep is tried to be kept; it expires."""


class RunnerClients(Protocol):
    """What is needed of `arc_controller.controllers.service.ActionsClients`."""

    async def for_runner(self, spec: EphemeralRunnerSpec, namespace: str) -> ActionsClient:
        """Raises `InputError`, `ActionsError`, `ApiError`."""

    def failed(self, error: Exception, spec: EphemeralRunnerSpec, namespace: str) -> None:
        """The service said so: see `arc_controller.controllers.service.ActionsClients.failed`."""


class NameTaken(Exception):
    """Something that is not ours has the runner's name; the text says what."""


class NotKept(Exception):
    """The service registered the runner, and the cluster refuses the secret that would keep its
    answer."""

    def __init__(self, refusal: Forbidden | Invalid | BadRequest) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


class RegistrationUnsettled(Exception):
    """The service or the cluster contradicts itself for a moment. Try again soon."""


class Registrar:
    """Registers runners and takes their registrations back.

    Every method raises `InputError`, `ActionsError` (among them `JobStillRunning`) and `ApiError`.
    Every step may be repeated, so cancelling one leaves nothing that the next call cannot settle.
    """

    def __init__(self, client: Client, actions: RunnerClients, turnstile: Turnstile) -> None:
        self._client = client
        self._turnstile = turnstile
        self._actions = actions
        # Uids of the secrets we made, so that deleting one needs no read: it is only a shortcut.
        self._secret_uids: LRUCache[str, str] = LRUCache(REMEMBERED_SECRETS)
        self._unkept: TTLCache[str, JitRunnerConfig] = TTLCache(
            REMEMBERED_ANSWERS, ANSWER_IS_GOOD_FOR, timer=loop_time
        )

    async def registered(self, runner: EphemeralRunner) -> int:
        """The runner's id at the service: registered before, or now, and kept in the secret.

        A secret that is missing or corrupt is rebuilt with a new registration. Raises `NameTaken`,
        `NotKept` and `RegistrationUnsettled`.
        """
        if runner.status.runner_id == 0:
            # No secret is expected, and reading it to make sure would be a request per runner.
            # Where a crash left one, the service says that the runner exists: see `_settle`.
            return await self._register(runner)
        secret = await self._client.find(Secret, runner.key)
        if secret is not None:
            if runner_id := runner_id_in(secret, runner):
                return runner_id
            await self._discard(secret, runner)
        return await self._register(runner)

    async def known_id(self, runner: EphemeralRunner) -> int:
        """The id of a runner whose pod exists, from its secret, else from the service; 0 if neither
        knows it. A corrupt secret is deleted; nothing is registered."""
        secret = await self._client.find(Secret, runner.key)
        if secret is not None:
            if runner_id := runner_id_in(secret, runner):
                return runner_id
            await self._discard(secret, runner)
        found = await self._called(
            runner.spec, runner, lambda client: client.get_runner_by_name(runner.metadata.name)
        )
        return found.id if found is not None and _is_ours(found, runner) else 0

    async def unregister(self, runner: EphemeralRunner) -> None:
        """Take the registration back; already gone is success. Raises `JobStillRunning`.

        A runner that never registered as far as we know is looked up by its name; if the service
        refuses to say, that is the end of it.
        """
        refusal = await self._refusal(runner.spec, runner)
        if refusal is not None:
            # The credentials that this runner was made with may have been replaced meanwhile.
            spec = await self._current_spec(runner)
            if spec is not None and spec != runner.spec:
                refusal = await self._refusal(spec, runner)
        if refusal is not None and runner.status.runner_id:
            raise refusal
        if refusal is not None:
            log.info("cannot ask the service about a runner", reason=str(refusal))

    async def delete_secret(self, runner: EphemeralRunner) -> None:
        """Delete the runner's secret, if it is the runner's."""
        uid = self._secret_uids.pop(runner.uid, "")
        if not uid:
            secret = await self._client.find(Secret, runner.key)
            if secret is None or not is_controlled_by(secret, runner):
                return
            uid = secret.uid
        await self._client.delete(Secret, runner.key, uid=uid)

    async def _register(self, runner: EphemeralRunner) -> int:
        unkept = self._unkept.get(runner.uid)
        if unkept is not None:
            return await self._keep(runner, unkept)
        for _ in range(ATTEMPTS):
            try:
                answer = await self._called(
                    runner.spec,
                    runner,
                    lambda client: client.generate_jit_config(
                        runner.spec.runner_scale_set_id,
                        runner.metadata.name,
                        work_folder(runner.spec),
                    ),
                )
            except AgentExists:
                if runner_id := await self._settle(runner):
                    return runner_id
            else:
                return await self._keep(runner, answer)
        raise RegistrationUnsettled(
            f"the service says that runner {runner.metadata.name} exists, and then that it does not"
        )

    async def _settle(self, runner: EphemeralRunner) -> int:
        """What to do about a registration of that name: its id if it serves, 0 to register anew."""
        found = await self._called(
            runner.spec, runner, lambda client: client.get_runner_by_name(runner.metadata.name)
        )
        if found is None:
            return 0
        if not _is_ours(found, runner):
            raise NameTaken(
                f"runner {runner.metadata.name} is registered at the service by scale set "
                f"{found.runner_scale_set_id}, not by {runner.spec.runner_scale_set_id}"
            )
        secret = await self._client.find(Secret, runner.key)
        if secret is not None and is_controlled_by(secret, runner):
            if runner_id_in(secret, runner) == found.id:
                self._secret_uids[runner.uid] = secret.uid
                return found.id
            await self._discard(secret, runner)
        await self._called(runner.spec, runner, lambda client: client.remove_runner(found.id))
        return 0

    async def _keep(self, runner: EphemeralRunner, answer: JitRunnerConfig) -> int:
        try:
            runner_id = await self._keep_in_secret(runner, answer)
        except (Forbidden, Invalid, BadRequest) as error:
            # Another registration for each try would be asked of the service in vain.
            self._unkept.setdefault(runner.uid, answer)
            raise NotKept(error) from None
        self._unkept.pop(runner.uid, None)
        return runner_id

    async def _keep_in_secret(self, runner: EphemeralRunner, answer: JitRunnerConfig) -> int:
        secret = build_jit_secret(runner, answer.runner.id, answer.encoded_jit_config)
        try:
            created = await self._client.create(secret)
        except AlreadyExists:
            existing = await self._client.find(Secret, runner.key)
            if existing is None:
                raise RegistrationUnsettled(f"secret {runner.key} comes and goes") from None
            if not is_controlled_by(existing, runner):
                raise NameTaken(f"a secret named {runner.key} exists and is not ours") from None
            if runner_id_in(existing, runner) != answer.runner.id:
                # Of an earlier registration, which the service has forgotten.
                await self._discard(existing, runner)
                created = await self._client.create(secret)
            else:
                created = existing
        self._secret_uids[runner.uid] = created.uid
        return answer.runner.id

    async def _discard(self, secret: Secret, runner: EphemeralRunner) -> None:
        if not is_controlled_by(secret, runner):
            raise NameTaken(f"a secret named {runner.key} exists and is not ours")
        self._secret_uids.pop(runner.uid, None)
        await self._client.delete(Secret, secret.key, uid=secret.uid)

    async def _refusal(
        self, spec: EphemeralRunnerSpec, runner: EphemeralRunner
    ) -> InputError | ActionsError | None:
        """Unregister with the credentials of `spec`; why those are no good, or None if they were.

        Raises `JobStillRunning` and what may be different the next time.
        """
        try:
            await self._called(spec, runner, lambda client: _remove(client, runner))
        except JobStillRunning:
            raise
        except InputError as error:
            return error
        except ActionsError as error:
            if is_transient(error):
                raise
            return error
        return None

    async def _called(
        self,
        spec: EphemeralRunnerSpec,
        runner: EphemeralRunner,
        call: Callable[[ActionsClient], Awaitable[T]],
    ) -> T:
        namespace = runner.metadata.namespace
        client = await self._actions.for_runner(spec, namespace)
        place = (spec.github_config_url, spec.runner_scale_set_id)
        try:
            with self._turnstile.passing(place, spec.github_config_url):
                return await call(client)
        except ActionsError as error:
            self._actions.failed(error, spec, namespace)
            raise

    async def _current_spec(self, runner: EphemeralRunner) -> EphemeralRunnerSpec | None:
        """The spec that the set would make a runner of today."""
        owner = controller_of(runner)
        if owner is None:
            return None
        key = NamespacedName(runner.metadata.namespace, owner.name)
        runner_set = await self._client.find(EphemeralRunnerSet, key)
        if runner_set is None or runner_set.uid != owner.uid:
            return None
        return runner_set.spec.ephemeral_runner_spec


async def _remove(client: ActionsClient, runner: EphemeralRunner) -> None:
    # By its name: the id in the status may be that of an earlier registration, and removing that
    # says nothing about the job that the runner may have in hand under its present one.
    found = await client.get_runner_by_name(runner.metadata.name)
    if found is not None and _is_ours(found, runner):
        await client.remove_runner(found.id)


def _is_ours(found: Runner, runner: EphemeralRunner) -> bool:
    return found.runner_scale_set_id == runner.spec.runner_scale_set_id
