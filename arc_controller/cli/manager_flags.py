"""The manager's flags and environment variables; their names are fixed by existing charts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arc_controller.cli.flags import Duration, Flag, FlagError, Names, Number, Switch, parse_flags
from arc_controller.controllers.config import LISTENER_ENTRYPOINT, RATE_LIMITERS, ControllerConfig
from arc_controller.runtime.servers import parse_address

IMAGE = "CONTROLLER_MANAGER_CONTAINER_IMAGE"
NAMESPACE = "CONTROLLER_MANAGER_POD_NAMESPACE"
ENTRYPOINT = "LISTENER_ENTRYPOINT"

FLAGS: tuple[Flag, ...] = (
    Switch("auto-scaling-runner-set-only", "Accepted: runner scale sets are all there is."),
    Flag("metrics-addr", "Where metrics are served, HOST:PORT or :PORT; 0 is off.", ":8080"),
    Flag(
        "health-probe-bind-address",
        "Where /healthz and /readyz are served, HOST:PORT or :PORT; empty is off.",
    ),
    Flag("pprof-addr", "Where diagnostics (tasks, queues, memory) are served; empty is off."),
    Switch("enable-leader-election", "Only one of several managers is active."),
    Flag("leader-election-id", "The name of the Lease.", "actions-runner-controller"),
    Flag("listener-metrics-addr", "Where listeners serve their metrics; empty or 0 is off."),
    Flag("listener-metrics-endpoint", "The path of the listeners' metrics.", "/metrics"),
    Flag("watch-single-namespace", "Look after scale sets in this namespace only."),
    Flag("watch-namespace", "Look after scale sets in this namespace only; empty is all."),
    Number(
        "runner-max-concurrent-reconciles", "How many runners are looked at at once.", "16", least=1
    ),
    Names(
        "exclude-label-propagation-prefix",
        "Labels that begin like this do not flow down from a scale set. Repeatable.",
    ),
    Flag("log-level", "How much is logged.", "info", ("debug", "info", "warn", "error")),
    Flag("log-format", "How it is logged.", "text", ("text", "json")),
    Names(
        "auto-scaler-image-pull-secrets",
        "Pull secrets of listener pods, in the controller's namespace. Repeatable.",
    ),
    Number("k8s-client-rate-limiter-qps", "Requests a second to the API server.", "100", least=1),
    Number(
        "k8s-client-rate-limiter-burst",
        "Requests to the API server at once, after a pause.",
        "200",
        least=1,
    ),
    Flag(
        "workqueue-rate-limiter",
        "How failed items wait: each for itself, or with a bucket over all of them too.",
        RATE_LIMITERS[0],
        RATE_LIMITERS,
    ),
    Duration("sync-period", "How often everything is looked at again, changed or not.", "1m"),
    Number("port", "Accepted: there is no webhook server.", "9443"),
    Flag(
        "update-strategy",
        "Accepted: a changed spec never stops running jobs, nor new ones.",
        "",
        ("", "immediate", "eventual"),
    ),
    Switch("version", "Print the version and exit."),
    Switch("help", "Print this and exit."),
    Switch("h", "Print this and exit."),
)

# Empty, or as Kubernetes wants it.
_DNS_LABEL = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?")
_DNS_SUBDOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?")

_LEGACY = (
    "it belongs to RunnerDeployment and its kin, which this controller does not have; remove it"
)
LEGACY: Mapping[str, str] = dict.fromkeys(
    (
        "common-runner-labels",
        "default-scale-down-delay",
        "docker-gid",
        "docker-image",
        "docker-registry-mirror",
        "github-api-cache-duration",
        "github-app-id",
        "github-app-installation-id",
        "github-app-private-key",
        "github-basicauth-password",
        "github-basicauth-username",
        "github-token",
        "github-upload-url",
        "github-url",
        "runner-github-url",
        "runner-image",
        "runner-image-pull-secret",
        "runner-status-update-hook",
        "use-runner-status-update-hook",
    ),
    _LEGACY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the process was told."""

    controllers: ControllerConfig
    leader_election_id: str = ""
    """Empty without leader election."""
    metrics_address: str = ""
    health_address: str = ""
    diagnostics_address: str = ""
    qps: int = 100
    burst: int = 200
    kubeconfig: str = ""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def wants(arguments: Sequence[str]) -> str:
    """``"version"`` or ``"help"`` if that is all that is asked for. Raises `FlagError`."""
    values = parse_flags(arguments, FLAGS, LEGACY)
    if values["help"] or values["h"]:
        return "help"
    return "version" if values["version"] else ""


def read_settings(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Raises `FlagError` with one sentence that names the flag or variable."""
    values = parse_flags(arguments, FLAGS, LEGACY)
    for name in ("metrics-addr", "health-probe-bind-address", "pprof-addr"):
        _address(name, values)
    _address("listener-metrics-addr", values)
    endpoint = values["listener-metrics-endpoint"]
    if endpoint and not endpoint.startswith("/"):
        raise FlagError(
            f"--listener-metrics-endpoint is {endpoint!r}, expected a path that begins with a "
            "slash, like /metrics"
        )
    if not values["sync-period"]:
        raise FlagError("--sync-period is 0, expected more, like 1m")
    election_id = values["leader-election-id"] if values["enable-leader-election"] else ""
    if values["enable-leader-election"] and not election_id:
        raise FlagError("--leader-election-id is empty, and --enable-leader-election needs it")
    if not _DNS_SUBDOMAIN.fullmatch(election_id) or len(election_id) > 253:
        raise FlagError(
            f"--leader-election-id is {election_id!r}, expected the name of a Lease: small "
            "letters, digits, '-' and '.', with a letter or digit at both ends"
        )
    for name in ("watch-single-namespace", "watch-namespace"):
        if not _DNS_LABEL.fullmatch(values[name]):
            raise FlagError(
                f"--{name} is {values[name]!r}, expected the name of one namespace: at most 63 "
                "small letters, digits and '-', with a letter or digit at both ends"
            )
    watched = (values["watch-single-namespace"], values["watch-namespace"])
    return Settings(
        controllers=ControllerConfig(
            namespace=_required(environ, NAMESPACE, "the namespace that this process runs in"),
            image=_required(environ, IMAGE, "the image that listeners are started from"),
            watch_namespaces=tuple(dict.fromkeys(name for name in watched if name)),
            exclude_label_prefixes=values["exclude-label-propagation-prefix"],
            listener_pull_secrets=values["auto-scaler-image-pull-secrets"],
            listener_entrypoint=environ.get(ENTRYPOINT) or LISTENER_ENTRYPOINT,
            listener_metrics_addr=values["listener-metrics-addr"],
            listener_metrics_endpoint=values["listener-metrics-endpoint"],
            log_level=values["log-level"],
            log_format=values["log-format"],
            max_concurrent_reconciles=values["runner-max-concurrent-reconciles"],
            rate_limiter=values["workqueue-rate-limiter"],
            sync_period=values["sync-period"],
        ),
        leader_election_id=election_id,
        metrics_address=values["metrics-addr"],
        health_address=values["health-probe-bind-address"],
        diagnostics_address=values["pprof-addr"],
        qps=values["k8s-client-rate-limiter-qps"],
        burst=values["k8s-client-rate-limiter-burst"],
        kubeconfig=environ.get("KUBECONFIG", ""),
        environ=environ,
    )


def _address(name: str, values: Mapping[str, Any]) -> None:
    try:
        parse_address(values[name], f"--{name}")
    except ValueError as error:
        raise FlagError(str(error)) from None


def _required(environ: Mapping[str, str], name: str, what: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise FlagError(f"the environment variable {name} is not set; it says {what}")
    return value
