"""Design 02, "AutoscalingListener": what a listener is made of, and what happens to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arc_controller.actions import ProxySettings
from arc_controller.api.core import (
    ConfigMap,
    Pod,
    Role,
    RoleBinding,
    Secret,
    ServiceAccount,
)
from arc_controller.api.v1alpha1 import (
    Annotation,
    AutoscalingListener,
    AutoscalingRunnerSet,
    Finalizer,
    Label,
    Vault,
)
from arc_controller.runtime.objects import KubeObject, NamespacedName, find_condition
from arc_controller.testing.actions import Call
from arc_controller.testing.kubelet import Disruption, DisruptionKind, PodBehaviour
from arc_controller.testing.loop import simulated
from tests.integration.scale_sets import (
    CONTROLLER,
    KEY,
    NAME,
    RUNNERS,
    World,
    scale_set,
    scale_set_id,
    world,
)

PROXY = {
    "http": {"url": "http://proxy:3128"},
    "https": {"url": "http://proxy:3129", "credentialSecretRef": "proxy-password"},
    "noProxy": ["example.com", "10.0.0.0/8"],
}
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


async def installed(here: World, **spec: Any) -> None:
    here.install(scale_set(**spec))
    await here.settle()
    assert (await here.condition("Ready")).status == "True"
    here.api.request_log.clear()


async def parts(here: World) -> dict[type[KubeObject], NamespacedName]:
    """Where everything is that a listener is made of."""
    namespace, name = (await here.listener()).key
    return {
        ServiceAccount: NamespacedName(namespace, name),
        Role: NamespacedName(RUNNERS, name),
        RoleBinding: NamespacedName(RUNNERS, name),
        Secret: NamespacedName(namespace, f"{name}-config"),
        Pod: NamespacedName(namespace, name),
    }


async def ready(here: World) -> tuple[str, str, str]:
    condition = find_condition((await here.listener()).status.conditions, "Ready")
    assert condition is not None
    return condition.status, condition.reason, condition.message


# --- what it is made of, in order


@simulated
async def test_the_parts_are_made_in_order_and_the_pod_last() -> None:
    async with world() as here:
        here.install(scale_set(proxy=PROXY))
        here.secret("proxy-password", username="u", password="p")
        await here.settle()
        created = [
            (r.resource, r.namespace)
            for r in here.requests()
            if r.verb == "create" and r.group != "actions.github.com"
        ]
        assert created == [
            ("serviceaccounts", CONTROLLER),
            ("roles", RUNNERS),
            ("rolebindings", RUNNERS),
            ("secrets", CONTROLLER),
            ("secrets", CONTROLLER),
            ("pods", CONTROLLER),
        ]


@simulated
async def test_the_role_allows_what_a_listener_does_and_nothing_else() -> None:
    async with world() as here:
        await installed(here)
        where = await parts(here)
        role = await here.get(Role, where[Role])
        assert [(r.resources, r.verbs, r.resource_names) for r in role.rules or []] == [
            (["ephemeralrunnersets"], ["patch"], [NAME]),
            (["ephemeralrunners"], ["get", "patch"], []),
            (["ephemeralrunners/status"], ["patch"], []),
        ]
        assert all(rule.api_groups == ["actions.github.com"] for rule in role.rules or [])
        assert role.metadata.labels[Label.LISTENER_NAME] == where[Pod].name
        assert role.metadata.labels[Label.LISTENER_NAMESPACE] == CONTROLLER

        binding = await here.get(RoleBinding, where[RoleBinding])
        assert binding.role_ref.name == where[Role].name
        (subject,) = binding.subjects
        assert (subject.kind, subject.namespace, subject.name) == (
            "ServiceAccount",
            *where[ServiceAccount],
        )


@simulated
async def test_what_shares_its_namespace_is_owned_and_what_does_not_is_not() -> None:
    async with world() as here:
        await installed(here)
        uid = (await here.listener()).uid
        for kind, key in (await parts(here)).items():
            references = (await here.get(kind, key)).metadata.owner_references
            if key.namespace == CONTROLLER:
                (reference,) = references
                assert (reference.uid, reference.controller) == (uid, True)
                assert reference.block_owner_deletion
            else:
                assert references == []


@simulated
async def test_metadata_fields_add_to_each_part_and_never_override() -> None:
    wish = {"labels": {"mine": "1", Label.COMPONENT: "x"}, "annotations": {"mine": "2"}}
    async with world() as here:
        await installed(
            here,
            autoscalingListener=wish,
            listenerServiceAccountMetadata=wish,
            listenerRoleMetadata=wish,
            listenerRoleBindingMetadata=wish,
            listenerConfigSecretMetadata=wish,
            listenerTemplate={"metadata": wish, "spec": {"containers": []}},
        )
        objects = [await here.listener()]
        metadata = [obj.metadata for obj in objects]
        metadata += [(await here.get(k, key)).metadata for k, key in (await parts(here)).items()]
        assert len(metadata) == 6
        for each in metadata:
            assert (each.labels["mine"], each.annotations["mine"]) == ("1", "2")
            assert each.labels[Label.COMPONENT] == "runner-scale-set-listener"


@simulated
async def test_the_pod_is_what_the_design_says() -> None:
    async with world(listener_pull_secrets=("registry",)) as here:
        await installed(here)
        name = (await here.listener()).metadata.name
        spec = (await here.pod()).spec
        assert spec["serviceAccountName"] == name
        assert spec["restartPolicy"] == "Never"
        assert spec["terminationGracePeriodSeconds"] == 60
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        (container,) = spec["containers"]
        assert container["name"] == "listener"
        assert container["command"] == ["/ghalistener"]
        assert container["env"] == [
            {"name": "LISTENER_CONFIG_PATH", "value": "/etc/gha-listener/config.json"}
        ]
        (mount,) = container["volumeMounts"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/etc/gha-listener", True)
        (volume,) = spec["volumes"]
        assert volume["secret"]["secretName"] == f"{name}-config"
        assert "ports" not in container


@simulated
async def test_metrics_and_entry_point_come_from_the_managers_flags() -> None:
    async with world(
        listener_metrics_addr=":8081",
        listener_metrics_endpoint="/metrics",
        listener_entrypoint="/usr/bin/listener",
    ) as here:
        await installed(
            here, listenerMetrics={"gauges": {"gha_idle_runners": {"labels": ["name"]}}}
        )
        (container,) = (await here.pod()).spec["containers"]
        assert container["command"] == ["/usr/bin/listener"]
        (port,) = container["ports"]
        assert (port["name"], port["containerPort"]) == ("metrics", 8081)
        content = await here.config_file()
        assert (content["metrics_addr"], content["metrics_endpoint"]) == (":8081", "/metrics")
        assert content["metrics"] == {"gauges": {"gha_idle_runners": {"labels": ["name"]}}}


@simulated
async def test_config_json_has_the_agreed_keys() -> None:
    async with world() as here:
        await installed(here, minRunners=0, maxRunners=10)
        assert await here.config_file() == {
            "configure_url": "https://github.com/acme",
            "github_token": "token-1",
            "ephemeral_runner_set_namespace": RUNNERS,
            "ephemeral_runner_set_name": NAME,
            "min_runners": 0,
            "max_runners": 10,
            "runner_scale_set_id": scale_set_id(await here.scale_set()),
            "runner_scale_set_name": NAME,
            "log_level": "debug",
            "log_format": "text",
        }


@simulated
async def test_a_proxy_reaches_the_listener_by_a_secret() -> None:
    async with world() as here:
        here.secret("proxy-password", username="us er", password="p@ss/word")
        await installed(here, proxy=PROXY)
        name = (await here.listener()).metadata.name
        secret = await here.get(Secret, NamespacedName(CONTROLLER, f"{name}-proxy"))
        assert secret.data == {
            "http_proxy": b"http://proxy:3128",
            "https_proxy": b"http://us%20er:p%40ss%2Fword@proxy:3129",
            "no_proxy": b"example.com,10.0.0.0/8",
        }
        (container,) = (await here.pod()).spec["containers"]
        references = {e["name"]: e["valueFrom"] for e in container["env"] if "valueFrom" in e}
        assert references == {
            variable: {"secretKeyRef": {"name": f"{name}-proxy", "key": variable}}
            for variable in ("http_proxy", "https_proxy", "no_proxy")
        }


@simulated
async def test_only_what_is_configured_of_a_proxy_becomes_a_variable() -> None:
    async with world() as here:
        await installed(here, proxy={"https": {"url": "http://proxy:3129"}})
        (container,) = (await here.pod()).spec["containers"]
        assert [entry["name"] for entry in container["env"]][1:] == ["https_proxy"]


@simulated
async def test_the_certificate_authority_of_a_server_comes_from_a_config_map() -> None:
    async with world() as here:
        here.install(_config_map(PEM))
        tls = {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.pem"}}}
        await installed(here, githubServerTLS=tls)
        assert (await here.config_file())["server_root_ca"] == PEM


@simulated
async def test_with_a_vault_the_listener_gets_the_lookup_key_and_no_credentials() -> None:
    vault = {
        "type": "azure_key_vault",
        "azureKeyVault": {
            "url": "https://acme.vault.azure.net",
            "tenantId": "t",
            "clientId": "c",
            "certificatePath": "/akv/cert.pem",
        },
        "proxy": {"https": {"url": "http://proxy:1"}},
    }
    async with world() as here:
        assert here.clients is not None

        async def read(vault: Vault, name: str, proxy: ProxySettings | None) -> Mapping[str, str]:
            assert name == "lookup-me"
            return {"github_token": "token-1"}

        here.clients._vaults._readers["azure_key_vault"] = read
        await installed(here, vaultConfig=vault, githubConfigSecret="lookup-me")
        content = await here.config_file()
        assert "github_token" not in content
        assert content["vault_type"] == "azure_key_vault"
        assert content["vault_lookup_key"] == "lookup-me"
        assert content["azure_key_vault"] == {
            "url": "https://acme.vault.azure.net",
            "tenant_id": "t",
            "client_id": "c",
            "certificate_path": "/akv/cert.pem",
            "proxy": {"https_proxy": "http://proxy:1"},
        }


@simulated
async def test_listener_template_is_merged_into_the_pod() -> None:
    template = {
        "metadata": {"labels": {"mine": "1"}, "annotations": {"sidecar.example.com/inject": "no"}},
        "spec": {
            "serviceAccountName": "mine",
            "priorityClassName": "high",
            "nodeSelector": {"pool": "infra"},
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "containers": [
                {
                    "name": "listener",
                    "image": "mine:1",
                    "env": [{"name": "DEBUG", "value": "1"}],
                    "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                    "resources": {"limits": {"memory": "64Mi"}},
                },
                {"name": "sidecar", "image": "sidecar:1"},
            ],
        },
    }
    async with world() as here:
        await installed(here, listenerTemplate=template)
        pod = await here.pod()
        assert pod.metadata.labels["mine"] == "1"
        assert pod.metadata.annotations["sidecar.example.com/inject"] == "no"
        spec = pod.spec
        assert spec["serviceAccountName"] == pod.metadata.name, "the account stays ours"
        assert spec["priorityClassName"] == "high"
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "infra"}
        listener, sidecar = spec["containers"]
        assert listener["image"] == "mine:1"
        assert [e["name"] for e in listener["env"]] == ["LISTENER_CONFIG_PATH", "DEBUG"]
        assert len(listener["volumeMounts"]) == 2
        assert listener["resources"]["limits"] == {"memory": "64Mi"}
        assert sidecar["name"] == "sidecar"


# --- drift


@pytest.mark.parametrize("kind", [ServiceAccount, Role, RoleBinding, Pod])
def test_a_deleted_part_is_made_again_at_once(kind: type[KubeObject]) -> None:
    @simulated
    async def scenario() -> None:
        async with world() as here:
            await installed(here)
            key = (await parts(here))[kind]
            uid = (await here.get(kind, key)).uid
            await here.admin.delete(kind, key)
            await here.settle()
            assert (await here.get(kind, key)).uid != uid
            assert (await ready(here))[0] == "True"

    scenario()


@simulated
async def test_a_deleted_config_secret_is_made_again_within_minutes() -> None:
    async with world() as here:
        await installed(here)
        key = (await parts(here))[Secret]
        await here.admin.delete(Secret, key)
        await here.settle(700)
        assert (await here.get(Secret, key)).data


@simulated
async def test_a_deleted_config_secret_is_there_before_the_next_pod_is() -> None:
    async with world() as here:
        await installed(here)
        await here.settle(60)
        where = await parts(here)
        await here.admin.delete(Secret, where[Secret])
        await here.admin.delete(Pod, where[Pod])
        await here.settle()
        assert (await here.get(Secret, where[Secret])).data
        assert (await ready(here))[0] == "True"


@simulated
async def test_changed_rules_subjects_and_labels_are_put_right_under_a_lock() -> None:
    async with world() as here:
        await installed(here)
        where = await parts(here)
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        await here.admin.patch(Role, where[Role], {"rules": [everything]})
        await here.admin.patch(RoleBinding, where[RoleBinding], {"subjects": None})
        unlabelled = {"metadata": {"labels": {Label.SCALE_SET_NAME: "other"}}}
        await here.admin.patch(ServiceAccount, where[ServiceAccount], unlabelled)
        await here.settle()
        assert len((await here.get(Role, where[Role])).rules or []) == 3
        assert len((await here.get(RoleBinding, where[RoleBinding])).subjects) == 1
        account = await here.get(ServiceAccount, where[ServiceAccount])
        assert account.metadata.labels[Label.SCALE_SET_NAME] == NAME
        for resource in ("roles", "rolebindings", "serviceaccounts"):
            (patch,) = here.patches(resource)
            assert patch["metadata"]["resourceVersion"]


@simulated
async def test_a_part_that_lost_the_labels_it_is_cached_by_is_found_and_repaired() -> None:
    async with world() as here:
        await installed(here)
        where = await parts(here)
        for kind in (ServiceAccount, Role, RoleBinding):
            await here.admin.patch(kind, where[kind], {"metadata": {"labels": None}})
        await here.settle(10)
        for kind in (ServiceAccount, Role, RoleBinding):
            labels = (await here.get(kind, where[kind])).metadata.labels
            assert labels[Label.COMPONENT] == "runner-scale-set-listener"


@simulated
async def test_a_pod_that_lost_the_labels_it_is_cached_by_is_replaced() -> None:
    async with world() as here:
        await installed(here)
        key = (await parts(here))[Pod]
        uid = (await here.get(Pod, key)).uid
        await here.admin.patch(Pod, key, {"metadata": {"labels": None}})
        await here.settle(10)
        assert (await here.get(Pod, key)).uid != uid
        assert (await ready(here))[0] == "True"


@simulated
async def test_a_binding_to_another_role_is_replaced_since_it_cannot_be_changed() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        where = await parts(here)
        binding = await here.get(RoleBinding, where[RoleBinding])
        await here.admin.delete(RoleBinding, binding.key)
        binding.metadata.resource_version = binding.metadata.uid = ""
        binding.role_ref.name = "admin"
        await here.admin.create(binding)
        here.start_manager()
        await here.settle()
        repaired = await here.get(RoleBinding, where[RoleBinding])
        assert repaired.role_ref.name == where[Role].name


# --- changed inputs


@simulated
async def test_rotated_credentials_reach_the_listener_within_two_minutes() -> None:
    async with world() as here:
        await installed(here)
        before = await here.pod()
        rotated = {"stringData": {"github_token": "token-2"}}
        await here.admin.patch(Secret, NamespacedName(RUNNERS, "github"), rotated)
        await here.settle(120)
        assert (await here.config_file())["github_token"] == "token-2"
        assert (await here.pod()).uid != before.uid, "a process reads its configuration once"
        (patch,) = here.patches("secrets")
        assert patch["metadata"]["resourceVersion"]


@simulated
async def test_a_changed_config_map_and_proxy_password_reach_the_listener_too() -> None:
    async with world() as here:
        here.secret("proxy-password", username="u", password="old")
        here.install(_config_map(PEM))
        tls = {"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.pem"}}}
        await installed(here, proxy=PROXY, githubServerTLS=tls)
        before = await here.pod()
        await here.admin.patch(
            ConfigMap, NamespacedName(RUNNERS, "ca"), {"data": {"ca.pem": PEM * 2}}
        )
        await here.admin.patch(
            Secret, NamespacedName(RUNNERS, "proxy-password"), {"stringData": {"password": "new"}}
        )
        await here.settle(120)
        assert (await here.config_file())["server_root_ca"] == PEM * 2
        name = (await here.listener()).metadata.name
        secret = await here.get(Secret, NamespacedName(CONTROLLER, f"{name}-proxy"))
        assert secret.data["https_proxy"] == b"http://u:new@proxy:3129"
        assert (await here.pod()).uid != before.uid


@simulated
async def test_what_the_server_or_a_webhook_put_into_the_pod_does_not_count() -> None:
    async with world() as here:
        await installed(here)
        before = await here.pod()
        await here.admin.patch(Pod, before.key, {"metadata": {"labels": {"injected": "1"}}})
        await here.settle(300)
        assert (await here.pod()).uid == before.uid


@simulated
@pytest.mark.parametrize("container", ["listener", "sidecar"])
async def test_a_pod_whose_image_somebody_edits_is_replaced(container: str) -> None:
    async with world() as here:
        sidecar = {"name": "sidecar", "image": "sidecar:1"}
        await installed(here, listenerTemplate={"spec": {"containers": [sidecar]}})
        before = await here.pod()
        images = {each["name"]: each["image"] for each in before.spec["containers"]}
        containers = [
            {**each, "image": "evil:1"} if each["name"] == container else each
            for each in before.spec["containers"]
        ]
        await here.admin.patch(Pod, before.key, {"spec": {"containers": containers}})
        await here.settle(30)
        after = await here.pod()
        assert after.uid != before.uid
        assert {each["name"]: each["image"] for each in after.spec["containers"]} == images


@simulated
async def test_credentials_that_vanish_are_told_while_the_listener_keeps_running() -> None:
    async with world() as here:
        await installed(here)
        before = await here.pod()
        await here.admin.delete(Secret, NamespacedName(RUNNERS, "github"))
        await here.settle(180)
        assert (await ready(here))[:2] == ("False", "CredentialsNotFound")
        assert (await here.pod()).uid == before.uid
        here.secret("github", github_token="token-1")
        await here.settle(120)
        assert (await ready(here))[0] == "True"
        assert (await here.pod()).uid == before.uid


@simulated
async def test_a_rotated_token_with_a_line_break_is_told_while_the_listener_keeps_running() -> None:
    async with world() as here:
        await installed(here)
        before = await here.pod()
        rotated = {"stringData": {"github_token": "token\n2"}}
        await here.admin.patch(Secret, NamespacedName(RUNNERS, "github"), rotated)
        await here.settle(180)
        status, reason, message = await ready(here)
        assert (status, reason) == ("False", "InvalidCredentials")
        assert "the secret ci/github (githubConfigSecret) has a github_token" in message
        assert "a line break as character 6 of 7" in message
        assert (await here.condition("Ready")).status == "False"
        assert (await here.pod()).uid == before.uid
        repaired = {"stringData": {"github_token": "token-1"}}
        await here.admin.patch(Secret, NamespacedName(RUNNERS, "github"), repaired)
        await here.settle(120)
        assert (await ready(here))[0] == "True"


@simulated
async def test_half_of_a_github_app_is_one_clear_error_and_shows_no_secret() -> None:
    async with world() as here:
        here.secret("app", github_app_id="7", github_app_private_key="very-secret")
        here.install(scale_set(githubConfigSecret="app"))
        await here.settle()
        condition = await here.condition("Ready")
        assert condition.reason == "InvalidCredentials"
        assert "github_app_installation_id" in condition.message
        assert "very-secret" not in condition.message


# --- its life


def test_a_pod_that_ends_is_replaced_whatever_ended_it() -> None:
    @simulated
    async def scenario(kind: DisruptionKind) -> None:
        async with world() as here:
            behaviour = PodBehaviour(disruption=Disruption(kind, after=30.0))
            here.kubelet.next_pods(behaviour, kind="listener")
            await installed(here)
            before = await here.pod()
            await here.settle(60)
            assert (await here.pod()).uid != before.uid, kind
            assert (await ready(here))[0] == "True", kind

    for kind in DisruptionKind:
        if kind is not DisruptionKind.NODE_LOST:
            scenario(kind)


@simulated
async def test_an_exit_with_code_zero_is_an_end_too() -> None:
    async with world() as here:
        crash = Disruption(DisruptionKind.CRASHED, after=30.0, exit_code=0)
        here.kubelet.next_pods(PodBehaviour(disruption=crash), kind="listener")
        await installed(here)
        before = await here.pod()
        await here.settle(60)
        assert (await here.pod()).uid != before.uid


@simulated
async def test_a_pod_on_a_lost_node_is_given_up_after_its_grace_period() -> None:
    async with world() as here:
        await installed(here)
        pod = await here.pod()
        # A pod that does not go, although its grace period (for this kubelet: 0 s) is over.
        await here.admin.patch(Pod, pod.key, {"metadata": {"finalizers": ["example.com/node"]}})
        await here.admin.delete(Pod, pod.key)
        await here.settle(55)
        assert not [r for r in here.requests() if (r.verb, r.resource) == ("delete", "pods")]
        await here.settle(30)
        forced = [r for r in here.requests() if (r.verb, r.resource) == ("delete", "pods")]
        assert len(forced) == 1
        await here.admin.patch(Pod, pod.key, {"metadata": {"finalizers": None}})
        await here.settle(5)
        assert (await here.pod()).uid != pod.uid


@simulated
async def test_a_listener_that_keeps_dying_is_restarted_less_and_less_often() -> None:
    async with world() as here:
        crash = PodBehaviour(disruption=Disruption(DisruptionKind.CRASHED, after=1.0, exit_code=1))
        here.kubelet.next_pods(crash, 100, kind="listener")
        here.install(scale_set())
        await here.settle(20)
        assert (await ready(here))[:2] == ("False", "BackOff")
        assert ("AutoscalingListener", "BackOff") in await here.events()
        condition = await here.condition("Ready")
        assert (condition.status, condition.reason) == ("False", "ListenerNotReady")
        assert "exit code 1" in condition.message

        await here.settle(580)
        pods = [r for r in here.requests() if (r.verb, r.resource) == ("create", "pods")]
        assert 6 <= len(pods) <= 8, "at once, then after 10, 20, 40, 80, 160 and 300 s"


@simulated
async def test_a_listener_that_lived_well_is_restarted_at_once() -> None:
    async with world() as here:
        crash = PodBehaviour(
            disruption=Disruption(DisruptionKind.CRASHED, after=900.0, exit_code=1)
        )
        here.kubelet.next_pods(crash, 5, kind="listener")
        await installed(here)
        for _ in range(3):
            before = await here.pod()
            await here.settle(905)
            assert (await here.pod()).uid != before.uid


@simulated
async def test_a_pod_that_cannot_start_says_why() -> None:
    async with world() as here:
        stuck = PodBehaviour(image_pull_back_off=True)
        here.kubelet.next_pods(stuck, 1, kind="listener")
        here.install(scale_set())
        await here.settle(30)
        status, reason, message = await ready(here)
        assert (status, reason) == ("False", "ImagePullBackOff")
        assert message
        assert (await here.condition("Ready")).reason == "ListenerNotReady"


@simulated
async def test_a_scale_set_the_service_forgot_is_not_listened_to() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        here.service.forget_scale_set(scale_set_id(await here.scale_set()))
        here.kubelet.kill(*(await here.pod()).key)
        await here.settle(1)
        here.api.request_log.clear()
        here.start_manager()
        await here.settle(30)
        pods = [r for r in here.requests() if (r.verb, r.resource) == ("create", "pods")]
        assert len(pods) == 1, "only the one for the new registration"


@simulated
async def test_a_service_that_is_down_does_not_stop_the_restart_of_a_listener() -> None:
    async with world() as here:
        await installed(here)
        here.service.go_down()
        before = await here.pod()
        here.kubelet.kill(*before.key)
        await here.settle(300)
        assert (await here.pod()).uid != before.uid


@simulated
async def test_a_listener_that_was_wrongly_told_its_scale_set_is_gone_recovers() -> None:
    async with world() as here:
        await installed(here)
        id_ = scale_set_id(await here.scale_set())
        here.service.faults.fail(
            "get_scale_set",
            status=404,
            type_name="RunnerScaleSetNotFoundException",
            message="not found",
            times=1,
        )
        here.kubelet.kill(*(await here.pod()).key)
        await here.settle(120)
        assert scale_set_id(await here.scale_set()) == id_
        assert here.service.calls[Call.CREATE_SCALE_SET] == 1
        assert (await ready(here))[0] == "True"
        found = find_condition((await here.listener()).status.conditions, "ScaleSetFound")
        assert found is not None
        assert found.status == "True"


# --- its end


@simulated
async def test_a_listener_is_taken_apart_in_order() -> None:
    async with world() as here:
        here.secret("proxy-password", username="u", password="p")
        await installed(here, proxy=PROXY)
        listener = await here.listener()
        where = await parts(here)
        await here.stop_manager()
        nobody = {"metadata": {"finalizers": None}}
        await here.admin.patch(AutoscalingRunnerSet, KEY, nobody)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        here.api.request_log.clear()
        here.start_manager()
        await here.settle(10)

        assert await here.admin.find(AutoscalingListener, listener.key) is None
        for kind, key in where.items():
            assert await here.admin.find(kind, key) is None
        name = listener.metadata.name
        assert [
            (r.verb, r.resource, r.name)
            for r in here.requests()
            if r.verb == "delete" or Finalizer.AUTOSCALING_LISTENER in str(r.patch)
        ] == [
            ("delete", "autoscalinglisteners", name),
            ("delete", "pods", name),
            ("delete", "secrets", f"{name}-config"),
            ("delete", "secrets", f"{name}-proxy"),
            ("delete", "rolebindings", name),
            ("delete", "roles", name),
            ("delete", "serviceaccounts", name),
        ]


@simulated
async def test_nothing_is_taken_away_before_the_pod_has_ended() -> None:
    async with world() as here:
        slow = PodBehaviour(terminates_in=40.0)
        here.kubelet.next_pods(slow, kind="listener")
        await installed(here)
        where = await parts(here)
        await here.admin.delete(AutoscalingListener, (await here.listener()).key)
        await here.settle(30)
        for kind, key in where.items():
            assert await here.admin.find(kind, key) is not None
        await here.settle(30)
        assert (await here.listener()).is_being_deleted is False, "and there is a new one"


@simulated
async def test_a_listener_whose_runners_namespace_forbids_everything_still_goes() -> None:
    """With the namespace our role in it is gone: what does not exist is not asked to be deleted."""
    async with world() as here:
        await installed(here)
        where = await parts(here)
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.admin.delete(RoleBinding, where[RoleBinding])
        await here.settle(10)
        assert await here.listeners() == []


@simulated
async def test_listeners_of_namespaces_that_another_manager_watches_are_left_alone() -> None:
    async with world() as here:
        await installed(here)
        await here.stop_manager()
        here.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        here.start_manager(watch_namespaces=("other",))
        here.api.request_log.clear()
        await here.settle(120)
        assert here.writes() == []
        assert len(await here.listeners()) == 1


@simulated
async def test_whether_a_listener_runs_is_a_metric_as_long_as_it_exists() -> None:
    async with world() as here:
        await installed(here)
        key = (await here.listener()).key
        assert _running(here, key) == 1
        here.kubelet.next_pods(PodBehaviour(image_pull_back_off=True), kind="listener")
        here.kubelet.kill(*key)
        await here.settle()
        assert _running(here, key) == 0
        await here.admin.delete(AutoscalingRunnerSet, KEY)
        await here.settle(10)
        assert _running(here, key) is None


@simulated
async def test_the_integrity_hash_of_a_pod_tells_nothing_of_the_secret() -> None:
    async with world() as here:
        here.secret("same", github_token="token-1")
        here.install(scale_set(), scale_set("windows", githubConfigSecret="same"))
        await here.settle()
        hashes = [
            pod.metadata.annotations[Annotation.INTEGRITY_HASH]
            for pod in await here.admin.list(Pod, namespace=CONTROLLER)
        ]
        assert len(set(hashes)) == 2
        assert not any("token" in value for value in hashes)


def _running(here: World, key: NamespacedName) -> float | None:
    assert here.manager is not None
    labels = {
        "name": key.name,
        "namespace": key.namespace,
        "repository": "",
        "organization": "acme",
        "enterprise": "",
    }
    registry = here.manager.metrics.registry
    return registry.get_sample_value("gha_controller_running_listeners", labels)


def _config_map(pem: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": RUNNERS},
        "data": {"ca.pem": pem},
    }
