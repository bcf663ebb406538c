"""Finds the shortest plan that still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

from arc_controller.testing.simulation.plan import AnyAction, Plan
from arc_controller.testing.simulation.run import Outcome, run_plan

Actions = tuple[AnyAction, ...]


def shorten(
    failed: Outcome, *, tries: int = 80, run: Callable[[Plan], Outcome] = run_plan
) -> Outcome:
    """Leave out actions while the same invariant is violated, with at most so many simulations.

    Removes large parts first, then smaller ones, then single actions until none can be missed. What
    comes after the violation goes without a try.
    """
    if failed.violation is None:
        raise ValueError("there is nothing to shorten: this plan does not fail")
    best = failed
    end = failed.violation.at
    actions: Actions = tuple(a for a in failed.plan.actions if a.at <= end)
    part = max(1, len(actions) // 2)
    while tries > 0:
        start, removed = 0, False
        while start < len(actions) and tries > 0:
            fewer = actions[:start] + actions[start + part :]
            tries -= 1
            outcome = run(failed.plan.with_actions(fewer))
            if outcome.violation is not None and outcome.violation.name == failed.violation.name:
                best, actions, removed = outcome, fewer, True
            else:
                start += part
        if part == 1 and not removed:
            break
        part = max(1, part // 2)
    return best
