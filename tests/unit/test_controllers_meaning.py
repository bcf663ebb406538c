"""When two pieces of a spec say the same thing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.v1alpha1 import EphemeralRunnerSpec, Proxy, ProxyServer
from arc_controller.controllers.drift import Unwritable
from arc_controller.controllers.meaning import meaning_hash, same_meaning

NOTHING: tuple[Any, ...] = (None, "", [], {})
scalars = st.one_of(st.text(max_size=4), st.booleans(), st.integers(), st.none())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=4)


@given(values)
def test_a_value_means_what_its_copy_means(value: Any) -> None:
    assert same_meaning(value, copy.deepcopy(value))


@given(values, values)
def test_the_order_of_the_two_does_not_matter(a: Any, b: Any) -> None:
    assert same_meaning(a, b) == same_meaning(b, a)


@given(objects, st.text(min_size=4, max_size=6), st.sampled_from(NOTHING))
def test_a_field_with_nothing_in_it_is_no_field(obj: Any, name: str, nothing: Any) -> None:
    assert same_meaning(obj, {**obj, name: nothing})
    assert same_meaning({"outer": obj}, {"outer": {**obj, name: {"deeper": nothing}}})


@given(objects, st.text(min_size=4, max_size=6), scalars.filter(lambda v: v not in (None, "")))
def test_a_field_with_something_in_it_is_a_difference(obj: Any, name: str, some: Any) -> None:
    assert not same_meaning(obj, {**obj, name: some})


@given(values, values)
def test_the_hashes_are_equal_exactly_when_the_meanings_are(a: Any, b: Any) -> None:
    assert (meaning_hash(a) == meaning_hash(b)) == same_meaning(a, b)


@given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(obj: dict[str, int]) -> None:
    assert same_meaning(obj, dict(reversed(obj.items())))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0, None),
        (False, None),
        (0, False),
        (1, True),
        (1, 1.0),
        ("1", 1),
        ({"hostNetwork": False}, {}),
        (["a"], ["a", ""]),
        (["a", "b"], ["b", "a"]),
        ([{}], []),
    ],
)
def test_these_are_different(a: Any, b: Any) -> None:
    assert not same_meaning(a, b)


def test_structs_are_compared_by_what_they_are_on_the_wire() -> None:
    plain = {"githubConfigUrl": "u", "proxy": {"http": {"url": "p"}}, "spec": {"containers": []}}
    spec = EphemeralRunnerSpec(github_config_url="u", proxy=Proxy(http=ProxyServer(url="p")))
    assert same_meaning(spec, plain)
    assert same_meaning(EphemeralRunnerSpec(proxy=Proxy()), EphemeralRunnerSpec())


def test_what_an_old_server_drops_is_written_once_and_not_for_ever() -> None:
    wanted = EphemeralRunnerSpec(github_config_url="u", github_config_secret="s")
    stored = EphemeralRunnerSpec(github_config_url="u")
    unwritable = Unwritable()
    assert not unwritable.is_known("uid", wanted, stored)
    unwritable.note("uid", wanted, stored)
    assert unwritable.is_known("uid", wanted, stored)
    assert not unwritable.is_known("other", wanted, stored)

    edited = EphemeralRunnerSpec(github_config_url="v")
    assert not unwritable.is_known("uid", wanted, edited), "somebody edited what is stored"
    assert not unwritable.is_known("uid", edited, stored), "something else is wanted now"
