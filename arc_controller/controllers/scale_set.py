"""What an AutoscalingRunnerSet asks for: pure functions from it to what it owns."""

from __future__ import annotations

from arc_controller.actions import parse_config_url
from arc_controller.api.v1alpha1 import (
    MAX_RUNNERS,
    Annotation,
    AutoscalingListener,
    AutoscalingListenerSpec,
    AutoscalingRunnerSet,
    Component,
    EphemeralRunnerSet,
    EphemeralRunnerSetSpec,
    EphemeralRunnerSpec,
    Finalizer,
    Label,
    LocalObjectReference,
    integer_annotation,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.controllers.inputs import InputError
from arc_controller.controllers.labels import (
    merged_annotations,
    merged_labels,
    own_labels,
    propagated,
    url_labels,
)
from arc_controller.controllers.meta import hashed_name, own, with_integrity
from arc_controller.runtime.objects import NamespacedName, ObjectMeta

LISTENER_SUFFIX = "listener"
REGISTERED_FOR = "actions.github.com/registered-for"
"""The annotation with the uid of the object that the other annotations of a registration are of."""


def validate(scale_set: AutoscalingRunnerSet) -> None:
    """Raises `InputError` or `arc_controller.actions.InvalidConfigUrl` for a spec that cannot work.

    The schema of the resource catches types and signs; this is what it cannot say.
    """
    spec = scale_set.spec
    parse_config_url(spec.github_config_url)
    if not spec.github_config_secret:
        raise InputError(
            "CredentialsMissing",
            "githubConfigSecret is empty; name a secret with github_token, or with github_app_id, "
            "github_app_installation_id and github_app_private_key",
        )
    low, high = runner_limits(scale_set)
    if low > high:
        raise InputError(
            "InvalidSpec",
            f"minRunners is {low} and maxRunners is {high}: minRunners must not be more",
        )
    if not spec.template.spec.get("containers"):
        raise InputError(
            "InvalidSpec", "template.spec.containers is empty; it needs one named runner"
        )


def runner_limits(scale_set: AutoscalingRunnerSet) -> tuple[int, int]:
    """The least and the greatest number of runners."""
    spec = scale_set.spec
    low = spec.min_runners or 0
    return low, MAX_RUNNERS if spec.max_runners is None else spec.max_runners


def limits_in_words(scale_set: AutoscalingRunnerSet) -> str:
    """For people: an upper limit that nobody set is none."""
    low, high = runner_limits(scale_set)
    if scale_set.spec.max_runners is None:
        return (
            f"there may be {low} runners or more" if low else "there may be any number of runners"
        )
    return f"there may be {low} to {high} runners"


def registered_name(scale_set: AutoscalingRunnerSet) -> str:
    """The name of the scale set at the service."""
    return scale_set.spec.runner_scale_set_name or scale_set.metadata.name


def is_copy(scale_set: AutoscalingRunnerSet) -> bool:
    """Whether its annotations speak of another object's registration: a manifest that was cloned,
    or restored from a backup. What the Go controller made says nothing and is taken at its word."""
    made_for = scale_set.metadata.annotations.get(REGISTERED_FOR)
    return bool(made_for) and made_for != scale_set.uid


def scale_set_id(scale_set: AutoscalingRunnerSet) -> int:
    """The scale set's id at the service; 0 if it is not registered, the annotation is garbage or
    another object's."""
    if is_copy(scale_set):
        return 0
    return max(
        0, integer_annotation(scale_set.metadata.annotations, Annotation.RUNNER_SCALE_SET_ID)
    )


def listener_key(scale_set: AutoscalingRunnerSet, config: ControllerConfig) -> NamespacedName:
    """Where the listener of a scale set is.

    The hash keeps scale sets of one name in different namespaces apart, and gives a scale set that
    moves to another group or URL a new listener.
    """
    spec = scale_set.spec
    name = hashed_name(
        scale_set.metadata.name,
        LISTENER_SUFFIX,
        scale_set.metadata.namespace,
        spec.runner_group,
        spec.github_config_url,
    )
    return NamespacedName(config.namespace, name)


def runner_spec(scale_set: AutoscalingRunnerSet, id_: int) -> EphemeralRunnerSpec:
    """What every runner of the scale set is made from."""
    spec = scale_set.spec
    return EphemeralRunnerSpec(
        github_config_url=spec.github_config_url,
        github_config_secret=spec.github_config_secret,
        github_server_tls=spec.github_server_tls,
        runner_scale_set_id=id_,
        proxy=spec.proxy,
        vault_config=spec.vault_config,
        ephemeral_runner_config_secret_metadata=spec.ephemeral_runner_config_secret_metadata,
        metadata=spec.template.metadata,
        spec=spec.template.spec,
    )


def new_ephemeral_runner_set(
    scale_set: AutoscalingRunnerSet, config: ControllerConfig
) -> EphemeralRunnerSet:
    """The set of runners, with none in it yet: how many is the listener's business."""
    spec = scale_set.spec
    metadata = ObjectMeta(
        name=scale_set.metadata.name,
        namespace=scale_set.metadata.namespace,
        labels=merged_labels(
            spec.ephemeral_runner_set_metadata, *_labels(scale_set, Component.RUNNER_SET, config)
        ),
        annotations=merged_annotations(
            spec.ephemeral_runner_set_metadata, _registration_annotations(scale_set)
        ),
        finalizers=[Finalizer.EPHEMERAL_RUNNER_SET],
    )
    return EphemeralRunnerSet(
        metadata=with_integrity(own(scale_set, metadata)),
        spec=EphemeralRunnerSetSpec(
            ephemeral_runner_spec=runner_spec(scale_set, scale_set_id(scale_set)),
            ephemeral_runner_metadata=spec.ephemeral_runner_metadata,
        ),
    )


def new_listener(scale_set: AutoscalingRunnerSet, config: ControllerConfig) -> AutoscalingListener:
    """The listener, in the controller's namespace."""
    spec = scale_set.spec
    low, high = runner_limits(scale_set)
    namespace, name = listener_key(scale_set, config)
    listener_spec = AutoscalingListenerSpec(
        github_config_url=spec.github_config_url,
        github_config_secret=spec.github_config_secret,
        runner_scale_set_id=scale_set_id(scale_set),
        autoscaling_runner_set_namespace=scale_set.metadata.namespace,
        autoscaling_runner_set_name=scale_set.metadata.name,
        ephemeral_runner_set_name=scale_set.metadata.name,
        min_runners=low,
        max_runners=high,
        image=config.image,
        image_pull_secrets=[LocalObjectReference(name=n) for n in config.listener_pull_secrets],
        proxy=spec.proxy,
        github_server_tls=spec.github_server_tls,
        vault_config=spec.vault_config,
        metrics=spec.listener_metrics,
        template=spec.listener_template,
        service_account_metadata=spec.listener_service_account_metadata,
        role_metadata=spec.listener_role_metadata,
        role_binding_metadata=spec.listener_role_binding_metadata,
        config_secret_metadata=spec.listener_config_secret_metadata,
    )
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=merged_labels(
            spec.autoscaling_listener, *_labels(scale_set, Component.LISTENER, config)
        ),
        annotations=merged_annotations(spec.autoscaling_listener),
        finalizers=[Finalizer.AUTOSCALING_LISTENER],
    )
    return AutoscalingListener(
        metadata=with_integrity(own(scale_set, metadata), listener_spec), spec=listener_spec
    )


def _labels(
    scale_set: AutoscalingRunnerSet, component: str, config: ControllerConfig
) -> tuple[dict[str, str], ...]:
    metadata = scale_set.metadata
    return (
        propagated(metadata.labels, config.exclude_label_prefixes),
        url_labels(scale_set.spec.github_config_url),
        own_labels(
            component,
            name=metadata.name,
            namespace=metadata.namespace,
            version=metadata.labels.get(Label.VERSION, config.version),
        ),
    )


def _registration_annotations(scale_set: AutoscalingRunnerSet) -> dict[str, str]:
    kept = (
        Annotation.RUNNER_SCALE_SET_ID,
        Annotation.RUNNER_GROUP_NAME,
        Annotation.RUNNER_SCALE_SET_NAME,
    )
    annotations = scale_set.metadata.annotations
    return {name: annotations[name] for name in kept if name in annotations}
