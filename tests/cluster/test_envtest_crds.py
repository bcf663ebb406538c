"""The generated CRDs, judged by a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arc_controller.api.crd import CUSTOM_RESOURCES, CustomResource, pod_template_schema
from arc_controller.testing.envtest import Answer, Envtest
from arc_controller.testing.envtest.pod_template import published_schema
from arc_controller.testing.envtest.rest import APPLY_PATCH, MERGE_PATCH

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRDS = Path(__file__).parents[2] / "config" / "crd"
GROUP = "/apis/actions.github.com/v1alpha1/namespaces/default"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = {"fieldValidation": "Strict"}
REGISTERED = {
    "githubConfigUrl": "https://github.com/my-org",
    "githubConfigSecret": "pre-defined-secret",
}
POD_SPEC: dict[str, Any] = {"containers": [{"name": "runner", "image": "runner:latest"}]}
SPECS: dict[str, dict[str, Any]] = {
    "AutoscalingRunnerSet": {**REGISTERED, "template": {"spec": POD_SPEC}},
    "EphemeralRunnerSet": {
        "ephemeralRunnerSpec": {**REGISTERED, "runnerScaleSetId": 1, "spec": POD_SPEC}
    },
    "EphemeralRunner": {**REGISTERED, "runnerScaleSetId": 1, "spec": POD_SPEC},
    "AutoscalingListener": {
        **REGISTERED,
        "runnerScaleSetId": 1,
        "autoscalingRunnerSetNamespace": "default",
        "autoscalingRunnerSetName": "my-set",
        "ephemeralRunnerSetName": "my-set",
        "image": "manager:latest",
    },
}
each_kind = pytest.mark.parametrize(
    "resource", CUSTOM_RESOURCES, ids=lambda resource: resource.kind.__name__
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env() -> AsyncIterator[Envtest]:
    async with Envtest(crds=[CRDS]) as env:
        yield env


async def create(env: Envtest, resource: CustomResource, name: str, spec: dict[str, Any]) -> Answer:
    kind = resource.kind.__name__
    body = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    path = f"{GROUP}/{resource.plural}"
    return await env.rest.try_request("POST", path, body, params=STRICT)


def filled(schema: dict[str, Any], path: str = "") -> Any:
    """A value with every field that ``schema`` knows, each different from the others."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("x-kubernetes-int-or-string"):
        return "1" if "pattern" in schema else "50%"
    match schema["type"]:
        case "object" if "properties" in schema:
            return {
                key: filled(value, f"{path}.{key}") for key, value in schema["properties"].items()
            }
        case "object":
            return {"key": filled(schema.get("additionalProperties", {"type": "string"}), path)}
        case "array":
            return [filled(schema["items"], path)]
        case "string":
            return "2024-05-01T12:00:00Z" if schema.get("format") == "date-time" else path
        case "boolean":
            return True
        case _:
            return 7


@each_kind
async def test_each_crd_is_established_and_structural(
    env: Envtest, resource: CustomResource
) -> None:
    crd = await env.rest.request("GET", f"{CRD_PATH}/{resource.name}")
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_the_schema_in_the_package_is_the_one_that_the_server_publishes(
    env: Envtest,
) -> None:
    version = await env.rest.request("GET", "/version")
    if f"{version['major']}.{version['minor']}" != "1.36":
        pytest.skip(f"the schema is that of 1.36, the server is {version['gitVersion']}")
    assert await published_schema(env) == pod_template_schema()


async def test_every_field_of_a_pod_template_comes_back_as_it_was_sent(env: Envtest) -> None:
    template = filled(pod_template_schema())
    spec = {**REGISTERED, "template": template, "listenerTemplate": template}
    answer = await create(env, CUSTOM_RESOURCES[0], "filled", spec)
    assert answer.status == 201, answer.message
    assert answer.body["spec"] == spec


async def test_a_pod_template_that_the_server_itself_defaulted_is_accepted_unchanged(
    env: Envtest,
) -> None:
    docker = {
        "name": "dind",
        "image": "docker:dind",
        "args": ["dockerd", "--host=unix:///var/run/docker.sock"],
        "securityContext": {"privileged": True},
        "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["docker", "info"]}, "failureThreshold": 24},
        "volumeMounts": [{"name": "work", "mountPath": "/home/runner/_work"}],
    }
    runner = {
        "name": "runner",
        "image": "ghcr.io/actions/actions-runner:latest",
        "command": ["/home/runner/run.sh"],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        "env": [
            {"name": "DOCKER_HOST", "value": "unix:///var/run/docker.sock"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "resources": {"limits": {"cpu": 2, "memory": "4Gi"}, "requests": {"cpu": "500m"}},
        "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
        "volumeMounts": [{"name": "work", "mountPath": "/home/runner/_work"}],
    }
    claim = {
        "metadata": {"labels": {"of": "claim"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    template = {
        "metadata": {"labels": {"team": "ci"}, "annotations": {"note": "kept"}},
        "spec": {
            "initContainers": [docker],
            "containers": [runner],
            "imagePullSecrets": [{"name": "registry"}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"team": "ci"}},
                }
            ],
            "volumes": [
                {"name": "work", "ephemeral": {"volumeClaimTemplate": claim}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            ],
        },
    }
    path = "/api/v1/namespaces/default/podtemplates"
    stored = await env.rest.request(
        "POST", path, {"metadata": {"name": "dind"}, "template": template}
    )
    defaulted = stored["template"]
    defaulted["metadata"].pop("creationTimestamp", None)
    answer = await create(
        env, CUSTOM_RESOURCES[0], "defaulted", {**REGISTERED, "template": defaulted}
    )
    assert answer.status == 201, answer.message
    assert answer.body["spec"]["template"] == defaulted


async def test_a_template_as_go_programs_write_it_is_accepted(env: Envtest) -> None:
    """Nulls where Go has nil, as in objects that the existing controller stored."""
    template = {
        "metadata": {"creationTimestamp": None},
        "spec": {"containers": [{"name": "runner", "resources": {}, "env": None}]},
    }
    spec = {**REGISTERED, "template": template, "proxy": None, "vaultConfig": None}
    body = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": "from-go"},
        "spec": spec,
    }
    answer = await env.rest.try_request("POST", f"{GROUP}/autoscalingrunnersets", body)
    assert answer.status == 201, answer.message


@each_kind
async def test_the_status_takes_a_first_patch_of_any_single_field(
    env: Envtest, resource: CustomResource
) -> None:
    kind = resource.kind.__name__
    created = await create(env, resource, "patched", SPECS[kind])
    assert created.status == 201, created.message
    crd = await env.rest.request("GET", f"{CRD_PATH}/{resource.name}")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    path = f"{GROUP}/{resource.plural}/patched/status"
    for field, of_field in schema["properties"]["status"]["properties"].items():
        value = filled(of_field, field)
        patch = {"status": {field: value}}
        answer = await env.rest.try_request("PATCH", path, patch, content_type=MERGE_PATCH)
        assert answer.status == 200, answer.message
        assert answer.body["status"][field] == value
        cleared = {"status": None}
        await env.rest.request("PATCH", path, cleared, content_type=MERGE_PATCH)


@each_kind
async def test_an_empty_spec_is_refused_with_the_fields_that_it_lacks(
    env: Envtest, resource: CustomResource
) -> None:
    answer = await create(env, resource, "empty", {})
    assert answer.status == 422
    required = "ephemeralRunnerSpec" if resource.plural == "ephemeralrunnersets" else "githubConfig"
    assert f"spec.{required}" in answer.message
    assert "Required value" in answer.message


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"minRunners": -1}, "spec.minRunners in body should be greater than or equal to 0"),
        ({"maxRunners": "many"}, 'spec.maxRunners in body must be of type integer: "string"'),
        ({"githubConfigUrl": ""}, "spec.githubConfigUrl in body should be at least 1 chars long"),
        ({"template": {}}, "spec.template.spec: Required value"),
        ({"template": {"spec": {}}}, "spec.template.spec.containers: Required value"),
        ({"templatee": {}}, 'unknown field "spec.templatee"'),
        (
            {
                "template": {
                    "spec": {
                        "containers": [
                            {"name": "runner", "resources": {"limits": {"memory": "4GB"}}}
                        ]
                    }
                }
            },
            "spec.template.spec.containers[0].resources.limits.memory in body should match",
        ),
    ],
)
async def test_bad_input_is_refused_with_its_field_and_value(
    env: Envtest, wrong: dict[str, Any], said: str
) -> None:
    spec = {**SPECS["AutoscalingRunnerSet"], **wrong}
    answer = await create(env, CUSTOM_RESOURCES[0], "wrong", spec)
    assert answer.status in {400, 422}
    assert said in answer.message


async def test_server_side_apply_merges_containers_and_their_environment_by_name(
    env: Envtest,
) -> None:
    path = f"{GROUP}/autoscalingrunnersets/applied"

    def applied(env: list[dict[str, str]], **more: Any) -> dict[str, Any]:
        container = {"name": "runner", "env": env, **more}
        return {
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "AutoscalingRunnerSet",
            "metadata": {"name": "applied"},
            "spec": {**REGISTERED, "template": {"spec": {"containers": [container]}}},
        }

    for manager, body in (
        ("one", applied([{"name": "A", "value": "1"}], image="runner")),
        ("two", applied([{"name": "B", "value": "2"}])),
    ):
        answer = await env.rest.try_request(
            "PATCH", path, body, content_type=APPLY_PATCH, params={"fieldManager": manager}
        )
        assert answer.ok, answer.message
    (container,) = answer.body["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "runner"
    assert [variable["name"] for variable in container["env"]] == ["A", "B"]


async def test_kubectl_gets_all_kinds_by_their_short_names(env: Envtest) -> None:
    for resource in CUSTOM_RESOURCES:
        await create(env, resource, "listed", SPECS[resource.kind.__name__])
    names = await env.kubectl("get", "ars,als,ers,er", "-o", "name")
    for resource in CUSTOM_RESOURCES:
        assert f"{resource.kind.__name__.lower()}.actions.github.com/listed" in names
    table = await env.kubectl("get", "er", "listed", "-o", "wide")
    header = table.splitlines()[0].split()
    assert header[:1] == ["NAME"]
    assert header[-1] == "AGE"
    assert {"RUNNERID", "STATUS", "JOBREPOSITORY", "JOBDISPLAYNAME", "MESSAGE"} <= set(header)


async def test_kubectl_explains_our_fields(env: Envtest) -> None:
    told = " ".join((await env.kubectl("explain", "ars.spec.minRunners")).split())
    assert "Runners kept idle, so that a job starts at once" in told


async def test_kubectl_applies_the_crds_client_side(env: Envtest) -> None:
    """That is: they fit into the annotation that it keeps its last version in."""
    said = await env.kubectl("apply", "-k", str(CRDS))
    assert said.count("configured") == len(CUSTOM_RESOURCES)
