"""Owner references: who made an object, and whose controller looks after it.

https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/
"""

from __future__ import annotations

from arc_controller.runtime.objects import KubeObject, OwnerReference
from arc_controller.runtime.scheme import Scheme


class AlreadyOwned(Exception):
    """The object has another controller."""


def set_controller_reference(owner: KubeObject, obj: KubeObject, scheme: Scheme) -> None:
    """Make `owner` the controller of `obj`, which is changed in place.

    Raises `AlreadyOwned` if another object is, and `ValueError` if `owner` lives in another
    namespace or has no uid: the garbage collector would delete `obj` for that.
    """
    kind = scheme.resource(type(owner)).kind
    if not owner.uid:
        raise ValueError(f"{kind} {owner.key} has no uid yet: create it before what it owns")
    if owner.metadata.namespace and owner.metadata.namespace != obj.metadata.namespace:
        raise ValueError(
            f"{kind} {owner.key} cannot own {obj.key}: "
            "an owner is in the same namespace or cluster-scoped"
        )
    current = controller_of(obj)
    if current is not None and current.uid != owner.uid:
        raise AlreadyOwned(
            f"{kind} {owner.key} cannot control {obj.key}: "
            f"{current.kind} {current.name} (uid {current.uid}) already does"
        )
    others = [ref for ref in obj.metadata.owner_references if ref.uid != owner.uid]
    obj.metadata.owner_references = [*others, scheme.owner_reference(owner)]


def controller_of(obj: KubeObject) -> OwnerReference | None:
    """The reference to the one owner that controls `obj`."""
    return next((ref for ref in obj.metadata.owner_references if ref.controller), None)


def is_controlled_by(obj: KubeObject, owner: KubeObject) -> bool:
    """Whether this very `owner` (its uid counts, not its name) controls `obj`."""
    reference = controller_of(obj)
    return reference is not None and reference.uid == owner.uid
