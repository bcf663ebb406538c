"""How many runners a scale set may have, in words."""

from __future__ import annotations

import pytest

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, AutoscalingRunnerSetSpec
from arc_controller.controllers.scale_set import limits_in_words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (None, None, "there may be any number of runners"),
        (2, None, "there may be 2 runners or more"),
        (None, 5, "there may be 0 to 5 runners"),
    ],
)
def test_a_limit_that_nobody_set_is_not_a_number(
    low: int | None, high: int | None, words: str
) -> None:
    spec = AutoscalingRunnerSetSpec(min_runners=low, max_runners=high)
    assert limits_in_words(AutoscalingRunnerSet(spec=spec)) == words
