"""Deletions in every order: nothing is left, and nothing that works is torn away."""

from __future__ import annotations

from typing import Any

from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunnerSet,
)
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, MANAGER_ACCOUNT
from tests.scenarios.stage import Stage, clean_up, eventually, scenario

PROTECTION = "actions.github.com/cleanup-protection"


@scenario
async def a_scale_set_that_is_deleted_lets_busy_runners_finish(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(listeners=1, registrations=1)
        (job,) = cluster.queue_jobs(1, duration=4)
        await cluster.until(running=1, runners=2)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until(runners=1, listeners=0)
        assert not job.is_over
        await cluster.until_gone(within=60)
        assert job.result == "succeeded"


@scenario
async def a_foreground_deletion_waits_for_what_is_owned(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 2, listeners=1)
        await stage.ask(
            "DELETE",
            f"{_ours(stage)}/autoscalingrunnersets/linux",
            {"propagationPolicy": "Foreground"},
        )
        await cluster.until_gone(within=60)


@scenario
async def a_set_of_runners_that_is_deleted_first_comes_back_or_goes_with_its_owner(
    stage: Stage,
) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(listeners=1, registrations=1)
        (first,) = cluster.all(EphemeralRunnerSet)
        await cluster.delete(EphemeralRunnerSet, "linux")
        await cluster.until(
            lambda: [each.uid for each in cluster.all(EphemeralRunnerSet)] not in ([], [first.uid]),
            runners=1,
            registrations=1,
        )
        await cluster.delete(EphemeralRunnerSet, "linux")
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone(within=60)


@scenario
async def a_scale_set_deleted_apart_from_what_it_owns_takes_it_along_all_the_same(
    stage: Stage,
) -> None:
    """``kubectl delete --cascade=orphan``: nobody else would ever clean up after it."""
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 2, listeners=1)
        path = f"{_ours(stage)}/autoscalingrunnersets/linux"
        await stage.ask("DELETE", path, {"propagationPolicy": "Orphan"})
        await cluster.until_gone(within=60)


@scenario
async def a_set_deleted_apart_from_its_runners_leaves_none_of_them_behind(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(listeners=1, registrations=1)
        (job,) = cluster.queue_jobs(1, duration=600)
        await cluster.until(running=1, runners=2)
        old = {runner.uid for runner in cluster.runners}
        (busy,) = (runner.uid for runner in cluster.runners if runner.status.has_job)
        path = f"{_ours(stage)}/ephemeralrunnersets/linux"
        await stage.ask("DELETE", path, {"propagationPolicy": "Orphan"})
        await cluster.until(
            lambda: {runner.uid for runner in cluster.runners} & old <= {busy}, running=1
        )
        assert not job.is_over
        cluster.service.end_job(job)
        await cluster.until(
            lambda: (
                len(cluster.service.scale_set().idle) == 1
                and not {runner.uid for runner in cluster.runners} & old
            ),
            completed=1,
            runners=1,
            registrations=1,
        )
        await clean_up(cluster)


@scenario
async def a_scale_set_deleted_while_it_scales_up_leaves_nothing(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=20)
        await cluster.until(listeners=1)
        cluster.queue_jobs(20, duration=1)
        await cluster.until(lambda: len(cluster.runners) >= 3)
        await clean_up(cluster)


@scenario
async def a_scale_set_deleted_while_it_is_being_registered_leaves_nothing(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        slow = cluster.service.faults.delay("create_scale_set", seconds=2, after_effect=True)
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(lambda: slow.hits == 1)
        await cluster.delete(AutoscalingRunnerSet, "linux")
        await cluster.until_gone(within=60)


@scenario
async def finalizers_taken_off_by_hand_come_back_and_the_end_is_clean(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        (runner,) = cluster.runners
        (listener,) = cluster.all(AutoscalingListener)
        everywhere = "/apis/actions.github.com/v1alpha1/namespaces"
        for path in (
            f"{_ours(stage)}/autoscalingrunnersets/linux",
            f"{_ours(stage)}/ephemeralrunnersets/linux",
            f"{_ours(stage)}/ephemeralrunners/{runner.metadata.name}",
            f"{everywhere}/{CONTROLLER_NAMESPACE}/autoscalinglisteners/{listener.metadata.name}",
        ):
            _, old = await stage.ask("GET", path)
            await stage.ask("PATCH", path, {"metadata": {"finalizers": None}})

            async def back(path: str = path, old: Any = old) -> bool:
                _, found = await stage.ask("GET", path)
                there = found["metadata"].get("finalizers", [])
                return sorted(there) == sorted(old["metadata"]["finalizers"])

            # At once: without them a deletion would leave everything at the service.
            await eventually(back, f"the finalizers of {path} are back", within=20)
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, running=0)
        await clean_up(cluster)


@scenario
async def a_scale_set_torn_out_by_force_and_made_anew_works(stage: Stage) -> None:
    """Garbage collection comes for what the old one owned while the new one needs the names."""
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        old = {runner.uid for runner in cluster.runners}
        await cluster.manager.stop()
        path = f"{_ours(stage)}/autoscalingrunnersets/linux"
        await stage.ask("DELETE", path)
        await stage.ask("PATCH", path, {"metadata": {"finalizers": None}})
        await stage.until_absent(path)
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        cluster.manager.start()
        await cluster.until(
            lambda: (
                not {runner.uid for runner in cluster.runners} & old
                and len(cluster.service.scale_set().idle) == 2
            ),
            listeners=1,
            registrations=2,
            runners=2,
        )
        cluster.queue_jobs(3, duration=1)
        await cluster.until(completed=3, running=0)
        await clean_up(cluster)


@scenario
async def a_listener_that_is_deleted_is_made_again(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        (first,) = cluster.all(AutoscalingListener)
        await cluster.delete(AutoscalingListener, first.metadata.name)
        await cluster.until(
            lambda: [each.uid for each in cluster.all(AutoscalingListener)] not in ([], [first.uid])
        )
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0, listeners=1)
        await clean_up(cluster)


@scenario
async def a_namespace_that_is_deleted_takes_everything_with_it(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=2, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 2, listeners=1)
        await stage.delete_namespace()
        await cluster.until_gone(within=120)
        await stage.until_absent(f"/api/v1/namespaces/{stage.namespace}", within=120)


@scenario
async def a_namespace_that_ends_under_running_jobs_takes_everything_with_it(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(listeners=1, registrations=1)
        jobs = cluster.queue_jobs(2, duration=600)
        await cluster.until(running=2, runners=3)
        await stage.delete_namespace()
        await cluster.until_gone(within=120)
        assert all(job.is_over for job in jobs)
        await stage.until_absent(f"/api/v1/namespaces/{stage.namespace}", within=120)


@scenario
async def what_a_release_protected_is_let_go_when_its_scale_set_is_gone(stage: Stage) -> None:
    names = {
        "manager-role-binding": "RoleBinding",
        "manager-role-name": "Role",
        "kubernetes-mode-role-name": "Role",
        "kubernetes-mode-role-binding-name": "RoleBinding",
        "kubernetes-mode-service-account-name": "ServiceAccount",
        "no-permission-service-account-name": "ServiceAccount",
        "github-secret-name": "Secret",
    }
    subject = {"kind": "ServiceAccount", "name": MANAGER_ACCOUNT, "namespace": "arc-systems"}
    group = "rbac.authorization.k8s.io"
    made: list[dict[str, Any]] = []
    for annotation, kind in names.items():
        manifest: dict[str, Any] = {
            "apiVersion": "v1" if kind in ("ServiceAccount", "Secret") else f"{group}/v1",
            "kind": kind,
            "metadata": {
                "name": annotation,
                "namespace": stage.namespace,
                "finalizers": [PROTECTION],
            },
        }
        if kind == "RoleBinding":
            role = annotation.replace("-binding-name", "-name")
            role = "manager-role-name" if annotation == "manager-role-binding" else role
            manifest["roleRef"] = {"apiGroup": group, "kind": "Role", "name": role}
            manifest["subjects"] = [subject]
        made.append(manifest)
    async with stage.cluster() as cluster:
        await cluster.apply(*made)
        await cluster.add_scale_set("linux", max_runners=5)
        annotations = {f"actions.github.com/cleanup-{name}": name for name in names}
        await cluster.patch(
            AutoscalingRunnerSet, "linux", {"metadata": {"annotations": annotations}}
        )
        await cluster.until(listeners=1)
        # As `helm uninstall` does: everything at once, the scale set among it.
        paths = [stage.path_of(manifest) for manifest in made]
        for path in paths:
            await stage.ask("DELETE", path)
        await clean_up(cluster)
        for path in paths:
            await stage.until_absent(path)


def _ours(stage: Stage) -> str:
    return f"/apis/actions.github.com/v1alpha1/namespaces/{stage.namespace}"
