"""A scale set that moves to another config URL, and back, with trouble on its way."""

from __future__ import annotations

import pytest

from arc_controller.testing.simulation import Plan, report, run_plan
from arc_controller.testing.simulation import plan as p

MOVES: tuple[p.AnyAction, ...] = (
    p.CreateScaleSet(at=1.0, name="linux", least=1, most=4),
    p.QueueJobs(at=60.0, name="linux", count=3, duration=90.0, direct=True),
    p.Edit(at=100.0, name="linux", what="url"),
    p.QueueJobs(at=110.0, name="linux", count=2, duration=20.0, direct=True),
    p.Edit(at=300.0, name="linux", what="url"),
    p.Edit(at=310.0, name="linux", what="url"),
)

TROUBLE: dict[str, tuple[p.AnyAction, ...]] = {
    "none": (),
    "the manager dies": (
        p.KillManager(at=100.0, index=0, requests=3, effect=True),
        p.KillManager(at=102.0, index=0, requests=5),
        p.KillManager(at=300.0, index=0, requests=8, effect=True),
    ),
    "the API server": (
        p.ApiTrouble(at=95.0, lasts=100.0, who="manager", how="after", rate=0.3),
        p.ApiTrouble(at=295.0, lasts=100.0, who="manager", how="conflict", rate=0.3),
    ),
    "the service": (
        p.ServiceTrouble(at=95.0, lasts=300.0, calls=("*",), how="fail-after", rate=0.3),
    ),
    "it is deleted": (p.DeleteScaleSet(at=312.0, name="linux"),),
}


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_scale_set_that_moves_leaves_nothing_where_it_was(trouble: str, seed: int) -> None:
    actions = tuple(sorted((*MOVES, *TROUBLE[trouble]), key=lambda action: action.at))
    outcome = run_plan(Plan(seed=seed, length=420.0, actions=actions))
    if outcome.failed:
        pytest.fail(report(outcome), pytrace=False)
