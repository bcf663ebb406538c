"""The whole system in one process, under simulated time: the main job, restarts and kills."""

from __future__ import annotations

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.loop import simulated


@simulated
async def test_jobs_are_queued_run_and_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(3, duration=20)
        await cluster.until(running=3)
        await cluster.until(completed=3, runners=0, pods=0, registrations=0)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone()
