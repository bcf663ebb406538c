"""``python -m arc_controller.testing.simulation``: simulate seeds one after the other."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from arc_controller.testing.simulation import Plan, draw, report, run_plan, shorten


def main() -> int:
    """Exit status 1 if any seed fails."""
    parser = argparse.ArgumentParser(prog="simulation", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--plan", type=Path, help="a plan as JSON instead of a seed")
    parser.add_argument("--shorten", type=int, default=0, metavar="TRIES")
    parser.add_argument("--history", action="store_true", help="print all that happened")
    parser.add_argument("--keep-going", action="store_true", help="after a failure, too")
    options = parser.parse_args()
    plans = (draw(seed) for seed in range(options.seed, options.seed + options.seeds))
    if options.plan is not None:
        plans = (plan for plan in [Plan.from_json(options.plan.read_bytes())])
    failures = 0
    for plan in plans:
        started = time.perf_counter()
        outcome = run_plan(plan)
        took = time.perf_counter() - started
        if options.history:
            print("\n".join(str(entry) for entry in outcome.history))
        print(
            f"seed {plan.seed}: {str(outcome.violation or 'ok')[:700]}  "
            f"[{len(plan.actions)} actions, "
            f"{outcome.seconds:.0f} s simulated in {took:.1f} s, {outcome.entries} entries, "
            f"{outcome.jobs}, {outcome.digest[:12]}]",
            flush=True,
        )
        if not outcome.failed:
            continue
        failures += 1
        if options.shorten:
            print(report(shorten(outcome, tries=options.shorten), outcome))
        if not options.keep_going:
            break
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
