"""The whole system in one process, under simulated time: the main job, restarts and kills."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import AutoscalingListener, AutoscalingRunnerSet
from arc_controller.listener import parse_config
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import JobState
from arc_controller.testing.apiserver import Request, RequestInfo, json_response
from arc_controller.testing.apiserver import Response as ServerResponse
from arc_controller.testing.cluster import Cluster, EmbeddedApi
from arc_controller.testing.kubelet import PodBehaviour
from arc_controller.testing.loop import run_simulated, simulated


async def clean_up(cluster: Cluster) -> None:
    await cluster.delete(AutoscalingRunnerSet, "linux")
    await cluster.until_gone()


@simulated(seeds=range(3))
async def test_jobs_are_queued_run_and_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(3, duration=20)
        await cluster.until(running=3)
        await cluster.until(completed=3, runners=0, pods=0, registrations=0)
        await clean_up(cluster)


@simulated
async def test_the_minimum_is_kept_idle_and_used_first() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 2, runners=2)
        cluster.queue_jobs(1, duration=30)
        await cluster.until(running=1, runners=3)
        await cluster.until(completed=1, runners=2, running=0)
        await clean_up(cluster)


@simulated
async def test_more_jobs_than_runners_take_turns() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=2)
        cluster.queue_jobs(7, duration=10)
        most = 0
        while cluster.service.job_counts()[JobState.COMPLETED] < 7:
            most = max(most, len(cluster.service.runners))
            await asyncio.sleep(0.5)
        assert most == 2
        await cluster.until(runners=0, registrations=0)
        await clean_up(cluster)


@simulated
async def test_a_listener_that_is_killed_is_replaced_and_nothing_is_lost() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        cluster.queue_jobs(3, duration=200)
        await cluster.until(running=3)
        assert cluster.kill_listeners() == 1
        cluster.queue_jobs(2, duration=10)
        await cluster.until(completed=5, runners=0, registrations=0, within=900)
        await clean_up(cluster)


@simulated
async def test_a_listener_killed_between_acknowledge_and_patch_loses_nothing() -> None:
    async with Cluster() as cluster:
        assert isinstance(cluster.api, EmbeddedApi)
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)

        async def refuse(request: Request, info: RequestInfo) -> ServerResponse | None:
            if info.verb == "patch" and info.plural == "ephemeralrunnersets":
                return json_response(503, {"kind": "Status", "code": 503, "message": "not now"})
            return None

        cluster.api.server.faults = refuse
        cluster.queue_jobs(2, duration=10)
        await cluster.until(lambda: cluster.service.job_counts()[JobState.ASSIGNED] == 2)
        await asyncio.sleep(5)
        assert cluster.kill_listeners() == 1
        cluster.api.server.faults = None
        await cluster.until(completed=2, runners=0, registrations=0, within=900)
        await clean_up(cluster)


@pytest.mark.parametrize("seed", range(6))
def test_a_manager_killed_at_any_moment_leaves_a_run_that_ends_clean(seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        async with Cluster(seed=seed) as cluster:
            await cluster.add_scale_set("linux", max_runners=5)
            cluster.queue_jobs(10, duration=15)
            for _ in range(5):
                await asyncio.sleep(random.uniform(0.0, 8.0))
                await cluster.kill_manager()
            await cluster.until(completed=10, runners=0, registrations=0, within=600)
            await clean_up(cluster)

    run_simulated(scenario(), seed=seed)


@simulated
async def test_a_manager_that_is_restarted_writes_nothing_when_nothing_happens() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(registrations=2)
        await asyncio.sleep(120)
        cluster.requests.clear()
        await cluster.restart_manager()
        await asyncio.sleep(600)
        assert cluster.requests.writes() == 0, cluster.requests.by_kind()
        await clean_up(cluster)


@simulated
async def test_a_service_that_is_gone_for_ten_minutes_costs_no_job() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        cluster.queue_jobs(2, duration=900)
        await cluster.until(running=2)
        cluster.service.go_down()
        await asyncio.sleep(600)
        cluster.service.come_up()
        cluster.queue_jobs(1, duration=10)
        await cluster.until(
            lambda: (
                cluster.service.job_counts()[JobState.COMPLETED]
                + cluster.service.job_counts()[JobState.LOST]
                == 3
            ),
            within=3000,
        )
        await cluster.until(runners=0, registrations=0, within=600)
        await clean_up(cluster)


@simulated
async def test_with_a_maximum_of_zero_nothing_runs_until_it_is_raised() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=0)
        cluster.queue_jobs(2, duration=10)
        await asyncio.sleep(300)
        assert not cluster.runners
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": 3}})
        await cluster.until(completed=2, runners=0, within=600)
        await clean_up(cluster)


@simulated
async def test_a_runner_whose_pod_dies_before_its_job_is_replaced() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        cluster.kubelet.next_pods(PodBehaviour(connects=False, exit_code=1), 2)
        cluster.queue_jobs(1, duration=10)
        await cluster.until(completed=1, runners=0, registrations=0, within=600)
        await clean_up(cluster)


@simulated
async def test_what_the_controllers_write_is_what_the_listener_reads() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=0, max_runners=5)
        await cluster.until(listeners=1)
        (listener,) = cluster.all(AutoscalingListener)
        name = f"{listener.metadata.name}-config"
        secret = await cluster.client.get(Secret, NamespacedName("arc-systems", name))
        config = parse_config(secret.data["config.json"])
        assert config.configure_url == "https://github.com/acme"
        assert (config.min_runners, config.max_runners) == (0, 5)
        assert config.ephemeral_runner_set_namespace == "arc-runners"
        assert config.runner_scale_set_id == 1
        await clean_up(cluster)


async def test_it_runs_under_real_time_too() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        cluster.queue_jobs(3, duration=0.1)
        await cluster.until(completed=3, runners=0, registrations=0)
        await clean_up(cluster)


async def test_waiting_in_vain_shows_what_there_is() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        with pytest.raises(
            AssertionError, match=r"wanted \{'runners': 1\}, found \{'runners': 0\}"
        ):
            await cluster.until(runners=1, within=0.3)
        await clean_up(cluster)


async def test_a_manifest_that_is_refused_is_an_error_with_the_servers_words() -> None:
    async with Cluster() as cluster:
        with pytest.raises(AssertionError, match="AutoscalingRunnerSet linux was refused"):
            await cluster.add_scale_set("linux", max_runners=-5)
