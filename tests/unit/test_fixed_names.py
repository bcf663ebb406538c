"""Names that charts, dashboards and people's manifests in the field use, written out once more.

Everything else takes them from the constants; here they are literals, so that a renamed constant is
not a renamed field.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from arc_controller.actions import UserAgent
from arc_controller.actions.client import API_VERSION, CAPACITY_HEADER
from arc_controller.api import SCHEME
from arc_controller.api.crd import custom_resource_definitions
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingListenerSpec,
    AutoscalingRunnerSet,
    AutoscalingRunnerSetSpec,
    Component,
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerSpec,
    Finalizer,
    Label,
    Phase,
    Proxy,
    ProxyServer,
    Reason,
    SetPhase,
)
from arc_controller.cli.manager_flags import FLAGS
from arc_controller.controllers.cleanup import protected
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.listener_config import (
    ConfigFile,
    config_secret_key,
    proxy_secret_key,
)
from arc_controller.controllers.listener_pod import listener_pod
from arc_controller.controllers.listener_rbac import role
from arc_controller.controllers.metrics import ControllerMetrics
from arc_controller.controllers.runner_pod import build_jit_secret, build_pod
from arc_controller.controllers.runner_template import proxy_secret_key as runner_proxy_key
from arc_controller.controllers.scale_set import listener_key
from arc_controller.listener.config import ListenerConfig
from arc_controller.listener.metrics import DEFINITIONS
from arc_controller.runtime.httpmetrics import TransportMetrics
from arc_controller.runtime.metrics import RuntimeMetrics
from arc_controller.runtime.objects import NamespacedName, ObjectMeta

CONFIG = ControllerConfig(namespace="arc-systems", image="arc:1", version="0.14.0")


def values(names: type) -> set[str]:
    return {value for name, value in vars(names).items() if not name.startswith("_")}


def words(text: str) -> set[str]:
    return set(text.replace("\n", " ").split())


# --- the resources ------------------------------------------------------------------------------


def test_finalizers() -> None:
    assert values(Finalizer) == {
        "autoscalingrunnerset.actions.github.com/finalizer",
        "autoscalinglistener.actions.github.com/finalizer",
        "ephemeralrunnerset.actions.github.com/finalizer",
        "ephemeralrunner.actions.github.com/finalizer",
        "ephemeralrunner.actions.github.com/runner-registration-finalizer",
        "actions.github.com/cleanup-protection",
    }


def test_annotations() -> None:
    assert values(Annotation) == {
        "runner-scale-set-id",
        "actions.github.com/runner-group-name",
        "actions.github.com/runner-scale-set-name",
        "actions.github.com/patch-id",
        "actions.github.com/actionable-revision",
        "actions.github.com/integrity-hash",
        "actions.github.com/cleanup-",
    }


def test_cleanup_annotations_and_the_kinds_that_they_name() -> None:
    kinds = {
        "manager-role-binding": "RoleBinding",
        "manager-role-name": "Role",
        "kubernetes-mode-role-name": "Role",
        "kubernetes-mode-role-binding-name": "RoleBinding",
        "kubernetes-mode-service-account-name": "ServiceAccount",
        "github-secret-name": "Secret",
        "no-permission-service-account-name": "ServiceAccount",
    }
    annotations = {f"actions.github.com/cleanup-{name}": name for name in kinds}
    metadata = ObjectMeta(name="linux", namespace="ci", annotations=annotations)
    found = protected(AutoscalingRunnerSet(metadata=metadata))
    assert {thing.key.name: thing.kind.__name__ for thing in found} == kinds


def test_labels_and_components() -> None:
    assert values(Label) == {
        "app.kubernetes.io/part-of",
        "app.kubernetes.io/component",
        "app.kubernetes.io/version",
        "actions.github.com/scale-set-name",
        "actions.github.com/scale-set-namespace",
        "actions.github.com/enterprise",
        "actions.github.com/organization",
        "actions.github.com/repository",
        "auto-scaling-listener-name",
        "auto-scaling-listener-namespace",
        "actions-ephemeral-runner",
    }
    assert values(Component) == {
        "autoscaling-runner-set",
        "runner-scale-set-listener",
        "runner-set",
        "runner",
    }


def test_phases_and_reasons() -> None:
    assert values(Phase) == {"Pending", "Running", "Succeeded", "Failed", "Outdated"}
    assert values(SetPhase) == {"Pending", "Running", "Outdated"}
    assert values(Reason) == {"TooManyPodFailures", "InvalidPod", "Outdated"}


SPECS = {
    "AutoscalingRunnerSet": """
        githubConfigUrl githubConfigSecret runnerGroup runnerScaleSetName runnerScaleSetLabels proxy
        githubServerTLS vaultConfig template listenerTemplate listenerMetrics minRunners maxRunners
        autoscalingListener listenerServiceAccountMetadata listenerRoleMetadata
        listenerRoleBindingMetadata listenerConfigSecretMetadata ephemeralRunnerSetMetadata
        ephemeralRunnerMetadata ephemeralRunnerConfigSecretMetadata
    """,
    "EphemeralRunnerSet": """
        replicas patchID ephemeralRunnerSpec ephemeralRunnerMetadata actionableRevision
    """,
    "EphemeralRunner": """
        githubConfigUrl githubConfigSecret githubServerTLS runnerScaleSetId proxy proxySecretRef
        vaultConfig ephemeralRunnerConfigSecretMetadata metadata spec
    """,
    "AutoscalingListener": """
        githubConfigUrl githubConfigSecret runnerScaleSetId autoscalingRunnerSetNamespace
        autoscalingRunnerSetName ephemeralRunnerSetName minRunners maxRunners image imagePullSecrets
        proxy githubServerTLS vaultConfig metrics template serviceAccountMetadata roleMetadata
        roleBindingMetadata configSecretMetadata
    """,
}
STATUSES = {
    "AutoscalingRunnerSet": """
        currentRunners phase pendingEphemeralRunners runningEphemeralRunners failedEphemeralRunners
        conditions
    """,
    "EphemeralRunnerSet": """
        currentReplicas pendingEphemeralRunners runningEphemeralRunners failedEphemeralRunners phase
        appliedActionableRevision finishedRunnerCleanupPatchID conditions
    """,
    "EphemeralRunner": """
        ready phase reason message runnerId runnerName failures jobRequestId jobId jobRepositoryName
        jobWorkflowRef workflowRunId jobDisplayName conditions
    """,
    "AutoscalingListener": "conditions",
}


def crd(kind: str) -> dict[str, Any]:
    (found,) = [c for c in custom_resource_definitions() if c["spec"]["names"]["kind"] == kind]
    (version,) = found["spec"]["versions"]
    assert (found["spec"]["group"], version["name"]) == ("actions.github.com", "v1alpha1")
    assert isinstance(version, dict)
    return version


def fields(kind: str, *path: str) -> dict[str, Any]:
    schema = crd(kind)["schema"]["openAPIV3Schema"]
    for step in path:
        schema = schema["properties"][step]
    properties: dict[str, Any] = schema["properties"]
    return properties


@pytest.mark.parametrize("kind", SPECS)
def test_fields_of_the_resources(kind: str) -> None:
    assert set(fields(kind, "spec")) == words(SPECS[kind])
    assert set(fields(kind, "status")) == words(STATUSES[kind])
    assert crd(kind)["subresources"] == {"status": {}}
    columns = [column["jsonPath"] for column in crd(kind)["additionalPrinterColumns"]]
    assert ".metadata.creationTimestamp" in columns
    assert len(columns) >= 4


def test_fields_within_fields() -> None:
    kind = "AutoscalingRunnerSet"
    assert set(fields(kind, "spec", "proxy")) == {"http", "https", "noProxy"}
    assert set(fields(kind, "spec", "proxy", "http")) == {"url", "credentialSecretRef"}
    assert set(fields(kind, "spec", "vaultConfig")) == {"type", "azureKeyVault", "proxy"}
    assert set(fields(kind, "spec", "vaultConfig", "azureKeyVault")) == {
        "url",
        "tenantId",
        "clientId",
        "certificatePath",
    }
    tls = fields(kind, "spec", "githubServerTLS", "certificateFrom", "configMapKeyRef")
    assert {"name", "key"} <= set(tls)
    assert set(fields(kind, "spec", "listenerMetrics")) == {"counters", "gauges", "histograms"}
    assert set(fields(kind, "spec", "ephemeralRunnerMetadata")) == {"labels", "annotations"}
    assert fields(kind, "spec")["minRunners"]["minimum"] == 0
    assert fields(kind, "spec")["maxRunners"]["minimum"] == 0
    assert fields("EphemeralRunnerSet", "spec")["actionableRevision"]["format"] == "int64"


# --- what is made -------------------------------------------------------------------------------


def a_runner() -> EphemeralRunner:
    return EphemeralRunner(
        metadata=ObjectMeta(name="linux-runner-abcde", namespace="ci", uid="u"),
        spec=EphemeralRunnerSpec(
            runner_scale_set_id=7,
            proxy=Proxy(https=ProxyServer(url="http://p:1"), no_proxy=["x"]),
            proxy_secret_ref="linux-proxy",
            spec={"containers": [{"name": "runner"}]},
        ),
    )


def test_the_environment_of_a_runner() -> None:
    (container,) = build_pod(a_runner(), "0.14.0").spec["containers"]
    plain = {v["name"]: v["value"] for v in container["env"] if "value" in v}
    assert plain == {
        "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT": "actions-runner-controller/0.14.0",
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "1",
    }
    secret = {
        v["name"]: v["valueFrom"]["secretKeyRef"] for v in container["env"][0:] if "valueFrom" in v
    }
    assert secret == {
        "ACTIONS_RUNNER_INPUT_JITCONFIG": {"name": "linux-runner-abcde", "key": "jitToken"},
        "https_proxy": {"name": "linux-proxy", "key": "https_proxy"},
        "no_proxy": {"name": "linux-proxy", "key": "no_proxy"},
    }


def test_a_runners_pod_and_secret() -> None:
    runner = a_runner()
    pod, secret = build_pod(runner, "0.14.0"), build_jit_secret(runner, 41, "jit")
    assert pod.metadata.labels["actions-ephemeral-runner"] == "True"
    assert secret.data == {
        "jitToken": b"jit",
        "runnerName": b"linux-runner-abcde",
        "runnerId": b"41",
        "scaleSetId": b"7",
    }
    for obj in (pod, secret):
        assert obj.key == runner.key
        (owner,) = obj.metadata.owner_references
        assert msgspec.to_builtins(owner) == {
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "EphemeralRunner",
            "name": "linux-runner-abcde",
            "uid": "u",
            "controller": True,
            "blockOwnerDeletion": True,
        }


def test_names_of_things() -> None:
    scale_set = AutoscalingRunnerSet(
        metadata=ObjectMeta(name="linux", namespace="ci"),
        spec=AutoscalingRunnerSetSpec(github_config_url="https://github.com/acme"),
    )
    namespace, name = listener_key(scale_set, CONFIG)
    head, digest, tail = name.split("-")
    assert (namespace, head, tail) == ("arc-systems", "linux", "listener")
    assert 1 <= len(digest) <= 8
    listener = AutoscalingListener(metadata=ObjectMeta(name=name, namespace=namespace))
    assert config_secret_key(listener) == NamespacedName("arc-systems", f"{name}-config")
    assert proxy_secret_key(listener) == NamespacedName("arc-systems", f"{name}-proxy")
    runner_set = EphemeralRunnerSet(metadata=ObjectMeta(name="linux", namespace="ci"))
    found = runner_proxy_key(runner_set).name
    assert found.startswith("linux-")
    assert found.endswith("-runner-proxy")


def test_a_listeners_pod_and_role() -> None:
    listener = AutoscalingListener(
        metadata=ObjectMeta(name="linux-1-listener", namespace="arc-systems", uid="u"),
        spec=AutoscalingListenerSpec(
            autoscaling_runner_set_namespace="ci", ephemeral_runner_set_name="linux"
        ),
    )
    pod = listener_pod(listener, CONFIG)
    (container,) = pod.spec["containers"]
    assert (container["name"], container["command"]) == ("listener", ["/ghalistener"])
    assert container["env"] == [
        {"name": "LISTENER_CONFIG_PATH", "value": "/etc/gha-listener/config.json"}
    ]
    found = role(listener)
    assert found.metadata.namespace == "ci"
    assert found.metadata.labels["auto-scaling-listener-name"] == "linux-1-listener"
    assert found.metadata.labels["auto-scaling-listener-namespace"] == "arc-systems"


CONFIG_KEYS = """
    configure_url vault_type vault_lookup_key azure_key_vault github_token github_app_id
    github_app_installation_id github_app_private_key ephemeral_runner_set_namespace
    ephemeral_runner_set_name max_runners min_runners runner_scale_set_id runner_scale_set_name
    server_root_ca log_level log_format metrics_addr metrics_endpoint metrics
"""


@pytest.mark.parametrize("struct", [ConfigFile, ListenerConfig])
def test_the_keys_of_config_json(struct: type[msgspec.Struct]) -> None:
    assert set(struct.__struct_encode_fields__) == words(CONFIG_KEYS)


# --- metrics ------------------------------------------------------------------------------------


def test_the_managers_own_metrics() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    key, url = NamespacedName("ci", "linux"), "https://github.com/acme/app"
    metrics.runners(key, url, pending=1, running=2, failed=3)
    metrics.listener(key, url, runs=True)
    labels = {
        "name": "linux",
        "namespace": "ci",
        "repository": "app",
        "organization": "acme",
        "enterprise": "",
    }
    found = {family.name: family for family in registry.collect()}
    assert {name: family.samples[0].value for name, family in found.items()} == {
        "gha_controller_pending_ephemeral_runners": 1,
        "gha_controller_running_ephemeral_runners": 2,
        "gha_controller_failed_ephemeral_runners": 3,
        "gha_controller_running_listeners": 1,
    }
    for family in found.values():
        assert family.type == "gauge"
        assert [sample.labels for sample in family.samples] == [labels]


def test_the_metrics_that_users_of_controller_runtime_know() -> None:
    registry = CollectorRegistry()
    metrics = RuntimeMetrics(registry)
    metrics.queue("q")
    metrics.controller("c", 1)
    TransportMetrics(registry, "host")
    found = {f"{f.name}_total" if f.type == "counter" else f.name for f in registry.collect()}
    assert found >= words(
        """
        workqueue_depth workqueue_adds_total workqueue_retries_total
        workqueue_queue_duration_seconds workqueue_work_duration_seconds
        workqueue_unfinished_work_seconds workqueue_longest_running_processor_seconds
        controller_runtime_reconcile_total controller_runtime_reconcile_errors_total
        controller_runtime_reconcile_time_seconds controller_runtime_active_workers
        controller_runtime_max_concurrent_reconciles
        controller_runtime_terminal_reconcile_errors_total
        leader_election_master_status rest_client_requests_total
        """
    )


def test_the_listeners_metrics() -> None:
    scale_set = ("enterprise", "organization", "repository", "name", "namespace")
    job = ("enterprise", "organization", "repository", "job_name", "event_name")
    result = (*job, "job_result")
    assert {d.name: (d.kind, d.labels) for d in DEFINITIONS.values()} == {
        "gha_assigned_jobs": ("gauge", scale_set),
        "gha_running_jobs": ("gauge", scale_set),
        "gha_registered_runners": ("gauge", scale_set),
        "gha_busy_runners": ("gauge", scale_set),
        "gha_min_runners": ("gauge", scale_set),
        "gha_max_runners": ("gauge", scale_set),
        "gha_desired_runners": ("gauge", scale_set),
        "gha_idle_runners": ("gauge", scale_set),
        "gha_started_jobs_total": ("counter", job),
        "gha_completed_jobs_total": ("counter", result),
        "gha_job_startup_duration_seconds": ("histogram", job),
        "gha_job_execution_duration_seconds": ("histogram", result),
        "gha_job_queue_duration_seconds": ("histogram", job),
    }
    more = {"job_workflow_ref", "job_workflow_name", "job_workflow_target"}
    for definition in DEFINITIONS.values():
        if definition.kind != "gauge":
            assert more <= set(definition.more_labels)


# --- processes and the service ------------------------------------------------------------------

FLAG_DEFAULTS = {
    "auto-scaling-runner-set-only": False,
    "metrics-addr": ":8080",
    "health-probe-bind-address": "",
    "pprof-addr": "",
    "enable-leader-election": False,
    "leader-election-id": "actions-runner-controller",
    "listener-metrics-addr": "",
    "listener-metrics-endpoint": "/metrics",
    "watch-single-namespace": "",
    "watch-namespace": "",
    "runner-max-concurrent-reconciles": 16,
    "exclude-label-propagation-prefix": (),
    "log-level": "info",
    "log-format": "text",
    "auto-scaler-image-pull-secrets": (),
    "k8s-client-rate-limiter-qps": 100,
    "k8s-client-rate-limiter-burst": 200,
    "workqueue-rate-limiter": "bucket_rate_limiter",
    "sync-period": 60.0,
    "port": 9443,
}


def test_the_managers_flags_and_their_defaults() -> None:
    found = {flag.name: flag.initial for flag in FLAGS}
    assert FLAG_DEFAULTS.items() <= found.items()
    assert set(found) - set(FLAG_DEFAULTS) == {"update-strategy", "version", "help", "h"}


def test_what_the_service_is_told() -> None:
    assert (API_VERSION, CAPACITY_HEADER) == ("6.0-preview", "X-ScaleSetMaxCapacity")
    agent = msgspec.json.decode(UserAgent(scale_set_id=7, subsystem="listener").header())
    assert set(agent) == words(
        "system version commit_sha scale_set_id subsystem build_version build_commit_sha kind"
    )
    assert (agent["kind"], agent["scale_set_id"]) == ("scaleset", 7)


def test_where_the_resources_are() -> None:
    assert SCHEME.path(EphemeralRunner, NamespacedName("ci", "a")) == (
        "/apis/actions.github.com/v1alpha1/namespaces/ci/ephemeralrunners/a"
    )
