"""What an EphemeralRunnerSet owns: its runners and the secret with their proxy settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final

import msgspec

from arc_controller.api.core import Secret
from arc_controller.api.v1alpha1 import (
    PART_OF,
    Annotation,
    Component,
    EphemeralRunner,
    EphemeralRunnerSet,
    EphemeralRunnerSpec,
    Finalizer,
    Label,
)
from arc_controller.controllers.labels import merged_annotations, merged_labels, propagated
from arc_controller.controllers.meta import MAX_NAME, hashed_name, own, with_integrity
from arc_controller.runtime.objects import NamespacedName, ObjectMeta

_INFIX: Final = "-runner-"
_SUFFIX_LENGTH: Final = 5
# As in names that an API server generates: no vowels, no characters that look alike.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_INHERITED: Final = (Annotation.RUNNER_GROUP_NAME, Annotation.RUNNER_SCALE_SET_NAME)


def runner_name(runner_set: EphemeralRunnerSet, random: Random) -> str:
    """``SET-runner-XXXXX``, not longer than 63 characters.

    Chosen here and not by the server, so that a creation that got no answer can be looked up.
    """
    return _prefix(runner_set) + "".join(random.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def is_runner_name(runner_set: EphemeralRunnerSet, name: str) -> bool:
    """Whether `runner_name` gives names like this one for the set."""
    prefix = _prefix(runner_set)
    suffix = name.removeprefix(prefix)
    return (
        name.startswith(prefix) and len(suffix) == _SUFFIX_LENGTH and set(suffix) <= set(_ALPHABET)
    )


def _prefix(runner_set: EphemeralRunnerSet) -> str:
    room = MAX_NAME - len(_INFIX) - _SUFFIX_LENGTH
    return f"{runner_set.metadata.name[:room].rstrip('-.')}{_INFIX}"


def build_runner(
    runner_set: EphemeralRunnerSet, name: str, exclude_label_prefixes: Iterable[str] = ()
) -> EphemeralRunner:
    """A runner of today's spec, stamped with the request and the revision it is made for.

    It has its finalizers from the start, so that nobody has to add them.
    """
    spec, extra = runner_set.spec, runner_set.spec.ephemeral_runner_metadata
    inherited = runner_set.metadata.annotations
    metadata = ObjectMeta(
        name=name,
        namespace=runner_set.metadata.namespace,
        labels=merged_labels(
            extra,
            propagated(runner_set.metadata.labels, exclude_label_prefixes),
            {Label.PART_OF: PART_OF, Label.COMPONENT: Component.RUNNER},
        ),
        annotations=merged_annotations(
            extra,
            {key: inherited[key] for key in _INHERITED if key in inherited},
            {
                Annotation.PATCH_ID: str(spec.patch_id),
                Annotation.ACTIONABLE_REVISION: str(spec.actionable_revision),
            },
        ),
        finalizers=[Finalizer.EPHEMERAL_RUNNER, Finalizer.RUNNER_REGISTRATION],
    )
    return EphemeralRunner(metadata=own(runner_set, metadata), spec=_runner_spec(runner_set))


def proxy_secret_key(runner_set: EphemeralRunnerSet) -> NamespacedName:
    """``SET-HASH-runner-proxy``"""
    namespace, name = runner_set.key
    return NamespacedName(namespace, hashed_name(name, "runner-proxy", namespace, name))


def build_proxy_secret(
    runner_set: EphemeralRunnerSet,
    environment: Mapping[str, str],
    exclude_label_prefixes: Iterable[str] = (),
) -> Secret:
    """The proxy variables of the runners, with credentials inserted."""
    namespace, name = proxy_secret_key(runner_set)
    labels = propagated(runner_set.metadata.labels, exclude_label_prefixes)
    labels = {**labels, Label.PART_OF: PART_OF, Label.COMPONENT: Component.RUNNER_SET}
    metadata = ObjectMeta(name=name, namespace=namespace, labels=labels)
    return Secret(
        metadata=own(runner_set, with_integrity(metadata)),
        type="Opaque",
        data={key: value.encode() for key, value in environment.items()},
    )


def _runner_spec(runner_set: EphemeralRunnerSet) -> EphemeralRunnerSpec:
    spec = runner_set.spec.ephemeral_runner_spec
    if spec.proxy is None:
        return spec
    return msgspec.structs.replace(spec, proxy_secret_ref=proxy_secret_key(runner_set).name)
