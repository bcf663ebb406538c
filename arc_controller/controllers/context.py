"""What the reconcilers work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.metrics import ControllerMetrics
from arc_controller.controllers.service import ActionsClients
from arc_controller.controllers.turnstile import Turnstile
from arc_controller.runtime.client import Client
from arc_controller.runtime.clock import Now, utc_now
from arc_controller.runtime.events import EventType
from arc_controller.runtime.objects import KubeObject


class Events(Protocol):
    """The part of `arc_controller.runtime.events.EventRecorder` that reconcilers use."""

    def event(self, obj: KubeObject, type_: EventType, reason: str, message: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Context:
    """`client` reads from the cache what is cached, `live` always asks the API server."""

    client: Client
    live: Client
    config: ControllerConfig
    service: ActionsClients
    events: Events
    metrics: ControllerMetrics
    now: Now = utc_now
    turnstile: Turnstile = field(default_factory=Turnstile)
