"""What must be true at every moment, whatever goes wrong.

Each invariant is a class that is told of requests, calls and writes; it reads the API server's
store and the Actions service, and never asks a controller. The first violation ends a simulation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from arc_controller.testing.actions import Call
from arc_controller.testing.apiserver import Object, Store
from arc_controller.testing.apiserver.store import Event
from arc_controller.testing.simulation import facts
from arc_controller.testing.simulation.network import LISTENER, MANAGER
from arc_controller.testing.simulation.plan import (
    ApiOutage,
    ApiTrouble,
    HeldWrites,
    Plan,
    ServiceOutage,
    ServiceTrouble,
)
from arc_controller.testing.simulation.spectator import Asked, Called, WatchedService

COUNTS: Final = frozenset(
    {
        "currentReplicas",
        "pendingEphemeralRunners",
        "runningEphemeralRunners",
        "failedEphemeralRunners",
    }
)
JOB_FIELDS: Final = frozenset(
    {
        "jobRequestId",
        "jobId",
        "jobRepositoryName",
        "jobWorkflowRef",
        "workflowRunId",
        "jobDisplayName",
    }
)


@dataclass(frozen=True, slots=True)
class Violation:
    """``name`` says which invariant, ``text`` what happened."""

    name: str
    text: str
    at: float

    def __str__(self) -> str:
        return f"{self.name}: {self.text} (at {self.at:.3f} s)"


@dataclass(frozen=True, slots=True)
class Scene:
    """What an invariant may look at, and how it complains."""

    store: Store
    service: WatchedService
    plan: Plan
    fail: Callable[[str, str], None]


def recently(plan: Plan, *, unregistering: bool = False) -> float:
    """For how many seconds a decision may be on its way: what was asked that long ago may still be
    done. With ``unregistering`` the service is asked in between, which may take 5 min."""
    seconds = 15.0
    for action in plan.actions:
        if isinstance(action, ApiTrouble | ApiOutage):
            seconds = max(seconds, 90.0)
        if isinstance(action, HeldWrites):
            seconds = max(seconds, 15.0 + 2 * action.seconds)
        if unregistering and isinstance(action, ServiceTrouble | ServiceOutage):
            seconds = 400.0
    return seconds


class Invariant:
    """Base: overrides what it is about. ``name`` is a sentence that must be true."""

    name = ""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = scene.store
        self.service = scene.service

    def fail(self, text: str) -> None:
        self.scene.fail(self.name, text)

    def on_request(self, asked: Asked) -> None:
        """A request to the API server was answered."""

    def on_call(self, called: Called) -> None:
        """A call of the Actions service was answered."""

    def on_write(self, event: Event, actor: str) -> None:
        """Something was stored; the service is as it was at that moment."""


class BusyRunnersAreLeftAlone(Invariant):
    """*Busy*: the runner holds a job at the service, and its process is alive to run it."""

    name = "a busy runner is never deleted or unregistered by us"

    def on_write(self, event: Event, actor: str) -> None:
        stored = event.stored
        if stored.resource not in (facts.PODS, facts.RUNNERS):
            return
        if not self.service.is_at_work(stored.name):
            return
        was_marked = event.previous is not None and facts.is_being_deleted(event.previous.obj)
        is_marked = event.type == "MODIFIED" and facts.is_being_deleted(stored.obj)
        if actor.startswith(MANAGER):
            if is_marked and not was_marked:
                self.fail(f"{stored.resource} {stored.name} was deleted by {actor}")
            if event.type == "DELETED" and stored.resource == facts.RUNNERS:
                self.fail(f"{actor} let go of runner {stored.name}")
            if event.type == "DELETED" and not was_marked:
                self.fail(f"{stored.resource} {stored.name} was removed by {actor}")

    def on_call(self, called: Called) -> None:
        runner = called.runner
        if called.call is not Call.REMOVE_RUNNER or runner is None:
            return
        if called.was_removed and runner.job is not None:
            self.fail(f"runner {runner.name} was unregistered")


class ScaleSetsGoLast(Invariant):
    name = "a scale set is not removed from the service while its runners work"

    def on_call(self, called: Called) -> None:
        if called.call is not Call.DELETE_SCALE_SET or called.status != 204:
            return
        number = int(called.path.rsplit("/", 1)[-1])
        at_work = [
            runner.name
            for runner in self.service.runners.values()
            if runner.scale_set_id == number and self.service.is_at_work(runner.name)
        ]
        if at_work:
            self.fail(f"scale set {number} was removed, {', '.join(at_work)} being at work")


class NoMoreThanAskedFor(Invariant):
    """A set never has more runners than its spec asked for a moment ago."""

    name = "never more runners are created than asked for"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._asked: dict[str, deque[tuple[float, int]]] = {}
        self._recently = recently(scene.plan)
        self._factor = 2 if scene.plan.extra_leaders else 1

    def on_write(self, event: Event, actor: str) -> None:
        stored = event.stored
        if stored.resource == facts.RUNNER_SETS and event.type != "DELETED":
            asked = self._asked.setdefault(facts.uid(stored.obj), deque())
            asked.append((_now(), facts.replicas(stored.obj)))
        if stored.resource == facts.RUNNERS and event.type == "ADDED":
            self._check(stored.obj, actor)

    def _check(self, runner: Object, actor: str) -> None:
        owner = facts.owner_uid(runner)
        asked = self._asked.get(owner)
        if asked is None:
            self.fail(f"{actor} created runner {facts.name(runner)} of no set")
            return
        while len(asked) > 1 and asked[1][0] < _now() - self._recently:
            asked.popleft()
        wanted = max(count for _, count in asked) * self._factor
        runners = facts.owned_by(self.store, facts.RUNNERS, owner, facts.namespace(runner))
        taking_place = [
            each for each in runners if facts.phase(each) not in ("Succeeded", "Outdated")
        ]
        if len(taking_place) > wanted:
            names = ", ".join(f"{facts.name(r)} {facts.phase(r)}" for r in taking_place)
            self.fail(
                f"{actor} created runner {facts.name(runner)}: {wanted} wanted, there are {names}"
            )


class NoMoreThanMaxRunners(Invariant):
    name = "never more than maxRunners runners are registered"

    def on_call(self, called: Called) -> None:
        if called.call is not Call.GENERATE_JIT_CONFIG:
            return
        number = int(called.path.split("/runnerscalesets/", 1)[-1].split("/", 1)[0])
        record = self.service.scale_sets.get(number)
        if record is None:
            return
        most = self.scene.plan.most_runners(record.name)
        if self.scene.plan.extra_leaders:
            most *= 2
        if len(record.runners) > most:
            names = ", ".join(runner.name for runner in record.runners.values())
            self.fail(f"scale set {record.name} has {names}, maxRunners is {most}")


class TerminalPhasesStay(Invariant):
    name = "a runner never leaves a terminal phase"

    def on_write(self, event: Event, actor: str) -> None:
        stored, previous = event.stored, event.previous
        if stored.resource != facts.RUNNERS or previous is None or event.type != "MODIFIED":
            return
        before, after = facts.phase(previous.obj), facts.phase(stored.obj)
        if before in facts.DONE and after != before:
            self.fail(f"{actor} took {stored.name} from {before} to {after or 'no phase'}")


class OnlyForcedRequestsScaleDown(Invariant):
    """A runner that has a healthy pod and no job is only removed by scaling down, by a new
    revision, and with its set."""

    name = "a request with patchID > 0 never scales down"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._excused: dict[str, float] = {}
        self._recently = recently(scene.plan, unregistering=True)

    def on_write(self, event: Event, actor: str) -> None:
        stored, previous = event.stored, event.previous
        if stored.resource == facts.RUNNER_SETS:
            for obj in (stored.obj, *((previous.obj,) if previous is not None else ())):
                if _may_remove_idle_runners(obj):
                    self._excused[facts.uid(obj)] = _now()
            return
        if stored.resource != facts.RUNNERS or not actor.startswith(MANAGER):
            return
        if previous is None or facts.is_being_deleted(previous.obj):
            return
        if event.type == "DELETED" or facts.is_being_deleted(stored.obj):
            self._check(previous.obj, actor)

    def _check(self, runner: Object, actor: str) -> None:
        namespace, name = facts.namespace(runner), facts.name(runner)
        pod = self.store.read(facts.PODS, namespace, name)
        if pod is None or not facts.is_healthy(pod.obj):
            return
        if facts.phase(runner) in facts.DONE or facts.has_job(runner):
            return
        owner = facts.by_uid(self.store, facts.RUNNER_SETS, facts.owner_uid(runner), namespace)
        if owner is None or _may_remove_idle_runners(owner):
            return
        if facts.revision(runner) < facts.spec_revision(owner):
            return
        if _now() - self._excused.get(facts.uid(owner), -1e9) <= self._recently:
            return
        self.fail(
            f"{actor} removed the idle runner {name}; the set asks for {facts.replicas(owner)} "
            f"with patchID {facts.patch_id(owner)}"
        )


class RevisionsGoUp(Invariant):
    name = "the applied revision never goes back"

    def on_write(self, event: Event, actor: str) -> None:
        stored, previous = event.stored, event.previous
        if stored.resource != facts.RUNNER_SETS or previous is None or event.type != "MODIFIED":
            return
        for what, of in (("applied", facts.applied_revision), ("asked", facts.spec_revision)):
            before, after = of(previous.obj), of(stored.obj)
            if after < before:
                self.fail(
                    f"{actor} took the {what} revision of {stored.name} from {before} to {after}"
                )


class WritesAreLocked(Invariant):
    """Every patch carries the resourceVersion it was computed from, with three exceptions: counts,
    what the listener wants of its set, and the job fields of a runner."""

    name = "no write without its lock"

    def on_request(self, asked: Asked) -> None:
        if asked.verb != "patch" or asked.resource == "events":
            return
        patch = asked.patch
        if patch.get("metadata", {}).get("resourceVersion"):
            return
        if asked.agent.startswith(MANAGER) and not _is_only_counts(asked, patch):
            self.fail(str(asked))
        if asked.agent.startswith(LISTENER) and not _is_unlocked_by_design(asked, patch):
            self.fail(str(asked))


class EveryoneWritesWhatIsTheirs(Invariant):
    name = "nobody writes what is not theirs"

    def on_request(self, asked: Asked) -> None:
        if not asked.is_write:
            return
        if asked.agent.startswith(LISTENER):
            self._check_listener(asked)
        if asked.agent.startswith(MANAGER) and asked.verb == "patch":
            self._check_manager(asked, asked.patch)

    def _check_listener(self, asked: Asked) -> None:
        if asked.verb == "patch":
            patch, what = asked.patch, (asked.resource, asked.subresource)
            parts = {name: set(patch[name]) for name in patch if name != "metadata"}
            if what == ("ephemeralrunnersets", "") and set(parts) == {"spec"}:
                allowed = parts["spec"] <= {"replicas", "patchID"}
            elif what == ("ephemeralrunners", "status") and set(parts) == {"status"}:
                allowed = parts["status"] <= {"phase", *JOB_FIELDS}
            else:
                allowed = False
            if allowed:
                return
        self.fail(str(asked))

    def _check_manager(self, asked: Asked, patch: Object) -> None:
        what = (asked.resource, asked.subresource)
        says_running = patch.get("status", {}).get("phase") == "Running"
        if what == ("ephemeralrunners", "status") and says_running:
            self.fail(f"only the listener says Running: {asked}")
        if what != ("ephemeralrunnersets", "") or "spec" not in patch:
            return
        keys = set(patch["spec"])
        if asked.controller != "autoscalingrunnerset":
            self.fail(f"only the AutoscalingRunnerSet controller writes this spec: {asked}")
        if keys <= {"replicas", "patchID"} and not any(patch["spec"].values()):
            return  # it parks an Outdated set
        allowed = {"ephemeralRunnerSpec", "ephemeralRunnerMetadata", "actionableRevision"}
        if not keys <= allowed or "actionableRevision" not in keys:
            self.fail(str(asked))


class RunnersThatGoAreNotPromoted(Invariant):
    name = "a runner that is being deleted is never promoted to Running"

    def on_write(self, event: Event, actor: str) -> None:
        stored, previous = event.stored, event.previous
        if stored.resource != facts.RUNNERS or previous is None or event.type != "MODIFIED":
            return
        promoted = facts.phase(stored.obj) == "Running" != facts.phase(previous.obj)
        if promoted and facts.is_being_deleted(previous.obj):
            self.fail(f"{actor} promoted {stored.name}")


class OnlyTheLeaderWrites(Invariant):
    """Where there is an election: what a manager that has lost it writes comes too late."""

    name = "only the leader writes"

    def on_write(self, event: Event, actor: str) -> None:
        plan, stored = self.scene.plan, event.stored
        if plan.managers < 2 or plan.extra_leaders or not actor.startswith(MANAGER):
            return
        if stored.resource in ("leases.coordination.k8s.io", "events", "events.events.k8s.io"):
            return
        leases = self.store.scan("leases.coordination.k8s.io")
        holders = [each.obj["spec"].get("holderIdentity", "") for each in leases]
        if actor not in holders:
            self.fail(f"{actor} wrote {stored.resource} {stored.name}; leader: {holders}")


ALL: Final[tuple[type[Invariant], ...]] = (
    BusyRunnersAreLeftAlone,
    ScaleSetsGoLast,
    NoMoreThanAskedFor,
    NoMoreThanMaxRunners,
    TerminalPhasesStay,
    OnlyForcedRequestsScaleDown,
    RevisionsGoUp,
    WritesAreLocked,
    EveryoneWritesWhatIsTheirs,
    RunnersThatGoAreNotPromoted,
    OnlyTheLeaderWrites,
)


def _may_remove_idle_runners(runner_set: Object) -> bool:
    return (
        facts.patch_id(runner_set) == 0
        or facts.is_being_deleted(runner_set)
        or facts.phase(runner_set) == "Outdated"
        or facts.spec_revision(runner_set) > facts.applied_revision(runner_set)
    )


def _is_only_counts(asked: Asked, patch: Object) -> bool:
    return (
        asked.resource == "ephemeralrunnersets"
        and asked.subresource == "status"
        and set(patch) <= {"status", "metadata"}
        and set(patch.get("status", {})) <= COUNTS
    )


def _is_unlocked_by_design(asked: Asked, patch: Object) -> bool:
    what: tuple[Any, ...] = (asked.resource, asked.subresource)
    if what == ("ephemeralrunnersets", ""):
        return True
    return what == ("ephemeralrunners", "status") and "phase" not in patch.get("status", {})


def _now() -> float:
    return asyncio.get_running_loop().time()
