"""Whether what is stored still is what we asked for."""

from __future__ import annotations

from cachetools import LRUCache

from arc_controller.api.v1alpha1 import AutoscalingListener, EphemeralRunnerSetSpec
from arc_controller.controllers.meaning import meaning_hash, same_meaning
from arc_controller.controllers.meta import same_metadata
from arc_controller.runtime.objects import Wire


def is_same_runner_spec(actual: EphemeralRunnerSetSpec, wanted: EphemeralRunnerSetSpec) -> bool:
    """Whether the same runners come out. Replicas and patch id are the listener's, not ours."""
    return same_meaning(
        actual.ephemeral_runner_spec, wanted.ephemeral_runner_spec
    ) and same_meaning(actual.ephemeral_runner_metadata, wanted.ephemeral_runner_metadata)


def is_same_listener(
    actual: AutoscalingListener, wanted: AutoscalingListener, unwritable: Unwritable
) -> bool:
    """Whether it is the wanted one in name, labels, annotations and spec."""
    return (
        actual.key == wanted.key
        and same_metadata(actual.metadata, wanted.metadata)
        and (
            same_meaning(actual.spec, wanted.spec)
            or unwritable.is_known(actual.uid, wanted.spec, actual.spec)
        )
    )


class Unwritable:
    """Remembers what an API server made of our writes.

    One whose CRDs are older than we are drops fields it does not know; what is stored then differs
    from what is wanted for ever, and must not be written (or recreated) for ever.
    """

    def __init__(self, size: int = 4096) -> None:
        self._answers: LRUCache[str, str] = LRUCache(size)

    def note(self, uid: str, wanted: Wire, answer: Wire) -> None:
        """The server stored `answer` where we wrote `wanted`."""
        self._answers[uid] = meaning_hash(wanted, answer)

    def is_known(self, uid: str, wanted: Wire, actual: Wire) -> bool:
        """Whether `actual` is what came of writing `wanted`: writing it again changes nothing."""
        known = self._answers.get(uid)
        return known is not None and known == meaning_hash(wanted, actual)
