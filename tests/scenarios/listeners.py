"""Listeners that die, are thrown out, or have lost their scale set."""

from __future__ import annotations

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.kubelet import Disruption, DisruptionKind, PodBehaviour
from tests.scenarios.stage import Stage, clean_up, scenario


@scenario
async def a_listener_that_is_killed_is_replaced_and_no_job_is_lost(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(2, duration=4)
        await cluster.until(running=2)
        assert cluster.kill_listeners() == 1
        cluster.queue_jobs(2, duration=0.5)
        await cluster.until(completed=4, runners=0, registrations=0)
        assert cluster.kubelet.started["listener"] == 2
        await clean_up(cluster)


@scenario
async def a_listener_that_is_evicted_is_replaced(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        cluster.kubelet.next_pods(
            PodBehaviour(disruption=Disruption(DisruptionKind.EVICTED, after=1.0)), kind="listener"
        )
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(lambda: cluster.kubelet.started["listener"] == 2)
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_scale_set_that_the_service_forgot_is_registered_again(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        old = cluster.service.scale_set()
        cluster.service.forget_scale_set(old.id)
        await cluster.until(
            lambda: list(cluster.service.scale_sets) not in ([], [old.id]), listeners=1, within=120
        )
        new = cluster.service.scale_set()
        (scale_set,) = cluster.all(AutoscalingRunnerSet)
        assert scale_set.metadata.annotations["runner-scale-set-id"] == str(new.id)
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)
