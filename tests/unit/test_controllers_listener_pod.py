"""The listener's pod: how a user's template is merged into it, and what its state means."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
)
from arc_controller.api.v1alpha1 import AutoscalingListener, AutoscalingListenerSpec
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.listener_config import config_file, metrics_port
from arc_controller.controllers.listener_pod import listener_pod, merged_spec
from arc_controller.controllers.listener_state import pod_state
from arc_controller.listener.config import parse_config
from arc_controller.runtime.objects import ObjectMeta

CONFIG = ControllerConfig(namespace="arc", image="arc:1", listener_metrics_addr=":8080")
LISTENER = AutoscalingListener(
    metadata=ObjectMeta(name="l", namespace="arc", uid="1"),
    spec=AutoscalingListenerSpec(
        github_config_url="https://github.com/acme",
        github_config_secret="github",
        image="arc:1",
        runner_scale_set_id=7,
        autoscaling_runner_set_namespace="ci",
        autoscaling_runner_set_name="s",
        ephemeral_runner_set_name="s",
        max_runners=5,
    ),
)
BASE: dict[str, Any] = listener_pod(LISTENER, CONFIG).spec


def merged(**template: Any) -> dict[str, Any]:
    return merged_spec(BASE, template)


def in_listener(**fields: Any) -> dict[str, Any]:
    container: dict[str, Any] = merged(containers=[{"name": "listener", **fields}])["containers"][0]
    return container


def test_an_empty_template_changes_nothing() -> None:
    templates: list[dict[str, Any]] = [{}, {"containers": []}, {"containers": None}]
    for template in [*templates, {"volumes": []}]:
        assert merged_spec(BASE, template) == BASE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["hostNetwork", "tolerations", "x"]), json_values))
def test_neither_the_base_nor_the_template_is_changed(template: dict[str, Any]) -> None:
    before = copy.deepcopy((BASE, template))
    merged_spec(BASE, template)
    assert (BASE, template) == before


def test_image_and_command_are_replaced_and_lists_are_appended() -> None:
    container = in_listener(
        image="mine",
        command=["/mine"],
        args=["--debug"],
        env=[{"name": "A", "value": "1"}],
        ports=[{"name": "web", "containerPort": 9000}],
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
        securityContext={"runAsUser": 1},
        tty=False,
    )
    assert (container["image"], container["command"]) == ("mine", ["/mine"])
    assert container["args"] == ["--debug"]
    assert [e["name"] for e in container["env"]] == ["LISTENER_CONFIG_PATH", "A"]
    assert [p["name"] for p in container["ports"]] == ["metrics", "web"]
    assert [m["mountPath"] for m in container["volumeMounts"]] == ["/etc/gha-listener", "/v"]
    assert container["securityContext"] == {"runAsUser": 1}
    assert container["tty"] is False


def test_an_image_that_is_not_given_stays_ours() -> None:
    assert in_listener(image="", command=None)["image"] == "arc:1"


def test_the_path_of_the_configuration_and_its_mount_stay_ours() -> None:
    container = in_listener(
        env=[{"name": "LISTENER_CONFIG_PATH", "value": "/mine"}],
        volumeMounts=[{"name": "v", "mountPath": "/etc/gha-listener"}],
    )
    assert container == BASE["containers"][0]


def test_a_port_or_its_name_is_never_there_twice() -> None:
    for theirs in ({"containerPort": 8080}, {"name": "metrics", "containerPort": 9}):
        assert in_listener(ports=[theirs])["ports"] == [theirs]
    udp = {"name": "u", "containerPort": 8080, "protocol": "UDP"}
    assert len(in_listener(ports=[udp])["ports"]) == 2


def test_the_rest_of_the_pod_is_taken_over_but_not_who_it_is() -> None:
    spec = merged(
        serviceAccountName="mine",
        serviceAccount="mine",
        automountServiceAccountToken=False,
        priorityClassName="high",
        hostNetwork=True,
        terminationGracePeriodSeconds=5,
        tolerations=[{"operator": "Exists"}],
        nodeSelector={"pool": "x"},
        initContainers=[{"name": "init"}],
        volumes=[{"name": "v"}, {"name": "listener-config", "emptyDir": {}}],
        imagePullSecrets=[{"name": "r"}],
        containers=[{"name": "sidecar"}],
    )
    assert spec["serviceAccountName"] == "l"
    assert "serviceAccount" not in spec
    assert "automountServiceAccountToken" not in spec
    assert spec["priorityClassName"] == "high"
    assert spec["hostNetwork"] is True
    assert spec["terminationGracePeriodSeconds"] == 5
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "x"}
    assert spec["initContainers"] == [{"name": "init"}]
    assert [v["name"] for v in spec["volumes"]] == ["listener-config", "v"]
    assert spec["volumes"][0] == BASE["volumes"][0]
    assert spec["imagePullSecrets"] == [{"name": "r"}]
    assert [c["name"] for c in spec["containers"]] == ["listener", "sidecar"]


def test_the_hash_changes_with_the_secrets_and_with_nothing_else() -> None:
    def hash_of(listener: AutoscalingListener, content: bytes) -> str:
        pod = listener_pod(listener, CONFIG, {"config.json": content})
        return pod.metadata.annotations["actions.github.com/integrity-hash"]

    assert hash_of(LISTENER, b"a") == hash_of(LISTENER, b"a")
    assert hash_of(LISTENER, b"a") != hash_of(LISTENER, b"b")
    twin = AutoscalingListener(
        metadata=ObjectMeta(name="l", namespace="arc", uid="2"), spec=LISTENER.spec
    )
    assert hash_of(LISTENER, b"a") != hash_of(twin, b"a"), "salted"


@pytest.mark.parametrize(
    ("address", "port"), [("", None), ("0", None), (":8080", 8080), ("1.2.3.4:9", 9), ("x", None)]
)
def test_metrics_are_on_with_an_address(address: str, port: int | None) -> None:
    config = ControllerConfig(namespace="arc", image="i", listener_metrics_addr=address)
    assert metrics_port(config) == port


@pytest.mark.parametrize(
    "credentials",
    [
        {"github_token": " t \n"},
        {
            "github_app_id": "Iv1.abc",
            "github_app_installation_id": "42",
            "github_app_private_key": "-----BEGIN PRIVATE KEY-----\n",
        },
    ],
    ids=["token", "app"],
)
def test_the_listener_can_read_what_the_controller_writes(credentials: dict[str, str]) -> None:
    content = config_file(LISTENER, CONFIG, credentials=credentials)
    if "github_token" in credentials:
        parsed = parse_config(content)
        assert parsed.github_token == "t"
        assert (parsed.min_runners, parsed.max_runners) == (0, 5)
        assert parsed.runner_scale_set_id == 7
        assert parsed.metrics_host_port == ("", 8080)
    else:
        assert b'"github_app_installation_id":42' in content
        assert b"github_token" not in content


def _pod(*, phase: str = "Running", reason: str = "", **state: Any) -> Pod:
    statuses = [ContainerStatus(name="sidecar", state=ContainerState(running={}))]
    if state:
        statuses.append(ContainerStatus(name="listener", state=ContainerState(**state)))
    return Pod(status=PodStatus(phase=phase, reason=reason, container_statuses=statuses))


@pytest.mark.parametrize(
    ("pod", "runs", "is_over", "reason"),
    [
        (_pod(running={}), True, False, "Running"),
        (_pod(terminated=ContainerStateTerminated(exit_code=0)), False, True, "Terminated"),
        (_pod(terminated=ContainerStateTerminated(exit_code=3)), False, True, "Terminated"),
        (_pod(phase="Failed", reason="Evicted"), False, True, "Evicted"),
        (_pod(phase="Succeeded"), False, True, "Terminated"),
        (
            _pod(phase="Pending", waiting=ContainerStateWaiting(reason="ErrImagePull")),
            False,
            False,
            "ErrImagePull",
        ),
        (_pod(phase="Pending", waiting=ContainerStateWaiting()), False, False, "Starting"),
        (_pod(phase="Pending"), False, False, "Starting"),
    ],
)
def test_what_a_pods_state_means(pod: Pod, runs: bool, is_over: bool, reason: str) -> None:
    state = pod_state(pod)
    assert (state.runs, state.is_over, state.reason) == (runs, is_over, reason)


@pytest.mark.parametrize(
    ("ended", "message", "is_clean"),
    [
        (
            ContainerStateTerminated(exit_code=137, reason="Error", message="info: 3 jobs"),
            "the listener ended with exit code 137 (killed by signal 9, SIGKILL)",
            False,
        ),
        (
            ContainerStateTerminated(exit_code=137, reason="OOMKilled", message="info: 3 jobs"),
            "the listener ended with exit code 137 (killed by signal 9, SIGKILL): OOMKilled",
            False,
        ),
        (
            ContainerStateTerminated(exit_code=1, reason="Error", message="no session"),
            "the listener ended with exit code 1: no session",
            False,
        ),
        (ContainerStateTerminated(exit_code=3), "the listener ended with exit code 3", False),
        (
            ContainerStateTerminated(exit_code=0, reason="Completed", message="info: stopped"),
            "the listener ended without an error",
            True,
        ),
    ],
)
def test_the_end_of_a_listener_is_explained(
    ended: ContainerStateTerminated, message: str, is_clean: bool
) -> None:
    state = pod_state(_pod(terminated=ended))
    assert (state.message, state.is_clean) == (message, is_clean)


def test_a_pod_that_fits_nowhere_says_so() -> None:
    condition = PodCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes"
    )
    state = pod_state(Pod(status=PodStatus(phase="Pending", conditions=[condition])))
    assert (state.reason, state.message) == ("Unschedulable", "0/3 nodes")
