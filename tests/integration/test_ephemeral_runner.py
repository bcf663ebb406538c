"""EphemeralRunner, row by row as in the design text, on the embedded API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from arc_controller.api.core import Pod, Secret
from arc_controller.api.v1alpha1 import EphemeralRunner, Finalizer, Phase, Reason
from arc_controller.runtime.objects import NamespacedName
from arc_controller.testing.actions import Call, RunnerRecord
from arc_controller.testing.loop import now, simulated
from tests.integration.runners import (
    FINALIZERS,
    NAMESPACE,
    PAT,
    RUNNER,
    URL,
    Cluster,
    cluster,
    exited,
    is_locked,
)

START = ["create secrets", "create pods", "patch ephemeralrunners/status"]
END = ["delete pods", "delete secrets", "patch ephemeralrunners"]


async def started(here: Cluster, **spec: Any) -> EphemeralRunner:
    """A runner whose pod was created; nothing more has happened to it."""
    here.add_runner(**spec)
    await here.settle()
    here.forget()
    return await here.runner()


# --- the success path ---------------------------------------------------------------------------


@simulated
async def test_success_path_is_nine_requests_in_this_order() -> None:
    async with cluster() as here:
        await here.settle()
        here.forget()
        here.add_set(replicas=1, patch_id=1)
        await here.settle()
        (name,) = await here.names()
        await here.pod_runs(name)
        await here.settle()
        await here.job_started(name)
        await here.settle()
        await here.runner_exits(0, name)
        await here.settle(1)

        about_the_runner = [
            text
            for text in here.calls(without="ephemeralrunnersets")
            if text != "get secrets"  # of the credentials, once for all runners
        ]
        # What there is already, once for all of the set's runners.
        assert about_the_runner.pop(0) == "list ephemeralrunners"
        assert about_the_runner == [
            "create ephemeralrunners",
            *START,
            "patch ephemeralrunners/status",  # ready
            "delete ephemeralrunners",
            *END,
        ]
        assert len(about_the_runner) <= 9
        assert here.calls().count("get secrets") == 1
        assert all(is_locked(p) for p in here.patches("ephemeralrunners", "status"))
        assert all(is_locked(p) for p in here.patches("ephemeralrunners"))
        assert not await here.exists(Pod, name)
        assert not await here.exists(Secret, name)
        assert here.registered() == {}


@simulated
async def test_a_runner_at_rest_causes_no_request() -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_runs()
        await here.settle()
        here.forget()
        await here.settle(3600)
        assert here.calls() == []


# --- 1. deleting --------------------------------------------------------------------------------


@simulated
async def test_deleting_unregisters_then_deletes_pod_and_secret_then_lets_go() -> None:
    async with cluster() as here:
        await started(here)
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert here.writes() == END
        assert here.registered() == {}
        assert not await here.exists(EphemeralRunner)
        (patch,) = here.patches("ephemeralrunners")
        assert patch["metadata"]["finalizers"] is None
        assert is_locked(patch)


@simulated
async def test_deleting_waits_30_s_for_a_job_that_still_runs_and_keeps_everything() -> None:
    async with cluster() as here:
        await started(here)
        failing = here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=2
        )
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(29)
        assert failing.hits == 1
        assert here.writes() == []
        assert await here.exists(Pod)
        assert await here.exists(Secret)
        await here.settle(29)
        assert failing.hits == 2
        assert here.writes() == []
        await here.settle(10)
        assert here.writes() == END
        assert ("EphemeralRunner", "JobStillRunning") in await here.events()


@simulated
async def test_deleting_a_runner_that_never_registered_asks_by_name_only() -> None:
    async with cluster(manager=False) as here:
        here.add_runner()
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.service.calls[Call.REMOVE_RUNNER] == 0
        assert here.writes() == ["patch ephemeralrunners"]


@simulated
async def test_deleting_what_never_registered_is_not_stuck_without_credentials() -> None:
    async with cluster(manager=False) as here:
        here.add_runner(githubConfigSecret="nowhere")
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle()
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_deleting_finds_a_registration_that_a_crash_left_without_a_trace_here() -> None:
    async with cluster(manager=False) as here:
        here.add_runner()
        await _register(here)
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle()
        assert here.registered() == {}
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_deleting_leaves_alone_what_another_scale_set_registered_by_that_name() -> None:
    async with cluster(manager=False) as here:
        here.add_runner(runnerScaleSetId=here.other_scale_set_id)
        await _register(here)
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle()
        assert list(here.registered()) == [RUNNER.name]
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_deleting_keeps_everything_while_a_registered_runner_cannot_be_unregistered() -> None:
    async with cluster() as here:
        await started(here)
        here.service.go_down()
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(600)
        assert here.writes() == []
        here.service.come_up()
        await here.settle(1200)
        assert here.registered() == {}
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_deleting_uses_the_sets_credentials_when_the_runners_are_gone() -> None:
    async with cluster() as here:
        here.add_secret("new", github_token="token-2")
        here.add_set(replicas=1)
        await here.settle()
        (name,) = await here.names()
        await here.delete(Secret, RUNNER._replace(name="github"))
        await here.settle(60)
        spec = here.runner_spec(githubConfigSecret="new")
        await here.ask(0, 0, ephemeralRunnerSpec=spec)
        await here.settle(120)
        assert await here.names() == []
        assert name not in here.registered()


@simulated
async def test_deleting_is_none_of_our_business_without_our_finalizers() -> None:
    async with cluster(manager=False) as here:
        here.add_runner(finalizers=["example.com/mine"])
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle(120)
        assert here.writes() == []
        assert here.service.calls[Call.FIND_RUNNER] == 0


@simulated
async def test_deleting_keeps_finalizers_of_others() -> None:
    async with cluster() as here:
        await started(here, finalizers=[*FINALIZERS, "example.com/mine"])
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert (await here.runner()).metadata.finalizers == ["example.com/mine"]


@simulated
@pytest.mark.parametrize("left", FINALIZERS)
async def test_deleting_with_either_finalizer_missing_ends_clean(left: str) -> None:
    async with cluster() as here:
        await started(here)
        await here.stop_manager()
        await here.admin.patch(EphemeralRunner, RUNNER, {"metadata": {"finalizers": [left]}})
        await here.delete(EphemeralRunner, RUNNER)
        here.start_manager()
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert not await here.exists(Pod)
        assert not await here.exists(Secret)
        assert here.registered() == {}


@simulated
async def test_container_hooks_pods_and_secrets_go_with_the_runner() -> None:
    hooks = {"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "/hooks/index.js"}
    pod = {"containers": [{"name": "runner", "image": "runner:1", "env": [hooks]}]}
    async with cluster() as here:
        await started(here, pod=pod)
        _install_workflow_pod(here, "job-1", RUNNER.name)
        _install_workflow_pod(here, "job-of-another", "linux-runner-other")
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle(60)
        assert not await here.exists(Pod, "job-1")
        assert not await here.exists(Secret, "job-1")
        assert await here.exists(Pod, "job-of-another")
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_without_container_hooks_nobody_looks_for_their_pods() -> None:
    async with cluster() as here:
        await started(here)
        await here.delete(EphemeralRunner, RUNNER)
        await here.settle()
        assert "list pods" not in here.calls()


# --- 2. done ------------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.OUTDATED])
async def test_a_runner_that_is_done_keeps_nothing_but_itself(phase: str) -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_status(phase=phase)
        await here.settle()
        assert here.writes() == END
        assert here.registered() == {}
        runner = await here.runner()
        assert runner.status.phase == phase
        assert runner.metadata.finalizers == [Finalizer.EPHEMERAL_RUNNER]
        here.forget()
        await here.settle(3600)
        assert here.calls() == []


@simulated
async def test_a_runner_that_is_done_gets_no_finalizer_and_no_pod_after_a_restart() -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_status(phase=Phase.FAILED)
        await here.settle()
        await here.stop_manager()
        here.forget()
        here.start_manager()
        await here.settle()
        assert here.writes() == []


# --- 3. finalizers ------------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("present", [[], FINALIZERS[:1], FINALIZERS[1:]])
async def test_all_missing_finalizers_are_added_in_one_patch(present: list[str]) -> None:
    async with cluster() as here:
        here.add_runner(finalizers=present)
        await here.settle()
        (patch,) = here.patches("ephemeralrunners")
        assert sorted(patch["metadata"]["finalizers"]) == sorted(FINALIZERS)
        assert is_locked(patch)


@simulated
async def test_finalizers_that_are_there_cost_nothing() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        assert here.patches("ephemeralrunners") == []


# --- 4. JIT config ------------------------------------------------------------------------------


@simulated
async def test_the_jit_config_is_kept_in_the_secret_and_nowhere_else() -> None:
    pod = {"containers": [{"name": "runner", "image": "runner:1", "workingDir": "/work"}]}
    async with cluster() as here:
        runner = await started(here, pod=pod)
        secret = await here.secret()
        assert sorted(secret.data) == ["jitToken", "runnerId", "runnerName", "scaleSetId"]
        assert secret.data["runnerName"] == RUNNER.name.encode()
        assert secret.data["scaleSetId"] == str(here.scale_set_id).encode()
        assert int(secret.data["runnerId"]) == runner.status.runner_id
        (owner,) = secret.metadata.owner_references
        assert (owner.uid, owner.controller, owner.block_owner_deletion) == (runner.uid, True, True)
        (record,) = here.service.runners.values()
        assert record.work_folder == "/work"
        token = secret.data["jitToken"].decode()
        assert token not in str(runner.status)


@simulated
async def test_the_secret_is_not_read_where_nothing_went_wrong() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        await here.settle()
        await here.runner_exits(0)
        await here.settle()
        assert [r.name for r in here.requests() if (r.verb, r.resource) == ("get", "secrets")] == [
            "github"
        ]


@simulated
async def test_runner_exists_and_is_ours_it_is_removed_and_made_again() -> None:
    async with cluster(manager=False) as here:
        old = await _register(here)
        here.add_runner()
        here.start_manager()
        await here.settle()
        runner = await here.runner()
        assert runner.status.runner_id != old
        assert here.registered() == {RUNNER.name: runner.status.runner_id}
        assert here.service.calls[Call.REMOVE_RUNNER] == 1
        assert await here.exists(Pod)


@simulated
async def test_runner_exists_and_is_gone_when_looked_up_it_is_tried_again() -> None:
    async with cluster() as here:
        here.service.faults.fail(
            Call.GENERATE_JIT_CONFIG, status=409, type_name="AgentExistsException", times=1
        )
        here.add_runner()
        await here.settle()
        assert await here.exists(Pod)
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] == 2


@simulated
async def test_runner_exists_and_is_someone_elses_this_one_is_deleted_and_theirs_is_left() -> None:
    async with cluster(manager=False) as here:
        theirs = await _register(here)
        here.add_runner(runnerScaleSetId=here.other_scale_set_id)
        here.start_manager()
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {RUNNER.name: theirs}
        assert ("EphemeralRunner", "NameTaken") in await here.events()


@simulated
async def test_runner_exists_and_holds_a_job_nothing_is_done_for_30_s() -> None:
    async with cluster(manager=False) as here:
        await _register(here)
        failing = here.service.faults.fail(
            Call.REMOVE_RUNNER, status=400, type_name="JobStillRunningException", times=1
        )
        here.add_runner()
        here.start_manager()
        await here.settle(29)
        assert failing.hits == 1
        assert not await here.exists(Pod)
        await here.settle(10)
        assert await here.exists(Pod)


@simulated
@pytest.mark.parametrize("steps", range(8, 60, 2))
async def test_killed_at_any_moment_of_the_start_the_next_process_ends_clean(steps: int) -> None:
    async with cluster(manager=False) as here:
        here.add_runner()
        here.start_manager()
        for _ in range(steps):
            await here.settle(0)
        await here.kill_manager()
        here.start_manager()
        await here.settle(60)
        runner = await here.runner()
        assert here.registered() == {RUNNER.name: runner.status.runner_id}
        assert int((await here.secret()).data["runnerId"]) == runner.status.runner_id
        assert await here.exists(Pod)


@simulated
@pytest.mark.parametrize("steps", range(2, 50, 2))
async def test_killed_at_any_moment_of_the_end_the_next_process_ends_clean(steps: int) -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_exits(0)
        for _ in range(steps):
            await here.settle(0)
        await here.kill_manager()
        here.start_manager()
        await here.settle(60)
        assert not await here.exists(EphemeralRunner)
        assert not await here.exists(Pod)
        assert not await here.exists(Secret)
        assert here.registered() == {}


@simulated
async def test_killed_between_registration_and_secret_the_registration_is_replaced() -> None:
    async with cluster() as here:
        here.refuse("create", "secrets", 500, "InternalError", times=3)
        here.add_runner()
        await here.settle(60)
        runner = await here.runner()
        assert here.registered() == {RUNNER.name: runner.status.runner_id}
        assert int((await here.secret()).data["runnerId"]) == runner.status.runner_id


@simulated
async def test_a_secret_whose_creation_got_no_answer_is_used() -> None:
    async with cluster() as here:
        here.refuse("create", "secrets", 500, "InternalError", times=1, after=True)
        here.add_runner()
        await here.settle(60)
        runner = await here.runner()
        assert runner.status.runner_id == 1
        assert here.registered() == {RUNNER.name: 1}
        assert await here.exists(Pod)


@simulated
async def test_a_secret_of_somebody_else_by_that_name_is_left_alone() -> None:
    async with cluster(manager=False) as here:
        here.add_secret(RUNNER.name, password="theirs")
        here.add_runner()
        here.start_manager()
        await here.settle()
        assert (await here.secret()).data == {"password": b"theirs"}
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_what_hinders_the_registration_is_said_once_in_plain_words() -> None:
    async with cluster() as here:
        here.add_runner(githubConfigSecret="nowhere")
        await here.settle(300)
        condition = await here.condition("Registered")
        assert (condition.status, condition.reason) == ("False", "CredentialsNotFound")
        assert "ci/nowhere" in condition.message
        assert len(here.patches("ephemeralrunners", "status")) == 1
        assert ("EphemeralRunner", "CredentialsNotFound") in await here.events()
        here.add_secret("nowhere", github_token="token")
        await here.settle(120)
        assert (await here.condition("Registered")).status == "True"
        assert await here.exists(Pod)


@simulated
async def test_a_secret_that_is_repaired_after_a_refusal_takes_effect_within_seconds() -> None:
    async with cluster() as here:
        here.service.accept_tokens("token-2")
        here.service.expire_admin_tokens()
        here.add_runner()
        await here.settle(100)
        assert (await here.condition("Registered")).reason == "Unauthorized"
        calls = here.service.calls.total()
        await here.settle(60)
        assert here.service.calls.total() - calls <= 8, "the service is not asked all the time"
        token = {"stringData": {"github_token": "token-2"}}
        await here.admin.patch(Secret, NamespacedName(NAMESPACE, "github"), token)
        await here.settle(13)
        assert list(here.registered()) == [RUNNER.name]


@simulated
async def test_a_service_that_is_down_is_waited_for() -> None:
    async with cluster() as here:
        here.service.go_down()
        here.add_runner()
        await here.settle(600)
        assert (await here.condition("Registered")).reason == "ServiceUnavailable"
        assert len(here.patches("ephemeralrunners", "status")) == 1
        here.service.come_up()
        await here.settle(1200)
        assert await here.exists(Pod)


# --- 5. status, corrupt secrets -----------------------------------------------------------------


@simulated
async def test_status_has_id_and_name_and_one_patch_says_so() -> None:
    async with cluster() as here:
        here.add_runner()
        await here.settle()
        (patch,) = here.patches("ephemeralrunners", "status")
        assert patch["status"] == {"phase": "Pending", "runnerId": 1, "runnerName": RUNNER.name}
        assert is_locked(patch)


@simulated
async def test_status_is_taken_from_the_secret_when_the_process_died_before_saying_it() -> None:
    async with cluster() as here:
        here.refuse("patch", "ephemeralrunners/status", 500, "InternalError", times=1)
        here.add_runner()
        await here.settle()
        assert (await here.runner()).status.runner_id == 1
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] == 1


@simulated
@pytest.mark.parametrize(
    "data",
    [
        {"runnerId": "bm90IGEgbnVtYmVy"},
        {"runnerId": None},
        {"jitToken": None},
        {"jitToken": ""},
        {"runnerName": "c29tZWJvZHk="},
        {"scaleSetId": "OTk="},
    ],
)
async def test_a_corrupt_secret_is_deleted_and_rebuilt(data: dict[str, Any]) -> None:
    async with cluster() as here:
        before = await started(here)
        await here.admin.patch(Secret, RUNNER, {"data": data})
        await here.pod_status(phase="Failed", reason="Evicted")
        await here.settle(60)
        runner, secret = await here.runner(), await here.secret()
        assert runner.status.runner_id != before.status.runner_id
        assert int(secret.data["runnerId"]) == runner.status.runner_id
        assert here.registered() == {RUNNER.name: runner.status.runner_id}
        assert "delete secrets" in here.writes()


@simulated
async def test_a_secret_that_was_deleted_is_rebuilt_before_the_next_pod() -> None:
    async with cluster() as here:
        await started(here)
        await here.delete(Secret, RUNNER)
        await here.delete(Pod, RUNNER)
        await here.settle(60)
        runner = await here.runner()
        assert int((await here.secret()).data["runnerId"]) == runner.status.runner_id
        assert here.registered() == {RUNNER.name: runner.status.runner_id}


# --- 6. failures and backoff --------------------------------------------------------------------


@simulated
async def test_the_pod_is_tried_again_after_5_10_20_40_80_s_and_then_the_runner_goes() -> None:
    async with cluster() as here:
        await started(here)
        waits = []
        for failures in range(1, 6):
            before = (await here.pod()).uid
            await here.pod_status(**exited(1))
            failed_at = now()
            await here.until(lambda: _other_pod(here, before), 300)  # noqa: B023
            waits.append(round((now() - failed_at).total_seconds()))
            assert len((await here.runner()).status.failures) == failures
        assert waits == pytest.approx([5, 10, 20, 40, 80], abs=1)
        await here.pod_status(**exited(1))
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}
        assert ("EphemeralRunner", Reason.TOO_MANY_POD_FAILURES) in await here.events()


@simulated
async def test_a_failure_is_counted_by_pod_uid_and_only_once() -> None:
    async with cluster() as here:
        await started(here)
        uid = (await here.pod()).uid
        here.refuse("delete", "pods", 500, "InternalError", times=3)
        await here.pod_status(**exited(1))
        await here.settle(3)
        status = (await here.runner()).status
        assert list(status.failures) == [uid]
        assert (status.phase, status.ready) == (Phase.PENDING, False)
        assert len(here.patches("ephemeralrunners", "status")) == 1


@simulated
async def test_a_failure_is_counted_before_the_pod_is_deleted() -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_status(**exited(1))
        await here.settle(1)
        assert here.writes() == ["patch ephemeralrunners/status", "delete pods"]


@simulated
async def test_a_clock_that_was_set_back_does_not_prolong_the_wait() -> None:
    async with cluster() as here:
        await started(here)
        future = (now() + timedelta(hours=2)).isoformat()
        await here.runner_status(failures={"some-uid": future})
        await here.delete(Pod, RUNNER)
        await here.settle(1)
        assert not await here.exists(Pod)
        await here.runner_status(failures={"some-uid": (now() - timedelta(hours=1)).isoformat()})
        await here.settle(10)
        assert await here.exists(Pod)


# --- 7. creating the pod ------------------------------------------------------------------------


@simulated
async def test_the_pod_is_what_the_template_says_and_what_makes_it_a_runner() -> None:
    async with cluster() as here:
        runner = await started(here, metadata={"labels": {"team": "a"}})
        pod = await here.pod()
        (owner,) = pod.metadata.owner_references
        assert (owner.kind, owner.uid, owner.controller) == ("EphemeralRunner", runner.uid, True)
        assert pod.metadata.labels == {"team": "a", "actions-ephemeral-runner": "True"}
        assert pod.spec["restartPolicy"] == "Never"
        env = {e["name"]: e for e in pod.spec["containers"][0]["env"]}
        assert env["ACTIONS_RUNNER_INPUT_JITCONFIG"]["valueFrom"]["secretKeyRef"] == {
            "name": RUNNER.name,
            "key": "jitToken",
        }
        agent = env["GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT"]["value"]
        assert agent == "actions-runner-controller/0.14.0"
        assert env["ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"]["value"] == "1"


@simulated
async def test_a_pod_that_exists_already_is_waited_for() -> None:
    async with cluster(manager=False) as here:
        here.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": RUNNER.name, "namespace": NAMESPACE},
                "spec": {"containers": [{"name": "theirs", "image": "x"}]},
            }
        )
        here.add_runner()
        here.start_manager()
        await here.settle()
        assert (await here.runner()).status.runner_id == 1
        assert (await here.pod()).spec["containers"][0]["name"] == "theirs"
        await here.delete(Pod, RUNNER)
        await here.settle(60)
        assert (await here.pod()).spec["containers"][0]["name"] == "runner"


@simulated
@pytest.mark.parametrize(
    "code, reason",
    [(422, "Invalid"), (403, "Forbidden"), (400, "BadRequest")],
)
async def test_a_pod_that_is_refused_fails_the_runner_for_good(code: int, reason: str) -> None:
    async with cluster() as here:
        here.refuse("create", "pods", code, reason, "spec.containers[0].image: Required value")
        here.add_runner()
        await here.settle()
        runner = await here.runner()
        assert (runner.status.phase, runner.status.reason) == (Phase.FAILED, Reason.INVALID_POD)
        assert "Required value" in runner.status.message
        assert here.registered() == {}
        assert not await here.exists(Secret)
        assert ("EphemeralRunner", Reason.INVALID_POD) in await here.events()
        here.forget()
        await here.settle(3600)
        assert here.calls() == []


@simulated
async def test_a_template_without_a_runner_container_is_an_invalid_pod() -> None:
    async with cluster() as here:
        here.add_runner(pod={"containers": [{"name": "main", "image": "x"}]})
        await here.settle()
        status = (await here.runner()).status
        assert (status.phase, status.reason) == (Phase.FAILED, Reason.INVALID_POD)
        assert "'runner'" in status.message


@simulated
async def test_exceeded_quota_is_tried_every_30_s() -> None:
    async with cluster() as here:
        _exceed_quota(here)
        here.add_runner()
        await here.settle(95)
        attempts = [r for r in here.requests() if (r.verb, r.resource) == ("create", "pods")]
        assert len(attempts) == 4
        status = (await here.runner()).status
        assert (status.phase, status.runner_id) == (Phase.PENDING, 1)
        assert len(here.patches("ephemeralrunners", "status")) == 1
        condition = await here.condition("WithinQuota")
        assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
        assert "exceeded quota" in condition.message
        here.accept()
        await here.settle(35)
        assert await here.exists(Pod)
        assert (await here.condition("WithinQuota")).status == "True"
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] == 1


@simulated
async def test_exceeded_quota_for_10_min_deletes_the_runner_also_across_a_restart() -> None:
    async with cluster() as here:
        _exceed_quota(here)
        here.add_runner()
        await here.settle(300)
        await here.stop_manager()
        here.start_manager()
        await here.settle(270)
        assert await here.exists(EphemeralRunner)
        await here.settle(90)
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


# --- 8. the pod decides -------------------------------------------------------------------------


@simulated
@pytest.mark.parametrize("job", [False, True])
async def test_exit_0_deletes_the_runner(job: bool) -> None:
    async with cluster() as here:
        await started(here)
        if job:
            await here.job_started()
        await here.runner_exits(0)
        await here.settle()
        assert here.writes() == ["delete ephemeralrunners", *END]
        assert not await here.exists(EphemeralRunner)


@simulated
async def test_exit_0_is_a_success_although_a_sidecar_failed_the_pod() -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_exits(0, phase="Failed")
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.patches("ephemeralrunners", "status") == []


@simulated
async def test_exit_7_makes_the_runner_outdated_and_unregisters_it() -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_exits(7)
        await here.settle()
        assert here.writes() == ["patch ephemeralrunners/status", *END]
        runner = await here.runner()
        assert (runner.status.phase, runner.status.reason) == (Phase.OUTDATED, Reason.OUTDATED)
        assert here.registered() == {}
        assert ("EphemeralRunner", Reason.OUTDATED) in await here.events()


@simulated
@pytest.mark.parametrize("code", [1, 2, 137, 255])
async def test_any_other_exit_without_a_job_is_a_failure(code: int) -> None:
    async with cluster() as here:
        await started(here)
        await here.runner_exits(code)
        await here.settle(2)
        status = (await here.runner()).status
        assert len(status.failures) == 1
        assert status.reason == "Error"
        assert f"code {code}" in status.message
        assert not await here.exists(Pod)
        assert list(here.registered()) == [RUNNER.name]


@simulated
async def test_any_other_exit_with_a_job_deletes_and_unregisters_the_runner() -> None:
    async with cluster() as here:
        await started(here)
        await here.job_started()
        await here.settle()
        here.forget()
        await here.runner_exits(1)
        await here.settle()
        assert here.writes() == ["delete ephemeralrunners", *END]
        assert here.registered() == {}
        assert ("EphemeralRunner", "JobLost") in await here.events()


@simulated
@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed", "reason": "StartError", "message": "no such file"},
        {
            "phase": "Failed",
            "initContainerStatuses": [
                {
                    "name": "setup",
                    "image": "x",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": 3}},
                }
            ],
        },
    ],
    ids=["never started", "init container"],
)
async def test_a_pod_that_failed_before_the_runner_started_is_a_failure(
    status: dict[str, Any],
) -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_status(**status)
        await here.settle(2)
        runner = await here.runner()
        assert len(runner.status.failures) == 1
        assert runner.status.message != ""
        await here.settle(10)
        assert await here.exists(Pod)


@simulated
async def test_running_publishes_pending_and_ready_and_never_running() -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_runs(ready=False)
        await here.settle()
        assert here.writes() == []
        await here.pod_runs(ready=True)
        await here.settle()
        status = (await here.runner()).status
        assert (status.phase, status.ready) == (Phase.PENDING, True)
        await here.pod_runs(ready=False)
        await here.settle()
        assert not (await here.runner()).status.ready
        for patch in here.patches("ephemeralrunners", "status"):
            assert "phase" not in patch["status"]


@simulated
async def test_the_listeners_promotion_is_never_taken_back() -> None:
    async with cluster() as here:
        await started(here)
        await here.job_started()
        await here.pod_runs(ready=True)
        await here.settle()
        status = (await here.runner()).status
        assert (status.phase, status.ready, status.job_request_id) == (Phase.RUNNING, True, 41)


@simulated
async def test_a_pod_that_does_not_start_is_explained_after_a_while() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image runner:1"}
    status: dict[str, Any] = {
        "phase": "Pending",
        "containerStatuses": [
            {
                "name": "runner",
                "image": "x",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": waiting},
            }
        ],
    }
    async with cluster() as here:
        await started(here)
        await here.pod_status(**status)
        await here.settle(20)
        assert here.writes() == []
        await here.settle(20)
        condition = await here.condition("PodStarted")
        assert (condition.status, condition.reason) == ("False", "ImagePullBackOff")
        assert "Back-off pulling" in condition.message
        await here.settle(300)
        assert len(here.patches("ephemeralrunners", "status")) == 1
        await here.pod_runs()
        await here.settle()
        assert (await here.condition("PodStarted")).status == "True"
        assert len(here.patches("ephemeralrunners", "status")) == 2


# --- 9. lost to the cluster ---------------------------------------------------------------------

EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}


@simulated
@pytest.mark.parametrize(
    "status",
    [
        EVICTED,
        exited(137, reason="Evicted"),
        exited(143, reason="Terminated"),
        {"phase": "Failed", "reason": "NodeShutdown"},
        {"phase": "Failed", "reason": "NodeLost"},
        {"phase": "Failed", "reason": "Preempting"},
        *(
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}],
            }
            for reason in (
                "PreemptionByScheduler",
                "DeletionByTaintManager",
                "EvictionByEvictionAPI",
                "DeletionByPodGC",
                "TerminationByKubelet",
            )
        ),
    ],
    ids=str,
)
async def test_lost_without_a_job_it_gets_another_pod_and_no_failure(
    status: dict[str, Any],
) -> None:
    async with cluster() as here:
        await started(here)
        await here.settle(60)
        before = (await here.pod()).uid
        await here.pod_status(**status)
        await here.settle()
        runner = await here.runner()
        assert (await here.pod()).uid != before
        assert (runner.status.phase, runner.status.failures) == (Phase.PENDING, {})
        assert here.service.calls[Call.GENERATE_JIT_CONFIG] == 1
        assert ("EphemeralRunner", "PodReplaced") in await here.events()


@simulated
async def test_lost_at_once_every_time_it_is_replaced_at_a_measured_pace() -> None:
    async with cluster(kubelet=False) as here:
        here.add_runner()
        evictions = 0
        for _ in range(600):
            await here.settle(0.1)
            pod = await here.admin.find(Pod, RUNNER)
            if pod is not None and pod.status.phase != "Failed" and not pod.is_being_deleted:
                await here.pod_status(**EVICTED)
                evictions += 1
        assert 5 <= evictions <= 7
        assert (await here.runner()).status.failures == {}


@simulated
async def test_lost_with_a_job_the_runner_is_over() -> None:
    async with cluster() as here:
        await started(here)
        await here.job_started()
        await here.pod_status(**EVICTED)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_a_pod_deleted_under_a_runner_with_a_job_ends_the_runner() -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_runs()
        await here.job_started()
        await here.settle()
        here.forget()
        await here.admin.delete(Pod, RUNNER, grace_period_seconds=0)
        await here.settle()
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}
        assert "create pods" not in here.writes()


@simulated
async def test_a_pod_deleted_under_an_idle_runner_is_made_again() -> None:
    async with cluster() as here:
        await started(here)
        await here.pod_runs()
        before = (await here.pod()).uid
        await here.admin.delete(Pod, RUNNER, grace_period_seconds=0)
        await here.settle()
        assert (await here.pod()).uid != before
        assert (await here.runner()).status.failures == {}


@simulated
@pytest.mark.parametrize("job", [False, True])
async def test_a_node_lost_under_a_runner_does_not_leave_it_for_ever(job: bool) -> None:
    async with cluster(kubelet=True) as here:
        here.add_runner()
        await here.settle()
        await here.pod_runs()
        if job:
            await here.job_started()
        await here.settle()
        await _lose_node(here)
        await here.settle(120)
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


@simulated
async def test_a_busy_runner_whose_node_is_lost_waits_for_the_service_to_let_go() -> None:
    async with cluster(kubelet=True) as here:
        here.add_runner()
        await here.settle()
        (record,) = here.service.runners.values()
        _give_job(here, record)
        await here.job_started()
        pod = await here.admin.get(Pod, RUNNER)
        await _lose_node(here)
        await here.settle(30)
        assert (await here.runner()).is_being_deleted
        assert list(here.registered()) == [RUNNER.name]
        here.kubelet.pods[pod.uid].kill()
        await here.settle(300)
        assert not await here.exists(EphemeralRunner)
        assert here.registered() == {}


# --- helpers ------------------------------------------------------------------------------------


async def _register(here: Cluster) -> int:
    """Somebody registers a runner of that name with the scale set `linux`."""
    async with here.client(URL, PAT) as client:
        answer = await client.generate_jit_config(here.scale_set_id, RUNNER.name, "")
    return answer.runner.id


async def _other_pod(here: Cluster, uid: str) -> bool:
    pod = await here.admin.find(Pod, RUNNER)
    return pod is not None and pod.uid != uid


async def _lose_node(here: Cluster) -> None:
    """As the node lifecycle controller does: the pod is deleted, and nobody confirms it."""
    await here.admin.patch(Pod, RUNNER, {"metadata": {"finalizers": ["test/unconfirmed"]}})
    await here.admin.delete(Pod, RUNNER, grace_period_seconds=5)
    await here.pod_status(reason="NodeLost", conditions=[{"type": "Ready", "status": "False"}])


def _give_job(here: Cluster, record: RunnerRecord) -> None:
    """The service assigns a job that takes a day, and starts it on this runner."""
    (job,) = here.service.queue_jobs(1, scale_set="linux", duration=86_400.0)
    ledger = here.service._ledger
    ledger._assign(here.service.scale_set("linux"), job)
    assert record.is_busy


def _exceed_quota(here: Cluster) -> None:
    message = f'pods "{RUNNER.name}" is forbidden: exceeded quota: compute, requested: pods=1'
    here.refuse("create", "pods", 403, "Forbidden", message)


def _install_workflow_pod(here: Cluster, name: str, runner: str) -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"runner-pod": runner}}
    pod = {"containers": [{"name": "job", "image": "x"}]}
    here.install(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata},
    )
