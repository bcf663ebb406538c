"""The library: what a controller is written with. It knows Kubernetes and nothing else.

Objects and access
    `objects`       metadata, conditions, label selectors; the base of every resource type
    `scheme`        kind ↔ class ↔ REST path
    `transport`     bytes in, bytes out; all that the rest knows of the network
    `http`          the transport over HTTP, configured by
                    `officialclient` (kubeconfigs) or `incluster` (a pod's own token),
                    with `sessions`, `retries`, `ratelimit`, `httpmetrics`
    `client`        `Reader`, `Writer`, `Client`: get, list, create, patch, delete
    `errors`        what an API server refuses
    `lazycopy`      `LazyCopy`: change a cached object, write the difference

The cache
    `reflector`     follows one kind by list and watch
    `informer`      its objects, with field indexes and event handlers
    `cache`         all informers, each with a `store`
    `mutation`      finds code that changes what the cache holds, in tests

Controllers
    `workqueue`     `WorkQueue`: what has to be looked at, each item once
    `ratelimiters`  how long a failed item waits
    `controller`    `Reconciler`, `Result`, and the workers that call one
    `builder`       `ControllerBuilder`: what is watched, and what that enqueues
    `predicates`    which events count
    `handlers`      from an event to keys
    `ownership`     owner references
    `finalizers`    what has to be cleaned up first
    `events`        `EventRecorder`: for ``kubectl describe``

The process
    `manager`       `Manager`: starts and stops it all in order
    `leader`        leader election by Lease
    `servers`       metrics and probes over HTTP
    `diagnostics`   what the process is doing
    `metrics`, `logs`, `clock`

Each module can be used on its own. The names below are importable from here; nothing is loaded
before it is asked for, so that a small process stays small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arc_controller.runtime.builder import ControllerBuilder
    from arc_controller.runtime.cache import Cache, Scope
    from arc_controller.runtime.client import ApiClient, CachingClient, Client, Reader, Writer
    from arc_controller.runtime.controller import Controller, Reconciler, Result, TerminalError
    from arc_controller.runtime.events import EventRecorder
    from arc_controller.runtime.handlers import enqueue_mapped, enqueue_owner, enqueue_self
    from arc_controller.runtime.lazycopy import LazyCopy
    from arc_controller.runtime.leader import LeaderElection, LeaderElector, LeadershipLost
    from arc_controller.runtime.logs import configure_logging
    from arc_controller.runtime.manager import Manager, ManagerOptions
    from arc_controller.runtime.objects import (
        Condition,
        KubeObject,
        LabelSelector,
        NamespacedName,
        ObjectMeta,
        Wire,
    )
    from arc_controller.runtime.predicates import Predicate
    from arc_controller.runtime.ratelimiters import ExponentialBackoff, MaxOf, TokenBucket
    from arc_controller.runtime.scheme import Resource, Scheme
    from arc_controller.runtime.workqueue import WorkQueue

_HOME = {
    "builder": ("ControllerBuilder",),
    "cache": ("Cache", "Scope"),
    "client": ("ApiClient", "CachingClient", "Client", "Reader", "Writer"),
    "controller": ("Controller", "Reconciler", "Result", "TerminalError"),
    "events": ("EventRecorder",),
    "handlers": ("enqueue_mapped", "enqueue_owner", "enqueue_self"),
    "lazycopy": ("LazyCopy",),
    "leader": ("LeaderElection", "LeaderElector", "LeadershipLost"),
    "logs": ("configure_logging",),
    "manager": ("Manager", "ManagerOptions"),
    "objects": ("Condition", "KubeObject", "LabelSelector", "NamespacedName", "ObjectMeta", "Wire"),
    "predicates": ("Predicate",),
    "ratelimiters": ("ExponentialBackoff", "MaxOf", "TokenBucket"),
    "scheme": ("Resource", "Scheme"),
    "workqueue": ("WorkQueue",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ApiClient",
    "Cache",
    "CachingClient",
    "Client",
    "Condition",
    "Controller",
    "ControllerBuilder",
    "EventRecorder",
    "ExponentialBackoff",
    "KubeObject",
    "LabelSelector",
    "LazyCopy",
    "LeaderElection",
    "LeaderElector",
    "LeadershipLost",
    "Manager",
    "ManagerOptions",
    "MaxOf",
    "NamespacedName",
    "ObjectMeta",
    "Predicate",
    "Reader",
    "Reconciler",
    "Resource",
    "Result",
    "Scheme",
    "Scope",
    "TerminalError",
    "TokenBucket",
    "Wire",
    "WorkQueue",
    "Writer",
    "configure_logging",
    "enqueue_mapped",
    "enqueue_owner",
    "enqueue_self",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
