"""From a configuration to a `Listener`: the only place that knows which parts there are."""

from __future__ import annotations

import socket
from random import Random

from arc_controller.actions import ActionsClient, MessageQueue
from arc_controller.listener.config import ListenerConfig
from arc_controller.listener.loop import Listener
from arc_controller.listener.metrics import Identity, JobMetrics
from arc_controller.listener.patience import Patience
from arc_controller.listener.scaler import Scaler
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.objects import NamespacedName


def assemble(
    config: ListenerConfig,
    client: Client,
    actions: ActionsClient,
    *,
    metrics: JobMetrics | None = None,
    owner: str = "",
    patience: Patience | None = None,
    random: Random | None = None,
    now: Now = utc_now,
) -> Listener:
    """The listener of one scale set.

    ``client`` reaches the API server, ``actions`` the service; both stay the caller's to close and
    may be shared by many listeners. ``owner`` is the session's (default: the host's name).
    """

    async def open_queue() -> MessageQueue:
        return await MessageQueue.open(
            actions, config.runner_scale_set_id, owner or socket.gethostname()
        )

    runner_set = NamespacedName(
        config.ephemeral_runner_set_namespace, config.ephemeral_runner_set_name
    )
    scaler = Scaler(
        client,
        runner_set,
        min_runners=config.min_runners,
        max_runners=config.max_runners,
        now=now,
    )
    return Listener(
        open_queue,
        scaler,
        metrics or job_metrics(config),
        name=f"{config.runner_scale_set_name or runner_set.name} ({config.runner_scale_set_id})",
        max_runners=config.max_runners,
        patience=patience,
        random=random,
    )


def job_metrics(config: ListenerConfig) -> JobMetrics:
    """The metrics that the configuration turns on."""
    return JobMetrics(
        Identity.of(
            config.config_url,
            config.ephemeral_runner_set_name,
            config.ephemeral_runner_set_namespace,
        ),
        min_runners=config.min_runners,
        max_runners=config.max_runners,
        selection=config.metrics,
    )
