"""Predicates, handlers, owner references, finalizers, rate limiters."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from arc_controller.api import SCHEME
from arc_controller.api.core import Pod
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet
from arc_controller.runtime.clock import micro_time
from arc_controller.runtime.finalizers import (
    add_finalizers,
    missing_finalizers,
    remove_finalizers,
)
from arc_controller.runtime.handlers import (
    EnqueueingHandler,
    enqueue_mapped,
    enqueue_owner,
    enqueue_self,
)
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import KubeObject, NamespacedName, ObjectMeta
from arc_controller.runtime.ownership import (
    AlreadyOwned,
    controller_of,
    is_controlled_by,
    set_controller_reference,
)
from arc_controller.runtime.predicates import (
    Predicate,
    all_of,
    annotations_changed,
    any_of,
    generation_changed,
    has_label,
    in_namespace,
    labels_changed,
    negate,
    resource_version_changed,
)
from arc_controller.runtime.ratelimiters import ExponentialBackoff, MaxOf, TokenBucket
from arc_controller.runtime.workqueue import WorkQueue
from arc_controller.testing.loop import simulated

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def pod(name: str = "pod", **metadata: Any) -> Pod:
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    for field, value in metadata.items():
        setattr(meta, field, value)
    return Pod(metadata=meta)


def runner_set(name: str = "set", namespace: str = "default") -> EphemeralRunnerSet:
    return EphemeralRunnerSet(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}")
    )


# --- predicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predicate, old, new, passes",
    [
        (generation_changed, {"generation": 1}, {"generation": 1}, False),
        (generation_changed, {"generation": 1}, {"generation": 2}, True),
        (generation_changed, {}, {"deletion_timestamp": NOW}, True),
        (generation_changed, {}, {"labels": {"a": "b"}}, False),
        (labels_changed, {}, {"labels": {"a": "b"}}, True),
        (labels_changed, {"labels": {"a": "b"}}, {"labels": {"a": "b"}}, False),
        (annotations_changed, {}, {"annotations": {"a": "b"}}, True),
        (annotations_changed, {}, {}, False),
        (resource_version_changed, {"resource_version": "1"}, {"resource_version": "2"}, True),
        (resource_version_changed, {"resource_version": "1"}, {"resource_version": "1"}, False),
        (has_label("a"), {"labels": {"a": "b"}}, {}, False),
        (has_label("a"), {}, {"labels": {"a": ""}}, True),
        (has_label("a", "b"), {}, {"labels": {"a": "c"}}, False),
        (in_namespace("default", "other"), {}, {}, True),
        (in_namespace("other"), {}, {}, False),
        (any_of(labels_changed, generation_changed), {}, {"generation": 2}, True),
        (all_of(labels_changed, generation_changed), {}, {"generation": 2}, False),
        (negate(labels_changed), {}, {}, True),
    ],
)
def test_updates_that_count(
    predicate: Predicate[KubeObject], old: dict[str, Any], new: dict[str, Any], passes: bool
) -> None:
    assert predicate.update(pod(**old), pod(**new)) is passes


def test_a_predicate_of_changes_lets_creates_and_deletes_through() -> None:
    assert generation_changed.create(pod())
    assert generation_changed.delete(pod())
    assert not has_label("a").create(pod())
    assert not all_of(has_label("a"), generation_changed).create(pod())
    assert any_of(has_label("a"), generation_changed).delete(pod())
    assert not negate(any_of(has_label("a"), generation_changed)).create(pod())


# --- handlers -------------------------------------------------------------------------------------


def owned_by(*owners: EphemeralRunnerSet, controller: bool = True) -> Pod:
    refs = [SCHEME.owner_reference(owner, controller=controller) for owner in owners]
    return pod(owner_references=refs)


def test_an_owner_is_found_by_group_and_kind() -> None:
    owned = owned_by(runner_set())
    handler = enqueue_owner(EphemeralRunnerSet)
    assert list(handler(owned, SCHEME)) == [NamespacedName("default", "set")]
    assert list(enqueue_owner(EphemeralRunner)(owned, SCHEME)) == []


def test_owners_that_do_not_control_count_only_when_asked_for() -> None:
    owned = owned_by(runner_set("a"), runner_set("b"), controller=False)
    assert list(enqueue_owner(EphemeralRunnerSet)(owned, SCHEME)) == []
    everyone = enqueue_owner(EphemeralRunnerSet, controller_only=False)
    assert [key.name for key in everyone(owned, SCHEME)] == ["a", "b"]


@simulated
async def test_an_object_that_changes_its_owner_concerns_both() -> None:
    queue = WorkQueue[NamespacedName]()
    handler = EnqueueingHandler(queue, enqueue_owner(EphemeralRunnerSet), SCHEME)
    handler.on_update(owned_by(runner_set("old")), owned_by(runner_set("new")))
    assert [(await queue.get()).name, (await queue.get()).name] == ["new", "old"]


@simulated
async def test_events_that_no_predicate_wants_enqueue_nothing() -> None:
    queue = WorkQueue[NamespacedName]()
    handler = EnqueueingHandler[Pod](
        queue, enqueue_self, SCHEME, [has_label("wanted"), generation_changed]
    )
    handler.on_add(pod(), initial=False)
    handler.on_update(pod(labels={"wanted": ""}), pod(labels={"wanted": ""}))
    handler.on_delete(pod())
    assert len(queue) == 0
    handler.on_add(pod(labels={"wanted": ""}), initial=True)
    assert await queue.get() == NamespacedName("default", "pod")


@simulated
async def test_a_mapped_event_enqueues_what_the_function_says_once() -> None:
    queue = WorkQueue[NamespacedName]()
    key = NamespacedName("x", "y")

    def everything(_pod: Pod) -> list[NamespacedName]:
        return [key, key]

    EnqueueingHandler(queue, enqueue_mapped(everything), SCHEME).on_delete(pod())
    assert (len(queue), await queue.get()) == (1, key)


@simulated
async def test_a_function_that_returns_one_key_does_not_enqueue_its_two_halves() -> None:
    queue = WorkQueue[NamespacedName]("greeter")

    def one(_pod: Pod) -> Any:
        return NamespacedName("x", "y")

    handler = EnqueueingHandler(queue, enqueue_mapped(one), SCHEME)
    with pytest.raises(TypeError, match="handler of controller greeter>: 'x' is no NamespacedName"):
        handler.on_delete(pod())
    assert len(queue) == 0


# --- ownership ------------------------------------------------------------------------------------


def test_the_controller_reference_names_the_owner() -> None:
    owned, owner = pod(), runner_set()
    set_controller_reference(owner, owned, SCHEME)
    reference = controller_of(owned)
    assert reference is not None
    assert (reference.api_version, reference.kind, reference.name, reference.uid) == (
        "actions.github.com/v1alpha1",
        "EphemeralRunnerSet",
        "set",
        "uid-set",
    )
    assert reference.controller
    assert reference.block_owner_deletion
    assert is_controlled_by(owned, owner)
    assert not is_controlled_by(owned, runner_set("other"))


def test_setting_it_again_changes_nothing_and_other_owners_stay() -> None:
    owned = owned_by(runner_set("friend"), controller=False)
    for _ in range(2):
        set_controller_reference(runner_set(), owned, SCHEME)
    assert [ref.name for ref in owned.metadata.owner_references] == ["friend", "set"]


def test_a_namesake_with_another_uid_does_not_control() -> None:
    owned, owner = pod(), runner_set()
    set_controller_reference(owner, owned, SCHEME)
    reborn = runner_set()
    reborn.metadata.uid = "another"
    assert not is_controlled_by(owned, reborn)
    with pytest.raises(AlreadyOwned, match=r"EphemeralRunnerSet set \(uid uid-set\) already does"):
        set_controller_reference(reborn, owned, SCHEME)


def test_an_owner_in_another_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="other/set cannot own default/pod"):
        set_controller_reference(runner_set(namespace="other"), pod(), SCHEME)


def test_an_owner_without_a_uid_is_refused() -> None:
    owner = runner_set()
    owner.metadata.uid = ""
    with pytest.raises(ValueError, match="has no uid yet"):
        set_controller_reference(owner, pod(), SCHEME)


def test_nobody_controls_an_orphan() -> None:
    assert controller_of(pod()) is None
    assert controller_of(owned_by(runner_set(), controller=False)) is None


# --- finalizers -----------------------------------------------------------------------------------


def test_all_missing_finalizers_are_added_at_once() -> None:
    lazy = LazyCopy(pod(finalizers=["theirs", "a"]))
    assert missing_finalizers(lazy.obj, "a", "b", "c") == ("b", "c")
    assert add_finalizers(lazy, "a", "b", "c")
    assert lazy.obj.metadata.finalizers == ["theirs", "a", "b", "c"]
    assert not add_finalizers(lazy, "a", "b", "c")


def test_nothing_is_copied_when_no_finalizer_is_missing_or_there() -> None:
    lazy = LazyCopy(pod(finalizers=["a"]))
    assert not add_finalizers(lazy, "a")
    assert not remove_finalizers(lazy, "b")
    assert not lazy.is_mutated


def test_an_object_that_is_being_deleted_gets_no_new_finalizer() -> None:
    lazy = LazyCopy(pod(deletion_timestamp=NOW))
    assert not add_finalizers(lazy, "a")
    assert lazy.diff() == {}


def test_only_our_finalizers_are_removed() -> None:
    lazy = LazyCopy(pod(finalizers=["a", "theirs", "b"]))
    assert remove_finalizers(lazy, "a", "b", "never-there")
    assert lazy.diff() == {"metadata": {"finalizers": ["theirs"]}}


# --- rate limiters, clock -------------------------------------------------------------------------


def test_backoff_doubles_per_item_up_to_the_cap() -> None:
    limiter = ExponentialBackoff[str](base=0.005, cap=1000)
    assert [limiter.when("a") for _ in range(3)] == [0.005, 0.01, 0.02]
    assert limiter.when("b") == 0.005
    for _ in range(2000):
        limiter.when("a")
    assert limiter.when("a") == 1000
    limiter.forget("a")
    assert limiter.when("a") == 0.005


def test_jitter_makes_delays_longer_by_at_most_its_share() -> None:
    limiter = ExponentialBackoff[int](base=1, jitter=0.5, random=random.Random(1))
    delays = [limiter.when(item) for item in range(100)]
    assert 1 <= min(delays) < 1.1
    assert 1.4 < max(delays) <= 1.5


@simulated
async def test_a_bucket_allows_a_burst_and_then_a_rate() -> None:
    bucket = TokenBucket[str](qps=2, burst=3)
    assert [bucket.when("a") for _ in range(5)] == [0, 0, 0, 0.5, 1.0]
    await asyncio.sleep(1.0)
    assert bucket.when("a") == 0.5
    await asyncio.sleep(3600)
    assert [bucket.when("a") for _ in range(4)] == [0, 0, 0, 0.5]


@simulated
async def test_a_token_is_taken_only_if_there_is_one() -> None:
    bucket = TokenBucket[str](qps=1, burst=1)
    assert [bucket.take(), bucket.take(), bucket.take()] == [True, False, False]
    await asyncio.sleep(1)
    assert bucket.take()


@simulated
async def test_the_strictest_limiter_wins() -> None:
    limiter = MaxOf[str](ExponentialBackoff(base=1), TokenBucket(qps=0.1, burst=1))
    assert [limiter.when("a"), limiter.when("a")] == [1, 10]
    assert limiter.num_requeues("a") == 2
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0


def test_a_bucket_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"TokenBucket\(qps=0, burst=1\)"):
        TokenBucket[str](qps=0, burst=1)


def test_micro_time_has_six_digits_in_utc() -> None:
    assert micro_time(NOW) == "2025-01-01T00:00:00.000000Z"
    there = datetime(2025, 1, 1, 2, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert micro_time(there) == "2025-01-01T00:00:00.000005Z"
