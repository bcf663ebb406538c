"""``config.json`` and the secrets that a listener's pod mounts or reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import AutoscalingListener, ListenerMetrics, Vault
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.labels import merged_annotations, merged_labels
from arc_controller.controllers.meta import own, with_integrity
from arc_controller.runtime.objects import NamespacedName, ObjectMeta

CONFIG_KEY = "config.json"


class VaultProxy(msgspec.Struct, omit_defaults=True, kw_only=True):
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""


class AzureKeyVaultConfig(msgspec.Struct, omit_defaults=True, kw_only=True):
    url: str = ""
    tenant_id: str = ""
    client_id: str = ""
    certificate_path: str = ""
    proxy: VaultProxy | None = None


class ConfigFile(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The content of ``config.json``. It holds secrets: it is never shown."""

    configure_url: str
    vault_type: str = ""
    vault_lookup_key: str = ""
    azure_key_vault: AzureKeyVaultConfig | None = None
    github_token: str = ""
    github_app_id: str = ""
    github_app_installation_id: int = 0
    github_app_private_key: str = ""
    ephemeral_runner_set_namespace: str
    ephemeral_runner_set_name: str
    max_runners: int = -1  # not a value it may have: zeros are written too
    min_runners: int = -1
    runner_scale_set_id: int
    runner_scale_set_name: str
    server_root_ca: str = ""
    log_level: str = ""
    log_format: str = ""
    metrics_addr: str = ""
    metrics_endpoint: str = ""
    metrics: ListenerMetrics | None = None

    def __repr__(self) -> str:
        return f"ConfigFile(scale set {self.runner_scale_set_id})"


def config_file(
    listener: AutoscalingListener,
    config: ControllerConfig,
    *,
    credentials: Mapping[str, str],
    root_ca: str = "",
    vault_proxy: Mapping[str, str] | None = None,
) -> bytes:
    """What the listener is told. With a vault, `credentials` is empty: it looks them up itself."""
    spec = listener.spec
    vault = spec.vault_config if spec.vault_config and spec.vault_config.type else None
    content = ConfigFile(
        configure_url=spec.github_config_url,
        vault_type=vault.type if vault else "",
        vault_lookup_key=spec.github_config_secret if vault else "",
        azure_key_vault=_azure(vault, vault_proxy or {}) if vault else None,
        github_token=credentials.get("github_token", "").strip(),
        github_app_id=credentials.get("github_app_id", "").strip(),
        github_app_installation_id=int(
            credentials.get("github_app_installation_id", "").strip() or 0
        ),
        github_app_private_key=credentials.get("github_app_private_key", "").strip(),
        ephemeral_runner_set_namespace=spec.autoscaling_runner_set_namespace,
        ephemeral_runner_set_name=spec.ephemeral_runner_set_name,
        max_runners=spec.max_runners,
        min_runners=spec.min_runners,
        runner_scale_set_id=spec.runner_scale_set_id,
        runner_scale_set_name=spec.autoscaling_runner_set_name,
        server_root_ca=root_ca,
        log_level=config.log_level,
        log_format=config.log_format,
        metrics_addr=config.listener_metrics_addr if metrics_port(config) else "",
        metrics_endpoint=config.listener_metrics_endpoint if metrics_port(config) else "",
        metrics=spec.metrics,
    )
    return msgspec.json.encode(content)


def metrics_port(config: ControllerConfig) -> int | None:
    """The port that the listeners' metrics are served at; None when they are off."""
    address = config.listener_metrics_addr
    if address in ("", "0"):
        return None
    port = address.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() and int(port) else None


def config_secret_key(listener: AutoscalingListener) -> NamespacedName:
    return NamespacedName(listener.metadata.namespace, f"{listener.metadata.name}-config")


def proxy_secret_key(listener: AutoscalingListener) -> NamespacedName:
    return NamespacedName(listener.metadata.namespace, f"{listener.metadata.name}-proxy")


def config_secret(listener: AutoscalingListener, content: bytes) -> Secret:
    extra = listener.spec.config_secret_metadata
    namespace, name = config_secret_key(listener)
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=merged_labels(extra, listener.metadata.labels),
        annotations=merged_annotations(extra),
    )
    return Secret(
        metadata=with_integrity(own(listener, metadata)), type="Opaque", data={CONFIG_KEY: content}
    )


def proxy_secret(listener: AutoscalingListener, environment: Mapping[str, str]) -> Secret:
    """The secret that the pod's ``http_proxy``, ``https_proxy`` and ``no_proxy`` come from."""
    namespace, name = proxy_secret_key(listener)
    metadata = ObjectMeta(
        name=name, namespace=namespace, labels=dict(listener.metadata.labels), annotations={}
    )
    return Secret(
        metadata=with_integrity(own(listener, metadata)),
        type="Opaque",
        data={variable: value.encode() for variable, value in environment.items()},
    )


def _azure(vault: Vault, proxy: Mapping[str, str]) -> AzureKeyVaultConfig | None:
    azure = vault.azure_key_vault
    if azure is None:
        return None
    return AzureKeyVaultConfig(
        url=azure.url,
        tenant_id=azure.tenant_id,
        client_id=azure.client_id,
        certificate_path=azure.certificate_path,
        proxy=VaultProxy(**proxy) if proxy else None,
    )
