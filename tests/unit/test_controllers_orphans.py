"""By their names runners without an owner are told to whom they belonged."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.v1alpha1 import EphemeralRunnerSet
from arc_controller.controllers.runner_template import is_runner_name, runner_name
from arc_controller.runtime.objects import ObjectMeta


def set_called(name: str) -> EphemeralRunnerSet:
    return EphemeralRunnerSet(metadata=ObjectMeta(name=name, namespace="runners"))


NAMES = st.from_regex(r"[a-z]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.integers())
def test_every_name_that_a_set_gives_is_one_of_its_own(name: str, seed: int) -> None:
    runner_set = set_called(name)
    assert is_runner_name(runner_set, runner_name(runner_set, Random(seed)))


def test_runners_of_a_set_with_a_longer_name_are_not_its_own() -> None:
    longer = set_called("linux-runner")
    assert not is_runner_name(set_called("linux"), runner_name(longer, Random(1)))
    assert not is_runner_name(set_called("linux"), "linux-runner-by-hand")
