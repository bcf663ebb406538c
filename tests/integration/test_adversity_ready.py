"""Ready is said of a scale set whose runners get to work, and not before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from arc_controller.api import SCHEME
from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.loop import simulated
from tests.integration.runners import cluster
from tests.integration.scale_sets import KEY, scale_set, world

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
