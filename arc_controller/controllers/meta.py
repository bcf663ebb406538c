"""Names, labels, annotations and owner of the things that one object makes of another."""

from __future__ import annotations

import hashlib

from arc_controller.api import SCHEME
from arc_controller.api.v1alpha1 import Annotation
from arc_controller.controllers.meaning import meaning_hash
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import K, KubeObject, ObjectMeta
from arc_controller.runtime.ownership import controller_of

MAX_NAME = 63
"""Names that are also label values or host names are not longer than this."""


def short_hash(*parts: str) -> str:
    """Eight characters that tell `parts` from others, fit for a name."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def hashed_name(name: str, suffix: str, *parts: str) -> str:
    """``NAME-HASH-SUFFIX``, HASH of `parts`; at most 63 characters, for which a long NAME is cut
    (and then counts in HASH as a whole)."""
    room = MAX_NAME - len(f"-{8 * 'x'}-{suffix}")
    if len(name) > room:
        return f"{name[:room].rstrip('-.')}-{short_hash(name, *parts)}-{suffix}"
    return f"{name}-{short_hash(*parts)}-{suffix}"


def with_integrity(metadata: ObjectMeta, *content: object) -> ObjectMeta:
    """Stamp `metadata`, in place, with a hash of its labels, its annotations and `content`.

    The hash is how a later pass notices that something is *no longer* wanted; what others added
    is none of our business and does not change it.
    """
    metadata.annotations[Annotation.INTEGRITY_HASH] = meaning_hash(
        metadata.labels, metadata.annotations, *content
    )
    return metadata


def same_metadata(actual: ObjectMeta, wanted: ObjectMeta) -> bool:
    """Whether all that is wanted is there; see `with_integrity` for what is not wanted any more."""
    return (
        wanted.labels.items() <= actual.labels.items()
        and wanted.annotations.items() <= actual.annotations.items()
        and all(reference in actual.owner_references for reference in wanted.owner_references)
    )


def set_metadata(lazy: LazyCopy[K], wanted: ObjectMeta) -> None:
    """Give the object exactly the wanted labels and annotations, and the wanted owner."""
    metadata = lazy.mutate().metadata
    metadata.labels = dict(wanted.labels)
    metadata.annotations = dict(wanted.annotations)
    missing = [ref for ref in wanted.owner_references if ref not in metadata.owner_references]
    if missing:
        stale = {(ref.kind, ref.name) for ref in missing}
        kept = [r for r in metadata.owner_references if (r.kind, r.name) not in stale]
        metadata.owner_references = [*kept, *missing]


def own(owner: KubeObject, metadata: ObjectMeta) -> ObjectMeta:
    """Make `owner` the controller, in place, if the two share a namespace (else it cannot be)."""
    if owner.metadata.namespace == metadata.namespace:
        metadata.owner_references = [SCHEME.owner_reference(owner)]
    return metadata


def is_foreign(obj: KubeObject, owner: KubeObject) -> bool:
    """Whether somebody else controls `obj`. What nobody controls may be adopted."""
    reference = controller_of(obj)
    return reference is not None and reference.uid != owner.uid
