"""Edits of a scale set and of what it refers to, while it works."""

from __future__ import annotations

import asyncio
from typing import Any

from arc_controller.api.core import Pod, Role, RoleBinding, Secret, ServiceAccount
from arc_controller.api.v1alpha1 import (
    AutoscalingListener,
    AutoscalingRunnerSet,
    EphemeralRunner,
    EphemeralRunnerSet,
)
from arc_controller.controllers.config import ControllerConfig
from arc_controller.listener import parse_config
from arc_controller.runtime.objects import KubeObject, NamespacedName, find_condition
from arc_controller.testing.cluster import CREDENTIALS, Cluster, scale_set
from tests.scenarios.permissions import CONTROLLER_NAMESPACE, MANAGER
from tests.scenarios.pods import template
from tests.scenarios.stage import Stage, clean_up, eventually, scenario

CORE = f"/api/v1/namespaces/{CONTROLLER_NAMESPACE}"


def the_listener(cluster: Cluster) -> AutoscalingListener:
    (listener,) = cluster.all(AutoscalingListener)
    return listener


def scale_set_of(cluster: Cluster) -> AutoscalingRunnerSet:
    (scale_set,) = cluster.all(AutoscalingRunnerSet)
    return scale_set


@scenario
async def a_new_image_is_used_at_once_and_busy_runners_finish(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(runners=1, listeners=1)
        (busy_job,) = cluster.queue_jobs(1, duration=5)
        await cluster.until(running=1, runners=2)
        old = {runner.metadata.name for runner in cluster.runners}
        await cluster.patch(
            AutoscalingRunnerSet, "linux", {"spec": {"template": template(image="runner:2")}}
        )

        def images() -> dict[str, str]:
            return {
                runner.metadata.name: runner.spec.spec["containers"][0]["image"]
                for runner in cluster.runners
            }

        await cluster.until(lambda: sorted(images().values()) == ["runner:1", "runner:2"])
        (new,) = set(images()) - old
        assert images()[new] == "runner:2"
        assert not busy_job.is_over
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=2, running=0)
        assert busy_job.result == "succeeded"
        await cluster.until(lambda: set(images().values()) == {"runner:2"}, runners=1)
        await clean_up(cluster)


@scenario
async def a_changed_group_or_name_reaches_the_service_and_the_id_stays(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        other = cluster.service.add_runner_group("other")
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        before = cluster.service.scale_set()
        assert before.runner_group_id == 1
        change = {"runnerGroup": "other", "runnerScaleSetName": "penguin"}
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": change})
        await cluster.until(
            lambda: (before.runner_group_id, before.name) == (other.id, "penguin"),
        )
        assert list(cluster.service.scale_sets) == [before.id]
        annotations = {
            "runner-scale-set-id": str(before.id),
            "actions.github.com/runner-group-name": "other",
            "actions.github.com/runner-scale-set-name": "penguin",
        }
        await cluster.until(
            lambda: annotations.items() <= scale_set_of(cluster).metadata.annotations.items(),
            listeners=1,
        )
        cluster.queue_jobs(1, scale_set="penguin", duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_changed_limit_replaces_the_listener_which_then_obeys_it(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=1)
        await cluster.until(listeners=1)
        before = the_listener(cluster).uid
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"maxRunners": 2}})
        await cluster.until(
            lambda: [each.uid for each in cluster.all(AutoscalingListener)] not in ([], [before]),
            listeners=1,
        )
        cluster.queue_jobs(2, duration=2)
        await cluster.until(running=2)
        await cluster.until(completed=2, runners=0, registrations=0)
        await clean_up(cluster)


@scenario
async def a_rotated_secret_takes_effect_by_itself(stage: Stage) -> None:
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        await cluster.set_credentials("ghp_the_next")
        cluster.service.accept_tokens("ghp_the_next")
        cluster.service.expire_admin_tokens()
        # Looked at once a minute, and whenever somebody touches the scale set.
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": {"minRunners": 1}})

        async def configured() -> bool:
            listeners = cluster.all(AutoscalingListener)
            if len(listeners) != 1:
                return False
            key = NamespacedName(CONTROLLER_NAMESPACE, f"{listeners[0].metadata.name}-config")
            secret = await cluster.client.find(Secret, key)
            if secret is None:
                return False
            return parse_config(secret.data["config.json"]).github_token == "ghp_the_next"

        await eventually(configured, "the listener has the new token", within=120)
        await cluster.until(
            lambda: len(cluster.service.scale_set().idle) == 1, listeners=1, within=120
        )
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, running=0)
        await clean_up(cluster)


@scenario
async def labels_and_metadata_reach_everything_that_is_made(stage: Stage) -> None:
    config = ControllerConfig(
        namespace=CONTROLLER_NAMESPACE,
        image="arc-controller:test",
        exclude_label_prefixes=("argocd.",),
    )
    extra: dict[str, Any] = {
        f"{part}Metadata": {"labels": {part: "yes"}, "annotations": {part: "because"}}
        for part in (
            "listenerServiceAccount",
            "listenerRole",
            "listenerRoleBinding",
            "listenerConfigSecret",
            "ephemeralRunnerSet",
            "ephemeralRunner",
            "ephemeralRunnerConfigSecret",
        )
    }
    extra["autoscalingListener"] = {
        "labels": {"listener": "yes"},
        "annotations": {"listener": "because"},
    }
    async with stage.cluster(config=config) as cluster:
        await cluster.set_credentials("ghp_of_the_test")
        manifest = scale_set("linux", stage.namespace, min_runners=1, max_runners=2, **extra)
        labels = {"team": "blue", "argocd.argoproj.io/instance": "app"}
        manifest["metadata"]["labels"] = labels
        await cluster.apply(manifest)
        await cluster.until(
            lambda: all(
                runner.metadata.labels.get("team") == "blue" and runner.status.ready
                for runner in cluster.runners
            ),
            listeners=1,
            runners=1,
        )
        (runner,) = cluster.runners
        name = the_listener(cluster).metadata.name

        async def found(kind: type[KubeObject], namespace: str, name: str) -> KubeObject:
            return await cluster.client.get(kind, NamespacedName(namespace, name))

        made = {
            "listener": await found(AutoscalingListener, CONTROLLER_NAMESPACE, name),
            "listenerServiceAccount": await found(ServiceAccount, CONTROLLER_NAMESPACE, name),
            "listenerRole": await found(Role, stage.namespace, name),
            "listenerRoleBinding": await found(RoleBinding, stage.namespace, name),
            "listenerConfigSecret": await found(Secret, CONTROLLER_NAMESPACE, f"{name}-config"),
            "ephemeralRunnerSet": await found(EphemeralRunnerSet, stage.namespace, "linux"),
            "ephemeralRunner": await found(EphemeralRunner, stage.namespace, runner.metadata.name),
            "ephemeralRunnerConfigSecret": await found(
                Secret, stage.namespace, runner.metadata.name
            ),
        }
        for part, obj in made.items():
            labels = obj.metadata.labels
            assert labels.get(part) == "yes", part
            assert obj.metadata.annotations.get(part) == "because", part
            assert labels.get("team") == "blue", part
            assert "argocd.argoproj.io/instance" not in labels, part
            assert labels["app.kubernetes.io/part-of"] == "gha-runner-scale-set", part
            assert labels["actions.github.com/scale-set-name"] == "linux", part
            assert labels["actions.github.com/organization"] == "acme", part
        pod = await found(Pod, stage.namespace, runner.metadata.name)
        assert pod.metadata.labels["team"] == "blue"
        await clean_up(cluster)


@scenario
async def what_somebody_changed_or_deleted_is_put_right(stage: Stage) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stage.namespace}"
    ours = f"/apis/actions.github.com/v1alpha1/namespaces/{stage.namespace}"
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        name = the_listener(cluster).metadata.name

        async def repaired(path: str, *field: str, unlike: Any) -> Any:
            """Until the field is there and not what it was made to be."""

            async def look() -> Any:
                status, found = await stage.ask("GET", path)
                if status != 200:
                    return None
                for part in field:
                    found = found.get(part) or {}
                return found if found != unlike else None

            return await eventually(look, f"{path} is repaired")

        role = f"{rbac}/roles/{name}"
        nothing: list[Any] = []
        await stage.ask("PATCH", role, {"rules": nothing})
        rules = await repaired(role, "rules", unlike={})
        assert {resource for rule in rules for resource in rule["resources"]} == {
            "ephemeralrunnersets",
            "ephemeralrunners",
            "ephemeralrunners/status",
        }

        binding = f"{rbac}/rolebindings/{name}"
        await stage.ask("PATCH", binding, {"subjects": nothing})
        (subject,) = await repaired(binding, "subjects", unlike={})
        assert (subject["namespace"], subject["name"]) == (CONTROLLER_NAMESPACE, name)

        for path in (role, binding, f"{CORE}/serviceaccounts/{name}"):
            _, old = await stage.ask("GET", path)
            await stage.ask("DELETE", path)
            await repaired(path, "metadata", "uid", unlike=old["metadata"]["uid"])

        _, wrong = await stage.ask(
            "PATCH",
            f"{ours}/ephemeralrunnersets/linux",
            {"spec": {"ephemeralRunnerSpec": {"githubConfigSecret": "wrong"}}},
        )
        spec = await repaired(f"{ours}/ephemeralrunnersets/linux", "spec", unlike=wrong["spec"])
        assert spec["ephemeralRunnerSpec"]["githubConfigSecret"] == CREDENTIALS

        await cluster.until(runners=1)
        (runner,) = cluster.runners
        await cluster.delete(EphemeralRunner, runner.metadata.name)
        await cluster.until(
            lambda: runner.uid not in {each.uid for each in cluster.runners}, runners=1
        )
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, running=0, listeners=1)
        await clean_up(cluster)


@scenario
async def what_lost_its_labels_is_found_and_labelled_again(stage: Stage) -> None:
    """By their labels things are cached; without, they are there and cannot be seen."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stage.namespace}"
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", max_runners=5)
        await cluster.until(listeners=1)
        name = the_listener(cluster).metadata.name
        for path in (
            f"{CORE}/serviceaccounts/{name}",
            f"{rbac}/roles/{name}",
            f"{rbac}/rolebindings/{name}",
            f"{CORE}/pods/{name}",
        ):
            _, bare = await stage.ask("PATCH", path, {"metadata": {"labels": None}})
            assert "labels" not in bare["metadata"]

            async def labelled(path: str = path) -> bool:
                status, found = await stage.ask("GET", path)
                return status == 200 and bool(found["metadata"].get("labels"))

            await eventually(labelled, f"{path} has labels")
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, runners=0, registrations=0, listeners=1)
        await clean_up(cluster)


@scenario
async def secrets_that_somebody_changed_are_right_again_after_a_restart(stage: Stage) -> None:
    runners = f"/api/v1/namespaces/{stage.namespace}"
    proxy = {"https": {"url": "http://proxy.test:3128"}}
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=5, proxy=proxy)
        await cluster.until(runners=1, listeners=1)
        name = the_listener(cluster).metadata.name
        _, found = await stage.ask("GET", f"{runners}/secrets")
        (of_runners,) = (
            item["metadata"]["name"]
            for item in found["items"]
            if item["metadata"]["name"].endswith("-runner-proxy")
        )
        paths = {
            f"{CORE}/secrets/{name}-config": "config.json",
            f"{CORE}/secrets/{name}-proxy": "https_proxy",
            f"{runners}/secrets/{of_runners}": "https_proxy",
        }
        right: dict[str, Any] = {}
        for path, key in paths.items():
            _, secret = await stage.ask("GET", path)
            right[path] = secret["data"]
            await stage.ask("PATCH", path, {"data": {key: "d3Jvbmc="}})
        await cluster.restart_manager()
        for path in paths:

            async def repaired(path: str = path) -> bool:
                status, secret = await stage.ask("GET", path)
                return status == 200 and secret["data"] == right[path]

            await eventually(repaired, f"{path} is right again")
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        await clean_up(cluster)


@scenario
async def changed_metadata_reaches_what_exists_and_never_overrides_ours(stage: Stage) -> None:
    ours = {"actions.github.com/scale-set-name": "stolen", "app.kubernetes.io/part-of": "stolen"}
    change = {"labels": {"tier": "gold", **ours}, "annotations": {"why": "because"}}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stage.namespace}"
    group = "/apis/actions.github.com/v1alpha1/namespaces"
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", min_runners=1, max_runners=2)
        await cluster.until(lambda: len(cluster.service.scale_set().idle) == 1, listeners=1)
        (before,) = cluster.runners
        parts = (
            "listenerServiceAccountMetadata",
            "listenerRoleMetadata",
            "listenerRoleBindingMetadata",
            "listenerConfigSecretMetadata",
            "ephemeralRunnerSetMetadata",
            "ephemeralRunnerMetadata",
            "ephemeralRunnerConfigSecretMetadata",
            "autoscalingListener",
        )
        await cluster.patch(AutoscalingRunnerSet, "linux", {"spec": dict.fromkeys(parts, change)})
        # What runners are made from is another revision of them; all else is changed in place.
        await cluster.until(
            lambda: (
                len(cluster.service.scale_set().idle) == 1
                and [each.uid for each in cluster.runners] not in ([], [before.uid])
            ),
            listeners=1,
            runners=1,
        )
        (runner,) = (each.metadata.name for each in cluster.runners)
        name = the_listener(cluster).metadata.name
        for path in (
            f"{CORE}/serviceaccounts/{name}",
            f"{CORE}/secrets/{name}-config",
            f"{rbac}/roles/{name}",
            f"{rbac}/rolebindings/{name}",
            f"{group}/{stage.namespace}/ephemeralrunnersets/linux",
            f"{group}/{stage.namespace}/ephemeralrunners/{runner}",
            f"/api/v1/namespaces/{stage.namespace}/secrets/{runner}",
            f"{group}/{CONTROLLER_NAMESPACE}/autoscalinglisteners/{name}",
        ):

            async def changed(path: str = path) -> bool:
                status, found = await stage.ask("GET", path)
                if status != 200:
                    return False
                labels = found["metadata"].get("labels", {})
                assert labels.get("actions.github.com/scale-set-name") in (None, "linux"), path
                assert labels.get("app.kubernetes.io/part-of") != "stolen", path
                annotations = found["metadata"].get("annotations", {})
                return (labels.get("tier"), annotations.get("why")) == ("gold", "because")

            await eventually(changed, f"{path} has the metadata")
        await clean_up(cluster)


@scenario
async def what_the_server_fills_in_is_not_taken_for_a_change(stage: Stage) -> None:
    probe = {"exec": {"command": ["true"]}}
    variable = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    mounts = [{"name": "work", "mountPath": "/work"}]
    runner = {
        **template(env=[variable], volumeMounts=mounts, livenessProbe=probe)["spec"],
        "volumes": volumes,
        "initContainers": [{"name": "init", "image": "init", "ports": [{"containerPort": 80}]}],
    }
    listener = {
        "name": "listener",
        "env": [variable],
        "volumeMounts": mounts,
        "ports": [{"containerPort": 9}],
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
    }
    sidecar = {"name": "sidecar", "image": "sidecar", "livenessProbe": probe}
    async with (
        stage.cluster() as cluster,
        stage.limits(CONTROLLER_NAMESPACE),
        stage.limits(stage.namespace),
    ):
        await cluster.add_scale_set(
            "linux",
            min_runners=1,
            max_runners=5,
            template={"spec": runner},
            listener_template={"spec": {"containers": [listener, sidecar], "volumes": volumes}},
            listener_metrics={"counters": {"gha_started_jobs_total": {"labels": ["name"]}}},
            proxy={"https": {"url": "http://proxy.test:3128"}},
        )
        await cluster.until(
            lambda: (
                cluster.runners
                and cluster.runners[0].status.ready
                and scale_set_of(cluster).status.current_runners == 1
            ),
            listeners=1,
            runners=1,
        )
        await cluster.restart_manager()
        (pod,) = cluster.observer.listener_pods()
        _, made = await stage.ask("GET", f"{CORE}/pods/{pod.metadata.name}")
        resources = [each["resources"] for each in made["spec"]["containers"]]
        if stage.server.is_real:
            assert all(each["limits"] == stage.LIMITS for each in resources), resources
        before = len(stage.server.requests())

        async def looked() -> bool:
            """At the secrets, which it does last and only when it does everything."""
            return any(
                (event.username, event.verb, event.resource) == (MANAGER, "get", "secrets")
                for event in stage.server.requests()[before:]
            )

        await eventually(looked, "the manager is back")
        await asyncio.sleep(5)
        written = [
            f"{event.verb} {event.resource} {event.name}"
            for event in stage.server.requests()[before:]
            if event.username == MANAGER
            and event.verb not in ("get", "list", "watch")
            and event.resource not in ("leases", "events")
        ]
        assert written == []
        await clean_up(cluster)


@scenario
async def a_namespace_without_permissions_is_told_and_works_once_it_has_them(
    stage: Stage,
) -> None:
    """As where the role binding comes a minute late: the manager may not even grant what it needs
    to grant."""
    namespace = await stage.more_runners_without_permissions()
    async with stage.cluster() as cluster:
        await cluster.add_scale_set("linux", namespace=namespace, min_runners=1, max_runners=5)

        def ready() -> str:
            scale_set = cluster.get(AutoscalingRunnerSet, "linux", namespace)
            found = find_condition(scale_set.status.conditions if scale_set else [], "Ready")
            return found.message if found and found.status == "False" else ""

        await cluster.until(lambda: "forbidden" in ready())
        await stage.permit(namespace)
        # Looked at once a minute, and whenever somebody touches the scale set.
        change = {"spec": {"maxRunners": 6}}
        await cluster.patch(AutoscalingRunnerSet, "linux", change, namespace=namespace)
        await cluster.until(
            lambda: len(cluster.service.scale_set().idle) == 1, listeners=1, within=120
        )
        cluster.queue_jobs(1, duration=0.5)
        await cluster.until(completed=1, running=0)
        await cluster.delete(AutoscalingRunnerSet, "linux", namespace=namespace)
        await cluster.until_gone(within=60)
