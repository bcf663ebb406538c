"""What the four controllers are told once, by the manager's command line."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from arc_controller import __version__
from arc_controller.runtime.ratelimiters import (
    ExponentialBackoff,
    RateLimiter,
    default_rate_limiter,
)

LISTENER_ENTRYPOINT = "/ghalistener"
RATE_LIMITERS = ("bucket_rate_limiter", "typed_rate_limiter")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of the controllers; durations are in seconds.

    ``namespace`` is the controller's own: listeners live there. ``watch_namespaces`` is where the
    scale sets are; empty means everywhere. ``listener_metrics_addr`` is ``HOST:PORT``; empty or
    ``0`` turns the listeners' metrics off.
    """

    namespace: str
    image: str
    version: str = __version__
    watch_namespaces: tuple[str, ...] = ()
    exclude_label_prefixes: tuple[str, ...] = ()
    listener_pull_secrets: tuple[str, ...] = ()
    listener_entrypoint: str = LISTENER_ENTRYPOINT
    listener_metrics_addr: str = ""
    listener_metrics_endpoint: str = ""
    log_level: str = "info"
    log_format: str = "text"
    max_concurrent_reconciles: int = 16
    """Workers of the EphemeralRunner controller; the others have `max_concurrent_sets`."""
    max_concurrent_sets: int = 16
    rate_limiter: str = RATE_LIMITERS[0]
    """One of `RATE_LIMITERS`: how items that failed wait for their next turn."""
    sync_period: float = 60.0
    """How long a changed secret or config map may go unnoticed."""

    def watches(self, namespace: str) -> bool:
        """Whether scale sets in this namespace are ours."""
        return not self.watch_namespaces or namespace in self.watch_namespaces

    def new_rate_limiter(self) -> RateLimiter[Hashable]:
        """For one controller's queue: ``typed`` is each item for itself, ``bucket`` also spreads
        all of them."""
        if self.rate_limiter == "typed_rate_limiter":
            return ExponentialBackoff[Hashable]()
        return default_rate_limiter()
