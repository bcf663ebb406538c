"""Objects, conditions and label selectors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.core import Pod
from arc_controller.runtime.objects import (
    Condition,
    LabelSelector,
    NamespacedName,
    ObjectMeta,
    find_condition,
    set_condition,
    to_builtins,
)

NOW = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def test_a_key_reads_as_kubectl_writes_it() -> None:
    assert str(NamespacedName("ns", "a")) == "ns/a"
    assert str(NamespacedName("", "node")) == "node"


def test_an_object_knows_its_key_and_whether_it_is_being_deleted() -> None:
    pod = Pod(metadata=ObjectMeta(name="a", namespace="ns", uid="u"))
    assert (pod.key, pod.uid, pod.is_being_deleted) == (NamespacedName("ns", "a"), "u", False)
    pod.metadata.deletion_timestamp = NOW
    assert pod.is_being_deleted


def test_builtins_are_what_goes_over_the_wire() -> None:
    meta = ObjectMeta(name="a", creation_timestamp=NOW, labels={"x": "y"})
    assert to_builtins(meta) == {
        "name": "a",
        "creationTimestamp": "2025-01-02T03:04:05Z",
        "labels": {"x": "y"},
    }


def test_a_conditions_transition_time_moves_only_with_its_status() -> None:
    conditions: list[Condition] = []

    def ready(status: str, reason: str, now: datetime) -> bool:
        return set_condition(conditions, Condition("Ready", status, reason), now)

    assert ready("False", "Starting", NOW)
    assert not ready("False", "Starting", LATER)
    assert ready("False", "StillStarting", LATER)
    assert conditions[0].last_transition_time == NOW
    assert ready("True", "Started", LATER)
    assert conditions[0].last_transition_time == LATER
    assert len(conditions) == 1
    assert find_condition(conditions, "Ready") is conditions[0]
    assert find_condition(conditions, "Other") is None


def test_the_time_of_a_transition_has_whole_seconds_as_kubernetes_times_do() -> None:
    conditions: list[Condition] = []
    ready = Condition(type="Ready", status="True", reason="Started")
    assert set_condition(conditions, ready, NOW + timedelta(milliseconds=999))
    assert conditions[0].last_transition_time == NOW


# --- label selectors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("", {"a": "1"}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "1"}, True),
        ("a = 1", {"a": "1"}, True),
        ("a=1", {"a": "2"}, False),
        ("a=1", {}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=1", {"a": "1"}, False),
        ("a!=1", {"a": "2"}, True),
        ("a!=1", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("a in (1,2)", {"a": "2"}, True),
        ("a in (1, 2)", {"a": "3"}, False),
        ("a in(1)", {"a": "1"}, True),
        ("a in (1)", {}, False),
        ("a notin (1,2)", {"a": "3"}, True),
        ("a notin (1,2)", {"a": "1"}, False),
        ("a notin (1,2)", {}, True),
        ("a in (,1)", {"a": ""}, True),
        ("a=1,b!=2", {"a": "1"}, True),
        ("a=1,b!=2", {"a": "1", "b": "2"}, False),
        ("a=1,b in (x,y),!c", {"a": "1", "b": "y"}, True),
        ("in=notin", {"in": "notin"}, True),
        ("app.kubernetes.io/part-of=x", {"app.kubernetes.io/part-of": "x"}, True),
    ],
)
def test_a_selector_selects_as_the_documentation_says(
    text: str, labels: dict[str, str], matches: bool
) -> None:
    assert LabelSelector.parse(text).matches(labels) is matches


@pytest.mark.parametrize(
    "text",
    [
        *("=x", "!=x", "a in x", "a in (x", "a x", "a>1", "a=b=c", "a,,b", "!", "a in ((x))"),
        *("a=b c", "-a=x", "a=x-", "a/b/c=x", f"a={'x' * 64}", "a in (x y)", "a=x,"),
    ],
)
def test_a_selector_that_makes_no_sense_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        LabelSelector.parse(text)


def test_a_label_that_cannot_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'a b' cannot be the value of label app"):
        LabelSelector({"app": "a b"})
    with pytest.raises(ValueError, match="'a,b' cannot be the key"):
        LabelSelector({"a,b": "x"})


NAMES = st.from_regex(r"\A[a-z]([a-z0-9._-]{0,6}[a-z0-9])?\Z")
VALUES = NAMES | st.just("")
REQUIREMENTS = st.one_of(
    st.builds("{}={}".format, NAMES, VALUES),
    st.builds("{} != {}".format, NAMES, VALUES),
    st.builds("!{}".format, NAMES),
    NAMES,
    st.builds(
        lambda key, operator, values: f"{key} {operator} ({', '.join(values)})",
        NAMES,
        st.sampled_from(["in", "notin"]),
        st.lists(VALUES, min_size=1, max_size=3),
    ),
)
LABELS = st.dictionaries(NAMES, VALUES, max_size=3)


@given(st.lists(REQUIREMENTS, max_size=4), LABELS)
def test_a_selectors_text_means_the_same_selector(
    requirements: list[str], labels: dict[str, str]
) -> None:
    selector = LabelSelector.parse(",".join(requirements))
    again = LabelSelector.parse(str(selector))
    assert again == selector
    assert hash(again) == hash(selector)
    assert again.matches(labels) is selector.matches(labels)
    assert repr(selector) == f"LabelSelector.parse({str(selector)!r})"


@given(LABELS, LABELS)
def test_a_selector_of_labels_is_the_equality_of_each(
    wanted: dict[str, str], labels: dict[str, str]
) -> None:
    selector = LabelSelector(wanted)
    assert selector.matches(labels) is (wanted.items() <= labels.items())
    assert LabelSelector.parse(",".join(f"{k}={v}" for k, v in wanted.items())) == selector


def test_the_order_of_requirements_does_not_matter() -> None:
    assert LabelSelector.parse("b=2,a=1") == LabelSelector({"a": "1", "b": "2"})
    assert str(LabelSelector.parse("b in (2,1),a")) == "a,b in (1,2)"
    assert LabelSelector({"a": "1"}) != "a=1"
