"""Restarts get rarer; metrics go away with what they are about; equal specs are kept once."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSpec
from arc_controller.controllers.interning import SharedSpecs
from arc_controller.controllers.metrics import ControllerMetrics
from arc_controller.controllers.restarts import Restarts
from arc_controller.runtime.objects import NamespacedName, ObjectMeta
from arc_controller.testing.loop import simulated

KEY = NamespacedName("ci", "linux")


@simulated
async def test_waits_double_up_to_five_minutes() -> None:
    restarts = Restarts()
    waits = []
    for number in range(9):
        wait = restarts.wait("owner", f"pod-{number}", lived=1.0)
        waits.append(wait)
        await asyncio.sleep(wait)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]


@simulated
async def test_asking_again_about_one_death_counts_it_once() -> None:
    restarts = Restarts()
    restarts.wait("owner", "a", 1.0)
    assert restarts.wait("owner", "b", 1.0) == 10
    await asyncio.sleep(4)
    assert restarts.wait("owner", "b", 1.0) == 6
    assert restarts.count("owner") == 2
    await asyncio.sleep(60)
    assert restarts.wait("owner", "b", 1.0) == 0


@simulated
async def test_a_long_life_or_a_new_owner_begins_anew() -> None:
    restarts = Restarts()
    for number in range(5):
        restarts.wait("owner", f"pod-{number}", 1.0)
    assert restarts.wait("owner", "old", lived=3600.0) == 0
    assert restarts.count("owner") == 1
    assert restarts.wait("owner", "next", 1.0) == 10
    assert restarts.wait("other", "pod", 1.0) == 0
    restarts.forget("owner")
    assert restarts.count("owner") == 0


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    where = {"name": "linux", "namespace": "ci", "repository": "", "enterprise": "", **labels}
    return registry.get_sample_value(f"gha_controller_{name}", where)


def test_metrics_have_their_fixed_names_and_go_away_with_the_object() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    metrics.runners(KEY, "https://github.com/acme", pending=1, running=2, failed=3)
    metrics.listener(KEY, "https://github.com/acme", runs=True)
    for name, count in (("pending", 1), ("running", 2), ("failed", 3)):
        assert value(registry, f"{name}_ephemeral_runners", organization="acme") == count
    assert value(registry, "running_listeners", organization="acme") == 1

    metrics.runners(KEY, "https://github.com/umbrella", pending=1, running=2, failed=3)
    assert value(registry, "pending_ephemeral_runners", organization="acme") is None
    assert value(registry, "pending_ephemeral_runners", organization="umbrella") == 1

    metrics.forget_scale_set(KEY)
    metrics.forget_scale_set(KEY)
    metrics.forget_listener(KEY)
    assert value(registry, "pending_ephemeral_runners", organization="umbrella") is None
    assert value(registry, "running_listeners", organization="acme") is None


def test_a_url_that_nobody_can_read_breaks_no_metric() -> None:
    registry = CollectorRegistry()
    ControllerMetrics(registry).runners(KEY, "nonsense", pending=1, running=0, failed=0)
    assert value(registry, "pending_ephemeral_runners", organization="") == 1


def test_runners_of_one_set_share_their_spec() -> None:
    share = SharedSpecs()

    def runner(name: str, image: str) -> EphemeralRunner:
        spec = EphemeralRunnerSpec(spec={"containers": [{"name": "runner", "image": image}]})
        return share(EphemeralRunner(metadata=ObjectMeta(name=name), spec=spec))

    first, second, third = runner("a", "1"), runner("b", "1"), runner("c", "2")
    assert first.spec is second.spec
    assert third.spec is not first.spec
    assert third.spec.spec["containers"][0]["image"] == "2"
