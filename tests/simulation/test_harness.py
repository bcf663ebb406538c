"""An invariant is worth something only if it catches a controller that breaks it.

Each test breaks one thing in the real code and expects the simulation to say which rule that
violates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import pytest
import structlog

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSet, Phase
from arc_controller.controllers import ephemeral_runner_set
from arc_controller.controllers.autoscaling_runner_set import AutoscalingRunnerSetReconciler
from arc_controller.controllers.ephemeral_runner import EphemeralRunnerReconciler
from arc_controller.controllers.ephemeral_runner_set import EphemeralRunnerSetReconciler
from arc_controller.controllers.expectations import Expectations, Request
from arc_controller.controllers.runner_conditions import RunnerConditions
from arc_controller.controllers.runner_course import RunnerCourse
from arc_controller.controllers.runner_pod import build_jit_secret
from arc_controller.controllers.runner_registration import Registrar
from arc_controller.listener.scaler import Scaler
from arc_controller.runtime.client import CachingClient
from arc_controller.runtime.controller import Result
from arc_controller.runtime.errors import AlreadyExists
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.leader import LeaderElector
from arc_controller.runtime.objects import ObjectMeta
from arc_controller.testing.simulation import Outcome, Plan, Violation, ending, run_plan, shorten
from arc_controller.testing.simulation import plan as p

Patch = pytest.MonkeyPatch


def history(*actions: p.AnyAction, length: float = 300.0, managers: int = 1) -> Plan:
    return Plan(seed=1, length=length, managers=managers, actions=actions)


def scale_set(least: int = 0, most: int = 3) -> p.CreateScaleSet:
    return p.CreateScaleSet(at=1.0, name="linux", least=least, most=most)


def jobs(at: float = 10.0, count: int = 2, duration: float = 30.0) -> p.QueueJobs:
    return p.QueueJobs(at=at, name="linux", count=count, duration=duration)


CALM = history(scale_set(least=1), jobs())


def broken(plan: Plan) -> str:
    outcome = run_plan(plan)
    if outcome.violation is None:
        pytest.fail(f"nobody noticed: {outcome.jobs}", pytrace=False)
    return outcome.violation.name


def test_a_calm_day_violates_nothing() -> None:
    outcome = run_plan(CALM)
    assert outcome.violation is None
    assert outcome.jobs == {"completed": 4}


def test_a_patch_without_its_lock_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(LazyCopy, "_locked", lambda self, patch, lock: patch)
    assert broken(CALM) == "no write without its lock"


def test_a_promotion_out_of_a_terminal_phase_is_noticed(monkeypatch: Patch) -> None:
    async def write_job(self: Scaler, runner: LazyCopy[Any], job: Any) -> None:
        runner.mutate().status.phase = Phase.RUNNING
        runner.mutate().status.job_id = job.job_id
        await runner.patch_status(self._client)

    monkeypatch.setattr(Scaler, "_write_job", write_job)
    # The listener of an Outdated set goes before it can do harm.
    monkeypatch.setattr(AutoscalingRunnerSetReconciler, "_is_parked", lambda *_: False)
    plan = history(
        scale_set(),
        p.PodTrouble(at=2.0, lasts=60.0, share=1.0, code=7, seconds=15.0),
        jobs(at=5.0, count=1, duration=200.0),
        p.ServiceEvent(at=60.0, what="redeliver", name="linux"),
    )
    assert broken(plan) == "a runner never leaves a terminal phase"


def test_the_promotion_of_a_runner_that_is_being_deleted_is_noticed(monkeypatch: Patch) -> None:
    async def write_job(self: Scaler, runner: LazyCopy[Any], job: Any) -> None:
        runner.mutate().status.phase = Phase.RUNNING
        runner.mutate().status.job_display_name = str(asyncio.get_running_loop().time())
        await runner.patch_status(self._client)

    monkeypatch.setattr(Scaler, "_write_job", write_job)
    plan = history(
        scale_set(),
        jobs(at=5.0, count=1, duration=200.0),
        p.ApiOutage(at=6.0, lasts=40.0, who="listener"),
        p.DeleteObject(at=30.0, resource="ephemeralrunners.actions.github.com", pick=0.0),
        p.ServiceEvent(at=60.0, what="redeliver", name="linux"),
    )
    assert broken(plan) == "a runner that is being deleted is never promoted to Running"


def test_scaling_down_without_regard_to_jobs_is_noticed(monkeypatch: Patch) -> None:
    async def scale_down(
        self: EphemeralRunnerSetReconciler, runner_set: Any, runners: Any, memory: Any
    ) -> Result:
        for runner in [*runners.pending, *runners.running]:
            await self._client.delete(type(runner), runner.key)
        return Result()

    monkeypatch.setattr(EphemeralRunnerSetReconciler, "_scale_down", scale_down)
    fewer = p.Edit(at=60.0, name="linux", what="limits", least=0, most=1)
    plan = history(scale_set(), jobs(count=3, duration=200.0), fewer)
    assert broken(plan) == "a busy runner is never deleted or unregistered by us"


def test_pods_deleted_under_their_jobs_are_noticed(monkeypatch: Patch) -> None:
    async def no_question(self: Registrar, runner: Any) -> None:
        """Unregistering is skipped, so nobody says that a job still runs."""

    monkeypatch.setattr(Registrar, "unregister", no_question)
    delete = p.DeleteObject(at=60.0, resource="ephemeralrunners.actions.github.com", pick=0.0)
    plan = history(scale_set(), jobs(count=1, duration=200.0), delete)
    assert broken(plan) == "a busy runner is never deleted or unregistered by us"


def test_a_request_with_a_patch_id_that_scales_down_is_noticed(monkeypatch: Patch) -> None:
    scale = EphemeralRunnerSetReconciler._scale

    async def always_down(
        self: EphemeralRunnerSetReconciler, runner_set: Any, runners: Any, memory: Any
    ) -> Result:
        if runners.total > runner_set.obj.spec.replicas:
            return await self._scale_down(runner_set, runners, memory)
        return await scale(self, runner_set, runners, memory)

    monkeypatch.setattr(EphemeralRunnerSetReconciler, "_scale", always_down)
    cancelled = p.CancelJobs(at=456.5, count=4)
    plan = history(scale_set(most=5), jobs(at=450.0, count=4), cancelled, length=600.0)
    monkeypatch.setattr(Scaler, "decide", never_forcing(Scaler.decide))
    assert broken(plan) == "a request with patchID > 0 never scales down"


def never_forcing(decide: Callable[[Scaler, int], int]) -> Callable[[Scaler, int], int]:
    """The listener counts from 1, and nothing but the controller could scale down."""

    def decide_without_zero(self: Scaler, assigned_jobs: int) -> int:
        self._next_patch_id = max(1, self._next_patch_id)
        self._something_happened = True
        return decide(self, assigned_jobs)

    return decide_without_zero


def test_more_runners_than_asked_for_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Expectations, "complete", lambda self, cached, now: list(cached))
    monkeypatch.setattr(Expectations, "answer", lambda self, request: None)
    monkeypatch.setattr(Expectations, "may_act", lambda self, request, newest: True)
    monkeypatch.setattr(CachingClient, "_observed", lambda self, obj: obj)
    late = p.WatchTrouble(at=5.0, lasts=60.0, how="late", seconds=5.0)
    assert broken(history(scale_set(), late, jobs())) == (
        "never more runners are created than asked for"
    )


def test_more_runners_than_max_runners_are_noticed(monkeypatch: Patch) -> None:
    def decide(self: Scaler, assigned_jobs: int) -> int:
        self._max = 10
        return real_decide(self, assigned_jobs)

    real_decide = Scaler.decide
    monkeypatch.setattr(Scaler, "decide", decide)
    many = p.QueueJobs(at=10.0, name="linux", count=6, duration=100.0, direct=True)
    monkeypatch.setattr("arc_controller.testing.actions.jobs.Ledger._room", lambda *_, **__: 99)
    assert broken(history(scale_set(most=2), many)) == (
        "never more than maxRunners runners are registered"
    )


def test_an_applied_revision_that_goes_back_is_noticed(monkeypatch: Patch) -> None:
    async def record(client: Any, reader: Any, key: Any, target: int) -> bool:
        runner_set = LazyCopy(await reader.get(EphemeralRunnerSet, key))
        applied = 1 if target == 1 else 0
        runner_set.mutate().status.applied_actionable_revision = applied
        return bool(await runner_set.patch_status(client))

    name = "patch_applied_actionable_revision_status"
    monkeypatch.setattr(ephemeral_runner_set, name, record)
    edits = [p.Edit(at=at, name="linux", what="image") for at in (30.0, 60.0)]
    assert broken(history(scale_set(), *edits)) == "the applied revision never goes back"


def test_a_controller_that_writes_the_listeners_spec_is_noticed(monkeypatch: Patch) -> None:
    finish = EphemeralRunnerSetReconciler._finish

    async def meddle(self: EphemeralRunnerSetReconciler, runner_set: Any, *args: Any) -> Result:
        if runner_set.obj.spec.replicas:
            runner_set.mutate().spec.replicas = 0
            await runner_set.patch(self._client)
        return await finish(self, runner_set, *args)

    monkeypatch.setattr(
        EphemeralRunnerSetReconciler,
        "_finish",
        lambda self, runner_set, *args, **kwargs: meddle(self, runner_set, *args),
    )
    assert broken(CALM) == "nobody writes what is not theirs"


def test_a_controller_that_says_running_is_noticed(monkeypatch: Patch) -> None:
    publish = RunnerCourse._publish

    async def promote(self: RunnerCourse, runner: Any, pod: Any) -> Result:
        if pod.status.phase == "Running":
            runner.mutate().status.phase = Phase.RUNNING
        return await publish(self, runner, pod)

    monkeypatch.setattr(RunnerCourse, "_publish", promote)
    assert broken(CALM) == "nobody writes what is not theirs"


def test_a_leader_that_does_not_step_down_is_noticed(monkeypatch: Patch) -> None:
    async def hold(self: LeaderElector) -> NoReturn:
        await asyncio.sleep(1e9)
        raise AssertionError

    monkeypatch.setattr(LeaderElector, "hold", hold)
    assert broken(history(scale_set(), jobs(at=200.0), managers=2)) == "only the leader writes"


@pytest.mark.parametrize("where", ["log", "status"])
def test_a_jit_configuration_that_is_told_is_noticed(monkeypatch: Patch, where: str) -> None:
    build = build_jit_secret

    def tell(runner: Any, runner_id: int, jit_config: str) -> Any:
        if where == "log":
            structlog.get_logger().info("registered", configuration=jit_config)
        else:
            told.append(jit_config)
        return build(runner, runner_id, jit_config)

    told: list[str] = []
    note = RunnerConditions.note_registration

    def note_too_much(self: Any, runner: Any, runner_id: int) -> None:
        note(self, runner, runner_id)
        if told:
            runner.mutate().status.message = told[0]

    name = "arc_controller.controllers.runner_registration.build_jit_secret"
    monkeypatch.setattr(name, tell)
    monkeypatch.setattr(RunnerConditions, "note_registration", note_too_much)
    assert broken(CALM) == "nothing secret in logs, events or statuses"


def test_registrations_left_behind_are_noticed(monkeypatch: Patch) -> None:
    async def nothing(self: Registrar, runner: Any) -> None:
        """It forgets to unregister."""

    monkeypatch.setattr(Registrar, "unregister", nothing)
    none = p.Edit(at=60.0, name="linux", what="limits", least=0, most=3)
    plan = history(scale_set(least=1), none)
    assert broken(plan) == "counts converge, and every job that was acquired ran or was lost"


def test_a_secret_left_behind_is_noticed(monkeypatch: Patch) -> None:
    async def orphan(self: Any, obj: Any) -> Any:
        created = await create(self, obj)
        if isinstance(obj, Secret) and "-listener-" in obj.metadata.name:
            left = Secret(metadata=ObjectMeta(name="left", namespace="arc-runners"))
            with suppress(AlreadyExists):
                await create(self, left)
        return created

    create = CachingClient.create
    monkeypatch.setattr(CachingClient, "create", orphan)
    assert broken(CALM) == "deleting everything leaves nothing"


def test_writing_without_end_is_noticed(monkeypatch: Patch) -> None:
    reconcile = EphemeralRunnerReconciler.reconcile

    async def restless(self: EphemeralRunnerReconciler, key: Any) -> Result:
        result = await reconcile(self, key)
        found = await self._client.find(EphemeralRunner, key)
        if found is not None and found.status.ready:
            runner = LazyCopy(found)
            runner.mutate().metadata.annotations["seen"] = str(asyncio.get_running_loop().time())
            await runner.patch(self._client)
            return Result(requeue_after=60.0)
        return result

    monkeypatch.setattr(EphemeralRunnerReconciler, "reconcile", restless)
    assert broken(history(scale_set(least=1), length=60.0)) == "what is at rest is left alone"


def test_a_listener_that_does_not_scale_is_noticed(monkeypatch: Patch) -> None:
    async def nothing(self: Scaler) -> None:
        self._written = self._target

    monkeypatch.setattr(Scaler, "_write_target", nothing)
    monkeypatch.setattr(ending, "SETTLES_WITHIN", 1800.0)
    assert broken(CALM) == "counts converge, and every job that was acquired ran or was lost"


def test_an_exception_that_nobody_expected_is_noticed(monkeypatch: Patch) -> None:
    def crash(obj: Any) -> Request:
        raise KeyError("replicas")

    monkeypatch.setattr(Request, "of", crash)
    assert broken(CALM) == "no unexpected exception"


# --- the search for a shorter history -------------------------------------------------------------


def test_a_history_is_shortened_to_what_it_takes_to_fail() -> None:
    actions = tuple(jobs(at=float(at), count=at) for at in range(1, 21))
    needed = {7, 13}
    runs = 0

    def run(plan: Plan) -> Outcome:
        nonlocal runs
        runs += 1
        counts = {action.count for action in plan.actions if isinstance(action, p.QueueJobs)}
        violation = Violation("it fails", "", 15.0) if needed <= counts else None
        return Outcome(plan, violation, "", 0.0, 0, 0)

    shortest = shorten(run(history(*actions)), run=run)
    assert [a.count for a in shortest.plan.actions if isinstance(a, p.QueueJobs)] == [7, 13]
    assert runs < 60


def test_the_search_gives_up_in_time_and_keeps_what_it_has() -> None:
    actions = tuple(jobs(at=float(at), count=at) for at in range(1, 65))

    def run(plan: Plan) -> Outcome:
        return Outcome(plan, Violation("it fails", "", 100.0), "", 0.0, 0, 0)

    shortest = shorten(run(history(*actions)), run=run, tries=3)
    assert len(shortest.plan.actions) < 64
    assert shortest.failed


def test_another_violation_is_not_taken_for_the_same() -> None:
    actions = tuple(jobs(at=float(at), count=at) for at in range(1, 5))

    def run(plan: Plan) -> Outcome:
        name = "it fails" if len(plan.actions) == 4 else "otherwise"
        return Outcome(plan, Violation(name, "", 100.0), "", 0.0, 0, 0)

    assert len(shorten(run(history(*actions)), run=run).plan.actions) == 4
