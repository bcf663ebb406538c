"""Runner pods that fail, are thrown out, refused, or too old."""

from __future__ import annotations

from typing import Any

from arc_controller.api.v1alpha1 import AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet
from arc_controller.runtime.objects import find_condition
from arc_controller.testing.cluster import Cluster
from arc_controller.testing.kubelet import Disruption, DisruptionKind, PodBehaviour
from tests.scenarios.stage import Stage, clean_up, eventually, scenario

UNMOUNTABLE = {"name": "nowhere", "mountPath": "/nowhere"}


def template(**container: Any) -> dict[str, Any]:
    """A pod template whose container ``runner`` has these fields, too."""
    runner = {"name": "runner", "image": "runner:1", "command": ["/run.sh"], **container}
    return {"spec": {"restartPolicy": "Never", "containers": [runner]}}


def only_runner(cluster: Cluster) -> EphemeralRunner:
    (runner,) = cluster.runners
    return runner


def replicas_of(cluster: Cluster) -> int:
    runner_set = cluster.get(EphemeralRunnerSet, "linux")
    return runner_set.spec.replicas if runner_set else 0


@scenario
async def a_pod_that_fails_is_counted_and_tried_again_after_a_while(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.kubelet.next_pods(PodBehaviour(connects=False, exit_code=3))
        cluster.queue_jobs(1, duration=1)
        await cluster.until(lambda: cluster.runners and cluster.runners[0].status.failures)
        failed = only_runner(cluster)
        assert len(failed.status.failures) == 1
        assert failed.status.phase != "Failed"
        await cluster.until(running=1)
        assert only_runner(cluster).metadata.name == failed.metadata.name
        await cluster.until(completed=1, runners=0, registrations=0)
        assert cluster.kubelet.started["runner"] == 2
        await clean_up(cluster)


@scenario
async def an_evicted_idle_runner_gets_another_pod_and_no_failure(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        cluster.kubelet.next_pods(
            PodBehaviour(disruption=Disruption(DisruptionKind.EVICTED, after=0.5))
        )
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(lambda: cluster.kubelet.started["runner"] == 2)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, runners=1, pods=1)
        assert only_runner(cluster).status.failures == {}
        await clean_up(cluster)


@scenario
async def idle_runners_preempted_or_shut_down_with_their_node_are_replaced(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        for kind in (DisruptionKind.PREEMPTED, DisruptionKind.NODE_SHUTDOWN):
            cluster.kubelet.next_pods(PodBehaviour(disruption=Disruption(kind, after=0.5)))
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(lambda: cluster.kubelet.started["runner"] == 4)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 2, runners=2, pods=2)
        assert all(runner.status.failures == {} for runner in cluster.runners)
        await clean_up(cluster)


@scenario
async def a_runner_evicted_with_its_job_is_over_and_unregistered(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.kubelet.next_pods(
            PodBehaviour(disruption=Disruption(DisruptionKind.EVICTED, after=2.0))
        )
        (job,) = cluster.queue_jobs(1, duration=60)
        await cluster.until(running=1)
        await cluster.until(lambda: job.is_over, runners=0, pods=0, registrations=0)
        assert cluster.kubelet.started["runner"] == 1
        await clean_up(cluster)


@scenario
async def a_pod_that_is_invalid_fails_its_runner_until_the_template_is_repaired(
    stage: Stage,
) -> None:
    async with stage.cluster() as cluster:
        broken = template(volumeMounts=[UNMOUNTABLE])
        await cluster.add_scale_set("linux", max_runners=5, template=broken)
        await cluster.until(listeners=1)
        cluster.queue_jobs(1, duration=1)
        await cluster.until(lambda: cluster.runners and only_runner(cluster).status.phase)
        failed = only_runner(cluster)
        assert (failed.status.phase, failed.status.reason) == ("Failed", "InvalidPod")
        assert "nowhere" in failed.status.message
        await cluster.until(registrations=0, pods=0)
        await cluster.patch(
            AutoscalingRunnerSet, "linux", {"spec": {"template": template(volumeMounts=[])}}
        )
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_pod_that_admission_refuses_fails_its_runner_until_the_template_complies(
    stage: Stage,
) -> None:
    complies = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    async with stage.cluster() as cluster:
        await stage.restrict_pods()
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(1, duration=1)
        await cluster.until(lambda: cluster.runners and only_runner(cluster).status.phase)
        failed = only_runner(cluster)
        assert (failed.status.phase, failed.status.reason) == ("Failed", "InvalidPod")
        assert "violates PodSecurity" in failed.status.message
        await cluster.until(registrations=0, pods=0)
        await cluster.patch(
            AutoscalingRunnerSet,
            "linux",
            {"spec": {"template": template(securityContext=complies)}},
        )
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_pod_deleted_by_hand_comes_again_unless_it_held_a_job(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        runner = only_runner(cluster)
        path = f"/api/v1/namespaces/{stage.namespace}/pods/{runner.metadata.name}"
        for options in ({}, {"gracePeriodSeconds": 0}):
            _, old = await stage.ask("GET", path)
            await stage.ask("DELETE", path, options)

            async def another(old: Any = old) -> bool:
                status, found = await stage.ask("GET", path)
                return status == 200 and found["metadata"]["uid"] != old["metadata"]["uid"]

            await eventually(another, "the runner has another pod")
            await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, runners=1)
        assert only_runner(cluster).uid == runner.uid
        assert only_runner(cluster).status.failures == {}

        (job,) = cluster.queue_jobs(1, duration=600)
        await cluster.until(running=1, runners=2)
        (busy,) = (each.metadata.name for each in cluster.runners if each.status.has_job)
        await stage.ask("DELETE", f"/api/v1/namespaces/{stage.namespace}/pods/{busy}")
        await cluster.until(
            lambda: job.is_over and busy not in {each.metadata.name for each in cluster.runners},
            runners=1,
            registrations=1,
        )
        await clean_up(cluster)


@scenario
async def a_pod_over_quota_waits_and_says_so(stage: Stage) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": stage.namespace},
        "spec": {"hard": {"pods": "1"}},
    }
    async with stage.cluster() as cluster:
        await cluster.apply(quota)
        await stage.until_quota_counts("few")
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.queue_jobs(2, duration=2)

        def waiting() -> list[EphemeralRunner]:
            return [
                runner
                for runner in cluster.runners
                if (found := find_condition(runner.status.conditions, "WithinQuota"))
                and found.status == "False"
            ]

        await cluster.until(waiting, running=1, runners=2, pods=1)
        (runner,) = waiting()
        assert runner.status.phase != "Failed"
        assert runner.status.runner_id
        await cluster.until(lambda: replicas_of(cluster) == 1, completed=1, pods=0)
        await stage.until_quota_counts("few", used="0")
        await cluster.restart_manager()  # it looks again every 30 s, and when it starts
        await cluster.until(completed=2, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_runner_too_old_parks_its_set_until_the_template_changes(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        cluster.service.runner_version_refused = True
        cluster.queue_jobs(1, duration=1)

        def phases() -> tuple[str, str]:
            runner_set = cluster.get(EphemeralRunnerSet, "linux")
            scale_set = cluster.get(AutoscalingRunnerSet, "linux")
            assert runner_set and scale_set
            return runner_set.status.phase, scale_set.status.phase

        await cluster.until(lambda: phases() == ("Outdated", "Outdated"), listeners=0)
        assert only_runner(cluster).status.phase == "Outdated"
        await cluster.until(registrations=0, pods=0)
        # An edit that has nothing to do with the runners changes nothing.
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": 6}})
        await cluster.restart_manager()
        cluster.service.runner_version_refused = False
        await cluster.patch(
            AutoscalingRunnerSet, "linux", {"spec": {"template": template(image="runner:2")}}
        )
        await cluster.until(completed=1, runners=0, registrations=0)
        await cluster.until(lambda: phases() == ("Running", "Running"), listeners=1)
        await clean_up(cluster)


@scenario
async def what_container_hooks_left_goes_with_the_runner(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        hooks = {"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "/k8s/index.js"}
        await cluster.add_scale_set("linux", max_runners=5, template=template(env=[hooks]))
        await cluster.until(listeners=1)
        cluster.queue_jobs(1, duration=3)
        await cluster.until(running=1)
        owner = only_runner(cluster).metadata.name
        meta = {
            "name": "hook",
            "namespace": stage.namespace,
            "labels": {"runner-pod": owner},
        }
        spec = {"containers": [{"name": "job", "image": "node:20"}]}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
        await cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        await cluster.apply(secret)
        await cluster.until(completed=1, runners=0, registrations=0)
        await stage.until_absent(f"/api/v1/namespaces/{stage.namespace}/pods/hook")
        await stage.until_absent(f"/api/v1/namespaces/{stage.namespace}/secrets/hook")
        await clean_up(cluster)
