"""Finalizers: what has to be cleaned up before an object may go.

https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/

These change a `LazyCopy`; nothing is sent before its ``patch``. A merge patch replaces the whole
list, so that patch must be locked (the default): another's new finalizer would be erased.
"""

from __future__ import annotations

from arc_controller.runtime.lazycopy import LazyCopy
from arc_controller.runtime.objects import K, KubeObject


def missing_finalizers(obj: KubeObject, *names: str) -> tuple[str, ...]:
    """Which of `names` the object does not have."""
    return tuple(name for name in names if name not in obj.metadata.finalizers)


def add_finalizers(lazy: LazyCopy[K], *names: str) -> bool:
    """Add all that are missing; says whether any was.

    An object that is being deleted takes no new finalizers (the API server refuses them), so
    nothing is added to it.
    """
    missing = missing_finalizers(lazy.obj, *names)
    if not missing or lazy.obj.is_being_deleted:
        return False
    lazy.mutate().metadata.finalizers.extend(missing)
    return True


def remove_finalizers(lazy: LazyCopy[K], *names: str) -> bool:
    """Remove those that are there; says whether any was. Others' finalizers stay."""
    if not any(name in lazy.obj.metadata.finalizers for name in names):
        return False
    metadata = lazy.mutate().metadata
    metadata.finalizers = [name for name in metadata.finalizers if name not in names]
    return True
