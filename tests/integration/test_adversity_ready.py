"""Ready is said of a scale set whose runners get to work, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import AutoscalingListener, AutoscalingRunnerSet
from arc_controller.runtime.objects import Condition, find_condition
from arc_controller.testing.cluster import Cluster as WholeCluster
from arc_controller.testing.loop import simulated
from tests.integration.runners import cluster
from tests.integration.scale_sets import KEY, World, scale_set, world

NO_RUNNER = {"containers": [{"name": "worker", "image": "worker:1"}]}


@simulated
async def test_a_set_whose_runners_are_all_invalid_says_which_reason_they_have_in_common() -> None:
    async with cluster() as here:
        here.add_set(3, runner_spec=here.runner_spec(NO_RUNNER))
        await here.settle(30)
        condition = await here.set_condition("RunnersHealthy")
        assert (condition.status, condition.reason) == ("False", "InvalidPod")
        assert "all for one reason" in condition.message


@simulated
async def test_a_set_whose_runners_cannot_register_says_so_until_they_can() -> None:
    async with cluster() as here:
        here.service.go_down()
        here.add_set(3)
        await here.settle(30)
        condition = await here.set_condition("RunnersHealthy")
        assert (condition.status, condition.reason) == ("False", "ServiceUnavailable")
        await here.ask(4, 0)
        await here.settle(5)
        assert (await here.set_condition("RunnersHealthy")).reason == "ServiceUnavailable"
        here.service.come_up()
        await here.settle(600)
        assert (await here.set_condition("RunnersHealthy")).status == "True"


@simulated
async def test_one_failure_among_runners_that_work_is_no_failure_of_the_set() -> None:
    async with cluster() as here:
        here.add_set(3)
        await here.settle()
        first, second, _ = await here.names()
        await here.pod_runs(second)
        await here.runner_status(first, phase="Failed", reason="InvalidPod", message="no")
        await here.settle(30)
        assert (await here.set_condition("RunnersHealthy")).reason == "FailedRunners"


@simulated
@pytest.mark.parametrize(
    ("reason", "ready"),
    [("InvalidPod", "False"), ("QuotaExceeded", "False"), ("FailedRunners", "True")],
)
async def test_an_autoscaling_runner_set_is_ready_if_its_runners_get_to_work(
    reason: str, ready: str
) -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        condition = {
            "type": "RunnersHealthy",
            "status": "False",
            "reason": reason,
            "message": "so it is",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
        }
        await here.runner_set_status(conditions=[condition])
        await here.settle()
        found = await here.condition("Ready")
        assert found.status == ready
        if ready == "False":
            assert (found.reason, found.message) == (reason, "so it is")


async def listener_condition(here: World) -> Condition:
    found = find_condition((await here.listener()).status.conditions, "Ready")
    assert found is not None
    return found


@simulated
async def test_a_listener_that_has_no_session_yet_is_not_ready_nor_is_its_scale_set() -> None:
    async with world() as here:
        here.sessions = False
        here.install(scale_set())
        await here.settle(30)
        found = await listener_condition(here)
        assert (found.status, found.reason) == ("False", "WaitingForSession")
        ready = await here.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "ListenerNotReady")
        assert "message session" in ready.message

        here.sessions = True
        await here.settle(5)
        assert (await listener_condition(here)).status == "True"
        assert (await here.condition("Ready")).status == "True"

        here.sessions = False
        await here.admin.delete(Pod, (await here.listener()).key)  # the next one has to wait again
        await here.settle(90)
        assert (await listener_condition(here)).reason == "WaitingForSession"


@simulated
async def test_what_a_listener_said_of_itself_survives_a_change_of_the_sets_metadata() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        changed = {"ephemeralRunnerSetMetadata": {"annotations": {"team": "a"}}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, {"spec": changed})
        here.sessions = False
        await here.settle(90)
        assert (await here.runner_set()).metadata.annotations["team"] == "a"
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_a_listener_of_another_make_need_not_say_anything() -> None:
    async with world() as here:
        here.sessions = False
        containers = [{"name": "listener", "image": "another:1"}]
        here.install(scale_set(listenerTemplate={"spec": {"containers": containers}}))
        await here.settle(30)
        assert (await here.condition("Ready")).status == "True"


@simulated
async def test_a_listener_that_was_killed_is_ready_again_with_its_next_session() -> None:
    async with WholeCluster() as whole:
        await whole.add_scale_set("linux", max_runners=2)
        await whole.until(lambda: is_ready(whole), listeners=1)
        await asyncio.sleep(5)
        whole.service.faults.delay("create_session", seconds=30)
        whole.kill_listeners()
        await whole.until(lambda: why_not(whole) == "WaitingForSession", within=60)
        assert not is_ready(whole)
        await whole.until(lambda: is_ready(whole), within=600)
        assert len(whole.service.sessions) == 1


def is_ready(whole: WholeCluster) -> bool:
    (obj,) = whole.all(AutoscalingRunnerSet)
    found = find_condition(obj.status.conditions, "Ready")
    return found is not None and found.status == "True"


def why_not(whole: WholeCluster) -> str:
    reasons = [
        found.reason
        for each in whole.all(AutoscalingListener)
        if (found := find_condition(each.status.conditions, "Ready")) and found.status != "True"
    ]
    return reasons[0] if reasons else ""


@simulated
async def test_counts_of_zero_are_shown_as_zero() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        response = await here.admin._transport.request(
            "GET", SCHEME.path(AutoscalingRunnerSet, KEY)
        )
        status: dict[str, Any] = msgspec.json.decode(response.body)["status"]
        assert status["currentRunners"] == status["failedEphemeralRunners"] == 0
