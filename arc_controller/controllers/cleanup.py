"""Letting go of what the chart installed beside a scale set.

The chart puts the finalizer ``cleanup-protection`` on roles, bindings, accounts and the secret that
we need until a scale set is gone for good, and names them in ``cleanup-*`` annotations. Whoever
made them deletes them; we only take the finalizer off.
"""

from __future__ import annotations

from dataclasses import dataclass

from arc_controller.api.core import Role, RoleBinding, Secret, ServiceAccount
from arc_controller.api.v1alpha1 import Annotation, AutoscalingRunnerSet, Finalizer
from arc_controller.runtime.client import Client
from arc_controller.runtime.finalizers import remove_finalizers
from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import KubeObject, NamespacedName


@dataclass(frozen=True, slots=True)
class Protected:
    kind: type[KubeObject]
    key: NamespacedName


# The manager's own binding and role come last: they are what lets us do this. The role is after
# the binding, because patching roles is the one thing that is granted elsewhere too.
_ORDER: tuple[tuple[str, type[KubeObject]], ...] = (
    ("kubernetes-mode-role-binding-name", RoleBinding),
    ("kubernetes-mode-role-name", Role),
    ("kubernetes-mode-service-account-name", ServiceAccount),
    ("no-permission-service-account-name", ServiceAccount),
    ("github-secret-name", Secret),
    ("manager-role-binding", RoleBinding),
    ("manager-role-name", Role),
)


def protected(scale_set: AutoscalingRunnerSet) -> list[Protected]:
    """What the annotations name, in the order in which it is to be let go."""
    metadata = scale_set.metadata
    named = (
        (kind, metadata.annotations.get(Annotation.CLEANUP_PREFIX + suffix, ""))
        for suffix, kind in _ORDER
    )
    return [
        Protected(kind, NamespacedName(metadata.namespace, name)) for kind, name in named if name
    ]


async def release(live: Client, thing: Protected) -> bool:
    """Take ``cleanup-protection`` off; says whether it was on.

    `live` reads from the API server: the cache holds only what we made. Raises `ApiError`.
    """
    found = await _find(live, thing)
    if found is None:
        return False
    lazy = LazyCopy(found)
    if not remove_finalizers(lazy, Finalizer.CLEANUP_PROTECTION):
        return False
    return await lazy.patch(live)


async def _find(live: Client, thing: Protected) -> KubeObject | None:
    if thing.kind is Secret:
        return await live.find(thing.kind, thing.key)
    # To list these is granted everywhere; to get one only by the role that we may just have lost.
    candidates = await live.list(thing.kind, namespace=thing.key.namespace)
    return next((obj for obj in candidates if obj.key == thing.key), None)
