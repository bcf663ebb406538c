"""What the simulation has found: the shortest history of each kind of trouble, kept for good.

Each test failed once. Its name says what must be true, its docstring what went wrong.
"""

from __future__ import annotations

import pytest

from arc_controller.testing.simulation import Plan, facts, report, run_plan
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


@pytest.mark.parametrize("seed", [1, 4])
def test_two_leaders_that_register_the_same_runner_leave_no_registration_behind(seed: int) -> None:
    """The id in the status was the one leader's, the registration that was left the other's: it was
    removed by id, which says "already gone", and stayed."""
    all_well(
        p.CreateScaleSet(at=1.0, name="linux", least=1, most=6),
        p.SecondLeader(at=20.0, lasts=200.0),
        p.ApiTrouble(at=20.0, lasts=150.0, who="manager", how="slow", rate=0.3, seconds=5.0),
        p.QueueJobs(at=109.3, name="linux", count=4, duration=17.9),
        seed=seed,
        length=250.0,
    )


def test_a_runner_that_another_leader_let_go_is_not_left_registered() -> None:
    """The other leader, whose cache was late, registered a runner once more just after this one had
    taken it back; its next write met 404, and that was all."""
    all_well(
        p.CreateScaleSet(at=2.134, name="linux", least=1, most=1),
        p.LabelObject(at=281.13, resource=facts.SCALE_SETS, pick=0.417),
        p.Edit(at=290.913, name="linux", what="metadata", most=1),
        p.QueueJobs(at=893.972, name="linux", count=6, duration=33.1),
        p.OutdatedVersion(at=913.882, lasts=110.522),
        p.HurtPod(at=2926.414, kind="runner", how="drain", pick=0.565),
        p.CancelJobs(at=3353.712, count=3),
        p.WatchTrouble(at=3363.805, lasts=130.726, how="late", seconds=5.0),
        p.BreakWatches(at=3451.906),
        p.Edit(at=3474.102, name="linux", what="runner-metadata", least=2),
        p.WatchTrouble(at=3481.463, lasts=118.537, how="gone", rate=0.9),
        p.SecondLeader(at=3515.643, lasts=56.057),
        seed=2028,
        length=3600.0,
    )


def test_a_new_leader_does_not_register_runners_whose_pods_only_its_cache_has() -> None:
    """Runner and pod were gone for long. The pod had not started when its cache fell asleep and the
    runner had no id then: so it was registered, one more than maxRunners."""
    all_well(
        p.CreateScaleSet(at=1.0, name="linux", least=1, most=2),
        p.QueueJobs(at=17.813070288592563, name="linux", count=4, duration=5.884053604666409),
        p.StaleCache(
            at=35.502066959558725,
            lasts=681.5786817572973,
            resources=(
                "ephemeralrunners",
                "ephemeralrunnersets",
                "pods",
                "autoscalingrunnersets",
            ),
            index=1,
        ),
        p.QueueJobs(at=60.144881681132915, name="linux", count=1, duration=29.587462552560066),
        p.QueueJobs(
            at=62.987750366378705,
            name="linux",
            count=3,
            duration=74.60483461845642,
            direct=True,
        ),
        p.KillManager(at=94.0945884327044, index=0, requests=2, down=20.0),
        seed=79013,
        length=722.0807487168561,
        managers=2,
    )
