"""``config.json``: what the controller tells a listener, read once at start.

The keys are fixed (design 02, AutoscalingListener). Keys that we do not know are ignored, so that a
newer controller may run an older listener.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from arc_controller.actions import (
    ActionsError,
    ConfigUrl,
    Credentials,
    credentials_from_mapping,
    parse_config_url,
)
from arc_controller.api.v1alpha1 import MAX_RUNNERS, ListenerMetrics

AZURE_KEY_VAULT: Final = "azure_key_vault"
LOG_LEVELS: Final = ("debug", "info", "warn", "error")
LOG_FORMATS: Final = ("text", "json")
DEFAULT_METRICS_ENDPOINT: Final = "/metrics"

_SECRETS: Final = ("github_token", "github_app_private_key")


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the key and what is right."""


class VaultProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""


class AzureKeyVaultConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the vault is and who we are to it."""

    url: str = ""
    tenant_id: str = ""
    client_id: str = ""
    certificate_path: str = ""
    proxy: VaultProxyConfig | None = None


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A valid configuration; made by `load_config` or `parse_config`."""

    configure_url: str = ""
    vault_type: str = ""
    vault_lookup_key: str = ""
    azure_key_vault: AzureKeyVaultConfig | None = None
    github_token: str = ""
    github_app_id: str | int = ""
    github_app_installation_id: str | int = ""
    github_app_private_key: str = ""
    ephemeral_runner_set_namespace: str = ""
    ephemeral_runner_set_name: str = ""
    max_runners: int = MAX_RUNNERS
    min_runners: int = 0
    runner_scale_set_id: int = 0
    runner_scale_set_name: str = ""
    server_root_ca: str = ""
    log_level: str = ""
    log_format: str = ""
    metrics_addr: str = ""
    metrics_endpoint: str = ""
    metrics: ListenerMetrics | None = None

    def __repr__(self) -> str:
        return (
            f"ListenerConfig(scale set {self.runner_scale_set_id} {self.runner_scale_set_name!r} "
            f"at {self.configure_url!r}, set {self.ephemeral_runner_set_namespace}/"
            f"{self.ephemeral_runner_set_name}, {self.min_runners} to {self.max_runners} runners)"
        )

    @property
    def config_url(self) -> ConfigUrl:
        return parse_config_url(self.configure_url)

    @property
    def uses_vault(self) -> bool:
        """Whether the credentials are in a vault, under `vault_lookup_key`."""
        return bool(self.vault_type)

    def credentials(self, where: str = "the listener's configuration") -> Credentials:
        """The credentials in the configuration itself. Raises `InvalidCredentials`."""
        return credentials_from_mapping(
            {
                "github_token": self.github_token,
                "github_app_id": _text(self.github_app_id),
                "github_app_installation_id": _text(self.github_app_installation_id),
                "github_app_private_key": self.github_app_private_key,
            },
            where,
        )

    @property
    def metrics_host_port(self) -> tuple[str, int] | None:
        """Where to serve metrics, None when they are off (no address, or ``0``)."""
        if self.metrics_addr in ("", "0"):
            return None
        host, _, port = self.metrics_addr.rpartition(":")
        return host.strip("[]"), int(port)


def load_config(path: str | Path) -> ListenerConfig:
    """Read and check the file. Raises `ConfigError` with one sentence."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse_config(content, str(path))


def parse_config(content: bytes, where: str = "config.json") -> ListenerConfig:
    """Decode and check. Raises `ConfigError` with one sentence that starts with `where`."""
    try:
        values = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: holds {_json_type(values)}, expected an object")
    # A Go program writes null where it has nothing; that is the same as leaving the key out.
    values = {key: value for key, value in values.items() if value is not None}
    try:
        config = msgspec.convert(values, ListenerConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_type_sentence(str(error), values)}") from None
    for complaint in _complaints(config, where):
        raise ConfigError(f"{where}: {complaint}")
    return config


def _complaints(config: ListenerConfig, where: str) -> list[str]:
    found = []
    try:
        parse_config_url(config.configure_url)
    except ActionsError as error:
        found.append(f"configure_url: {error}")
    for key in ("ephemeral_runner_set_namespace", "ephemeral_runner_set_name"):
        if not getattr(config, key):
            found.append(f"{key} is missing: expected the EphemeralRunnerSet to scale")
    if config.runner_scale_set_id <= 0:
        found.append(
            f"runner_scale_set_id is {config.runner_scale_set_id}, expected the id, 1 or more, "
            "that the service gave the scale set"
        )
    for key in ("min_runners", "max_runners"):
        value = getattr(config, key)
        if not 0 <= value <= MAX_RUNNERS:
            found.append(f"{key} is {value}, expected 0 to {MAX_RUNNERS}")
    if config.min_runners > config.max_runners:
        found.append(
            f"min_runners is {config.min_runners} and max_runners is {config.max_runners}: "
            "expected min_runners to be at most max_runners"
        )
    for key, allowed in (("log_level", LOG_LEVELS), ("log_format", LOG_FORMATS)):
        value = getattr(config, key)
        if value and value not in allowed:
            found.append(f"{key} is {value!r}, expected {' or '.join(allowed)}")
    found += _metrics_complaints(config)
    found += _credential_complaints(config, where)
    if config.server_root_ca and "BEGIN CERTIFICATE" not in config.server_root_ca:
        found.append(
            "server_root_ca holds no PEM certificate, expected -----BEGIN CERTIFICATE-----"
        )
    return found


def _metrics_complaints(config: ListenerConfig) -> list[str]:
    found = []
    address = config.metrics_addr
    if address not in ("", "0"):
        port = address.rpartition(":")[2]
        if ":" not in address or not port.isascii() or not port.isdigit() or int(port) > 65535:
            found.append(
                f"metrics_addr is {address!r}, expected :PORT, HOST:PORT, or 0 to turn metrics off"
            )
    if config.metrics_endpoint and not config.metrics_endpoint.startswith("/"):
        found.append(
            f"metrics_endpoint is {config.metrics_endpoint!r}, "
            f"expected a path such as {DEFAULT_METRICS_ENDPOINT}"
        )
    return found


def _credential_complaints(config: ListenerConfig, where: str) -> list[str]:
    if not config.uses_vault:
        try:
            config.credentials("it")
        except ActionsError as error:
            return [str(error).removeprefix("it ")]
        return []
    found = []
    if config.vault_type != AZURE_KEY_VAULT:
        found.append(f"vault_type is {config.vault_type!r}, expected {AZURE_KEY_VAULT}")
    if not config.vault_lookup_key:
        found.append("vault_lookup_key is missing: expected the name of the secret in the vault")
    vault = config.azure_key_vault
    if vault is None:
        found.append(f"azure_key_vault is missing: vault_type {AZURE_KEY_VAULT} needs it")
        return found
    for key in ("url", "tenant_id", "client_id", "certificate_path"):
        if not getattr(vault, key):
            found.append(f"azure_key_vault.{key} is missing")
    return found


def _type_sentence(message: str, values: Mapping[str, Any]) -> str:
    """``Expected `int`, got `str` - at `$.max_runners``` with the value, unless secret."""
    what, _, place = message.replace("`", "").partition(" - at $.")
    what = what[:1].lower() + what[1:]
    if not place:
        return what
    key = place.partition(".")[0].partition("[")[0]
    value = values.get(key)
    shown = "" if key in _SECRETS or isinstance(value, dict | list) else f" ({value!r})"
    return f"{place}: {what}{shown}"


def _json_type(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _text(value: str | int) -> str:
    return str(value) if value else ""
