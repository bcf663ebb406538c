"""A service that is slow, does not answer or wants to be left alone, and who has to wait for it."""

from __future__ import annotations

import asyncio

import pytest

from arc_controller.actions import HttpRequest
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.controllers.turnstile import SLOW, ServiceSlow, Turnstile
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import Call
from arc_controller.testing.cluster import Cluster as WholeCluster
from arc_controller.testing.loop import simulated
from tests.integration.runners import Cluster, cluster
from tests.integration.scale_sets import KEY, NAME, RUNNERS, scale_set, scale_set_id, world

DEAD = "https://dead.example.com/acme"


def is_dead(request: HttpRequest) -> bool:
    return "dead.example.com" in request.url


# --- one place has a share of the workers ---------------------------------------------------------


@simulated
async def test_of_many_slow_calls_to_one_place_a_share_goes_on() -> None:
    turnstile, loop = Turnstile(2), asyncio.get_running_loop()

    async def call(seconds: float = 100.0) -> None:
        with turnstile.passing("a", "A"):
            await asyncio.sleep(seconds)

    async def slow_ones(calls: int, seconds: float = 100.0) -> int:
        results = await asyncio.gather(
            *(call(seconds) for _ in range(calls)), return_exceptions=True
        )
        return sum(isinstance(each, ServiceSlow) for each in results)

    start = loop.time()
    assert await slow_ones(5) == 3
    assert loop.time() - start == 100
    assert await slow_ones(3, 1.0) == 1, "it is known to be slow"
    assert await slow_ones(7, 1.0) == 0, "it has recovered"
    slow = asyncio.create_task(slow_ones(5))
    await asyncio.sleep(SLOW + 5)
    assert await slow_ones(1) == 1
    with turnstile.passing("b", "B"):
        await asyncio.sleep(1)
    assert await slow == 3


@simulated
async def test_a_call_that_is_cancelled_by_others_stays_cancelled() -> None:
    turnstile = Turnstile(1)

    async def call() -> None:
        with turnstile.passing("a", "A"):
            await asyncio.sleep(100)

    task = asyncio.create_task(call())
    await asyncio.sleep(SLOW + 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@simulated
async def test_a_scale_set_that_the_service_is_slow_for_leaves_workers_to_the_others() -> None:
    async with cluster() as here:
        slow = here.scale_set_id
        here.service.faults.delay(
            "generate_jit_config",
            seconds=100,
            times=None,
            when=lambda request: f"/{slow}/" in request.url,
        )
        for number in range(20):
            here.add_runner(f"slow-{number}")
        await here.settle(1)
        here.add_runner("quick", runnerScaleSetId=here.other_scale_set_id)
        await here.until(lambda: here.exists(Pod, "quick"), seconds=SLOW + 5)
        await here.settle(1000)
        pods = [pod.metadata.name for pod in await here.admin.list(Pod)]
        assert len(pods) == 21, "the slow ones get theirs, too"


@simulated
async def test_many_sets_that_end_at_a_slow_server_leave_workers_to_the_others() -> None:
    slow = [f"slow-{number}" for number in range(20)]
    async with WholeCluster() as whole:
        for name in slow:
            await whole.add_scale_set(name, min_runners=1, github_config_url=DEAD)
        await whole.add_scale_set("quick", max_runners=2)
        await whole.until(registrations=20, listeners=21)
        delay = whole.service.faults.delay(
            "find_runner", "remove_runner", seconds=100, times=None, when=is_dead
        )
        for name in slow:
            await whole.delete(AutoscalingRunnerSet, name)
        await whole.until(lambda: delay.hits >= 16)
        whole.queue_jobs(1, scale_set="quick", duration=1.0)
        await whole.until(completed=1, within=2 * SLOW)
        whole.service.faults.clear()
        await whole.delete(AutoscalingRunnerSet, "quick")
        await whole.until_gone(within=600)


# --- an address that does not answer --------------------------------------------------------------


@simulated
async def test_a_wrong_address_is_given_up_soon_after_it_was_corrected() -> None:
    async with world() as here:
        here.service.faults.delay("*", seconds=1000, times=None, when=is_dead)
        here.install(scale_set(githubConfigUrl=DEAD))
        await here.settle(5)
        ready = await here.condition("Ready")
        assert (ready.reason, ready.status) == ("WaitingForService", "False")
        assert "https://dead.example.com" in ready.message
        await here.edit(githubConfigUrl="https://github.com/acme")
        await here.settle(15)
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_many_scale_sets_at_an_address_that_does_not_answer_leave_workers_to_others() -> None:
    async with world() as here:
        here.service.faults.delay("*", seconds=1000, times=None, when=is_dead)
        for number in range(30):
            here.install(scale_set(f"dead-{number}", githubConfigUrl=DEAD))
        await here.settle(1)
        here.install(scale_set())
        await here.settle(SLOW + 5)
        assert (await here.condition("Ready")).status == "True"
        await here.settle(300)
        reasons = {
            (await here.condition("Ready", NamespacedName(RUNNERS, f"dead-{number}"))).reason
            for number in range(30)
        }
        assert reasons <= {"WaitingForService", "ServiceSlow", "ServiceUnavailable"}


@simulated
async def test_a_scale_set_that_is_registered_slowly_and_deleted_meanwhile_is_removed() -> None:
    async with world() as here:
        here.service.faults.delay("create_scale_set", seconds=8, after_effect=True)
        here.install(scale_set())
        await here.settle(4)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(60)
        assert not here.service.scale_sets


# --- a service that wants to be left alone --------------------------------------------------------


def asked(here: Cluster) -> int:
    return here.service.calls[Call.GENERATE_JIT_CONFIG]


@simulated
async def test_runners_leave_the_service_alone_for_as_long_as_it_says() -> None:
    async with cluster() as here:
        here.service.faults.fail("generate_jit_config", status=429, retry_after=3600, times=None)
        for number in range(20):
            here.add_runner(f"runner-{number}")
        await here.settle(3000)
        assert asked(here) <= 20
        registered = await here.condition("Registered", "runner-0")
        assert (registered.status, registered.reason) == ("False", "RateLimited")
        here.service.faults.clear()
        await here.settle(700)
        assert len(here.registered()) == 20


@simulated
async def test_a_scale_set_leaves_the_service_alone_for_as_long_as_it_says() -> None:
    async with world() as here:
        limit = here.service.faults.fail("find_scale_set", status=429, retry_after=900, times=None)
        here.install(scale_set())
        await here.settle(10)
        hits = limit.hits
        await here.settle(800)
        assert (await here.condition("Ready")).reason == "RateLimited"
        assert limit.hits == hits
        here.service.faults.clear()
        await here.settle(120)
        assert (await here.condition("Ready")).status == "True"
        assert scale_set_id(await here.scale_set()) == here.service.scale_set(NAME).id
