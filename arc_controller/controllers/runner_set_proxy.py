"""The secret with the proxy settings of a set's runners: made, repaired, kept up to date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import EphemeralRunnerSet, Proxy
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.meta import is_foreign, same_metadata, set_metadata
from arc_controller.controllers.proxy import proxy_environment
from arc_controller.controllers.runner_set_memory import Memory
from arc_controller.controllers.runner_set_status import RunnerSetStatus
from arc_controller.controllers.runner_template import build_proxy_secret, proxy_secret_key
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import loop_time
from arc_controller.runtime.lazycopy import LazyCopy

PROXY_CHECK: Final = 60.0
"""How long a proxy secret that was changed by others, or whose credentials rotated, may stay."""

PROXY_READY: Final = "ProxyReady"


class ProxySecrets:
    """`exclude` are prefixes of labels that the secrets do not inherit."""

    def __init__(self, client: Client, status: RunnerSetStatus, exclude: Sequence[str]) -> None:
        self._client = client
        self._status = status
        self._exclude = exclude

    async def keep(self, runner_set: LazyCopy[EphemeralRunnerSet], memory: Memory) -> None:
        """Create or repair it, at most once in `PROXY_CHECK` seconds. Raises `InputError`."""
        obj, now = runner_set.obj, loop_time()
        proxy = obj.spec.ephemeral_runner_spec.proxy
        if proxy is None:
            return
        if memory.proxy_checked is not None and now - memory.proxy_checked < PROXY_CHECK:
            return
        try:
            await write_proxy_secret(self._client, obj, proxy, self._exclude)
        except InputError as error:
            self._status.trouble(runner_set, PROXY_READY, error.reason, str(error))
            await runner_set.patch_status(self._client)
            raise
        self._status.recovered(runner_set, PROXY_READY, "The runners' proxy settings are in place")
        await runner_set.patch_status(self._client)
        memory.proxy_checked = now


async def write_proxy_secret(
    client: Client, runner_set: EphemeralRunnerSet, proxy: Proxy, exclude: Iterable[str]
) -> None:
    """Create it, or repair what differs; nothing is sent if nothing does.

    `exclude` are prefixes of labels that it does not inherit. Raises `InputError` when the
    credentials of the proxy cannot be used, or when something else has the secret's name.
    """
    environment = await proxy_environment(client, proxy, runner_set.metadata.namespace)
    wanted = build_proxy_secret(runner_set, environment, exclude)
    existing = await client.find(Secret, wanted.key)
    if existing is None:
        await client.create(wanted)
        return
    if is_foreign(existing, runner_set):
        raise InputError(
            "ProxySecretTaken", f"secret {wanted.key} is needed and belongs to something else"
        )
    secret = LazyCopy(existing)
    if existing.data != wanted.data:
        secret.mutate().data = wanted.data
    if not same_metadata(existing.metadata, wanted.metadata):
        set_metadata(secret, wanted.metadata)
    await secret.patch(client)


async def delete_proxy_secret(client: Client, runner_set: EphemeralRunnerSet) -> None:
    """Delete it, if it is there and ours."""
    existing = await client.find(Secret, proxy_secret_key(runner_set))
    if existing is not None and not is_foreign(existing, runner_set):
        await client.delete(Secret, existing.key, uid=existing.uid)
