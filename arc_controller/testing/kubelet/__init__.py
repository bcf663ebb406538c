"""A fake kubelet: plays every pod of an API server, runners and listeners among them.

`FakeKubelet` is the node; `PodBehaviour` says how a pod fares: slow pulls, odd exit codes,
eviction, nodes that vanish.
"""

from arc_controller.testing.kubelet.behaviour import (
    Behave,
    Disruption,
    DisruptionKind,
    PodBehaviour,
    troubled,
    well,
)
from arc_controller.testing.kubelet.container import Exit
from arc_controller.testing.kubelet.listeners import (
    ListenerProcesses,
    Listeners,
    ListenerTasks,
)
from arc_controller.testing.kubelet.node import FakeKubelet

__all__ = [
    "Behave",
    "Disruption",
    "DisruptionKind",
    "Exit",
    "FakeKubelet",
    "ListenerProcesses",
    "ListenerTasks",
    "Listeners",
    "PodBehaviour",
    "troubled",
    "well",
]
