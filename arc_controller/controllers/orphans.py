"""Orphans: what ``kubectl delete --cascade=orphan`` leaves without an owner.

Nobody else would ever stop them and take back what they registered. So whoever is being deleted
adopts its own again, and takes it along as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet
from arc_controller.controllers.meta import own
from arc_controller.controllers.runner_template import is_runner_name
from arc_controller.runtime.client import Client, Reader
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import KubeObject
from arc_controller.runtime.ownership import controller_of, is_controlled_by


async def adopt_runner_set(client: Client, scale_set: AutoscalingRunnerSet) -> bool:
    """Adopt the set of the scale set's name if nobody owns it; says whether it did.

    Raises `ApiError`.
    """
    runner_set = await client.find(EphemeralRunnerSet, scale_set.key)
    if runner_set is None or controller_of(runner_set) is not None:
        return False
    await _adopt(client, scale_set, runner_set)
    return True


async def adopt_runners(client: Client, reader: Reader, runner_set: EphemeralRunnerSet) -> bool:
    """Adopt the runners with the set's names that nobody owns; says whether there were any.

    Raises `ApiError`.
    """
    found = await reader.list(EphemeralRunner, namespace=runner_set.metadata.namespace)
    return bool(await _adopt_among(client, runner_set, found))


async def any_remain(client: Client, api_reader: Reader, runner_set: EphemeralRunnerSet) -> bool:
    """Whether the server still has runners of the set, or orphans, which are adopted.

    Raises `ApiError`.
    """
    found = await api_reader.list(EphemeralRunner, namespace=runner_set.metadata.namespace)
    orphans = await _adopt_among(client, runner_set, found)
    return bool(orphans) or any(is_controlled_by(runner, runner_set) for runner in found)


async def _adopt_among(
    client: Client, runner_set: EphemeralRunnerSet, found: Sequence[EphemeralRunner]
) -> list[EphemeralRunner]:
    orphans = [
        runner
        for runner in found
        if controller_of(runner) is None and is_runner_name(runner_set, runner.metadata.name)
    ]
    for orphan in orphans:
        await _adopt(client, runner_set, orphan)
    return orphans


async def _adopt(client: Client, owner: KubeObject, orphan: KubeObject) -> None:
    adopted = LazyCopy(orphan)
    own(owner, adopted.mutate().metadata)
    await adopted.patch(client)
