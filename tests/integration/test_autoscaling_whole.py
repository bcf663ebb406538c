"""Scale set, listener and runners together: what only shows when all four controllers work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunner,
    EphemeralRunnerSet,
)
from arc_controller.testing.actions import Call
from arc_controller.testing.cluster import CREDENTIALS, Cluster
from arc_controller.testing.loop import simulated

SEEDS = (0, 1, 2)


def template(image: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "runner", "image": image}]}}}


def phase(cluster: Cluster) -> str:
    found = cluster.get(AutoscalingRunnerSet, "linux")
    return found.status.phase if found else ""


async def edit(cluster: Cluster, **spec: Any) -> None:
    await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": spec})


async def outdated(cluster: Cluster, **spec: Any) -> None:
    """A scale set whose runners the service has refused, and that is parked."""
    cluster.service.runner_version_refused = True
    await cluster.add_scale_set(**{"max_runners": 5, **spec})
    await cluster.until(listeners=1)
    cluster.queue_jobs(2)
    await cluster.until(lambda: phase(cluster) == "Outdated", within=120)
    await cluster.until(listeners=0, within=120)


async def quiet(cluster: Cluster, seconds: float = 300.0) -> None:
    """Nothing is written for so long."""
    await asyncio.sleep(60)
    before = _writes(cluster)
    await asyncio.sleep(seconds)
    assert _writes(cluster) == before


def _writes(cluster: Cluster) -> dict[str, int]:
    by_kind = cluster.requests.by_kind("manager")
    reads = ("get ", "list ", "watch ")
    return {kind: count for kind, count in by_kind.items() if not kind.startswith(reads)}


@pytest.mark.parametrize("min_runners", [0, 2])
def test_an_outdated_scale_set_comes_back_by_itself_after_an_image_upgrade(
    min_runners: int,
) -> None:
    """The most reported bug: once parked, never back."""

    @simulated(seeds=SEEDS)
    async def scenario() -> None:
        async with Cluster() as cluster:
            await outdated(cluster, min_runners=min_runners)
            await quiet(cluster)
            assert cluster.all(AutoscalingListener) == []

            cluster.service.runner_version_refused = False
            await edit(cluster, **template("runner:2"))
            await cluster.until(completed=2, within=180)
            await cluster.until(lambda: phase(cluster) == "Running", runners=min_runners)

    scenario()


@simulated(seeds=SEEDS)
async def test_a_parked_scale_set_survives_a_restart_and_an_unrelated_edit_unrevived() -> None:
    async with Cluster() as cluster:
        await outdated(cluster)
        (manager,) = cluster.managers
        await manager.stop()
        manager.start()
        await edit(cluster, maxRunners=7)
        await asyncio.sleep(120)
        assert phase(cluster) == "Outdated"
        assert cluster.all(AutoscalingListener) == []
        await quiet(cluster)

        cluster.service.runner_version_refused = False
        await edit(cluster, ephemeralRunnerMetadata={"labels": {"revived": "yes"}})
        await cluster.until(completed=2, within=180)


@simulated(seeds=SEEDS)
async def test_an_edit_in_the_middle_of_parking_is_not_lost() -> None:
    async with Cluster() as cluster:
        cluster.service.runner_version_refused = True
        await cluster.add_scale_set(max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(2)

        def condemned() -> bool:
            found = cluster.get(EphemeralRunnerSet, "linux")
            return found is not None and found.status.phase == "Outdated"

        await cluster.until(condemned, within=120)
        cluster.service.runner_version_refused = False
        await edit(cluster, **template("runner:2"))
        await cluster.until(completed=2, within=300)
        await cluster.until(lambda: phase(cluster) == "Running", runners=0)


@simulated(seeds=SEEDS)
async def test_an_upgrade_that_is_too_old_as_well_parks_again_until_the_next() -> None:
    async with Cluster() as cluster:
        await outdated(cluster)
        await edit(cluster, **template("runner:2"))
        await asyncio.sleep(90)
        assert phase(cluster) == "Outdated"
        cluster.service.runner_version_refused = False
        await edit(cluster, **template("runner:3"))
        await cluster.until(completed=2, within=180)


@simulated(seeds=SEEDS)
async def test_a_spec_edit_while_jobs_run_neither_stops_them_nor_new_ones() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(max_runners=6, min_runners=1)
        await cluster.until(listeners=1)
        cluster.queue_jobs(3, duration=300.0)
        await cluster.until(running=3)
        await edit(cluster, **template("runner:2"))
        await asyncio.sleep(10)
        assert len([r for r in cluster.runners if r.status.phase == "Running"]) == 3
        cluster.queue_jobs(2, duration=10.0)
        await cluster.until(completed=2, within=60)
        await cluster.until(completed=5, within=400)
        await cluster.until(runners=1)
        (runner,) = cluster.all(EphemeralRunner)
        assert runner.spec.spec["containers"][0]["image"] == "runner:2"


@simulated(seeds=SEEDS)
async def test_a_listener_replaced_with_min_runners_comes_back_and_takes_jobs() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(max_runners=6, min_runners=2)
        await cluster.until(listeners=1, runners=2)
        await edit(cluster, maxRunners=8)
        await asyncio.sleep(30)
        await cluster.until(listeners=1)
        cluster.queue_jobs(4)
        await cluster.until(completed=4, within=120)


@simulated(seeds=SEEDS)
async def test_a_scale_set_that_the_service_forgot_is_registered_again_and_takes_jobs() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(max_runners=5, min_runners=1)
        await cluster.until(listeners=1, runners=1)
        cluster.service.forget_scale_set("linux")
        await cluster.until(
            lambda: cluster.service.calls[Call.CREATE_SCALE_SET] == 2, listeners=1, within=300
        )
        cluster.queue_jobs(3)
        await cluster.until(completed=3, within=180)


@simulated(seeds=SEEDS)
async def test_a_rotated_secret_takes_effect_everywhere() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(max_runners=5)
        await cluster.until(listeners=1)
        cluster.service.accept_tokens("ghp_rotated")
        cluster.service.expire_admin_tokens()
        rotated = {"stringData": {"github_token": "ghp_rotated"}}
        await cluster.patch(Secret, CREDENTIALS, rotated)
        await asyncio.sleep(180)
        await cluster.until(listeners=1)
        cluster.queue_jobs(3)
        await cluster.until(completed=3, within=180)


@simulated(seeds=SEEDS)
async def test_deleting_the_scale_set_leaves_nothing_while_jobs_may_finish() -> None:
    async with Cluster() as cluster:
        await cluster.add_scale_set(max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(2, duration=120.0)
        await cluster.until(running=2)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until(completed=2, within=300)
        await cluster.until(objects=0, registrations=0, listeners=0, within=120)
        assert not cluster.service.scale_sets
