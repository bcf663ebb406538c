"""Tells a person what went wrong, and how to see it again."""

from __future__ import annotations

from arc_controller.testing.simulation.run import Outcome

SHOWN = 60


def report(outcome: Outcome, whole: Outcome | None = None) -> str:
    """The violation, the plan that led to it and the last things that happened.

    ``whole`` is the outcome of the seed's whole plan, if `outcome` is of a shorter one.
    """
    violation, plan = outcome.violation, outcome.plan
    if violation is None:
        return f"seed {plan.seed}: all well, {outcome.jobs}"
    lines = [f"seed {plan.seed} violates: {violation}", ""]
    if whole is not None and whole is not outcome:
        left_out = len(whole.plan.actions) - len(plan.actions)
        lines.append(f"The shortest history that still fails ({left_out} actions left out):")
    lines += [str(plan), "", "The last things that happened:"]
    lines += [str(entry) for entry in outcome.history[-SHOWN:]]
    lines += ["", f"Replay: make simulation SEED={plan.seed}"]
    if whole is not None and whole is not outcome:
        lines.append("or, for the short history: make simulation PLAN=FILE with this in FILE:")
        lines.append(plan.to_json().decode())
    return "\n".join(lines)
