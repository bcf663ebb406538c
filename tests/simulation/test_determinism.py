"""One seed is one history, bit for bit, wherever and however often it is told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from arc_controller.testing.simulation import Plan, draw, run_plan
from arc_controller.testing.simulation import plan as p

STORY = Plan(
    seed=5,
    length=300.0,
    managers=2,
    actions=(
        p.CreateScaleSet(at=1.0, name="linux", least=1, most=4),
        p.QueueJobs(at=10.0, name="linux", count=5, duration=20.0),
        p.ApiTrouble(at=12.0, lasts=100.0, who="*", how="after", rate=0.2),
        p.WatchTrouble(at=15.0, lasts=100.0, how="break", rate=0.2),
        p.KillManager(at=20.0, index=0, requests=2, effect=True, down=5.0),
        p.CompactHistory(at=30.0),
        p.StopManager(at=60.0, index=1),
        p.HurtPod(at=70.0, kind="runner", how="kill", pick=0.5),
        p.KillListener(at=75.0, pick=0.0),
        p.Edit(at=90.0, name="linux", what="image"),
    ),
)

DIGEST = """
import sys
from arc_controller.testing.simulation import Plan, run_plan
print(run_plan(Plan.from_json(sys.stdin.buffer.read())).digest)
"""


def digest_elsewhere(plan: Plan, hash_seed: str) -> str:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", DIGEST],
        input=plan.to_json(),
        env=environ,
        capture_output=True,
        check=True,
    )
    return ran.stdout.decode().strip()


def test_the_same_plan_gives_the_same_history_twice() -> None:
    first, second = run_plan(STORY), run_plan(STORY)
    assert first.violation is None
    assert first.entries > 300
    assert [str(entry) for entry in first.history] == [str(entry) for entry in second.history]
    assert first.digest == second.digest


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_hashes_of_strings_change_nothing(hash_seed: str) -> None:
    assert digest_elsewhere(STORY, hash_seed) == run_plan(STORY).digest


def test_another_seed_gives_another_history() -> None:
    other = Plan(seed=6, length=STORY.length, managers=2, actions=STORY.actions)
    assert run_plan(other).digest != run_plan(STORY).digest


def test_a_seed_always_draws_the_same_plan() -> None:
    assert draw(17) == draw(17)
    assert draw(17) != draw(18)


def test_a_plan_survives_being_written_down() -> None:
    for seed in range(30):
        plan = draw(seed)
        assert Plan.from_json(plan.to_json()) == plan
