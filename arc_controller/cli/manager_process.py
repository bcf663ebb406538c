"""The manager as a process: flags, environment, signals, exit status.

Exit status 0 means that we were told to stop, 1 that something failed or the leadership was lost,
2 that flags or environment cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

import arc_controller
from arc_controller.actions import ActionsError, ProxySettings
from arc_controller.api import SCHEME
from arc_controller.cli.flags import FlagError, usage
from arc_controller.cli.manager_flags import FLAGS, Settings, read_settings, wants
from arc_controller.controllers import (
    ActionsClients,
    Inputs,
    add_controllers,
    cache_scopes,
    cache_transforms,
)
from arc_controller.runtime.errors import ConfigurationError
from arc_controller.runtime.http import HttpTransport
from arc_controller.runtime.leader import LeaderElection, LeadershipLost
from arc_controller.runtime.logs import configure_logging
from arc_controller.runtime.manager import Manager, ManagerOptions
from arc_controller.runtime.transport import Transport

log = structlog.get_logger(__name__)

STOPPED, FAILED, MISUSED = 0, 1, 2
GRACE = 5.0
"""Seconds that running reconciles get. Charts give the pod ten, and the lease is to be released."""


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, or until it cannot go on; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    environ = os.environ if environ is None else environ
    try:
        asked = wants(arguments)
        if asked == "help":
            sys.stdout.write(usage("manager", FLAGS))
            return STOPPED
        if asked == "version":
            sys.stdout.write(f"{arc_controller.__version__}\n")
            return STOPPED
        settings = read_settings(arguments, environ)
    except FlagError as error:
        sys.stderr.write(f"manager: {error}\n")
        return MISUSED

    configure_logging(settings.controllers.log_level, settings.controllers.log_format)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(serve(settings))


async def serve(settings: Settings) -> int:
    """Connect, run a manager with all controllers until a signal, and close everything.

    The first SIGTERM or SIGINT stops gracefully, the second at once.
    """
    log.info(
        "starting",
        version=arc_controller.__version__,
        namespace=settings.controllers.namespace,
        image=settings.controllers.image,
        watches=list(settings.controllers.watch_namespaces) or "all namespaces",
    )
    try:
        async with contextlib.AsyncExitStack() as stack:
            transport = await open_transport(settings)
            stack.push_async_callback(transport.close)
            manager, service = make_manager(transport, settings)
            stack.push_async_callback(service.aclose)
            await _run_until_signalled(manager)
    except (ConfigurationError, ActionsError) as error:
        sys.stderr.write(f"manager: {error}\n")
        return MISUSED
    except (LeadershipLost, OSError) as error:
        log.error("the manager ends", error=str(error) or type(error).__name__)
        return FAILED
    except Exception:
        log.exception("the manager ends")
        return FAILED
    log.info("stopped")
    return STOPPED


async def open_transport(settings: Settings) -> HttpTransport:
    """The API server of the pod we run in, or the one that ``KUBECONFIG`` names.

    Raises `arc_controller.runtime.errors.ConfigurationError`.
    """
    limits: dict[str, Any] = {
        "qps": settings.qps,
        "burst": settings.burst,
        "user_agent": f"arc_controller/{arc_controller.__version__}",
        "registry": REGISTRY,
    }
    if settings.kubeconfig or not settings.environ.get("KUBERNETES_SERVICE_HOST"):
        # The official client reads kubeconfigs, and costs 15 to 20 MiB: not in a cluster.
        return await HttpTransport.from_environment(
            kubeconfig=settings.kubeconfig or None, **limits
        )
    from arc_controller.runtime.incluster import InClusterTransport

    return InClusterTransport(**limits)


def make_manager(
    transport: Transport, settings: Settings, registry: CollectorRegistry = REGISTRY
) -> tuple[Manager, ActionsClients]:
    """The manager with all controllers in it, and the clients of the service that they share.

    Raises `arc_controller.actions.InvalidProxy` for a proxy variable that cannot be used.
    """
    config = settings.controllers
    election = None
    if settings.leader_election_id:
        election = LeaderElection(settings.leader_election_id, config.namespace)
    manager = Manager(
        transport,
        SCHEME,
        options=ManagerOptions(
            leader_election=election,
            metrics_address=settings.metrics_address,
            health_address=settings.health_address,
            diagnostics_address=settings.diagnostics_address,
            graceful_timeout=GRACE,
            sync_period=config.sync_period,
            scopes=cache_scopes(config),
            transforms=cache_transforms(),
        ),
        registry=registry,
    )
    service = ActionsClients(
        Inputs(manager.api_reader),
        default_proxy=ProxySettings.from_environment(settings.environ),
    )
    add_controllers(manager, config, service)
    return manager, service


async def _run_until_signalled(manager: Manager) -> None:
    running = asyncio.current_task()
    assert running is not None
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        manager.stop()
        if asked > 1:
            running.cancel()  # in a hurry

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await manager.run()
    except asyncio.CancelledError:
        if not asked:
            raise
        running.uncancel()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
