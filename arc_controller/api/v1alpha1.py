"""``actions.github.com/v1alpha1``: the four kinds of runner scale sets.

Field names are fixed: charts and people's manifests in the field use them. The docstrings and
`msgspec.Meta` of these classes are also the descriptions and limits in ``config/crd/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from arc_controller.runtime.objects import Condition, KubeObject, Wire

GROUP: Final = "actions.github.com"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
MAX_RUNNERS: Final = 2**31 - 1

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_RUNNERS)]


class Phase:
    """The phases of an EphemeralRunner. ``Running`` means: this runner holds a job."""

    PENDING: Final = "Pending"
    RUNNING: Final = "Running"
    SUCCEEDED: Final = "Succeeded"
    FAILED: Final = "Failed"
    OUTDATED: Final = "Outdated"


DONE: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.OUTDATED})
"""The phases that a runner never leaves."""


class SetPhase:
    """The phases of the two sets; only an AutoscalingRunnerSet is ever ``Pending``."""

    PENDING: Final = "Pending"
    RUNNING: Final = "Running"
    OUTDATED: Final = "Outdated"


class Reason:
    TOO_MANY_POD_FAILURES: Final = "TooManyPodFailures"
    INVALID_POD: Final = "InvalidPod"
    OUTDATED: Final = "Outdated"


class ResourceMeta(Wire):
    """Labels and annotations to add to something that the controller makes."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class ProxyServer(Wire):
    url: str = ""
    credential_secret_ref: str = ""


class Proxy(Wire):
    http: ProxyServer | None = None
    https: ProxyServer | None = None
    no_proxy: list[str] = msgspec.field(default_factory=list)


class ConfigMapKey(Wire):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class CertificateSource(Wire):
    config_map_key_ref: ConfigMapKey | None = None


class ServerTLS(Wire):
    certificate_from: CertificateSource | None = None


class AzureKeyVault(Wire):
    url: str = ""
    tenant_id: str = ""
    client_id: str = ""
    certificate_path: str = ""


class Vault(Wire):
    type: str = ""
    azure_key_vault: AzureKeyVault | None = None
    proxy: Proxy | None = None


class Metric(Wire):
    labels: list[str] = msgspec.field(default_factory=list)


class HistogramMetric(Metric):
    buckets: list[float] = msgspec.field(default_factory=list)


class ListenerMetrics(Wire):
    """Which listener metrics, with which labels and buckets, are on."""

    counters: dict[str, Metric] = msgspec.field(default_factory=dict)
    gauges: dict[str, Metric] = msgspec.field(default_factory=dict)
    histograms: dict[str, HistogramMetric] = msgspec.field(default_factory=dict)


class PodTemplate(Wire):
    """A pod template, passed through untouched."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


# --- AutoscalingRunnerSet -------------------------------------------------------------------------


class AutoscalingRunnerSetSpec(Wire):
    github_config_url: str = msgspec.field(default="", name="githubConfigUrl")
    github_config_secret: str = ""
    runner_group: str = ""
    runner_scale_set_name: str = ""
    runner_scale_set_labels: list[str] = msgspec.field(default_factory=list)
    proxy: Proxy | None = None
    github_server_tls: ServerTLS | None = msgspec.field(default=None, name="githubServerTLS")
    vault_config: Vault | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    listener_template: PodTemplate | None = None
    listener_metrics: ListenerMetrics | None = None
    autoscaling_listener: ResourceMeta | None = None
    listener_service_account_metadata: ResourceMeta | None = None
    listener_role_metadata: ResourceMeta | None = None
    listener_role_binding_metadata: ResourceMeta | None = None
    listener_config_secret_metadata: ResourceMeta | None = None
    ephemeral_runner_set_metadata: ResourceMeta | None = None
    ephemeral_runner_metadata: ResourceMeta | None = None
    ephemeral_runner_config_secret_metadata: ResourceMeta | None = None
    min_runners: Count | None = None
    max_runners: Count | None = None


class AutoscalingRunnerSetStatus(Wire):
    current_runners: int = 0
    phase: str = ""
    pending_ephemeral_runners: int = 0
    running_ephemeral_runners: int = 0
    failed_ephemeral_runners: int = 0
    conditions: list[Condition] = msgspec.field(default_factory=list)


class AutoscalingRunnerSet(KubeObject):
    """What the user writes: one runner scale set."""

    spec: AutoscalingRunnerSetSpec = msgspec.field(default_factory=AutoscalingRunnerSetSpec)
    status: AutoscalingRunnerSetStatus = msgspec.field(default_factory=AutoscalingRunnerSetStatus)


# --- EphemeralRunner ------------------------------------------------------------------------------


class EphemeralRunnerSpec(Wire):
    """What a runner is made from: where it registers and, inline, its pod template."""

    github_config_url: str = msgspec.field(default="", name="githubConfigUrl")
    github_config_secret: str = ""
    github_server_tls: ServerTLS | None = msgspec.field(default=None, name="githubServerTLS")
    runner_scale_set_id: int = 0
    proxy: Proxy | None = None
    proxy_secret_ref: str = ""
    vault_config: Vault | None = None
    ephemeral_runner_config_secret_metadata: ResourceMeta | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class EphemeralRunnerStatus(Wire):
    ready: bool = False
    phase: str = ""
    reason: str = ""
    message: str = ""
    runner_id: int = 0
    runner_name: str = ""
    failures: dict[str, datetime] = msgspec.field(default_factory=dict)
    job_request_id: int = 0
    job_id: str = ""
    job_repository_name: str = ""
    job_workflow_ref: str = ""
    workflow_run_id: int = 0
    job_display_name: str = ""
    conditions: list[Condition] = msgspec.field(default_factory=list)

    @property
    def has_job(self) -> bool:
        return bool(self.job_id or self.job_request_id)

    @property
    def is_done(self) -> bool:
        return self.phase in DONE


class EphemeralRunner(KubeObject):
    """One runner: one pod, one registration, one job."""

    spec: EphemeralRunnerSpec = msgspec.field(default_factory=EphemeralRunnerSpec)
    status: EphemeralRunnerStatus = msgspec.field(default_factory=EphemeralRunnerStatus)


# --- EphemeralRunnerSet ---------------------------------------------------------------------------


class EphemeralRunnerSetSpec(Wire):
    replicas: Count = 0
    patch_id: int = msgspec.field(default=0, name="patchID")
    ephemeral_runner_spec: EphemeralRunnerSpec = msgspec.field(default_factory=EphemeralRunnerSpec)
    ephemeral_runner_metadata: ResourceMeta | None = None
    actionable_revision: int = 0


class EphemeralRunnerSetStatus(Wire):
    current_replicas: int = 0
    pending_ephemeral_runners: int = 0
    running_ephemeral_runners: int = 0
    failed_ephemeral_runners: int = 0
    phase: str = ""
    applied_actionable_revision: int = 0
    finished_runner_cleanup_patch_id: int = msgspec.field(
        default=0, name="finishedRunnerCleanupPatchID"
    )
    conditions: list[Condition] = msgspec.field(default_factory=list)


class EphemeralRunnerSet(KubeObject):
    """How many runners there should be. The listener writes the spec, the controller never."""

    spec: EphemeralRunnerSetSpec = msgspec.field(default_factory=EphemeralRunnerSetSpec)
    status: EphemeralRunnerSetStatus = msgspec.field(default_factory=EphemeralRunnerSetStatus)


# --- AutoscalingListener --------------------------------------------------------------------------


class LocalObjectReference(Wire):
    name: str = ""


class AutoscalingListenerSpec(Wire):
    github_config_url: str = msgspec.field(default="", name="githubConfigUrl")
    github_config_secret: str = ""
    runner_scale_set_id: int = 0
    autoscaling_runner_set_namespace: str = ""
    autoscaling_runner_set_name: str = ""
    ephemeral_runner_set_name: str = ""
    min_runners: Count = 0
    max_runners: Count = 0
    image: str = ""
    image_pull_secrets: list[LocalObjectReference] = msgspec.field(default_factory=list)
    proxy: Proxy | None = None
    github_server_tls: ServerTLS | None = msgspec.field(default=None, name="githubServerTLS")
    vault_config: Vault | None = None
    metrics: ListenerMetrics | None = None
    template: PodTemplate | None = None
    service_account_metadata: ResourceMeta | None = None
    role_metadata: ResourceMeta | None = None
    role_binding_metadata: ResourceMeta | None = None
    config_secret_metadata: ResourceMeta | None = None


class AutoscalingListenerStatus(Wire):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class AutoscalingListener(KubeObject):
    """The process that asks the service for jobs, one per scale set."""

    spec: AutoscalingListenerSpec = msgspec.field(default_factory=AutoscalingListenerSpec)
    status: AutoscalingListenerStatus = msgspec.field(default_factory=AutoscalingListenerStatus)


# --- names ----------------------------------------------------------------------------------------


class Finalizer:
    AUTOSCALING_RUNNER_SET: Final = "autoscalingrunnerset.actions.github.com/finalizer"
    AUTOSCALING_LISTENER: Final = "autoscalinglistener.actions.github.com/finalizer"
    EPHEMERAL_RUNNER_SET: Final = "ephemeralrunnerset.actions.github.com/finalizer"
    EPHEMERAL_RUNNER: Final = "ephemeralrunner.actions.github.com/finalizer"
    RUNNER_REGISTRATION: Final = "ephemeralrunner.actions.github.com/runner-registration-finalizer"
    CLEANUP_PROTECTION: Final = "actions.github.com/cleanup-protection"


LISTENING_SINCE: Final = "actions.github.com/listening-since"
"""The annotation of an EphemeralRunnerSet with which each life of a listener begins: when it got
the message session."""


class Annotation:
    RUNNER_SCALE_SET_ID: Final = "runner-scale-set-id"
    RUNNER_GROUP_NAME: Final = "actions.github.com/runner-group-name"
    RUNNER_SCALE_SET_NAME: Final = "actions.github.com/runner-scale-set-name"
    PATCH_ID: Final = "actions.github.com/patch-id"
    ACTIONABLE_REVISION: Final = "actions.github.com/actionable-revision"
    INTEGRITY_HASH: Final = "actions.github.com/integrity-hash"
    CLEANUP_PREFIX: Final = "actions.github.com/cleanup-"


class Label:
    PART_OF: Final = "app.kubernetes.io/part-of"
    COMPONENT: Final = "app.kubernetes.io/component"
    VERSION: Final = "app.kubernetes.io/version"
    SCALE_SET_NAME: Final = "actions.github.com/scale-set-name"
    SCALE_SET_NAMESPACE: Final = "actions.github.com/scale-set-namespace"
    ENTERPRISE: Final = "actions.github.com/enterprise"
    ORGANIZATION: Final = "actions.github.com/organization"
    REPOSITORY: Final = "actions.github.com/repository"
    LISTENER_NAME: Final = "auto-scaling-listener-name"
    LISTENER_NAMESPACE: Final = "auto-scaling-listener-namespace"
    EPHEMERAL_RUNNER: Final = "actions-ephemeral-runner"


PART_OF: Final = "gha-runner-scale-set"


class Component:
    AUTOSCALING_RUNNER_SET: Final = "autoscaling-runner-set"
    LISTENER: Final = "runner-scale-set-listener"
    RUNNER_SET: Final = "runner-set"
    RUNNER: Final = "runner"


RUNNER_CONTAINER: Final = "runner"
LISTENER_CONTAINER: Final = "listener"


def integer_annotation(annotations: Mapping[str, str], name: str) -> int:
    """An annotation that holds a number; 0 if it is missing or does not parse."""
    try:
        return int(annotations.get(name, "0"))
    except ValueError:
        return 0
