"""One listener as a process: environment, signals, exit status.

Exit status 0 means that we were told to stop, 1 that the listener ended with an error that does not
heal, 2 that the configuration cannot be used. The last sentence also goes to the container's
termination message, where ``kubectl describe pod`` shows it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

import arc_controller
from arc_controller.actions import (
    ActionsClient,
    ActionsError,
    Credentials,
    InvalidCertificates,
    InvalidCredentials,
    InvalidProxy,
    ProxySettings,
    UserAgent,
    credentials_from_mapping,
)
from arc_controller.api import SCHEME
from arc_controller.listener.assembly import assemble, job_metrics
from arc_controller.listener.config import ConfigError, ListenerConfig, load_config
from arc_controller.listener.errors import ListenerError
from arc_controller.listener.metrics import JobMetrics
from arc_controller.listener.server import serve_metrics
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.logs import configure_logging
from arc_controller.runtime.transport import Transport

CONFIG_PATH: Final = "LISTENER_CONFIG_PATH"
TERMINATION_LOG: Final = Path("/dev/termination-log")
STOPPED, FAILED, MISCONFIGURED = 0, 1, 2

log = structlog.get_logger(__name__)


USAGE: Final = f"""\
Usage: ghalistener

Listens for the jobs of one scale set until SIGTERM. The manager starts it in a pod. It has no
flags; --help and --version print and exit.

Environment:
  {CONFIG_PATH}
        The path of config.json, whose keys docs/listener.md explains. Required.
  KUBECONFIG
        How to reach the API server; in a cluster that of the pod is used.
  http_proxy, https_proxy, no_proxy
        How to reach the Actions service.

Exit status: 0 told to stop, 1 it cannot go on, 2 the configuration cannot be used.
"""


def main(environ: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> int:
    """Run until SIGTERM or SIGINT, or until it cannot go on; the exit status."""
    environ = os.environ if environ is None else environ
    names = {argument.lstrip("-") for argument in arguments}
    if names & {"help", "h"}:
        print(USAGE, end="")
        return STOPPED
    if "version" in names:
        print(arc_controller.__version__)
        return STOPPED
    if arguments:
        # Not refused: a template may have given some to a listener that never looked at them.
        print(f"ghalistener: {arguments[0]!r} has no effect, see --help", file=sys.stderr)
    path = environ.get(CONFIG_PATH, "")
    try:
        if not path:
            raise ConfigError(f"{CONFIG_PATH} is not set: expected the path of config.json")
        config = load_config(path)
    except ConfigError as error:
        return _give_up(str(error), MISCONFIGURED)
    configure_logging(config.log_level or "info", config.log_format or "text")
    # Not uvloop: it would cost 2 MiB, and a single listener has nothing for it to do. Whoever runs
    # many in one process should use it: its TLS connections are a quarter of the size.
    return asyncio.run(_until_stopped(config, environ))


async def _until_stopped(config: ListenerConfig, environ: Mapping[str, str]) -> int:
    stopping = False
    work = asyncio.create_task(serve(config, environ))

    def stop() -> None:
        nonlocal stopping
        stopping = True
        work.cancel()  # a second signal cuts short what the first one let finish

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not stopping:
            raise
    except (ConfigError, ConfigurationError, InvalidCredentials, InvalidProxy) as error:
        return _give_up(str(error), MISCONFIGURED)
    except (ListenerError, ActionsError, OSError) as error:
        return _give_up(str(error), FAILED)
    except Exception as error:
        # A mistake of ours. The pod's status must tell of it too; its words may hold anything.
        log.exception("the listener ends")
        kind = type(error).__name__
        return _give_up(f"ended by an unexpected {kind}, please report it: see the log", FAILED)
    log.info("stopped")
    return STOPPED


async def serve(config: ListenerConfig, environ: Mapping[str, str]) -> None:
    """Connect, serve metrics, and listen until cancelled; everything is closed afterwards.

    Raises `ListenerError`, also when the metrics address is taken, `ConfigError` for a metrics host
    or a CA that cannot be used, `ActionsError` for such credentials and proxies, and
    `ConfigurationError` when no API server can be found.
    """
    log.info("starting", version=arc_controller.__version__, config=repr(config))
    async with AsyncExitStack() as stack:
        metrics = job_metrics(config)
        if config.metrics_host_port is not None:
            await stack.enter_async_context(_metrics_server(config, metrics))
        transport = await open_transport(environ)
        stack.push_async_callback(transport.close)
        actions = await open_actions_client(config, environ)
        stack.push_async_callback(actions.aclose)
        listener = assemble(config, ApiClient(transport, SCHEME), actions, metrics=metrics)
        await listener.run()


@asynccontextmanager
async def _metrics_server(config: ListenerConfig, metrics: JobMetrics) -> AsyncIterator[None]:
    host, port = config.metrics_host_port or ("", 0)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(
                serve_metrics([metrics], host, port, config.metrics_endpoint)
            )
        except socket.gaierror as error:
            raise ConfigError(
                f"metrics_addr is {config.metrics_addr!r}, and {host} is no host here: "
                f"{error.strerror}; expected :PORT, or the name or address of this pod"
            ) from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ListenerError(
                f"metrics cannot be served at metrics_addr {config.metrics_addr!r}: {why.lower()}"
            ) from None
        yield


async def open_transport(environ: Mapping[str, str]) -> Transport:
    """The API server of the pod we run in, or the one that ``KUBECONFIG`` names."""
    agent = f"arc_controller-listener/{arc_controller.__version__}"
    kubeconfig = environ.get("KUBECONFIG", "")
    if kubeconfig or not environ.get("KUBERNETES_SERVICE_HOST"):
        # The official client reads kubeconfigs, and costs half of our memory: not in a cluster.
        from arc_controller.runtime.http import HttpTransport

        return await HttpTransport.from_environment(kubeconfig=kubeconfig or None, user_agent=agent)
    from arc_controller.runtime.incluster import InClusterTransport

    return InClusterTransport(user_agent=agent)


async def open_actions_client(config: ListenerConfig, environ: Mapping[str, str]) -> ActionsClient:
    """A client of the service with the configured credentials, CAs, and the pod's proxies."""
    credentials = await _credentials(config)
    try:
        return ActionsClient(
            config.config_url,
            credentials,
            proxy=ProxySettings.from_environment(environ),
            root_cas=[config.server_root_ca] if config.server_root_ca else [],
            user_agent=UserAgent(scale_set_id=config.runner_scale_set_id, subsystem="listener"),
        )
    except InvalidCertificates as error:
        raise ConfigError(f"server_root_ca: {error}") from None


async def _credentials(config: ListenerConfig) -> Credentials:
    vault = config.azure_key_vault
    if not config.uses_vault or vault is None:
        return config.credentials()
    from arc_controller.actions.vault import AzureKeyVault, read_azure_key_vault

    proxy = None
    if vault.proxy is not None:
        no_proxy = tuple(vault.proxy.no_proxy.replace(",", " ").split())
        proxy = ProxySettings(vault.proxy.http_proxy, vault.proxy.https_proxy, no_proxy)
    secret = await read_azure_key_vault(
        AzureKeyVault(vault.url, vault.tenant_id, vault.client_id, vault.certificate_path),
        config.vault_lookup_key,
        proxy=proxy,
    )
    return credentials_from_mapping(secret, f"vault secret {config.vault_lookup_key!r}")


def _give_up(sentence: str, status: int) -> int:
    print(f"ghalistener: {sentence}", file=sys.stderr, flush=True)
    with suppress(OSError):
        if TERMINATION_LOG.exists():
            TERMINATION_LOG.write_text(sentence[:4096])
    return status
