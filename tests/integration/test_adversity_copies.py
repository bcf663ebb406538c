"""An AutoscalingRunnerSet that was copied carries the annotations of the one it was copied from."""

from __future__ import annotations

from structlog.testing import capture_logs

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.controllers.scale_set import REGISTERED_FOR
from arc_controller.controllers.scale_set_departure import DEPARTED, departed
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.loop import simulated
from tests.integration.scale_sets import (
    KEY,
    NAME,
    RUNNERS,
    URL,
    World,
    scale_set,
    scale_set_id,
    world,
)

COPY = NamespacedName(RUNNERS, "three")


async def copied(here: World, key: NamespacedName = COPY) -> None:
    """As ``kubectl get -o json``, another name, ``kubectl create`` make it."""
    original = await here.scale_set()
    annotations = original.metadata.annotations
    here.install(scale_set(key.name, key.namespace, annotations=annotations))


def names(here: World) -> list[str]:
    return sorted(record.name for record in here.service.scale_sets.values())


@simulated
async def test_a_copied_manifest_registers_afresh_and_leaves_the_original_alone() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        original = scale_set_id(await here.scale_set())
        await copied(here)
        await here.settle()
        assert names(here) == [NAME, COPY.name]
        assert (await here.condition("Ready", COPY)).status == "True"
        assert scale_set_id(await here.scale_set(COPY)) != original
        assert scale_set_id(await here.scale_set()) == original

        await here.admin.delete(AutoscalingRunnerSet, COPY)
        await here.settle(60)
        assert names(here) == [NAME]


@simulated
async def test_a_copy_that_goes_before_it_was_registered_takes_nothing_of_the_original_along() -> (
    None
):
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        here.service.faults.fail("get_scale_set", "create_scale_set", status=503, times=None)
        await copied(here)
        await here.settle(2)
        await here.admin.delete(AutoscalingRunnerSet, COPY)
        await here.settle(10)
        here.service.faults.clear()
        await here.settle(120)
        assert [obj.key for obj in await here.admin.list(AutoscalingRunnerSet)] == [KEY]
        assert names(here) == [NAME]


@simulated
async def test_a_manager_that_does_not_see_the_original_does_not_take_its_registration() -> None:
    async with world() as here:
        here.install(
            scale_set(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        )
        here.secret("github", "other", github_token="token-1")
        await here.settle()
        await here.restart_manager(watch_namespaces=("other",))
        await copied(here, NamespacedName("other", "three"))
        await here.settle()
        assert names(here) == [NAME, "three"]


@simulated
async def test_a_restored_backup_finds_its_scale_set_by_name() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        before = await here.scale_set()
        await here.stop_manager()
        await here.admin.patch(AutoscalingRunnerSet, KEY, {"metadata": {"finalizers": None}})
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle()

        here.install(scale_set(annotations=before.metadata.annotations))
        here.start_manager()
        await here.settle(60)
        after = await here.scale_set()
        assert scale_set_id(after) == scale_set_id(before)
        assert after.uid != before.uid
        assert after.metadata.annotations[REGISTERED_FOR] == after.uid
        assert names(here) == [NAME]


@simulated
async def test_places_that_the_original_has_left_are_none_of_a_copys_business() -> None:
    left = (
        '[{"id": 99, "name": "old", "since": "2020-01-01T00:00:00Z", '
        f'"githubConfigUrl": "{URL}", "githubConfigSecret": "github"}}]'
    )
    async with world() as here:
        here.install(scale_set(annotations={REGISTERED_FOR: "another", DEPARTED: left}))
        await here.settle()
        obj = await here.scale_set()
        assert departed(obj) == []
        assert DEPARTED not in obj.metadata.annotations


@simulated
async def test_two_managers_of_one_namespace_each_leave_each_others_scale_sets_alone() -> None:
    """Their listeners live beside each other."""
    async with world() as here:
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        here.secret("github", "other", github_token="token-1")
        await here.restart_manager(watch_namespaces=("other",))
        here.install(scale_set("others", "other"))
        await here.settle()
        await here.stop_manager()
        here.api.request_log.clear()
        with capture_logs() as logs:
            here.start_manager(watch_namespaces=(RUNNERS,))
            await here.settle(300)
        assert [each for each in here.requests() if each.namespace == "other"] == []
        assert [line for line in logs if line["log_level"] == "error"] == []
