"""A whole cluster in simulated time, with faults: one seed is one history.

`draw` makes a `Plan` of a seed, `run_plan` plays and judges it, `shorten` finds the shortest plan
that still fails. From the command line: ``python -m arc_controller.testing.simulation --help``.
"""

from arc_controller.testing.simulation.draw import draw
from arc_controller.testing.simulation.invariants import ALL, Invariant, Violation
from arc_controller.testing.simulation.plan import Plan
from arc_controller.testing.simulation.report import report
from arc_controller.testing.simulation.run import Outcome, run_plan
from arc_controller.testing.simulation.shorten import shorten

__all__ = [
    "ALL",
    "Invariant",
    "Outcome",
    "Plan",
    "Violation",
    "draw",
    "report",
    "run_plan",
    "shorten",
]
