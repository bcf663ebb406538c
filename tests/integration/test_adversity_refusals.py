"""The API server refuses what a set of runners needs: that costs little, and somebody is told."""

from __future__ import annotations

from typing import Any

import pytest

from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.testing.actions import Call
from arc_controller.testing.loop import simulated
from tests.integration.runners import SET, Cluster, cluster
from tests.integration.scale_sets import scale_set, world

RUNNERS = "count/ephemeralrunners.actions.github.com"


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": SET.namespace},
        "spec": {"hard": {name.replace("__", "/"): value for name, value in hard.items()}},
    }


def tries(here: Cluster) -> int:
    return here.writes().count("create ephemeralrunners")


async def scaling_events(here: Cluster) -> list[str]:
    return [reason for kind, reason in await here.events() if kind == "EphemeralRunnerSet"]


@simulated
async def test_a_set_over_its_quota_tries_less_and_less_and_says_why() -> None:
    async with cluster() as here:
        here.install(quota(**{RUNNERS: "2"}))
        here.add_set(5)
        await here.settle(120)
        assert len(await here.runners()) == 2
        assert tries(here) <= 5 + 8
        condition = await here.set_condition("ScalingActive")
        assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
        assert "exceeded quota: few" in condition.message
        assert (await scaling_events(here)).count("QuotaExceeded") == 1
        here.forget()
        await here.settle(600)
        assert len(here.requests()) <= 25  # a look and a try each minute


@simulated
async def test_a_quota_that_is_raised_is_noticed_within_about_a_minute() -> None:
    async with cluster() as here:
        here.install(quota(**{RUNNERS: "2"}))
        here.add_set(50)
        await here.settle(300)
        await here.admin._transport.request(
            "DELETE", f"/api/v1/namespaces/{SET.namespace}/resourcequotas/few"
        )
        await here.until(lambda: _count(here, 50), seconds=70)
        await here.settle()
        assert (await here.set_condition("ScalingActive")).status == "True"


@simulated
async def test_a_place_that_becomes_free_under_a_quota_is_taken_at_once() -> None:
    async with cluster() as here:
        here.install(quota(**{RUNNERS: "2"}))
        here.add_set(5)
        await here.settle(300)
        first, _ = await here.names()
        await here.pod_runs(first)
        await here.runner_exits(0, first)
        await here.until(lambda: _count(here, 2, without=first), seconds=8)


@simulated
async def test_labels_that_are_none_are_reported_and_their_repair_is_used_at_once() -> None:
    async with cluster() as here:
        here.add_set(1000, ephemeralRunnerMetadata={"labels": {"bad key!": "v v"}})
        await here.settle(120)
        assert tries(here) <= 32 + 8
        condition = await here.set_condition("ScalingActive")
        assert (condition.status, condition.reason) == ("False", "Invalid")
        assert "bad key!" in condition.message
        assert len(here.patches("ephemeralrunnersets", "status")) <= 2

        repair = {"spec": {"ephemeralRunnerMetadata": {"labels": {"bad key!": None, "good": "v"}}}}
        await here.admin.patch(EphemeralRunnerSet, SET, repair)
        await here.until(lambda: _count(here, 1000), seconds=20)


@simulated
async def test_runners_whose_secrets_are_over_quota_say_so_and_register_once() -> None:
    async with cluster() as here:
        here.install(quota(**{"count/secrets": "1"}))
        here.add_set(16)
        await here.settle(300)
        calls = here.service.calls
        assert calls[Call.GENERATE_JIT_CONFIG] == 16
        assert here.writes().count("create secrets") <= 16 * 11
        for name in await here.names():
            condition = await here.condition("Registered", name)
            assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
            assert "exceeded quota: few" in condition.message
        assert ("EphemeralRunner", "QuotaExceeded") in await here.events()

        await here.admin._transport.request(
            "DELETE", f"/api/v1/namespaces/{SET.namespace}/resourcequotas/few"
        )
        await here.settle(40)
        assert len(await here.admin.list(Pod)) == 16
        assert calls[Call.GENERATE_JIT_CONFIG] == 16
        assert len(here.registered()) == 16


@simulated
async def test_a_secret_that_is_refused_for_long_is_registered_for_anew_before_it_expires() -> None:
    async with cluster() as here:
        here.refuse("create", "secrets", 422, "Invalid", "labels are bad")
        here.add_set(1)
        await here.settle(1000)
        (name,) = await here.names()
        assert (await here.condition("Registered", name)).reason == "Invalid"
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] == 1 + 2  # in use, removed, again
        here.accept()
        await here.settle(40)
        assert list(here.registered()) == [name]
        assert await here.exists(Pod, name)


@simulated
@pytest.mark.parametrize("code", [403, 500, 503])
async def test_a_set_that_cannot_be_read_is_asked_for_less_and_less(code: int) -> None:
    async with cluster() as here:
        here.refuse("get", "ephemeralrunnersets", code, "Forbidden" if code == 403 else "")
        here.add_set(5)
        await here.settle(60)
        here.forget()
        await here.settle(60)
        assert len(here.requests()) <= 5


@simulated
async def test_an_autoscaling_runner_set_says_that_its_runners_cannot_be_created() -> None:
    async with world() as here:
        here.install(scale_set())
        await here.settle()
        condition = {
            "type": "ScalingActive",
            "status": "False",
            "reason": "QuotaExceeded",
            "message": "Runners cannot be created: exceeded quota",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
        }
        await here.runner_set_status(conditions=[condition])
        await here.settle()
        ready = await here.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "QuotaExceeded")
        assert ready.message == "Runners cannot be created: exceeded quota"
        await here.runner_set_status(conditions=[{**condition, "status": "True"}])
        await here.settle()
        assert (await here.condition("Ready")).status == "True"


async def _count(here: Cluster, count: int, without: str = "") -> bool:
    names = await here.names()
    return len(names) == count and without not in names
