"""Deletions while the service is away: what is waited for is said, and not waited for for ever."""

from __future__ import annotations

import asyncio

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunner
from arc_controller.runtime.objects import find_condition
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.loop import simulated
from tests.integration.scale_sets import KEY, scale_set, world


@simulated
async def test_a_deletion_that_waits_for_the_service_says_so_and_goes_on_when_it_is_back() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        here.service.go_down()
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(120)
        ready = await here.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "ServiceUnavailable")
        assert "cannot remove the scale set from the service" in ready.message
        here.service.come_up()
        await here.settle(600)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert not here.service.scale_sets


@simulated
async def test_a_service_that_never_comes_back_does_not_keep_a_deletion_for_ever() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        here.service.go_down()
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(50 * 60)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is not None
        await here.settle(40 * 60)
        assert await here.admin.find(AutoscalingRunnerSet, KEY) is None
        assert ("AutoscalingRunnerSet", "ScaleSetLeftBehind") in await here.events()


@simulated
async def test_runners_of_a_service_that_never_comes_back_go_unless_they_hold_a_job() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(listeners=1, registrations=2)
        cluster.queue_jobs(1, duration=5 * 3600.0)
        await cluster.until(running=1, runners=3)
        cluster.service.go_down()
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await asyncio.sleep(4 * 3600)
        (busy,) = cluster.all(EphemeralRunner)
        assert busy.status.has_job
        (scale_set,) = cluster.all(AutoscalingRunnerSet)
        ready = find_condition(scale_set.status.conditions, "Ready")
        assert ready is not None
        assert "hold a job" in ready.message
        cluster.service.come_up()
        await cluster.until_gone(within=3 * 3600)
