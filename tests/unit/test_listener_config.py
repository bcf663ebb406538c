"""config.json: every mistake gets one sentence with the key, the value and what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arc_controller.actions import GitHubApp, PersonalAccessToken
from arc_controller.api.v1alpha1 import MAX_RUNNERS
from arc_controller.listener import ConfigError, ListenerConfig, load_config, parse_config

VALID: dict[str, Any] = {
    "configure_url": "https://github.com/octo/repo",
    "github_token": "ghp_secret",
    "ephemeral_runner_set_namespace": "runners",
    "ephemeral_runner_set_name": "linux-abc",
    "runner_scale_set_id": 7,
    "runner_scale_set_name": "linux",
    "min_runners": 1,
    "max_runners": 5,
}
VAULT = {"url": "https://v.vault.azure.net", "tenant_id": "t", "client_id": "c"}


def parse(**changes: Any) -> ListenerConfig:
    values = {**VALID, **changes}
    return parse_config(json.dumps(values).encode(), "config.json")


def complaint(**changes: Any) -> str:
    with pytest.raises(ConfigError) as error:
        parse(**changes)
    return str(error.value)


def test_a_valid_configuration_is_read() -> None:
    config = parse(
        metrics_addr=":8080", metrics={"gauges": {"gha_busy_runners": {"labels": ["name"]}}}
    )
    assert config.config_url.repository == "repo"
    assert config.credentials() == PersonalAccessToken("ghp_secret")
    assert (config.min_runners, config.max_runners) == (1, 5)
    assert config.metrics_host_port == ("", 8080)
    assert config.metrics is not None
    assert config.metrics.gauges["gha_busy_runners"].labels == ["name"]


def test_what_is_absent_or_null_has_its_default() -> None:
    config = parse(min_runners=None, max_runners=None, metrics=None, vault_type="")
    assert (config.min_runners, config.max_runners) == (0, MAX_RUNNERS)
    assert config.metrics is None
    assert config.metrics_host_port is None


def test_keys_of_a_newer_controller_are_ignored() -> None:
    assert parse(something_new={"deep": [1]}).runner_scale_set_id == 7


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", None),
        ("0", None),
        (":8080", ("", 8080)),
        ("127.0.0.1:9", ("127.0.0.1", 9)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_metrics_addresses(address: str, expected: tuple[str, int] | None) -> None:
    assert parse(metrics_addr=address).metrics_host_port == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"max_runners": "5"}, "config.json: max_runners: expected int, got str ('5')"),
        ({"max_runners": -1}, "config.json: max_runners is -1, expected 0 to 2147483647"),
        (
            {"min_runners": 6},
            "config.json: min_runners is 6 and max_runners is 5: "
            "expected min_runners to be at most max_runners",
        ),
        ({"ephemeral_runner_set_name": ""}, "ephemeral_runner_set_name is missing"),
        ({"ephemeral_runner_set_namespace": None}, "ephemeral_runner_set_namespace is missing"),
        ({"runner_scale_set_id": 0}, "runner_scale_set_id is 0, expected the id"),
        ({"configure_url": "https://github.com"}, "https://github.com"),
        ({"configure_url": ""}, "configure_url"),
        ({"log_level": "loud"}, "log_level is 'loud', expected debug or info or warn or error"),
        ({"log_format": "xml"}, "log_format is 'xml', expected text or json"),
        ({"metrics_addr": "8080"}, "metrics_addr is '8080', expected :PORT"),
        ({"metrics_addr": ":many"}, "metrics_addr is ':many', expected :PORT"),
        ({"metrics_endpoint": "metrics"}, "metrics_endpoint is 'metrics', expected a path"),
        ({"server_root_ca": "abc"}, "server_root_ca holds no PEM certificate"),
        ({"github_token": ""}, "github_token"),
        ({"github_token": "", "github_app_id": "12"}, "lacks github_app_installation_id"),
        ({"vault_type": "hashicorp"}, "vault_type is 'hashicorp', expected azure_key_vault"),
        ({"vault_type": "azure_key_vault"}, "vault_lookup_key is missing"),
        (
            {"vault_type": "azure_key_vault", "vault_lookup_key": "k"},
            "azure_key_vault is missing",
        ),
        (
            {"vault_type": "azure_key_vault", "vault_lookup_key": "k", "azure_key_vault": VAULT},
            "azure_key_vault.certificate_path is missing",
        ),
    ],
)
def test_every_mistake_gets_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in complaint(**changes)


def test_app_ids_may_be_numbers_or_strings() -> None:
    # The controller of the field writes the one, older ones the other.
    key = (Path(__file__).parent / "none").name
    app = {"github_token": "", "github_app_id": 12, "github_app_installation_id": 34}
    assert "lacks github_app_private_key" in complaint(**app, github_app_private_key="")
    assert "not a PEM private key" in complaint(**app, github_app_private_key=key)
    assert GitHubApp("12", 34, key).app_id == "12"


def test_a_vault_needs_no_credentials_in_the_file() -> None:
    config = parse(
        github_token="",
        vault_type="azure_key_vault",
        vault_lookup_key="github",
        azure_key_vault={**VAULT, "certificate_path": "/cert.pem"},
    )
    assert config.uses_vault


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff"])
def test_what_is_no_json_object_is_refused_with_the_path(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^there/config\.json: "):
        parse_config(content, "there/config.json")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read: No such file"):
        load_config(tmp_path / "config.json")


def test_secrets_are_in_no_error_and_no_repr() -> None:
    assert "ghp_secret" not in repr(parse())
    for key in ("github_token", "github_app_private_key"):
        assert "12345" not in complaint(**{key: 12345})
