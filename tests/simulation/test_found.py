"""What the simulation has found: the shortest history of each kind of trouble, kept for good.

Each test failed once. Its name says what must be true, its docstring what went wrong.
"""

from __future__ import annotations

import pytest

from arc_controller.testing.simulation import Plan, report, run_plan
from arc_controller.testing.simulation import plan as p


def all_well(
    *actions: p.AnyAction, seed: int = 1, length: float = 400.0, managers: int = 1
) -> None:
    outcome = run_plan(Plan(seed=seed, length=length, managers=managers, actions=actions))
    if outcome.failed:
        pytest.fail(report(outcome), pytrace=False)


def a_late_standby_takes_over(stale: str, seed: int) -> None:
    """The leader makes three runners, whose pods wait for a node, and dies; the other manager's
    cache of one resource is as old as before that."""
    all_well(
        p.CreateScaleSet(at=1.0, name="linux", least=0, most=6),
        p.StaleCache(at=90.0, lasts=250.0, resources=(stale,), index=1),
        p.PodTrouble(at=100.0, lasts=100.0, share=0.0, stuck=1.0),
        p.QueueJobs(at=110.0, name="linux", count=3, duration=100.0),
        p.KillManager(at=130.0, index=0, down=150.0),
        seed=seed,
        managers=2,
    )


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_new_leader_whose_cache_lacks_runners_makes_no_others(seed: int) -> None:
    """It created as many again: only its predecessor's cache and memory knew of them."""
    a_late_standby_takes_over("ephemeralrunners", seed)


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_new_leader_whose_cache_has_an_old_request_does_not_scale_down(seed: int) -> None:
    """Its set still said "0 runners, force it", which had been overtaken by "3, request 4"."""
    a_late_standby_takes_over("ephemeralrunnersets", seed)


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_new_leader_whose_cache_lacks_pods_does_not_give_busy_runners_up(seed: int) -> None:
    """It took the job for lost because its cache had no pod of the runner."""
    a_late_standby_takes_over("pods", seed)


def test_a_new_leader_does_not_register_runners_that_only_its_cache_has() -> None:
    """It registered each of them again, made a secret and a pod that were collected at once, and
    began anew: a storm that ended with the cache's sleep and left every registration behind."""
    all_well(
        p.CreateScaleSet(at=1.0, name="linux", least=2, most=6),
        p.StaleCache(at=90.0, lasts=250.0, resources=("ephemeralrunners",), index=1),
        p.Edit(at=100.0, name="linux", what="limits", least=0, most=6),
        p.KillManager(at=130.0, index=0, down=150.0),
        managers=2,
    )


def test_two_leaders_that_register_the_same_runner_leave_no_registration_behind() -> None:
    """The id in the status was the one leader's, the registration that was left the other's: it was
    removed by id, which says "already gone", and stayed."""
    all_well(
        p.CreateScaleSet(at=1.2, name="linux", least=2, most=2),
        p.QueueJobs(at=455.9, name="linux", count=4, duration=4.2, direct=True),
        p.QueueJobs(at=767.0, name="linux", count=2, duration=85.9, direct=True),
        p.SecondLeader(at=781.5, lasts=156.8),
        p.QueueJobs(at=924.0, name="linux", count=5, duration=88.8),
        seed=18,
        length=1200.0,
    )
