"""The charts: what their values become, and which values are refused with which sentence."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from arc_controller.testing.envtest import AssetsMissing, EnvtestError, find_assets, run_program

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "charts"
BASE: dict[str, Any] = {
    "githubConfigUrl": "https://github.com/my-org/",
    "githubConfigSecret": "my-secret",
    "controllerServiceAccount": {"namespace": "arc-systems", "name": "arc"},
}
APP = {"github_app_id": "1", "github_app_installation_id": "2", "github_app_private_key": "key"}
TLS = {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
Rendered = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def helm() -> Path:
    try:
        return find_assets().program("helm")
    except AssetsMissing as missing:
        pytest.skip(f"charts cannot be rendered here: {missing}")


async def render(
    helm: Path, chart: str, values: dict[str, Any], *arguments: str, name: str = "my-set"
) -> Rendered:
    output = await run_program(
        helm,
        "template",
        name,
        str(CHARTS / chart),
        "--namespace=arc-runners",
        "--values=-",
        *arguments,
        stdin=json.dumps(values),
    )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [document for document in yaml.load_all(output, Loader=loader) if document]
    rendered = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    assert len(rendered) == len(documents)
    return rendered


async def scale_set(helm: Path, *arguments: str, name: str = "my-set", **values: Any) -> Rendered:
    return await render(helm, "gha-runner-scale-set", {**BASE, **values}, *arguments, name=name)


async def controller(helm: Path, **values: Any) -> Rendered:
    return await render(helm, "gha-runner-scale-set-controller", values, name="arc")


async def refusal(helm: Path, chart: str, values: dict[str, Any], name: str = "my-set") -> str:
    with pytest.raises(EnvtestError) as refused:
        await render(helm, chart, values, name=name)
    message = str(refused.value)
    assert "execution error at" in message or "don't meet the spec" in message, message
    return message


def the_set(rendered: Rendered) -> dict[str, Any]:
    (found,) = [obj for (kind, _), obj in rendered.items() if kind == "AutoscalingRunnerSet"]
    return found


def pod(rendered: Rendered) -> dict[str, Any]:
    spec: dict[str, Any] = the_set(rendered)["spec"]["template"]["spec"]
    return spec


def named(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {item["name"]: item for item in items}
    assert len(found) == len(items)
    return found


async def test_a_plain_release_is_a_set_a_role_and_a_powerless_account(helm: Path) -> None:
    rendered = await scale_set(helm)
    assert sorted(rendered) == [
        ("AutoscalingRunnerSet", "my-set"),
        ("Role", "my-set-gha-rs-manager"),
        ("RoleBinding", "my-set-gha-rs-manager"),
        ("ServiceAccount", "my-set-gha-rs-no-permission"),
    ]
    spec = the_set(rendered)["spec"]
    assert spec == {
        "githubConfigUrl": "https://github.com/my-org",
        "githubConfigSecret": "my-secret",
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "runner",
                        "image": "ghcr.io/actions/actions-runner:latest",
                        "command": ["/home/runner/run.sh"],
                    }
                ],
                "restartPolicy": "Never",
                "serviceAccountName": "my-set-gha-rs-no-permission",
            }
        },
    }
    binding = rendered["RoleBinding", "my-set-gha-rs-manager"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "arc", "namespace": "arc-systems"}
    ]


async def test_what_waits_for_the_controller_is_named_in_an_annotation(helm: Path) -> None:
    for mode in ({}, {"type": "kubernetes", "kubernetesModeWorkVolumeClaim": CLAIM}):
        rendered = await scale_set(helm, githubConfigSecret=APP, containerMode=mode)
        prefix = "actions.github.com/cleanup-"
        annotations = the_set(rendered)["metadata"]["annotations"]
        cleaned = {value for key, value in annotations.items() if key.startswith(prefix)}
        protected = {
            name
            for (_, name), obj in rendered.items()
            if "actions.github.com/cleanup-protection" in obj["metadata"].get("finalizers", [])
        }
        assert cleaned == protected
        assert protected == {name for _, name in rendered} - {"my-set"}


async def test_the_roles_grant_what_the_kustomize_files_grant(helm: Path) -> None:
    rendered = await scale_set(helm, githubServerTLS=TLS)

    def rules(obj: dict[str, Any]) -> set[tuple[str, str, str, str]]:
        return {
            (group, resource, name, verb)
            for rule in obj["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
            for verb in rule["verbs"]
        }

    def shipped(path: str) -> set[tuple[str, str, str, str]]:
        return rules(yaml.safe_load((ROOT / "config" / "rbac" / path).read_text()))

    manager = rendered["Role", "my-set-gha-rs-manager"]
    assert rules(manager) == shipped("runner_namespace/manager_role.yaml")
    installed = await controller(helm, replicaCount=2, fullnameOverride="arc-controller")
    assert rules(installed["ClusterRole", "arc-controller"]) == shipped("manager_role.yaml")
    listener = installed["Role", "arc-controller-listener"]
    assert rules(listener) == shipped("controller_namespace_role.yaml")
    leader = installed["Role", "arc-controller-leader-election"]
    assert rules(leader) == shipped("leader_election_role.yaml")


async def test_config_maps_are_readable_only_when_a_certificate_is_in_one(helm: Path) -> None:
    role = (await scale_set(helm))["Role", "my-set-gha-rs-manager"]
    assert "configmaps" not in [name for rule in role["rules"] for name in rule["resources"]]


async def test_credentials_become_a_secret(helm: Path) -> None:
    rendered = await scale_set(helm, githubConfigSecret={**APP, "github_token": ""})
    secret = rendered["Secret", "my-set-gha-rs-github-secret"]
    decoded = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert decoded == APP
    assert the_set(rendered)["spec"]["githubConfigSecret"] == "my-set-gha-rs-github-secret"


async def test_every_value_of_the_spec_arrives(helm: Path) -> None:
    meta = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    proxy = {
        "http": {"url": "http://proxy:3128", "credentialSecretRef": "auth"},
        "noProxy": ["example.com"],
    }
    listener = {"spec": {"containers": [{"name": "listener", "resources": {}}]}}
    metrics = {"counters": {"gha_started_jobs_total": {"labels": ["name"]}}}
    rendered = await scale_set(
        helm,
        runnerGroup="123",
        runnerScaleSetName="my_name",
        scaleSetLabels=["linux", "x64"],
        minRunners=0,
        maxRunners=2_000_000,
        proxy=proxy,
        githubServerTLS={**TLS, "runnerMountPath": "/certs"},
        listenerTemplate=listener,
        listenerMetrics=metrics,
        resourceMeta={"autoscalingListener": meta, "ephemeralRunner": meta, "listenerRole": meta},
        keyVault={
            "type": "azure_key_vault",
            "azureKeyVault": {
                "url": "https://vault",
                "tenantId": "t",
                "clientId": "c",
                "certificatePath": "/c",
            },
        },
    )
    found = the_set(rendered)
    assert found["metadata"]["name"] == "my-name"
    spec = {key: value for key, value in found["spec"].items() if key != "template"}
    assert spec == {
        "githubConfigUrl": "https://github.com/my-org",
        "githubConfigSecret": "my-secret",
        "runnerGroup": "123",
        "runnerScaleSetName": "my_name",
        "runnerScaleSetLabels": ["linux", "x64"],
        "minRunners": 0,
        "maxRunners": 2_000_000,
        "proxy": proxy,
        "githubServerTLS": TLS,
        "listenerTemplate": listener,
        "listenerMetrics": metrics,
        "autoscalingListener": meta,
        "ephemeralRunnerMetadata": meta,
        "listenerRoleMetadata": meta,
        "vaultConfig": {
            "type": "azure_key_vault",
            "azureKeyVault": {
                "url": "https://vault",
                "tenantId": "t",
                "clientId": "c",
                "certificatePath": "/c",
            },
        },
    }


async def test_labels_and_annotations_reach_everything_but_never_override_ours(
    helm: Path,
) -> None:
    rendered = await scale_set(
        helm,
        githubConfigSecret={"github_token": "x"},
        labels={"team": "all", "app.kubernetes.io/part-of": "mine"},
        annotations={"note": "all", "actions.github.com/cleanup-manager-role-name": "mine"},
        resourceMeta={"managerRole": {"labels": {"team": "role"}}},
    )
    for (kind, _), obj in rendered.items():
        labels = obj["metadata"]["labels"]
        assert labels["team"] == ("role" if kind == "Role" else "all")
        assert labels["app.kubernetes.io/part-of"] == "gha-rs"
        assert obj["metadata"]["annotations"]["note"] == "all"
    cleanup = the_set(rendered)["metadata"]["annotations"]
    assert cleanup["actions.github.com/cleanup-manager-role-name"] == "my-set-gha-rs-manager"


async def test_docker_in_docker_is_a_sidecar_where_there_are_sidecars(helm: Path) -> None:
    spec = pod(await scale_set(helm, containerMode={"type": "dind"}))
    assert [c["name"] for c in spec["initContainers"]] == ["init-dind-externals", "dind"]
    assert [c["name"] for c in spec["containers"]] == ["runner"]
    dind = named(spec["initContainers"])["dind"]
    assert dind["restartPolicy"] == "Always"
    assert dind["securityContext"] == {"privileged": True}
    runner = named(spec["containers"])["runner"]
    assert named(runner["env"])["DOCKER_HOST"]["value"] == "unix:///var/run/docker.sock"
    assert set(named(spec["volumes"])) == {"work", "dind-sock", "dind-externals"}
    for container in [*spec["initContainers"], runner]:
        assert {m["name"] for m in container["volumeMounts"]} <= set(named(spec["volumes"]))
    old = pod(await scale_set(helm, "--kube-version=1.28", containerMode={"type": "dind"}))
    assert [c["name"] for c in old["initContainers"]] == ["init-dind-externals"]
    assert [c["name"] for c in old["containers"]] == ["runner", "dind"]
    assert "restartPolicy" not in named(old["containers"])["dind"]


async def test_what_the_user_wrote_in_the_template_wins(helm: Path) -> None:
    template = {
        "metadata": {"labels": {"team": "ci"}},
        "spec": {
            "serviceAccountName": "mine",
            "nodeSelector": {"disk": "fast"},
            "initContainers": [{"name": "prepare", "image": "prepare"}],
            "containers": [
                {"name": "side", "image": "side"},
                {"name": "dind", "image": "docker:27-dind", "resources": {"limits": {"cpu": 2}}},
                {
                    "name": "runner",
                    "image": "mine",
                    "env": [{"name": "DOCKER_HOST", "value": "tcp://localhost:9999"}],
                    "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                },
            ],
            "volumes": [{"name": "work", "hostPath": {"path": "/data"}}],
        },
    }
    rendered = await scale_set(helm, containerMode={"type": "dind"}, template=template)
    spec = pod(rendered)
    assert [c["name"] for c in spec["initContainers"]] == ["init-dind-externals", "dind", "prepare"]
    assert [c["name"] for c in spec["containers"]] == ["runner", "side"]
    containers = named([*spec["initContainers"], *spec["containers"]])
    assert containers["dind"]["image"] == "docker:27-dind"
    assert containers["dind"]["resources"] == {"limits": {"cpu": 2}}
    assert containers["dind"]["restartPolicy"] == "Always"
    assert containers["init-dind-externals"]["image"] == "mine"
    assert named(containers["runner"]["env"])["DOCKER_HOST"]["value"] == "tcp://localhost:9999"
    assert named(containers["runner"]["volumeMounts"])["work"]["mountPath"] == "/work"
    assert "command" not in containers["runner"]
    assert named(spec["volumes"])["work"] == {"name": "work", "hostPath": {"path": "/data"}}
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["serviceAccountName"] == "mine"
    assert not [key for key in rendered if key[0] == "ServiceAccount"]
    assert the_set(rendered)["spec"]["template"]["metadata"] == {"labels": {"team": "ci"}}


async def test_jobs_in_pods_of_their_own_get_hooks_a_claim_and_an_account(helm: Path) -> None:
    extra = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
    mode = {
        "type": "kubernetes",
        "kubernetesModeWorkVolumeClaim": CLAIM,
        "kubernetesModeServiceAccount": {"annotations": {"role-arn": "x"}},
        "kubernetesModeAdditionalRoleRules": [extra],
    }
    rendered = await scale_set(helm, containerMode=mode)
    spec = pod(rendered)
    env = named(named(spec["containers"])["runner"]["env"])
    assert env["ACTIONS_RUNNER_CONTAINER_HOOKS"]["value"] == "/home/runner/k8s/index.js"
    assert env["ACTIONS_RUNNER_POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert env["ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"]["value"] == "true"
    claim = {"volumeClaimTemplate": {"spec": CLAIM}}
    assert named(spec["volumes"])["work"]["ephemeral"] == claim
    name = "my-set-gha-rs-kube-mode"
    assert spec["serviceAccountName"] == name
    account = rendered["ServiceAccount", name]
    assert account["metadata"]["annotations"] == {"role-arn": "x"}
    assert extra in rendered["Role", name]["rules"]
    assert rendered["RoleBinding", name]["subjects"][0]["name"] == name


async def test_without_a_volume_jobs_run_from_the_image_of_the_runner(helm: Path) -> None:
    rendered = await scale_set(helm, containerMode={"type": "kubernetes-novolume"})
    spec = pod(rendered)
    env = named(named(spec["containers"])["runner"]["env"])
    assert env["ACTIONS_RUNNER_CONTAINER_HOOKS"]["value"] == "/home/runner/k8s-novolume/index.js"
    assert env["ACTIONS_RUNNER_IMAGE"]["value"] == "ghcr.io/actions/actions-runner:latest"
    assert "volumes" not in spec
    rules = rendered["Role", "my-set-gha-rs-kube-mode"]["rules"]
    assert ["batch"] not in [rule["apiGroups"] for rule in rules]


async def test_runners_trust_the_servers_certificate_where_it_is_mounted(helm: Path) -> None:
    spec = pod(await scale_set(helm, githubServerTLS={**TLS, "runnerMountPath": "/certs/"}))
    runner = named(spec["containers"])["runner"]
    assert named(runner["env"])["NODE_EXTRA_CA_CERTS"]["value"] == "/certs/ca.crt"
    assert named(runner["env"])["RUNNER_UPDATE_CA_CERTS"]["value"] == "1"
    (mount,) = runner["volumeMounts"]
    assert (mount["mountPath"], mount["subPath"]) == ("/certs/ca.crt", "ca.crt")
    assert named(spec["volumes"])["github-server-tls-cert"]["configMap"]["name"] == "ca"


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"githubConfigUrl": ""}, "githubConfigUrl is required"),
        ({"githubConfigUrl": "github.com/x"}, 'it is "github.com/x"'),
        ({"githubConfigSecret": ""}, "githubConfigSecret is required"),
        ({"githubConfigSecret": {"github_token": ""}}, "must hold github_token, or github_app_id"),
        ({"githubConfigSecret": {**APP, "github_token": "x"}}, "not both"),
        (
            {"githubConfigSecret": {"github_app_id": "1"}},
            "lacks github_app_installation_id and github_app_private_key",
        ),
        ({"githubConfigSecret": {**APP, "github_app_id": 1}}, "put the number into quotes"),
        ({"minRunners": -1}, "minRunners must be a whole number of 0 or more, it is -1"),
        ({"maxRunners": 1.5}, "maxRunners must be a whole number of 0 or more, it is 1.5"),
        ({"maxRunners": "5"}, "maxRunners must be a whole number of 0 or more, it is 5"),
        ({"minRunners": 3, "maxRunners": 2}, "they are 3 and 2"),
        ({"runnerScaleSetName": "x" * 46}, "at most 45 characters"),
        ({"runnerScaleSetName": "My-Set"}, 'it is "My-Set"'),
        ({"scaleSetLabels": [""]}, "scaleSetLabels must hold texts that are not empty"),
        ({"scaleSetLabels": ["x" * 256]}, "at most 255 characters"),
        ({"scaleSetLabels": "linux"}, "scaleSetLabels must be a list"),
        ({"containerMode": {"type": "docker"}}, 'it is "docker"'),
        (
            {"containerMode": {"type": "kubernetes"}},
            "containerMode.kubernetesModeWorkVolumeClaim is required",
        ),
        ({"template": {"spec": {"containers": [{"name": "x"}]}}}, "one container named runner"),
        ({"template": {"spec": None}}, "one container named runner, it has 0"),
        ({"listenerTemplate": {"spec": {}}}, "listenerTemplate.spec.containers is required"),
        ({"proxy": {"http": {"url": "proxy"}}}, "proxy.http.url must be the address"),
        ({"proxy": {"https": {"url": "http://u:p@proxy"}}}, "proxy.https.url must not hold"),
        ({"proxy": {"noProxy": "a,b"}}, "proxy.noProxy must be a list"),
        ({"githubServerTLS": {"runnerMountPath": "/x"}}, "must have a name and a key"),
        ({"githubServerTLS": {**TLS, "runnerMountPath": "x"}}, "must begin with '/'"),
        ({"keyVault": {"type": "vault"}}, "keyVault.type must be azure_key_vault"),
        ({"keyVault": {"type": "azure_key_vault"}}, "keyVault.azureKeyVault.url is required"),
        ({"resourceMeta": {"listener": {}}}, "resourceMeta.listener is not known"),
        ({"controllerServiceAccount": {"name": "x", "namespace": None}}, "both a namespace and"),
        ({"controllerServiceAccount": None}, "No controller that watches namespace arc-runners"),
    ],
)
async def test_a_scale_set_that_cannot_work_is_refused_with_a_sentence(
    helm: Path, wrong: dict[str, Any], said: str
) -> None:
    message = await refusal(helm, "gha-runner-scale-set", {**BASE, **wrong})
    assert said in message


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"replicaCount": 0}, "replicaCount must be 1 or more, it is 0"),
        ({"flags": {"logLevel": "loud"}}, "flags.logLevel must be debug, info, warn or error"),
        ({"flags": {"logFormat": "xml"}}, "flags.logFormat must be text or json"),
        ({"flags": {"updateStrategy": "later"}}, "flags.updateStrategy must be"),
        ({"flags": {"runnerMaxConcurrentReconciles": 0}}, "must be a number of 1 or more"),
        ({"serviceAccount": {"name": "default"}}, "serviceAccount.name must not be default"),
        ({"serviceAccount": {"create": False}}, "must name an existing service account"),
        ({"imagePullSecrets": ["registry"]}, "imagePullSecrets must be a list of {name: SECRET}"),
        ({"metrics": {"listenerAddr": 8080}}, "metrics.listenerAddr must be an address like"),
        ({"metrics": {"listenerEndpoint": "m"}}, "listenerEndpoint must be a path that begins"),
        ({"flags": {"watchSingleNamespace": "Bad_NS"}}, "must be the name of one namespace, it is"),
    ],
)
async def test_a_controller_that_cannot_work_is_refused_with_a_sentence(
    helm: Path, wrong: dict[str, Any], said: str
) -> None:
    message = await refusal(helm, "gha-runner-scale-set-controller", wrong, name="arc")
    assert said in message


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"maxRuners": 5}, "maxRuners"),
        ({"containerMode": {"typ": "dind"}}, "typ"),
        ({"githubServerTLS": {**TLS, "mountPath": "/x"}}, "mountPath"),
        ({"proxy": {"noproxy": []}}, "noproxy"),
        ({"controllerServiceAccount": {"name": "x", "namspace": "y"}}, "namspace"),
    ],
)
async def test_a_value_that_a_scale_set_does_not_have_is_refused_by_helm(
    helm: Path, wrong: dict[str, Any], said: str
) -> None:
    message = await refusal(helm, "gha-runner-scale-set", {**BASE, **wrong})
    assert f"'{said}' not allowed" in message


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"replicas": 2}, "replicas"),
        ({"flags": {"loglevel": "info"}}, "loglevel"),
        ({"metrics": {"addr": ":1"}}, "addr"),
        ({"image": {"name": "x"}}, "name"),
        ({"serviceAccount": {"named": "x"}}, "named"),
    ],
)
async def test_a_value_that_a_controller_does_not_have_is_refused_by_helm(
    helm: Path, wrong: dict[str, Any], said: str
) -> None:
    message = await refusal(helm, "gha-runner-scale-set-controller", wrong, name="arc")
    assert f"'{said}' not allowed" in message


async def test_what_people_keep_beside_the_values_is_let_through(helm: Path) -> None:
    beside: dict[str, Any] = {"global": {"a": 1}, "enabled": True, "x-anchor": {}, "_anchor": []}
    assert the_set(await scale_set(helm, **beside))
    assert arguments(await controller(helm, **beside))


FIELD_CONTROLLER = """
    labels replicaCount image.repository image.pullPolicy image.tag imagePullSecrets nameOverride
    fullnameOverride namespaceOverride env serviceAccount.create serviceAccount.annotations
    serviceAccount.name podAnnotations podLabels podSecurityContext securityContext resources
    nodeSelector tolerations affinity topologySpreadConstraints volumes volumeMounts
    priorityClassName metrics.controllerManagerAddr metrics.listenerAddr metrics.listenerEndpoint
    flags.logLevel flags.logFormat flags.watchSingleNamespace flags.runnerMaxConcurrentReconciles
    flags.updateStrategy flags.excludeLabelPropagationPrefixes flags.k8sClientRateLimiterQPS
    flags.k8sClientRateLimiterBurst
"""
FIELD_SCALE_SET = """
    githubConfigUrl githubConfigSecret.github_token githubConfigSecret.github_app_id
    githubConfigSecret.github_app_installation_id githubConfigSecret.github_app_private_key
    proxy.http.url proxy.http.credentialSecretRef proxy.https.url proxy.https.credentialSecretRef
    proxy.noProxy maxRunners minRunners runnerGroup runnerScaleSetName scaleSetLabels
    fullnameOverride nameOverride githubServerTLS.certificateFrom.configMapKeyRef.name
    githubServerTLS.certificateFrom.configMapKeyRef.key githubServerTLS.runnerMountPath
    keyVault.type keyVault.azure_key_vault.url keyVault.azure_key_vault.client_id
    keyVault.azure_key_vault.tenant_id keyVault.azure_key_vault.certificate_path
    keyVault.azure_key_vault.proxy keyVault.proxy containerMode.type
    containerMode.kubernetesModeWorkVolumeClaim containerMode.kubernetesModeServiceAccount
    containerMode.kubernetesModeAdditionalRoleRules listenerTemplate.spec listenerMetrics.gauges
    template.spec controllerServiceAccount.namespace controllerServiceAccount.name
    namespaceOverride annotations labels resourceMeta.managerRole.labels
"""


@pytest.mark.parametrize(
    "chart, known",
    [
        ("gha-runner-scale-set-controller", FIELD_CONTROLLER),
        ("gha-runner-scale-set", FIELD_SCALE_SET),
    ],
)
async def test_every_value_that_charts_of_the_field_have_is_known(chart: str, known: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    for path in known.split():
        part = schema
        for name in path.split("."):
            assert part.get("additionalProperties", True) or name in part["properties"], path
            part = part.get("properties", {}).get(name, {})


@pytest.mark.parametrize("chart", ["gha-runner-scale-set-controller", "gha-runner-scale-set"])
async def test_every_value_of_the_chart_is_known_and_explained(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    text = (CHARTS / chart / "values.yaml").read_text()
    assert set(yaml.safe_load(text)) <= schema["properties"].keys()
    for name, part in schema["properties"].items():
        for each in (name, *part.get("properties", ())):
            if each not in ("global", "enabled", "kubernetesModeAdditionalRoleRule"):
                assert f"{each}:" in text, each


async def test_one_manager_alone_is_told_to_end_before_the_next_one_starts(helm: Path) -> None:
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    for replicas, strategy in ((1, one_by_one), (2, None)):
        rendered = await controller(helm, replicaCount=replicas)
        deployment = rendered["Deployment", "arc-gha-rs-controller"]
        assert deployment["spec"].get("strategy") == strategy
        elects = "--enable-leader-election" in arguments(rendered)
        assert elects is (strategy is None), "two that overlap must elect"
        assert (("Role", "arc-gha-rs-controller-leader-election") in rendered) is elects


def arguments(rendered: Rendered) -> list[str]:
    (deployment,) = [obj for (kind, _), obj in rendered.items() if kind == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


async def test_the_controller_says_where_scale_sets_find_it(helm: Path) -> None:
    rendered = await controller(helm)
    labels = rendered["Deployment", "arc-gha-rs-controller"]["metadata"]["labels"]
    prefix = "actions.github.com/controller-service-account-"
    assert labels["app.kubernetes.io/part-of"] == "gha-rs-controller"
    assert labels[prefix + "name"] == "arc-gha-rs-controller"
    assert labels[prefix + "namespace"] == "arc-runners"
    assert ("ServiceAccount", "arc-gha-rs-controller") in rendered


async def test_flags_and_metrics_become_arguments_of_the_manager(helm: Path) -> None:
    rendered = await controller(
        helm,
        replicaCount=2,
        imagePullSecrets=[{"name": "one"}, {"name": "two"}],
        metrics={
            "controllerManagerAddr": ":9090",
            "listenerAddr": ":9091",
            "listenerEndpoint": "/metrics",
        },
        flags={
            "logLevel": "debug",
            "logFormat": "json",
            "runnerMaxConcurrentReconciles": 4,
            "excludeLabelPropagationPrefixes": ["argocd.argoproj.io/", "x/"],
            "k8sClientRateLimiterQPS": 1_000_000,
            "workqueueRateLimiter": "bucket_rate_limiter",
            "updateStrategy": "immediate",
        },
    )
    assert arguments(rendered) == [
        "--auto-scaling-runner-set-only",
        "--enable-leader-election",
        "--leader-election-id=arc-gha-rs-controller",
        "--auto-scaler-image-pull-secrets=one",
        "--auto-scaler-image-pull-secrets=two",
        "--health-probe-bind-address=:8081",
        "--metrics-addr=:9090",
        "--listener-metrics-addr=:9091",
        "--listener-metrics-endpoint=/metrics",
        "--log-level=debug",
        "--log-format=json",
        "--runner-max-concurrent-reconciles=4",
        "--exclude-label-propagation-prefix=argocd.argoproj.io/",
        "--exclude-label-propagation-prefix=x/",
        "--k8s-client-rate-limiter-qps=1000000",
        "--k8s-client-rate-limiter-burst=200",
        "--workqueue-rate-limiter=bucket_rate_limiter",
    ]


async def test_a_controller_of_one_namespace_has_no_power_elsewhere(helm: Path) -> None:
    rendered = await controller(helm, flags={"watchSingleNamespace": "team-a"})
    assert "--watch-single-namespace=team-a" in arguments(rendered)
    assert not [kind for kind, _ in rendered if kind.startswith("Cluster")]
    watch = rendered["Role", "arc-gha-rs-controller-single-namespace-watch"]
    assert watch["metadata"]["namespace"] == "team-a"
    own = rendered["Role", "arc-gha-rs-controller-single-namespace"]
    assert own["metadata"]["namespace"] == "arc-runners"


async def test_the_crds_of_the_chart_are_the_generated_ones() -> None:
    crds = CHARTS / "gha-runner-scale-set-controller" / "crds"
    generated = sorted((ROOT / "config" / "crd").glob("actions.*"))
    assert [path.name for path in sorted(crds.iterdir())] == [path.name for path in generated]
    for path, other in zip(sorted(crds.iterdir()), generated, strict=True):
        assert not path.is_symlink(), "helm warns of links"
        assert path.read_text() == other.read_text()


async def test_the_charts_have_the_version_of_the_package() -> None:
    from arc_controller import __version__

    for chart in CHARTS.iterdir():
        described = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert described["version"] == described["appVersion"] == __version__
