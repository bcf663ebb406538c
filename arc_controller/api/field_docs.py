"""What ``kubectl explain`` says of each field of our kinds: struct, field name in Python, text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arc_controller.api import v1alpha1 as api
from arc_controller.runtime.objects import Condition

_URL = (
    "Where runners register: the URL of an enterprise, an organization or a repository, "
    "for example https://github.com/my-org/my-repo."
)
_SECRET = (
    "The secret with the credentials (github_token, or github_app_id, github_app_installation_id "
    "and github_app_private_key), or its name in the vault of vaultConfig."
)
_PROXY = "The proxy to reach GitHub through."
_TLS = "The certificate authority of a GitHub Enterprise Server."
_VAULT = "Where credentials come from, if not from Kubernetes secrets."
_SCALE_SET = "The id of the runner scale set at the service."
_CONDITIONS = "Why something is, or is not, happening."
_RUNNERS = {
    "pending_ephemeral_runners": "Runners without a job: starting, or waiting for one.",
    "running_ephemeral_runners": "Runners that hold a job.",
    "failed_ephemeral_runners": "Runners whose pod failed to start too often.",
}
_ADDED = "Labels and annotations added to "

FIELD_DOCS: Final[Mapping[type, Mapping[str, str]]] = {
    api.AutoscalingRunnerSetSpec: {
        "github_config_url": _URL,
        "github_config_secret": _SECRET,
        "runner_group": "The runner group, which must exist. Default: the default group.",
        "runner_scale_set_name": (
            "What workflows write into runs-on. Default: the name of this object."
        ),
        "runner_scale_set_labels": "Further labels that workflows may write into runs-on.",
        "proxy": _PROXY,
        "github_server_tls": _TLS,
        "vault_config": _VAULT,
        "template": "The pod of a runner. Its container named runner is the one that matters.",
        "listener_template": "What to add to or change in the pod of the listener.",
        "listener_metrics": "Which metrics the listener publishes.",
        "autoscaling_listener": _ADDED + "the AutoscalingListener.",
        "listener_service_account_metadata": _ADDED + "the service account of the listener.",
        "listener_role_metadata": _ADDED + "the role of the listener.",
        "listener_role_binding_metadata": _ADDED + "the role binding of the listener.",
        "listener_config_secret_metadata": _ADDED + "the configuration secret of the listener.",
        "ephemeral_runner_set_metadata": _ADDED + "the EphemeralRunnerSet.",
        "ephemeral_runner_metadata": _ADDED + "each EphemeralRunner.",
        "ephemeral_runner_config_secret_metadata": _ADDED + "the secret of each runner.",
        "min_runners": "Runners kept idle, so that a job starts at once. Default: 0.",
        "max_runners": "Runners there may be at most. Default: no limit.",
    },
    api.AutoscalingRunnerSetStatus: {
        "current_runners": "Runners there are.",
        "phase": (
            "Pending until the scale set is registered, Running, or Outdated when the service "
            "refuses the runner's version: change the template to go on."
        ),
        **_RUNNERS,
        "conditions": _CONDITIONS,
    },
    api.AutoscalingListenerSpec: {
        "github_config_url": _URL,
        "github_config_secret": _SECRET,
        "runner_scale_set_id": _SCALE_SET,
        "autoscaling_runner_set_namespace": "The namespace of the AutoscalingRunnerSet.",
        "autoscaling_runner_set_name": "The AutoscalingRunnerSet that this listener asks for.",
        "ephemeral_runner_set_name": "The EphemeralRunnerSet that it scales.",
        "min_runners": "Runners kept idle.",
        "max_runners": "Runners there may be at most.",
        "image": "The image of the listener.",
        "image_pull_secrets": "The secrets to pull it with.",
        "proxy": _PROXY,
        "github_server_tls": _TLS,
        "vault_config": _VAULT,
        "metrics": "Which metrics the listener publishes.",
        "template": "What to add to or change in the pod of the listener.",
        "service_account_metadata": _ADDED + "the service account.",
        "role_metadata": _ADDED + "the role.",
        "role_binding_metadata": _ADDED + "the role binding.",
        "config_secret_metadata": _ADDED + "the configuration secret.",
    },
    api.AutoscalingListenerStatus: {"conditions": _CONDITIONS},
    api.EphemeralRunnerSetSpec: {
        "replicas": "Runners there should be; written by the listener.",
        "patch_id": (
            "Which message of the service replicas answers; 0 when no job is expected, and then "
            "idle runners may be removed."
        ),
        "ephemeral_runner_spec": "What each runner is made from.",
        "ephemeral_runner_metadata": _ADDED + "each EphemeralRunner.",
        "actionable_revision": "Counts the changes of the runner's spec.",
    },
    api.EphemeralRunnerSetStatus: {
        "current_replicas": "Runners there are.",
        **_RUNNERS,
        "phase": "Running, or Outdated when the service refuses the runner's version.",
        "applied_actionable_revision": "The newest revision that idle runners follow.",
        "finished_runner_cleanup_patch_id": (
            "The patchID in answer to which finished runners were last removed."
        ),
        "conditions": _CONDITIONS,
    },
    api.EphemeralRunnerSpec: {
        "github_config_url": _URL,
        "github_config_secret": _SECRET,
        "github_server_tls": _TLS,
        "runner_scale_set_id": _SCALE_SET,
        "proxy": _PROXY,
        "proxy_secret_ref": "The secret with the proxy's addresses and credentials.",
        "vault_config": _VAULT,
        "ephemeral_runner_config_secret_metadata": _ADDED + "the runner's secret.",
        "metadata": "Labels and annotations of the runner's pod.",
        "spec": "The runner's pod.",
    },
    api.EphemeralRunnerStatus: {
        "ready": "Whether the runner's pod is ready.",
        "phase": (
            "Pending while it starts or waits for a job, Running while it holds one, then "
            "Succeeded, Failed or Outdated."
        ),
        "reason": "Why it is in this phase, in one word.",
        "message": "Why it is in this phase.",
        "runner_id": "Its id at the service; 0 until it is registered.",
        "runner_name": "Its name at the service.",
        "failures": "When its pods failed, by the pod's UID.",
        "job_request_id": "The request that its job came with.",
        "job_id": "Its job.",
        "job_repository_name": "The job's repository, OWNER/REPO.",
        "job_workflow_ref": "The job's workflow.",
        "workflow_run_id": "The run of the workflow.",
        "job_display_name": "The job's name.",
        "conditions": _CONDITIONS,
    },
    api.ResourceMeta: {
        "labels": "Labels to add; none that the controller sets is changed.",
        "annotations": "Annotations to add; none that the controller sets is changed.",
    },
    api.Proxy: {
        "http": "For http:// addresses.",
        "https": "For https:// addresses.",
        "no_proxy": "Hosts to reach directly.",
    },
    api.ProxyServer: {
        "url": "The address of the proxy, without credentials.",
        "credential_secret_ref": "A secret with the keys username and password.",
    },
    api.ServerTLS: {"certificate_from": "Where the certificate is."},
    api.CertificateSource: {"config_map_key_ref": "A key of a config map in the same namespace."},
    api.ConfigMapKey: {
        "name": "The config map.",
        "key": "The key in it.",
        "optional": "Whether the config map or the key may be missing.",
    },
    api.Vault: {
        "type": "The kind of vault: azure_key_vault.",
        "azure_key_vault": "An Azure Key Vault.",
        "proxy": "The proxy to reach the vault through.",
    },
    api.AzureKeyVault: {
        "url": "The address of the vault.",
        "tenant_id": "The tenant.",
        "client_id": "The application that reads the vault.",
        "certificate_path": "The file with the application's certificate and key.",
    },
    api.ListenerMetrics: {
        "counters": "Counters by name.",
        "gauges": "Gauges by name.",
        "histograms": "Histograms by name.",
    },
    api.Metric: {"labels": "The labels of the metric."},
    api.HistogramMetric: {
        "labels": "The labels of the metric.",
        "buckets": "The upper bounds of the buckets.",
    },
    api.LocalObjectReference: {"name": "The secret."},
    Condition: {
        "type": "The condition, in CamelCase.",
        "status": "True, False or Unknown.",
        "reason": "Why, in one CamelCase word.",
        "message": "Why, for a person.",
        "observed_generation": "The metadata.generation that this was said of.",
        "last_transition_time": "When status last changed.",
    },
}
