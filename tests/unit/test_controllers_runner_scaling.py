"""Sorting runners, expectations and the scaling gate, and making many calls at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_controller.api.v1alpha1 import (
    Annotation,
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerSetSpec,
    EphemeralRunnerStatus,
    Phase,
    Proxy,
)
from arc_controller.controllers.expectations import (
    LINGER,
    LINGER_EACH,
    LONGEST_LINGER,
    VERIFY_AFTER,
    Expectations,
    Request,
)
from arc_controller.controllers.runner_fanout import each, raise_first
from arc_controller.controllers.runner_sorting import (
    SortedRunners,
    patch_id_of,
    revision_of,
    sort_runners,
)
from arc_controller.controllers.runner_template import (
    build_proxy_secret,
    build_runner,
    proxy_secret_key,
    runner_name,
)
from arc_controller.runtime.objects import ObjectMeta
from arc_controller.testing.loop import simulated

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def runner(
    name: str,
    phase: str = "",
    *,
    age: float = 0.0,
    revision: int | str | None = None,
    patch_id: int | str | None = None,
    job: str = "",
    deleting: bool = False,
) -> EphemeralRunner:
    annotations = {}
    if revision is not None:
        annotations[Annotation.ACTIONABLE_REVISION] = str(revision)
    if patch_id is not None:
        annotations[Annotation.PATCH_ID] = str(patch_id)
    return EphemeralRunner(
        metadata=ObjectMeta(
            name=name,
            namespace="ci",
            uid=f"uid-{name}",
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=NOW if deleting else None,
            annotations=annotations,
        ),
        status=EphemeralRunnerStatus(phase=phase, job_id=job),
    )


def names(runners: list[EphemeralRunner]) -> list[str]:
    return [r.metadata.name for r in runners]


# --- sorting ------------------------------------------------------------------------------------


def test_runners_are_sorted_by_phase_and_deleting_comes_first() -> None:
    result = sort_runners(
        [
            runner("none"),
            runner("pending", Phase.PENDING),
            runner("running", Phase.RUNNING),
            runner("finished", Phase.SUCCEEDED),
            runner("failed", Phase.FAILED),
            runner("outdated", Phase.OUTDATED, revision=4),
            runner("stale", Phase.OUTDATED, revision=3),
            runner("deleting", Phase.RUNNING, deleting=True),
            runner("removed", Phase.PENDING),
        ],
        4,
        {"uid-removed"},
    )
    assert names(result.deleting) == ["deleting", "removed"]
    assert names(result.pending) == ["none", "pending"]
    assert names(result.running) == ["running"]
    assert names(result.finished) == ["finished"]
    assert names(result.failed) == ["failed"]
    assert names(result.outdated) == ["outdated"]
    assert names(result.stale_outdated) == ["stale"]
    assert result.total == 4
    assert result.count == 9


@pytest.mark.parametrize(
    "revision, applied, stale",
    [(3, 4, True), (4, 4, False), (5, 4, False), (None, 0, False), (None, 1, True),
     ("garbage", 0, False), ("garbage", 1, True), ("", 1, True)],
)  # fmt: skip
def test_a_runner_is_stale_by_its_revision(
    revision: int | str | None, applied: int, stale: bool
) -> None:
    result = sort_runners([runner("r", Phase.OUTDATED, revision=revision)], applied)
    assert bool(result.stale_outdated) == stale
    assert bool(result.outdated) == (not stale)


def test_idle_runners_go_pending_before_running_and_oldest_first() -> None:
    result = sort_runners(
        [
            runner("young", Phase.PENDING, age=1),
            runner("old", Phase.PENDING, age=9),
            runner("busy", Phase.RUNNING, age=99, job="j"),
            runner("running", Phase.RUNNING, age=99),
            runner("with a job already", Phase.PENDING, age=99, job="j"),
        ],
        0,
    )
    assert names(result.idle) == ["old", "young", "running"]


def test_the_newest_patch_id_is_that_of_the_newest_runner_of_the_revision() -> None:
    runners = [
        runner("former life", Phase.RUNNING, age=9, revision=1, patch_id=57),
        runner("a", age=5, revision=1, patch_id=1),
        runner("b", age=3, revision=1, patch_id=2, deleting=True),
        runner("b2", age=3, revision=1, patch_id=1),
        runner("other revision", age=1, revision=0, patch_id=9),
    ]
    assert sort_runners(runners, 1).newest_patch_id(1) == 2
    assert sort_runners(runners, 1).newest_patch_id(0) == 9
    assert sort_runners(runners, 1).newest_patch_id(2) is None


phases = st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Outdated", "Odd"])
some_runners = st.lists(
    st.builds(
        runner,
        st.from_regex(r"[a-z]{8}", fullmatch=True),
        phases,
        age=st.floats(0, 1e6),
        revision=st.integers(-1, 5) | st.text(max_size=3),
        patch_id=st.integers(0, 9) | st.text(max_size=3),
        job=st.sampled_from(["", "j"]),
        deleting=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda r: r.metadata.name,
)


@settings(deadline=None)
@given(some_runners, st.integers(0, 5), st.randoms())
def test_every_runner_is_in_exactly_one_list_whatever_the_order(
    runners: list[EphemeralRunner], applied: int, random: Random
) -> None:
    first = sort_runners(runners, applied)
    assert sorted(names(list(first))) == sorted(names(runners))
    shuffled = random.sample(runners, len(runners))
    again: SortedRunners = sort_runners(shuffled, applied)
    assert names(list(again)) == names(list(first))
    assert all(revision_of(r) < applied for r in first.stale_outdated)
    assert all(not r.status.has_job and not r.is_being_deleted for r in first.idle)


# --- expectations -------------------------------------------------------------------------------


def test_what_was_created_is_known_before_the_cache_shows_it() -> None:
    expectations = Expectations()
    expectations.sent("a")
    expectations.created(runner("a"), 0)
    assert names(expectations.complete([], 0)) == ["a"]
    assert names(expectations.complete([runner("a"), runner("b")], 0)) == ["a", "b"]
    assert names(expectations.complete([runner("b")], 0)) == ["b"]


def test_a_creation_without_an_answer_is_settled_by_the_server() -> None:
    expectations = Expectations()
    for name in ("made", "lost", "refused"):
        expectations.sent(name)
    expectations.refused("refused")
    assert expectations.must_ask(0)
    expectations.settle([runner("made"), runner("other")], 0)
    assert not expectations.must_ask(0)
    assert names(expectations.complete([], 0)) == ["made"]


def test_a_created_runner_that_the_cache_never_shows_is_looked_for() -> None:
    expectations = Expectations()
    expectations.sent("a")
    expectations.created(runner("a"), 0)
    assert not expectations.must_ask(VERIFY_AFTER - 1)
    assert expectations.must_ask(VERIFY_AFTER)
    expectations.settle([], VERIFY_AFTER)
    assert expectations.complete([], VERIFY_AFTER) == []


def test_what_was_removed_counts_as_deleting_until_it_is_gone() -> None:
    expectations = Expectations()
    cached = [runner("a"), runner("b")]
    expectations.complete(cached, 0)
    expectations.removed("uid-a")
    assert expectations.removed_uids == {"uid-a"}
    expectations.complete(cached, 0)
    assert expectations.removed_uids == {"uid-a"}
    expectations.complete(cached[1:], 0)
    assert expectations.removed_uids == set()


def test_a_runner_that_went_away_by_itself_keeps_its_place_for_a_moment() -> None:
    expectations = Expectations()
    expectations.complete([runner("a"), runner("b"), runner("c")], 0)
    expectations.removed("uid-b")
    expectations.complete([runner("c")], 10)
    places, left = expectations.lingering(10)
    assert places == 1
    assert left == pytest.approx(LINGER + LINGER_EACH)
    assert expectations.lingering(10.5)[1] == pytest.approx(left - 0.5)
    assert expectations.lingering(10.1 + LINGER) == (0, 0.0)


def test_the_more_go_away_the_longer_their_places_are_kept() -> None:
    expectations = Expectations()
    many = [runner(f"r{number}") for number in range(2000)]
    expectations.complete(many, 0)
    expectations.complete(many[200:], 0)
    places, left = expectations.lingering(0)
    assert places == 200
    assert left == pytest.approx(LINGER + 200 * LINGER_EACH)
    expectations.complete([], 0)
    assert expectations.lingering(0)[0] == 2000
    assert expectations.lingering(LONGEST_LINGER - 0.1)[0] == 1800
    assert expectations.lingering(LONGEST_LINGER) == (0, 0.0)


# --- the gate -----------------------------------------------------------------------------------

REQUEST = Request(generation=3, patch_id=5, replicas=2, revision=0)


@pytest.mark.parametrize("newest, may_act", [(None, True), (4, True), (6, True), (5, False)])
def test_a_request_is_open_unless_the_newest_runner_answers_it(
    newest: int | None, may_act: bool
) -> None:
    assert Expectations().may_act(REQUEST, newest) == may_act


def test_patch_0_is_always_open() -> None:
    expectations, force = Expectations(), REQUEST._replace(patch_id=0)
    expectations.answer(force)
    assert expectations.may_act(force, 0)


def test_an_answered_request_is_closed_until_another_comes_or_it_is_reopened() -> None:
    expectations = Expectations()
    expectations.answer(REQUEST)
    assert not expectations.may_act(REQUEST, None)
    assert expectations.may_act(REQUEST._replace(generation=4), None)
    expectations.reopen()
    assert expectations.may_act(REQUEST, None)


def test_a_request_is_open_although_the_newest_runner_has_its_id_by_chance() -> None:
    expectations = Expectations()
    expectations.see(REQUEST._replace(generation=2, patch_id=0))
    expectations.see(REQUEST)
    assert expectations.may_act(REQUEST, 5)
    expectations.answer(REQUEST)
    assert not expectations.may_act(REQUEST, 5)
    same = REQUEST._replace(generation=4)
    expectations.see(same)
    assert not expectations.may_act(same, 5)


def test_a_request_that_was_there_before_us_is_judged_by_the_newest_runner() -> None:
    expectations = Expectations()
    expectations.see(REQUEST)
    expectations.see(REQUEST._replace(generation=4))
    assert not expectations.may_act(REQUEST, 5)


def test_places_of_a_request_that_was_there_before_us_are_kept_for_a_moment() -> None:
    expectations = Expectations()
    expectations.see(REQUEST)
    expectations.inherit(2, REQUEST, 10.0)
    count, left = expectations.lingering(10.0)
    assert count == 2
    assert left == pytest.approx(LINGER + 2 * LINGER_EACH)
    assert expectations.lingering(12.0) == (0, 0.0)
    later = REQUEST._replace(generation=4, replicas=9)
    expectations.see(later)
    expectations.inherit(9, later, 12.0)
    assert expectations.lingering(12.0) == (0, 0.0)


def test_a_request_that_is_only_half_answered_stays_open() -> None:
    expectations = Expectations()
    expectations.owe(REQUEST)
    assert expectations.may_act(REQUEST, 5)
    assert not expectations.may_act(REQUEST._replace(generation=4), 5)
    expectations.answer(REQUEST)
    assert not expectations.may_act(REQUEST, 5)


# --- what a set makes ---------------------------------------------------------------------------


def a_set(name: str = "linux", namespace: str = "ci") -> EphemeralRunnerSet:
    return EphemeralRunnerSet(
        metadata=ObjectMeta(name=name, namespace=namespace, uid="u"),
        spec=EphemeralRunnerSetSpec(patch_id=3, actionable_revision=2),
    )


@settings(deadline=None)
@given(st.from_regex(r"[a-z][a-z0-9.-]{0,200}[a-z0-9]", fullmatch=True), st.integers())
def test_names_of_runners_fit_and_are_reproducible(name: str, seed: int) -> None:
    made = runner_name(a_set(name), Random(seed))
    assert made == runner_name(a_set(name), Random(seed))
    assert len(made) <= 63
    head, _, suffix = made.rpartition("-runner-")
    assert name.startswith(head)
    assert len(suffix) == 5


def test_a_runner_carries_request_and_revision() -> None:
    made = build_runner(a_set(), "linux-runner-abcde")
    assert (patch_id_of(made), revision_of(made)) == (3, 2)


def test_proxy_secrets_of_two_sets_of_the_same_name_differ() -> None:
    first, second = proxy_secret_key(a_set()), proxy_secret_key(a_set(namespace="other"))
    assert first.name != second.name
    assert first.namespace == "ci"


def test_what_is_made_says_what_it_is_part_of_whatever_labels_are_excluded() -> None:
    excluded = ("app.kubernetes.io/", "actions.github.com/")
    for metadata, component in (
        (build_runner(a_set(), "r", excluded).metadata, "runner"),
        (build_proxy_secret(a_set(), {}, excluded).metadata, "runner-set"),
    ):
        assert metadata.labels["app.kubernetes.io/part-of"] == "gha-runner-scale-set"
        assert metadata.labels["app.kubernetes.io/component"] == component


def test_a_runner_refers_to_the_proxy_secret_only_with_a_proxy() -> None:
    owner = a_set()
    assert build_runner(owner, "r").spec.proxy_secret_ref == ""
    owner.spec.ephemeral_runner_spec.proxy = Proxy(no_proxy=["x"])
    made = build_runner(owner, "r").spec
    assert made.proxy_secret_ref == build_proxy_secret(owner, {}).metadata.name
    assert owner.spec.ephemeral_runner_spec.proxy_secret_ref == ""


# --- many calls at once -------------------------------------------------------------------------


@simulated
async def test_each_keeps_the_order_and_one_failure_stops_nobody() -> None:
    async def call(number: int) -> int:
        await asyncio.sleep(10 - number)
        if number == 3:
            raise ValueError("three")
        return number * 2

    results = await each(range(10), call, at_once=4)
    assert [r for r in results if isinstance(r, int)] == [0, 2, 4, 8, 10, 12, 14, 16, 18]
    assert isinstance(results[3], ValueError)
    with pytest.raises(ValueError, match="three"):
        raise_first(results)
    raise_first(results[:3])


@simulated
async def test_each_has_no_more_than_so_many_on_their_way() -> None:
    running = most = 0

    async def call(_number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    started = asyncio.get_running_loop().time()
    await each(range(10), call, at_once=4)
    assert most == 4
    assert asyncio.get_running_loop().time() - started == 3
    assert await each([], call) == []


@simulated
async def test_each_makes_no_more_calls_once_it_is_cancelled() -> None:
    begun = ended = 0

    async def call(_number: int) -> None:
        nonlocal begun, ended
        begun += 1
        try:
            await asyncio.sleep(1)
        finally:
            ended += 1

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await each(range(10), call, at_once=3)
    await asyncio.sleep(10)
    assert (begun, ended) == (3, 3)
