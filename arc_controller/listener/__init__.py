"""The listener: asks the Actions service for jobs and says how many runners there should be.

`Listener` is the message loop, an object that runs as its own process (console script
``ghalistener``) or as one of many tasks in a process; `assemble` makes one from a `ListenerConfig`.
Nothing heavy is loaded here: a listener runs once per scale set, so its memory counts.
"""

from arc_controller.listener.assembly import assemble
from arc_controller.listener.config import ConfigError, ListenerConfig, load_config, parse_config
from arc_controller.listener.errors import (
    ListenerError,
    ScaleSetGone,
    ServiceRefused,
    SessionNeverReleased,
)
from arc_controller.listener.loop import Listener
from arc_controller.listener.metrics import Identity, JobMetrics
from arc_controller.listener.patience import Patience
from arc_controller.listener.scaler import Scaler

__all__ = [
    "ConfigError",
    "Identity",
    "JobMetrics",
    "Listener",
    "ListenerConfig",
    "ListenerError",
    "Patience",
    "ScaleSetGone",
    "Scaler",
    "ServiceRefused",
    "SessionNeverReleased",
    "assemble",
    "load_config",
    "parse_config",
]
