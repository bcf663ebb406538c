"""The end of a simulation: faults stop, and then everything must come right by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet
from arc_controller.testing.actions import JobState
from arc_controller.testing.apiserver import Object
from arc_controller.testing.cluster import CONTROLLER_NAMESPACE, RUNNER_NAMESPACE
from arc_controller.testing.simulation import facts
from arc_controller.testing.simulation.deeds import edit
from arc_controller.testing.simulation.network import LISTENER, MANAGER
from arc_controller.testing.simulation.plan import Edit
from arc_controller.testing.simulation.spectator import Asked
from arc_controller.testing.simulation.world import World

SETTLES_WITHIN: Final = 3 * 3600.0
"""Seconds after the last fault within which everything has to be in order. The slowest thing is a
failed runner, which is looked at again after 10 min, several times in a row."""
GONE_WITHIN: Final = 3600.0
QUIET_FOR: Final = 1200.0
QUIET_AFTER: Final = 300.0
"""The listener's last word ("force this state") comes when two polls brought nothing."""
LOOK_EVERY: Final = 10.0
UPGRADE_EVERY: Final = 300.0
LAST_JOBS: Final = 2

_UNOBSERVED: Final = frozenset(
    {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "namespaces"}
)


class Baseline:
    """What there was before the user came; all that has to be there when they have left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known = frozenset(self._all())

    def left_over(self) -> list[str]:
        return sorted(
            f"{key[0]} {key[1]}/{key[2]}" for key in self._all() if key not in self._known
        )

    def _all(self) -> list[tuple[str, str, str]]:
        return [
            (stored.resource, stored.namespace, stored.name)
            for stored in self._world.store
            if stored.resource not in _UNOBSERVED
        ]


async def settle(world: World) -> None:
    """Queue a few more jobs and wait until all are over and everything is at rest.

    An Outdated scale set gets a newer image now and then, which is what its user has to do.
    """
    for obj in world.scale_sets():
        if int(obj["spec"].get("maxRunners", 1)) > 0 and not facts.is_being_deleted(obj):
            world.service.queue_jobs(LAST_JOBS, scale_set=facts.name(obj), duration=20.0)
    upgraded: dict[str, float] = {}

    async def help_out() -> None:
        now = world.loop.time()
        for obj in world.scale_sets():
            name = facts.name(obj)
            if facts.phase(obj) != "Outdated" or facts.is_being_deleted(obj):
                continue
            if now - upgraded.get(name, -UPGRADE_EVERY) >= UPGRADE_EVERY:
                upgraded[name] = now
                world.spectator.note(f"the user upgrades the image of {name}")
                await edit(world, obj, Edit(at=now, name=name, what="image"))

    deadline = world.loop.time() + SETTLES_WITHIN
    while problems := unsettled(world):
        if world.loop.time() >= deadline:
            hours = SETTLES_WITHIN / 3600
            text = f"{hours:g} h after the last fault: " + "; ".join(problems[:8])
            world.fail("counts converge, and every job that was acquired ran or was lost", text)
            return
        await help_out()
        await asyncio.sleep(LOOK_EVERY)


async def stay_quiet(world: World) -> None:
    """Nothing is written any more."""
    await asyncio.sleep(QUIET_AFTER)
    written: list[Asked] = []

    def listen(asked: Asked) -> None:
        ours = asked.agent.startswith((MANAGER, LISTENER))
        if ours and asked.is_write and asked.resource != "leases":
            written.append(asked)

    world.spectator.on_request.append(listen)
    await asyncio.sleep(QUIET_FOR)
    world.spectator.on_request.remove(listen)
    if written:
        text = f"{len(written)} writes in {QUIET_FOR:g} s of rest, such as {written[0]}"
        world.fail("what is at rest is left alone", text)


async def delete_everything(world: World, baseline: Baseline) -> None:
    """The user deletes all scale sets; nothing may be left."""
    for obj in world.scale_sets():
        await world.cluster.delete(AutoscalingRunnerSet, facts.name(obj))
    deadline = world.loop.time() + GONE_WITHIN
    while left := _left(world, baseline):
        if world.loop.time() >= deadline:
            text = f"{GONE_WITHIN:g} s after everything was deleted: " + ", ".join(left[:10])
            world.fail("deleting everything leaves nothing", text)
            return
        await asyncio.sleep(LOOK_EVERY)


def _left(world: World, baseline: Baseline) -> list[str]:
    service = world.service
    return [
        *baseline.left_over(),
        *(f"registration {runner.name}" for runner in service.runners.values()),
        *(f"session of {session.owner}" for session in service.sessions.values()),
        *(f"scale set {record.name}" for record in service.scale_sets.values()),
    ]


def unsettled(world: World) -> list[str]:
    """What is not in order yet."""
    problems: list[str] = []
    say = problems.append
    service = world.service
    wanted: Counter[str] = Counter()
    for obj in world.scale_sets():
        if facts.is_being_deleted(obj):
            say(f"{facts.name(obj)} is being deleted")
            continue
        least = min(
            int(obj["spec"].get("minRunners", 0)), int(obj["spec"].get("maxRunners", 10**9))
        )
        wanted[facts.name(obj)] = least
        _check_scale_set(world, obj, least, say)
    for runner_set in world.objects(facts.RUNNER_SETS):
        if facts.name(runner_set) not in wanted:
            say(f"the set {facts.name(runner_set)} belongs to nobody")
    total = wanted.total()
    _compare("runners", len(world.objects(facts.RUNNERS)), total, say)
    _compare("runner pods", len(world.objects(facts.PODS, RUNNER_NAMESPACE)), total, say)
    _compare("listeners", len(world.objects(facts.LISTENERS)), len(wanted), say)
    _compare(
        "listener pods", len(world.objects(facts.PODS, CONTROLLER_NAMESPACE)), len(wanted), say
    )
    _compare("registered runners", len(service.runners), total, say)
    _compare("runners online", sum(r.online for r in service.runners.values()), total, say)
    _compare("sessions", len(service.sessions), len(wanted), say)
    _compare("scale sets at the service", len(service.scale_sets), len(wanted), say)
    for state in (JobState.QUEUED, JobState.AVAILABLE, JobState.ACQUIRED, JobState.ASSIGNED):
        for record in service.scale_sets.values():
            serves = int(_limit(world, record.name)) > 0
            if record.jobs[state] and (serves or state is not JobState.QUEUED):
                say(f"{len(record.jobs[state])} jobs of {record.name} are {state}")
    running = service.job_counts()[JobState.RUNNING]
    _compare("running jobs", running, 0, say)
    return problems


def _check_scale_set(world: World, obj: Object, least: int, say: Callable[[str], None]) -> None:
    name, status = facts.name(obj), obj.get("status", {})
    if facts.phase(obj) != "Running":
        say(f"{name} is {facts.phase(obj) or 'without a phase'}: {_why(obj)}")
    stored = world.store.read(facts.RUNNER_SETS, facts.namespace(obj), name)
    if stored is None:
        say(f"{name} has no EphemeralRunnerSet")
        return
    runner_set = stored.obj
    if facts.spec_revision(runner_set) != facts.applied_revision(runner_set):
        say(f"revision {facts.spec_revision(runner_set)} of {name} is not applied")
    _compare(f"replicas of {name}", facts.replicas(runner_set), least, say)
    image = runner_set["spec"]["ephemeralRunnerSpec"]["spec"]["containers"][0]["image"]
    if image != obj["spec"]["template"]["spec"]["containers"][0]["image"]:
        say(f"the set {name} still has {image}")
    runners = facts.owned_by(
        world.store, facts.RUNNERS, facts.uid(runner_set), facts.namespace(obj)
    )
    _compare(f"runners of {name}", len(runners), least, say)
    for runner in runners:
        if not runner.get("status", {}).get("ready") or facts.phase(runner) != "Pending":
            say(f"runner {facts.name(runner)} is {facts.phase(runner)} and not ready")
    counts = runner_set.get("status", {})
    for where, found in ((f"set {name}", counts), (f"scale set {name}", status)):
        current = "currentReplicas" if found is counts else "currentRunners"
        _compare(f"status {current} of {where}", found.get(current, 0), least, say)
        _compare(f"status pending of {where}", found.get("pendingEphemeralRunners", 0), least, say)
        for count in ("runningEphemeralRunners", "failedEphemeralRunners"):
            _compare(f"status {count} of {where}", found.get(count, 0), 0, say)


def _limit(world: World, name: str) -> int:
    stored = world.store.read(facts.SCALE_SETS, RUNNER_NAMESPACE, name)
    return int(stored.obj["spec"].get("maxRunners", 10**9)) if stored is not None else 0


def _compare(what: str, found: int, wanted: int, say: Callable[[str], None]) -> None:
    if found != wanted:
        say(f"{what}: {found} instead of {wanted}")


def _why(obj: Object) -> str:
    conditions = obj.get("status", {}).get("conditions", [])
    return "; ".join(c.get("message", "") for c in conditions if c.get("status") != "True")
