"""The questions that the cache answers by an index."""

from __future__ import annotations

from collections.abc import Iterable

from arc_controller.actions import InvalidConfigUrl, parse_config_url
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
)
from arc_controller.controllers.scale_set import registered_name
from arc_controller.runtime.cache import Cache
from arc_controller.runtime.objects import NamespacedName
from arc_controller.runtime.ownership import controller_of

LISTENERS_OF_SCALE_SET = "autoscaling-runner-set"
RUNNER_SETS_OF_SCALE_SET = "autoscaling-runner-set"
SAME_REGISTRATION = "registration"


def add_indexes(cache: Cache) -> None:
    """Raises `ValueError` if they were added already."""
    cache.add_index(AutoscalingListener, LISTENERS_OF_SCALE_SET, _scale_set_of_listener)
    cache.add_index(EphemeralRunnerSet, RUNNER_SETS_OF_SCALE_SET, _owner_uid)
    cache.add_index(AutoscalingRunnerSet, SAME_REGISTRATION, lambda obj: [registration_of(obj)])


def registration_of(scale_set: AutoscalingRunnerSet) -> str:
    """Equal for scale sets that would be one and the same at the service."""
    spec = scale_set.spec
    try:
        url = parse_config_url(spec.github_config_url).url
    except InvalidConfigUrl:
        url = spec.github_config_url
    return "\n".join((url, spec.runner_group, registered_name(scale_set))).casefold()


def scale_set_of(listener: AutoscalingListener) -> NamespacedName:
    spec = listener.spec
    return NamespacedName(spec.autoscaling_runner_set_namespace, spec.autoscaling_runner_set_name)


def _scale_set_of_listener(listener: AutoscalingListener) -> Iterable[str]:
    return [str(scale_set_of(listener))]


def _owner_uid(runner_set: EphemeralRunnerSet) -> Iterable[str]:
    owner = controller_of(runner_set)
    return [owner.uid] if owner is not None else []
