"""The manager's flags and variables: the names that existing charts write."""

from __future__ import annotations

from pathlib import Path

import pytest

from arc_controller.cli.flags import FlagError
from arc_controller.cli.manager_flags import FLAGS, LEGACY, Settings, read_settings, wants

ENVIRON = {
    "CONTROLLER_MANAGER_CONTAINER_IMAGE": "ghcr.io/acme/arc:1",
    "CONTROLLER_MANAGER_POD_NAMESPACE": "arc-systems",
}


def settings(*arguments: str, **environ: str) -> Settings:
    return read_settings(arguments, {**ENVIRON, **environ})


def test_the_defaults_are_those_of_the_design() -> None:
    found = settings()
    assert (found.qps, found.burst) == (100, 200)
    assert found.metrics_address == ":8080"
    assert (found.health_address, found.diagnostics_address) == ("", "")
    assert found.leader_election_id == ""
    config = found.controllers
    assert (config.namespace, config.image) == ("arc-systems", "ghcr.io/acme/arc:1")
    assert config.max_concurrent_reconciles == 16
    assert config.sync_period == 60.0
    assert config.watch_namespaces == ()
    assert config.listener_entrypoint == "/ghalistener"
    assert (config.log_level, config.log_format) == ("info", "text")


def test_what_the_charts_of_the_field_write_is_understood() -> None:
    found = settings(
        "--auto-scaling-runner-set-only",
        "--enable-leader-election",
        "--leader-election-id=arc-gha-rs-controller",
        "--auto-scaler-image-pull-secrets=one,two",
        "--auto-scaler-image-pull-secrets=three",
        "--log-level=debug",
        "--log-format=json",
        "--watch-single-namespace=runners",
        "--runner-max-concurrent-reconciles=2",
        "--update-strategy=immediate",
        "--exclude-label-propagation-prefix=helm.sh/",
        "--listener-metrics-addr=:8080",
        "--listener-metrics-endpoint=/metrics",
        "--metrics-addr=0",
        "--k8s-client-rate-limiter-qps=20",
        "--k8s-client-rate-limiter-burst=30",
        "--workqueue-rate-limiter=typed_rate_limiter",
        "--port=9443",
        "--sync-period=10m",
        "--pprof-addr=:6060",
        "--health-probe-bind-address=:8081",
    )
    assert found.leader_election_id == "arc-gha-rs-controller"
    assert found.metrics_address == "0"
    assert found.diagnostics_address == ":6060"
    assert found.health_address == ":8081"
    assert (found.qps, found.burst) == (20, 30)
    config = found.controllers
    assert config.listener_pull_secrets == ("one", "two", "three")
    assert config.watch_namespaces == ("runners",)
    assert config.exclude_label_prefixes == ("helm.sh/",)
    assert config.max_concurrent_reconciles == 2
    assert config.listener_metrics_addr == ":8080"
    assert config.listener_metrics_endpoint == "/metrics"
    assert (config.log_level, config.log_format) == ("debug", "json")
    assert config.rate_limiter == "typed_rate_limiter"
    assert config.sync_period == 600.0


def test_what_our_own_manifests_write_is_understood() -> None:
    root = Path(__file__).parents[2]
    deployment = (root / "config/manager/deployment.yaml").read_text()
    written = [line.strip()[2:] for line in deployment.splitlines() if "- --" in line]
    assert written
    settings(*written)


def test_the_entry_point_and_the_kubeconfig_come_from_the_environment() -> None:
    found = settings(LISTENER_ENTRYPOINT="/bin/listen", KUBECONFIG="/etc/kube")
    assert found.controllers.listener_entrypoint == "/bin/listen"
    assert found.kubeconfig == "/etc/kube"


@pytest.mark.parametrize("name", sorted(ENVIRON))
def test_a_missing_variable_is_named(name: str) -> None:
    environ = {key: value for key, value in ENVIRON.items() if key != name}
    with pytest.raises(FlagError, match=f"environment variable {name} is not set"):
        read_settings((), environ)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--metrics-addr=8080", "--metrics-addr '8080'"),
        ("--health-probe-bind-address=host", "--health-probe-bind-address 'host'"),
        ("--listener-metrics-addr=:99999", "--listener-metrics-addr ':99999': a port is a number"),
        ("--listener-metrics-endpoint=metrics", "--listener-metrics-endpoint is 'metrics', expec"),
        ("--watch-single-namespace=Bad_NS", "--watch-single-namespace is 'Bad_NS', expected the"),
        ("--watch-namespace=a,b", "--watch-namespace is 'a,b', expected the name of one namespace"),
        ("--log-level=chatty", "debug, info, warn, error"),
        ("--sync-period=0s", "--sync-period is 0"),
        ("--runner-max-concurrent-reconciles=0", "1 or more"),
        ("--update-strategy=never", "immediate, eventual"),
        ("--runner-image=x", "RunnerDeployment"),
    ],
)
def test_what_cannot_be_used_is_said(argument: str, words: str) -> None:
    with pytest.raises(FlagError) as caught:
        settings(argument)
    assert words in str(caught.value)


def test_leader_election_needs_a_name() -> None:
    with pytest.raises(FlagError, match="--leader-election-id is empty"):
        settings("--enable-leader-election", "--leader-election-id=")


@pytest.mark.parametrize("name", ["Bad ID", "a..b", "-a", "x" * 254, "a/b"])
def test_leader_election_needs_a_name_that_a_lease_may_have(name: str) -> None:
    with pytest.raises(FlagError, match="expected the name of a Lease"):
        settings("--enable-leader-election", f"--leader-election-id={name}")
    assert settings(f"--leader-election-id={name}").leader_election_id == ""


def test_no_legacy_flag_has_the_name_of_one_of_ours() -> None:
    assert not LEGACY.keys() & {flag.name for flag in FLAGS}


def test_version_and_help_need_no_environment() -> None:
    assert wants(("-version",)) == "version"
    assert wants(("--help",)) == wants(("-h",)) == "help"
    assert wants(()) == ""


def test_settings_do_not_show_the_environment() -> None:
    assert "s3cret" not in repr(settings(HTTPS_PROXY="http://u:s3cret@p:1"))
