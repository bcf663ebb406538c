"""Equal things are kept once: a thousand runners of one set have one spec between them."""

from __future__ import annotations

import msgspec
from cachetools import LRUCache

from arc_controller.api.core import Pod, PodImages
from arc_controller.api.v1alpha1 import EphemeralRunner, EphemeralRunnerSpec, Label

MAX_SPECS = 512


class SharedSpecs:
    """For the cache: replaces a runner's spec by an equal one that another runner has."""

    def __init__(self, size: int = MAX_SPECS) -> None:
        self._specs: LRUCache[bytes, EphemeralRunnerSpec] = LRUCache(size)

    def __call__(self, runner: EphemeralRunner) -> EphemeralRunner:
        key = msgspec.json.encode(runner.spec)
        known = self._specs.get(key)
        if known is None:
            self._specs[key] = runner.spec
        else:
            runner.spec = known
        return runner


_NONE = PodImages()


def without_images(pod: Pod) -> Pod:
    """For the cache: nobody asks for the images of runners' pods, and there are many of them."""
    if Label.EPHEMERAL_RUNNER in pod.metadata.labels:
        pod.spec = _NONE
    return pod
