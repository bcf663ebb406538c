"""How a pod fares: everything that can happen to it, as plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from arc_controller.api.core import PodManifest


class DisruptionKind(StrEnum):
    """What ends a pod from outside."""

    EVICTED = "evicted"  # the node is short of something: phase Failed, reason Evicted
    PREEMPTED = "preempted"  # a more important pod wants the place: deleted by the scheduler
    NODE_SHUTDOWN = "node-shutdown"  # phase Failed, reason Terminated
    NODE_LOST = "node-lost"  # nobody reports any more; deleted by the taint manager, then forced
    OUT_OF_MEMORY = "oom"  # the container is killed with code 137, reason OOMKilled
    CRASHED = "crashed"  # the process ends by itself, with `Disruption.exit_code`


@dataclass(frozen=True, slots=True)
class Disruption:
    """It happens ``after`` so many seconds of running."""

    kind: DisruptionKind
    after: float = 0.0
    exit_code: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBehaviour:
    """Seconds between a pod's stations, and what goes wrong. The default is quick and well."""

    schedule: float = 0.0
    never_scheduled: bool = False
    pull: float = 0.0
    image_pull_back_off: bool = False
    """The image is never pulled; the pod waits with that reason until it is deleted."""
    start: float = 0.0
    init_exit_code: int = 0
    """Not 0: an init container fails with it, and the pod with it."""
    exit_code: int | None = None
    """Instead of the process's own, when it ends by itself."""
    connects: bool = True
    """False: a runner exits (with ``exit_code``, else 1) without ever asking for a job."""
    connects_after: asyncio.Event | None = None
    """A runner asks for a job once this is set, so that several can begin together."""
    disruption: Disruption | None = None
    terminates_in: float = 0.0
    """How long the process takes to react to SIGTERM."""


Behave = Callable[[PodManifest], PodBehaviour]
"""Asked once for every new pod."""


def well(pod: PodManifest) -> PodBehaviour:
    """Every pod is quick and well."""
    return PodBehaviour()


def troubled(
    random: Random,
    *,
    pull: tuple[float, float] = (0.0, 5.0),
    trouble: float = 0.1,
    forever: float = 0.0,
) -> Behave:
    """Pods that take their time, and of which a share (``trouble``, 0 to 1) goes wrong somehow.

    ``forever`` is the share that never starts at all: never scheduled, or no image.
    """

    def behave(pod: PodManifest) -> PodBehaviour:
        pull_time, start = random.uniform(*pull), random.uniform(0.0, 2.0)
        slow = PodBehaviour(pull=pull_time, start=start, terminates_in=random.uniform(0.0, 10.0))
        chance = random.random()
        if chance < forever:
            stuck = random.choice(("never_scheduled", "image_pull_back_off"))
            return PodBehaviour(**{stuck: True})  # type: ignore[arg-type]
        if chance >= forever + trouble:
            return slow
        if random.random() < 0.3:
            return PodBehaviour(
                pull=pull_time, start=start, connects=False, exit_code=random.choice((1, 2, 137))
            )
        if random.random() < 0.2:
            return PodBehaviour(pull=pull_time, init_exit_code=1)
        disruption = Disruption(
            random.choice(list(DisruptionKind)), random.uniform(0.0, 30.0), random.randint(1, 255)
        )
        return PodBehaviour(pull=pull_time, start=start, disruption=disruption)

    return behave
