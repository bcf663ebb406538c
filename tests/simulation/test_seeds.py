"""The system under faults: each seed is one history.

``SEEDS=N`` simulates the first N seeds, ``SEED=K`` that one alone, ``PLAN=FILE`` a plan that a
failure printed. A failing seed prints the shortest history that still fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arc_controller.testing.simulation import Plan, draw, report, run_plan, shorten

SEEDS = 12
TRIES = 60
"""How many simulations the search for a shorter history may take."""


def plans() -> list[Plan]:
    if path := os.environ.get("PLAN"):
        return [Plan.from_json(Path(path).read_bytes())]
    if seed := os.environ.get("SEED"):
        return [draw(int(seed))]
    return [draw(seed) for seed in range(int(os.environ.get("SEEDS", SEEDS)))]


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: f"seed{plan.seed}")
def test_nothing_that_must_not_be_happens_and_everything_comes_right(plan: Plan) -> None:
    outcome = run_plan(plan)
    if outcome.failed:
        pytest.fail(report(shorten(outcome, tries=TRIES), outcome), pytrace=False)
