"""Deletions that cannot be done as they should be: nothing stays for ever, nothing busy is torn."""

from __future__ import annotations

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.cluster import CREDENTIALS, Cluster
from arc_controller.testing.loop import simulated
from tests.integration.runners import RUNNER, SET, cluster


@simulated
async def test_a_deleted_runner_waits_ten_minutes_for_lost_credentials_and_then_goes() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.delete(Secret, RUNNER._replace(name="github"))
        await here.settle(60)
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(500)
        assert await here.exists(EphemeralRunner)
        assert list(here.registered()) == [RUNNER.name]
        await here.settle(200)
        assert not await here.exists(EphemeralRunner)
        assert ("EphemeralRunner", "RegistrationLeftBehind") in await here.events()


@simulated
async def test_a_deleted_set_does_not_keep_runners_that_nobody_can_unregister_for_ever() -> None:
    async with cluster() as here:
        here.add_set(replicas=2)
        await here.settle()
        assert len(here.registered()) == 2
        await here.delete(Secret, RUNNER._replace(name="github"))
        await here.settle(60)
        await here.delete(EphemeralRunnerSet, SET)
        await here.settle(500)
        assert len(await here.names()) == 2
        await here.settle(1000)
        assert await here.names() == []
        assert await here.admin.find(EphemeralRunnerSet, SET) is None


@simulated
async def test_a_runner_goes_although_its_secret_may_not_be_touched_any_more() -> None:
    """A namespace that is deleted may lose our role in it before our objects."""
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        for verb in ("get", "delete"):
            here.refuse(verb, "secrets", 403, "Forbidden", "RBAC says no")
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_a_set_made_anew_gets_the_minimum_although_nothing_happens_at_the_service() -> None:
    async with Cluster() as here:
        await here.add_scale_set("linux", min_runners=2, max_runners=5)
        await here.until(runners=2, registrations=2)
        (first,) = here.all(EphemeralRunnerSet)
        await here.delete(EphemeralRunnerSet, "linux")
        await here.until(
            lambda: [each.uid for each in here.all(EphemeralRunnerSet)] not in ([], [first.uid]),
            runners=2,
            registrations=2,
        )
        await here.delete(AutoscalingRunnerSet, "linux")
        await here.until_gone()


@simulated
async def test_a_scale_set_with_idle_runners_goes_although_its_credentials_are_lost() -> None:
    async with Cluster() as here:
        await here.add_scale_set("linux", min_runners=2, max_runners=5)
        await here.until(runners=2, registrations=2)
        key = NamespacedName(here.runner_namespace, CREDENTIALS)
        await here.client.delete(Secret, key)
        await here.delete(AutoscalingRunnerSet, "linux")
        await here.until(objects=0, within=3600)
