"""One and the same run on any API server, and what can be compared of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arc_controller.api.core import PodManifest
from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunnerSet
from arc_controller.testing.actions import JobState
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.envtest import AuditEvent
from arc_controller.testing.kubelet import PodBehaviour
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, MANAGER
from tests.scenarios.stage import Stage, clean_up
from tests.scenarios.verdict import ACCOUNTS

_OURS = "/apis/actions.github.com/v1alpha1"
_FLEETING = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    `state`: what was left when all jobs were over, without names and times that differ each time;
    `requests`: how many of which kind, by ``manager`` and ``listener``; `runners`: how many.
    """

    state: Mapping[str, Any]
    requests: Mapping[tuple[str, str], int]
    runners: int

    def per_runner(self, who: str) -> float:
        """Requests of one of the two for each runner."""
        return sum(n for (by, _), n in self.requests.items() if by == who) / self.runners


async def run(stage: Stage, jobs: int) -> Outcome:
    """So many jobs at once, until everything is clean again.

    All runners run before the first of them gets its job: what depends on who is a millisecond
    quicker does not count.
    """
    loop = asyncio.get_running_loop()
    pulled, go = loop.time(), asyncio.Event()

    def behave(pod: PodManifest) -> PodBehaviour:
        return PodBehaviour(pull=max(0.0, pulled - loop.time()), connects_after=go)

    before = len(stage.server.requests())
    async with stage.cluster(behave=behave) as cluster:
        await cluster.add_scale_set("linux", max_runners=jobs)
        await cluster.until(listeners=1)
        began = len(stage.server.requests())
        pulled = loop.time() + 5.0
        cluster.queue_jobs(jobs, duration=2)
        await cluster.until(
            lambda: sum(runner.status.ready for runner in cluster.runners) == jobs, within=120
        )
        await cluster.until(lambda: _counted(cluster) == jobs)
        go.set()
        await cluster.until(completed=jobs, runners=0, pods=0, registrations=0, within=120)
        await cluster.until(lambda: _is_settled(cluster))
        ended = len(stage.server.requests())
        assert before < began < ended
        state = await _state(stage, cluster)
        runners = cluster.kubelet.started["runner"]
        await clean_up(cluster)
    requests = Counter(
        (who, f"{event.verb} {event.resource}")
        for event in stage.server.requests()[began:ended]
        if (who := _who(event)) and _counts(event)
    )
    return Outcome(state, requests, runners)


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Requests per runner by kind, one column for each run."""
    kinds = sorted({kind for outcome in outcomes.values() for kind in outcome.requests})
    lines = [f"{'requests per runner':44}" + "".join(f"{name:>12}" for name in outcomes)]
    for who, kind in kinds:
        lines.append(
            f"{who + ' ' + kind:44}"
            + "".join(
                f"{o.requests.get((who, kind), 0) / o.runners:12.2f}" for o in outcomes.values()
            )
        )
    for who in ("manager", "listener"):
        cells = "".join(f"{outcome.per_runner(who):12.2f}" for outcome in outcomes.values())
        lines.append(f"{who + ', all of it':44}{cells}")
    cells = "".join(f"{outcome.runners:12d}" for outcome in outcomes.values())
    return "\n".join([*lines, f"{'runners':44}{cells}"])


def _who(event: AuditEvent) -> str:
    if event.username == MANAGER:
        return "manager"
    return "listener" if event.username.startswith(ACCOUNTS) else ""


def _counts(event: AuditEvent) -> bool:
    """Not those that time alone causes: leases, watches and what begins them; nor events, which
    are limited by their rate."""
    if event.verb in ("watch", "list") and not event.namespace:
        return False
    return event.verb != "watch" and event.resource not in ("leases", "events")


def _counted(cluster: Cluster) -> int:
    """How many runners the status of the scale set shows."""
    scale_set = cluster.get(AutoscalingRunnerSet, "linux")
    return scale_set.status.current_runners if scale_set is not None else 0


def _is_settled(cluster: Cluster) -> bool:
    runner_set = cluster.get(EphemeralRunnerSet, "linux")
    assert runner_set is not None
    nothing = runner_set.spec.replicas == runner_set.status.current_replicas == 0
    return nothing and _counted(cluster) == 0


async def _state(stage: Stage, cluster: Cluster) -> dict[str, Any]:
    objects = {}
    for plural, namespace in (
        ("autoscalingrunnersets", stage.namespace),
        ("ephemeralrunnersets", stage.namespace),
        ("autoscalinglisteners", CONTROLLER_NAMESPACE),
    ):
        _, found = await stage.ask("GET", f"{_OURS}/namespaces/{namespace}/{plural}")
        objects[plural] = [_lasting(item, stage.namespace) for item in found["items"]]
    counts = cluster.service.job_counts()
    jobs = {state.value: counts[state] for state in JobState if counts[state]}
    return {"objects": objects, "jobs": jobs}


def _lasting(item: dict[str, Any], namespace: str) -> Any:
    """The object without what is different each time."""
    meta = {key: value for key, value in item["metadata"].items() if key not in _FLEETING}
    for reference in meta.get("ownerReferences", []):
        reference.pop("uid")
    for annotation in ("integrity-hash", "registered-for", "listening-since"):  # of uids and times
        meta.get("annotations", {}).pop(f"actions.github.com/{annotation}", None)
    spec = dict(item["spec"])
    spec.pop("patchID", None)  # how many messages it took
    status = dict(item.get("status") or {})
    status.pop("finishedRunnerCleanupPatchID", None)
    status["conditions"] = sorted(
        (each["type"], each["status"], each.get("reason", ""))
        for each in status.get("conditions", [])
    )
    return {"metadata": meta, "spec": spec, "status": status}
