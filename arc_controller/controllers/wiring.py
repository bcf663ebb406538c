"""From a manager and a configuration to running controllers."""

from __future__ import annotations

from collections.abc import Iterable

from arc_controller.actions import ActionsError
from arc_controller.api.core import Pod, Role, RoleBinding, ServiceAccount
from arc_controller.api.v1alpha1 import (
    LISTENING_SINCE,
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
)
from arc_controller.controllers import ephemeral_runner, ephemeral_runner_set
from arc_controller.controllers.autoscaling_listener import AutoscalingListenerReconciler
from arc_controller.controllers.autoscaling_runner_set import AutoscalingRunnerSetReconciler
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.context import Context
from arc_controller.controllers.indexes import (
    LISTENERS_OF_SCALE_SET,
    add_indexes,
    scale_set_of,
)
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.listener_rbac import listener_of
from arc_controller.controllers.metrics import ControllerMetrics
from arc_controller.controllers.service import ActionsClients
from arc_controller.controllers.turnstile import WORKERS_PER_PLACE, Turnstile
from arc_controller.runtime.builder import ControllerBuilder
from arc_controller.runtime.handlers import enqueue_mapped
from arc_controller.runtime.manager import Manager
from arc_controller.runtime.objects import KubeObject, NamespacedName
from arc_controller.runtime.predicates import (
    Predicate,
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
)

_FINALIZER_LOST: Predicate[KubeObject] = Predicate(
    update=lambda old, new: not set(old.metadata.finalizers) <= set(new.metadata.finalizers)
)
_NOT_OUR_STATUS: Predicate[KubeObject] = any_of(
    generation_changed, labels_changed, annotations_changed, _FINALIZER_LOST
)
_ONLY_DELETED: Predicate[KubeObject] = Predicate(
    create=lambda _obj: False, update=lambda _old, _new: False
)

_HEARD_OF_LISTENER: Predicate[EphemeralRunnerSet] = Predicate(
    create=lambda _obj: False,
    update=lambda old, new: (
        old.metadata.annotations.get(LISTENING_SINCE)
        != new.metadata.annotations.get(LISTENING_SINCE)
    ),
    delete=lambda _obj: False,
)


def add_controllers(manager: Manager, config: ControllerConfig, service: ActionsClients) -> None:
    """Add all four controllers to the manager.

    The manager's cache has the scopes of `arc_controller.controllers.scopes.cache_scopes`.
    """
    add_scale_set_controllers(manager, config, service)
    ephemeral_runner_set.add_to_manager(manager, config, service)
    ephemeral_runner.add_to_manager(manager, config, service)


def add_scale_set_controllers(
    manager: Manager, config: ControllerConfig, service: ActionsClients
) -> None:
    """Add the AutoscalingRunnerSet and the AutoscalingListener controller to the manager."""
    add_indexes(manager.cache)
    context = Context(
        client=manager.client,
        live=manager.api_reader,
        config=config,
        service=service,
        events=manager.events,
        metrics=ControllerMetrics(manager.metrics.registry),
        now=manager.now,
        turnstile=Turnstile(config.max_concurrent_sets // WORKERS_PER_PLACE),
    )

    def listeners_of(scale_set: KubeObject) -> Iterable[NamespacedName]:
        index = (LISTENERS_OF_SCALE_SET, str(scale_set.key))
        return [obj.key for obj in manager.cache.list(AutoscalingListener, index=index)]

    def watched_scale_set_of(listener: AutoscalingListener) -> Iterable[NamespacedName]:
        # Another manager's listeners may live beside ours.
        key = scale_set_of(listener)
        return [key] if config.watches(key.namespace) else []

    (
        ControllerBuilder(manager)
        .named("autoscalingrunnerset")
        .for_(AutoscalingRunnerSet, predicates=[_NOT_OUR_STATUS])
        .owns(EphemeralRunnerSet)
        .watches(AutoscalingListener, enqueue_mapped(watched_scale_set_of))
        .with_options(
            max_concurrent_reconciles=config.max_concurrent_sets,
            rate_limiter=config.new_rate_limiter(),
            expected_errors=(ActionsError, InputError),
        )
        .build(AutoscalingRunnerSetReconciler(context))
    )
    (
        ControllerBuilder(manager)
        .named("autoscalinglistener")
        .for_(AutoscalingListener, predicates=[_NOT_OUR_STATUS])
        .owns(Pod)
        .owns(ServiceAccount)
        .watches(Role, enqueue_mapped(listener_of))
        .watches(RoleBinding, enqueue_mapped(listener_of))
        .watches(AutoscalingRunnerSet, enqueue_mapped(listeners_of), predicates=[_ONLY_DELETED])
        .watches(EphemeralRunnerSet, enqueue_mapped(listeners_of), predicates=[_HEARD_OF_LISTENER])
        .with_options(
            max_concurrent_reconciles=config.max_concurrent_sets,
            rate_limiter=config.new_rate_limiter(),
            expected_errors=(ActionsError, InputError),
        )
        .build(AutoscalingListenerReconciler(context))
    )
