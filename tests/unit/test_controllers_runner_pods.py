"""What a pod's status amounts to, and what a runner's pod and secret look like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_controller.api.core import Pod, Secret
from arc_controller.api.v1alpha1 import (
    EphemeralRunner,
    EphemeralRunnerSpec,
    Proxy,
    ProxyServer,
    ResourceMeta,
)
from arc_controller.controllers.pod_state import (
    DEADLINE_SLACK,
    Outcome,
    Verdict,
    has_started,
    is_ready,
    judge,
    why_stuck,
)
from arc_controller.controllers.runner_pod import (
    InvalidTemplate,
    build_jit_secret,
    build_pod,
    runner_id_in,
    sidecars,
    uses_container_hooks,
    work_folder,
)
from arc_controller.runtime.objects import ObjectMeta

NOW = datetime(2025, 1, 1, tzinfo=UTC)


def pod(deleting: datetime | None = None, **status: Any) -> Pod:
    made = msgspec.convert({"metadata": {"name": "r", "uid": "u"}, "status": status}, Pod)
    made.metadata.deletion_timestamp = deleting
    return made


def container(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state}


def ended(code: int, name: str = "runner") -> dict[str, Any]:
    return container(name, terminated={"exitCode": code})


RUNS = container("runner", running={})
WAITS = container("runner", waiting={"reason": "PodInitializing"})
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
SOON = NOW + timedelta(seconds=10)
OVERDUE = NOW - DEADLINE_SLACK


@pytest.mark.parametrize(
    "status, outcome",
    [
        ({}, Outcome.ALIVE),
        ({"phase": "Pending"}, Outcome.ALIVE),
        ({"phase": "Unknown"}, Outcome.ALIVE),
        ({"phase": "Running", "containerStatuses": [RUNS]}, Outcome.ALIVE),
        ({"phase": "Running", "conditions": [DISRUPTED]}, Outcome.ALIVE),
        ({"phase": "Running", "containerStatuses": [ended(0)]}, Outcome.SUCCEEDED),
        ({"phase": "Succeeded"}, Outcome.SUCCEEDED),
        ({"phase": "Failed", "containerStatuses": [ended(0), ended(1, "dind")]}, Outcome.SUCCEEDED),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended(0)]},
         Outcome.SUCCEEDED),
        ({"phase": "Failed", "containerStatuses": [ended(7)]}, Outcome.OUTDATED),
        ({"phase": "Failed", "containerStatuses": [ended(1)]}, Outcome.FAILED),
        ({"phase": "Running", "containerStatuses": [ended(1), RUNS]}, Outcome.FAILED),
        ({"phase": "Running", "containerStatuses": [ended(1, "dind"), RUNS]}, Outcome.ALIVE),
        ({"phase": "Failed"}, Outcome.FAILED),
        ({"phase": "Failed", "reason": "OutOfcpu"}, Outcome.FAILED),
        ({"phase": "Failed", "containerStatuses": [WAITS]}, Outcome.FAILED),
        ({"phase": "Failed", "reason": "Evicted"}, Outcome.LOST),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended(137)]}, Outcome.LOST),
        ({"phase": "Failed", "reason": "NodeShutdown"}, Outcome.LOST),
        ({"phase": "Failed", "reason": "Terminated"}, Outcome.LOST),
        ({"phase": "Failed", "reason": "NodeLost"}, Outcome.LOST),
        ({"phase": "Failed", "reason": "Preempting"}, Outcome.LOST),
        ({"phase": "Failed", "conditions": [DISRUPTED], "containerStatuses": [ended(143)]},
         Outcome.LOST),
        ({"phase": "Failed", "conditions": [{**DISRUPTED, "status": "False"}]}, Outcome.FAILED),
        ({"phase": "Pending", "initContainerStatuses": [ended(0, "setup")]}, Outcome.ALIVE),
        ({"phase": "Pending", "initContainerStatuses": [ended(1, "setup")]}, Outcome.FAILED),
        ({"phase": "Pending", "initContainerStatuses": [ended(1, "dind")]}, Outcome.ALIVE),
        ({"phase": "Running", "initContainerStatuses": [ended(1, "setup")],
          "containerStatuses": [RUNS]}, Outcome.ALIVE),
    ],
)  # fmt: skip
def test_a_pod_is_judged(status: dict[str, Any], outcome: Outcome) -> None:
    verdict = judge(pod(**status), NOW, sidecars={"dind"})
    assert verdict.outcome is outcome
    assert bool(verdict.reason and verdict.message) == (outcome is not Outcome.ALIVE)


@pytest.mark.parametrize(
    "deadline, status, outcome",
    [
        (SOON, {"phase": "Running", "containerStatuses": [RUNS]}, Outcome.STOPPING),
        (NOW, {"phase": "Running", "containerStatuses": [RUNS]}, Outcome.STOPPING),
        (OVERDUE, {"phase": "Running", "containerStatuses": [RUNS]}, Outcome.STRANDED),
        (SOON, {"phase": "Running", "reason": "NodeLost"}, Outcome.STRANDED),
        (SOON, {"phase": "Pending"}, Outcome.STOPPING),
        (SOON, {"phase": "Failed", "containerStatuses": [ended(143)]}, Outcome.LOST),
        (OVERDUE, {"phase": "Failed"}, Outcome.LOST),
        (SOON, {"phase": "Succeeded", "containerStatuses": [ended(0)]}, Outcome.SUCCEEDED),
        (SOON, {"phase": "Failed", "containerStatuses": [ended(7)]}, Outcome.OUTDATED),
    ],
)
def test_a_pod_that_is_being_deleted_is_judged(
    deadline: datetime, status: dict[str, Any], outcome: Outcome
) -> None:
    assert judge(pod(deadline, **status), NOW).outcome is outcome


def test_the_message_of_a_failure_says_what_ended_and_why() -> None:
    failed = pod(
        phase="Failed",
        containerStatuses=[
            container("runner", terminated={"exitCode": 3, "reason": "OOMKilled", "message": "big"})
        ],
    )
    assert judge(failed, NOW) == Verdict(
        Outcome.FAILED, "OOMKilled", "the runner exited with code 3: big"
    )
    failed = pod(phase="Failed", initContainerStatuses=[ended(9, "setup")])
    assert judge(failed, NOW).message == (
        "the pod failed before the runner container started: "
        "init container setup exited with code 9"
    )


names = st.sampled_from(["runner", "dind", "setup"])
states = st.one_of(
    st.just({}),
    st.just({"running": {}}),
    st.builds(lambda reason: {"waiting": {"reason": reason}}, st.sampled_from(["", "Err", "X"])),
    st.builds(lambda code: {"terminated": {"exitCode": code}}, st.sampled_from([0, 1, 7, 137])),
)
containers = st.lists(
    st.builds(lambda name, state, last: {"name": name, "state": state, "lastState": last},
              names, states, states),
    max_size=3,
    unique_by=lambda c: c["name"],
)  # fmt: skip
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        "reason": st.sampled_from(["", "Evicted", "NodeLost", "OutOfcpu", "Whatever"]),
        "message": st.text(max_size=5),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["DisruptionTarget", "Ready", "PodScheduled"]),
                    "status": st.sampled_from(["True", "False", "Unknown"]),
                }
            ),
            max_size=2,
        ),
        "containerStatuses": containers,
        "initContainerStatuses": containers,
    },
)
deadlines = st.none() | st.timedeltas(timedelta(-1), timedelta(1)).map(lambda d: NOW + d)


@settings(deadline=None)
@given(statuses, deadlines)
def test_every_pod_gets_exactly_one_verdict(
    status: dict[str, Any], deadline: datetime | None
) -> None:
    judged = pod(deadline, **status)
    verdict = judge(judged, NOW, sidecars={"dind"})
    code = next(
        (
            c["state"]["terminated"]["exitCode"]
            for c in status.get("containerStatuses", [])
            if c["name"] == "runner" and "terminated" in c["state"]
        ),
        None,
    )
    assert (verdict.outcome is Outcome.OUTDATED) == (code == 7)
    if code == 0:
        assert verdict.outcome is Outcome.SUCCEEDED
    if code not in (None, 0, 7):
        assert verdict.outcome in (Outcome.FAILED, Outcome.LOST)
    if verdict.outcome in (Outcome.STOPPING, Outcome.STRANDED):
        assert judged.is_being_deleted
    if verdict.outcome is Outcome.ALIVE:
        assert not judged.is_being_deleted
        assert judged.status.phase not in ("Failed", "Succeeded")
    has_started(judged), is_ready(judged), why_stuck(judged)  # total as well


def test_why_a_pod_is_stuck() -> None:
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    stuck = why_stuck(pod(containerStatuses=[container("runner", waiting=waiting)]))
    assert stuck is not None
    assert (stuck.reason, stuck.message) == ("ImagePullBackOff", "container runner: not found")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    stuck = why_stuck(pod(conditions=[unscheduled]))
    assert stuck is not None
    assert stuck.reason == "Unschedulable"
    assert why_stuck(pod(containerStatuses=[WAITS])) is None


# --- pod and secret -----------------------------------------------------------------------------


def a_runner(*containers: dict[str, Any], **spec: Any) -> EphemeralRunner:
    return EphemeralRunner(
        metadata=ObjectMeta(name="r", namespace="ci", uid="u", labels={"a": "b"}),
        spec=EphemeralRunnerSpec(
            spec={"containers": list(containers) or [{"name": "runner", "image": "x"}]},
            runner_scale_set_id=5,
            **spec,
        ),
    )


def test_the_template_is_not_changed_in_place() -> None:
    runner = a_runner()
    before = msgspec.json.encode(runner)
    build_pod(runner, "1")
    assert msgspec.json.encode(runner) == before


def test_only_the_runner_container_gets_our_variables_and_ours_win() -> None:
    theirs = [
        {"name": "A", "value": "1"},
        {"name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "value": "0"},
    ]
    runner = a_runner(
        {"name": "dind", "image": "d"}, {"name": "runner", "image": "x", "env": theirs}
    )
    dind, container = build_pod(runner, "1").spec["containers"]
    assert dind == {"name": "dind", "image": "d"}
    values = [(v["name"], v.get("value")) for v in container["env"]]
    assert values[0] == ("A", "1")
    assert len({name for name, _ in values}) == len(values) == 4
    assert dict(values)["ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"] == "1"


def test_the_rest_of_the_template_is_passed_through() -> None:
    runner = a_runner()
    runner.spec.spec["restartPolicy"] = "OnFailure"
    runner.spec.spec["somethingNew"] = {"x": [None, 1]}
    runner.spec.metadata = {"labels": {"a": "theirs", "c": "d"}, "annotations": {"e": "f"}}
    made = build_pod(runner, "1")
    assert made.spec["restartPolicy"] == "OnFailure"
    assert made.spec["somethingNew"] == {"x": [None, 1]}
    assert made.metadata.labels == {"a": "b", "c": "d", "actions-ephemeral-runner": "True"}
    assert made.metadata.annotations == {"e": "f"}


def test_proxy_variables_come_from_the_secret_and_only_those_configured() -> None:
    proxy = Proxy(https=ProxyServer(url="http://p:1"))
    runner = a_runner(proxy=proxy, proxy_secret_ref="s")
    (container,) = build_pod(runner, "1").spec["containers"]
    (variable,) = (v for v in container["env"] if v["name"].endswith("_proxy"))
    assert variable == {
        "name": "https_proxy",
        "valueFrom": {"secretKeyRef": {"name": "s", "key": "https_proxy"}},
    }


@pytest.mark.parametrize("containers", [[{"name": "main"}], [{"image": "x"}], ["runner"]])
def test_a_template_without_a_runner_is_named_as_such(containers: list[Any]) -> None:
    with pytest.raises(InvalidTemplate, match=r"spec.containers"):
        build_pod(a_runner(*containers), "1")


def test_work_folder_hooks_and_sidecars_are_read_from_the_template() -> None:
    plain = a_runner().spec
    assert (work_folder(plain), uses_container_hooks(plain), sidecars(plain)) == (
        "",
        False,
        frozenset(),
    )
    spec = a_runner(
        {
            "name": "runner",
            "workingDir": "/w",
            "env": [{"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "x"}],
        }
    ).spec
    spec.spec["initContainers"] = [{"name": "dind", "restartPolicy": "Always"}, {"name": "setup"}]
    assert (work_folder(spec), uses_container_hooks(spec), sidecars(spec)) == (
        "/w",
        True,
        frozenset(["dind"]),
    )


def test_the_secret_can_be_read_back_and_never_shows_its_content() -> None:
    runner = a_runner()
    runner.spec.ephemeral_runner_config_secret_metadata = ResourceMeta(
        labels={"a": "theirs", "x": "y"}, annotations={"n": "o"}
    )
    secret = build_jit_secret(runner, 12, "jit-config")
    assert runner_id_in(secret, runner) == 12
    assert secret.metadata.labels == {"a": "b", "x": "y"}
    assert secret.metadata.annotations == {"n": "o"}
    assert "jit-config" not in repr(secret)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["jitToken", "runnerName", "runnerId", "scaleSetId"]), st.binary(max_size=4)
    )
)
def test_a_secret_is_sound_or_it_is_not_but_reading_it_never_fails(data: dict[str, bytes]) -> None:
    runner = a_runner()
    sound = runner_id_in(Secret(data=data), runner) > 0
    assert not sound or (data["runnerName"] == b"r" and int(data["scaleSetId"]) == 5)
