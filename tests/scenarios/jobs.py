"""Jobs that come and go, with runners that follow."""

from __future__ import annotations

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunnerSet
from arc_controller.testing.actions import JobState
from arc_controller.testing.cluster import Cluster
from tests.scenarios.stage import Stage, scenario


async def clean_up(cluster: Cluster, name: str = "linux") -> None:
    """Delete the scale set, and wait until nothing at all is left of it."""
    await cluster.delete(AutoscalingRunnerSet, name)
    await cluster.until_gone(within=60)


@scenario
async def a_job_is_run_by_a_runner_made_for_it_and_nothing_is_left(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        (job,) = cluster.queue_jobs(1, duration=1)
        await cluster.until(running=1, pods=1)
        (runner,) = cluster.runners
        assert runner.status.job_id == job.job_id
        assert runner.status.job_repository_name == "acme/app"
        assert runner.status.runner_name == runner.metadata.name == job.runner_name
        assert runner.status.ready
        await cluster.until(completed=1, runners=0, pods=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_burst_gets_one_runner_a_job_and_no_more_than_the_maximum(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=8)
        await cluster.until(listeners=1)
        cluster.queue_jobs(20, duration=0.5)
        most = 0
        while cluster.service.job_counts()[JobState.COMPLETED] < 20:
            most = max(most, len(cluster.service.runners))
            await cluster.observer.changed(0.1)
        assert most <= 8
        await cluster.until(runners=0, pods=0, registrations=0)
        assert cluster.kubelet.started["runner"] == 20
        await clean_up(cluster)


@scenario
async def the_minimum_is_idle_and_scaled_down_by_force(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=3, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 3, runners=3)
        assert {runner.status.phase for runner in cluster.runners} == {"Pending"}
        cluster.queue_jobs(1, duration=3)
        await cluster.until(running=1, runners=4)
        (busy,) = (runner for runner in cluster.runners if runner.status.phase == "Running")
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"minRunners": 0}})
        await cluster.until(
            lambda: [r.metadata.name for r in cluster.runners] == [busy.metadata.name]
        )
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)
