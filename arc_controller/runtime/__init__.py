"""The library: what a controller is written with. It knows Kubernetes and nothing else.

Objects and access
    `objects`       metadata, conditions, label selectors; the base of every resource type
    `scheme`        kind ↔ class ↔ REST path
    `transport`     bytes in, bytes out; all that the rest knows of the network
    `http`          the transport over HTTP, configured by
                    `officialclient` with `kubeconfig`, or `incluster` (a pod's own token),
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
    `changes`       which fields a write changes, for the debug log

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
    from arc_controller.runtime.errors import (
        AlreadyExists,
        ApiError,
        ConfigurationError,
        Conflict,
        Forbidden,
        Invalid,
        NotFound,
        TransportError,
    )
    from arc_controller.runtime.events import EventRecorder
    from arc_controller.runtime.finalizers import add_finalizers, remove_finalizers
    from arc_controller.runtime.handlers import enqueue_mapped, enqueue_owner, enqueue_self
    from arc_controller.runtime.http import HttpTransport
    from arc_controller.runtime.informer import EventHandler, Informer
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
        OwnerReference,
        Wire,
        find_condition,
        set_condition,
    )
    from arc_controller.runtime.ownership import (
        AlreadyOwned,
        controller_of,
        is_controlled_by,
        set_controller_reference,
    )
    from arc_controller.runtime.predicates import Predicate
    from arc_controller.runtime.ratelimiters import ExponentialBackoff, MaxOf, TokenBucket
    from arc_controller.runtime.scheme import Resource, Scheme
    from arc_controller.runtime.workqueue import QueueShutDown, WorkQueue

_HOME = {
    "builder": ("ControllerBuilder",),
    "cache": ("Cache", "Scope"),
    "client": ("ApiClient", "CachingClient", "Client", "Reader", "Writer"),
    "controller": ("Controller", "Reconciler", "Result", "TerminalError"),
    "errors": (
        "AlreadyExists",
        "ApiError",
        "ConfigurationError",
        "Conflict",
        "Forbidden",
        "Invalid",
        "NotFound",
        "TransportError",
    ),
    "events": ("EventRecorder",),
    "finalizers": ("add_finalizers", "remove_finalizers"),
    "handlers": ("enqueue_mapped", "enqueue_owner", "enqueue_self"),
    "http": ("HttpTransport",),
    "informer": ("EventHandler", "Informer"),
    "lazycopy": ("LazyCopy",),
    "leader": ("LeaderElection", "LeaderElector", "LeadershipLost"),
    "logs": ("configure_logging",),
    "manager": ("Manager", "ManagerOptions"),
    "objects": (
        "Condition",
        "KubeObject",
        "LabelSelector",
        "NamespacedName",
        "ObjectMeta",
        "OwnerReference",
        "Wire",
        "find_condition",
        "set_condition",
    ),
    "ownership": ("AlreadyOwned", "controller_of", "is_controlled_by", "set_controller_reference"),
    "predicates": ("Predicate",),
    "ratelimiters": ("ExponentialBackoff", "MaxOf", "TokenBucket"),
    "scheme": ("Resource", "Scheme"),
    "workqueue": ("QueueShutDown", "WorkQueue"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AlreadyExists",
    "AlreadyOwned",
    "ApiClient",
    "ApiError",
    "Cache",
    "CachingClient",
    "Client",
    "Condition",
    "ConfigurationError",
    "Conflict",
    "Controller",
    "ControllerBuilder",
    "EventHandler",
    "EventRecorder",
    "ExponentialBackoff",
    "Forbidden",
    "HttpTransport",
    "Informer",
    "Invalid",
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
    "NotFound",
    "ObjectMeta",
    "OwnerReference",
    "Predicate",
    "QueueShutDown",
    "Reader",
    "Reconciler",
    "Resource",
    "Result",
    "Scheme",
    "Scope",
    "TerminalError",
    "TokenBucket",
    "TransportError",
    "Wire",
    "WorkQueue",
    "Writer",
    "add_finalizers",
    "configure_logging",
    "controller_of",
    "enqueue_mapped",
    "enqueue_owner",
    "enqueue_self",
    "find_condition",
    "is_controlled_by",
    "remove_finalizers",
    "set_condition",
    "set_controller_reference",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
