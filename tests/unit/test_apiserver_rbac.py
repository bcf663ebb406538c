"""The embedded API server: who may do what, tokens, reviews and quotas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from arc_controller.testing.apiserver import ANONYMOUS, ApiServer, UserInfo, service_account_user
from arc_controller.testing.apiserver.local import LocalClient
from arc_controller.testing.apiserver.rbac import Permission
from tests.unit.test_apiserver_crud import Clock, config_map, pod

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JANE = UserInfo("jane", ("system:authenticated",))


def role(name: str, *rules: dict[str, Any], kind: str = "Role") -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }


def rule(verbs: str, resources: str, group: str = "", *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "verbs": verbs.split(),
        "apiGroups": [group],
        "resources": resources.split(),
    }
    if names:
        found["resourceNames"] = list(names)
    return found


def binding(name: str, role: str, *users: str, kind: str = "RoleBinding") -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role" if kind == "RoleBinding" else "ClusterRole",
            "name": role,
        },
        "subjects": [
            {"kind": "User", "name": each, "apiGroup": "rbac.authorization.k8s.io"}
            for each in users
        ],
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(clock: Clock) -> ApiServer:
    return ApiServer(authorization=True, now=clock, random=Random(7))


@pytest.fixture
def admin(api: ApiServer) -> LocalClient:
    return LocalClient(api, UserInfo("root", ("system:masters", "system:authenticated")))


@pytest.fixture
def jane(api: ApiServer) -> LocalClient:
    return LocalClient(api, JANE)


def grant(api: ApiServer, *rules: dict[str, Any]) -> None:
    api.install(role("r", *rules))
    api.install(binding("b", "r", "jane"))


async def test_nobody_may_do_what_no_rule_allows(jane: LocalClient) -> None:
    response = await jane.get(f"{PODS}/a")
    assert response.status == 403
    assert response.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "a" is forbidden: User "jane" cannot get resource "pods" in API group '
        '"" in the namespace "default"',
        "reason": "Forbidden",
        "details": {"name": "a", "kind": "pods"},
        "code": 403,
    }
    everywhere = await jane.get("/api/v1/pods")
    assert everywhere.json()["message"] == (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the '
        "cluster scope"
    )
    path = await jane.get("/metrics")
    assert path.json()["message"] == 'forbidden: User "jane" cannot get path "/metrics"'


async def test_a_rule_allows_its_verbs_resources_and_names(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    grant(api, rule("get patch", "configmaps", "", "mine"), rule("list", "configmaps"))
    await admin.post(CONFIGMAPS, config_map("mine"))
    await admin.post(CONFIGMAPS, config_map("other"))
    assert (await jane.get(f"{CONFIGMAPS}/mine")).status == 200
    assert (await jane.get(f"{CONFIGMAPS}/other")).status == 403
    assert (await jane.get(CONFIGMAPS)).status == 200
    assert (await jane.delete(f"{CONFIGMAPS}/mine")).status == 403
    assert (await jane.get("/api/v1/namespaces/kube-system/configmaps")).status == 403


async def test_a_subresource_is_a_resource_of_its_own(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    grant(api, rule("patch", "pods/status"))
    await admin.post(PODS, pod())
    assert (await jane.patch(f"{PODS}/a/status", {"status": {"reason": "x"}})).status == 200
    refused = await jane.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    assert refused.status == 403


async def test_a_binding_to_a_missing_role_is_named_in_the_refusal(
    api: ApiServer, jane: LocalClient
) -> None:
    api.install(role("gone"))
    api.install(binding("b", "gone", "jane"))
    api.store.remove(
        "roles.rbac.authorization.k8s.io", "default", "gone", {"metadata": {"uid": "x"}}
    )
    response = await jane.get(f"{PODS}/a")
    assert response.json()["message"].endswith(
        ': RBAC: role.rbac.authorization.k8s.io "gone" not found'
    )


async def test_everyone_may_discover_and_anonymous_only_ask_for_health(
    api: ApiServer, jane: LocalClient
) -> None:
    assert (await jane.get("/apis")).status == 200
    nobody = LocalClient(api)
    assert (await nobody.get("/readyz")).status == 200
    refused = await nobody.get("/api")
    assert refused.status == 403
    assert ANONYMOUS.name in refused.json()["message"]


async def test_nobody_grants_more_than_they_hold(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    grant(
        api,
        rule("create update patch", "roles rolebindings", "rbac.authorization.k8s.io"),
        rule("get list", "pods"),
    )
    path = f"{RBAC}/namespaces/default/roles"
    assert (await jane.post(path, role("fine", rule("get", "pods")))).status == 201
    refused = await jane.post(path, role("more", rule("get list delete", "pods secrets")))
    assert refused.status == 403
    assert refused.json()["message"] == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "delete"]}'
    )
    bindings = f"{RBAC}/namespaces/default/rolebindings"
    assert (await jane.post(bindings, binding("x", "fine", "joe"))).status == 201
    api.install(role("strong", rule("*", "*", "*")))
    strong = await jane.post(bindings, binding("y", "strong", "jane"))
    assert strong.status == 403
    assert "is attempting to grant RBAC permissions" in strong.json()["message"]
    missing = await jane.post(bindings, binding("z", "nowhere", "jane"))
    assert missing.status == 404
    assert (await admin.post(bindings, binding("y", "strong", "joe"))).status == 201


async def test_rules_nobody_needed_are_known(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    grant(api, rule("get list", "configmaps"), rule("patch", "pods/status"))
    await jane.get(CONFIGMAPS)
    assert api.rbac is not None
    namespaced = {each for each in api.rbac.unused(JANE) if each.namespace}
    assert namespaced == {
        Permission("get", "", "configmaps", namespace="default"),
        Permission("patch", "", "pods/status", namespace="default"),
    }
    used = Permission("list", "", "configmaps", namespace="default")
    assert api.rbac.used["jane", used] == 1


async def test_access_reviews_say_what_the_authorizer_would(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    grant(api, rule("get", "pods"))
    path = "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "get", "resource": "pods", "namespace": "default"}
    mine = await jane.post(
        f"{path}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}
    )
    assert mine.status == 201
    assert mine.json()["status"] == {"allowed": True}
    spec = {"user": "jane", "resourceAttributes": {**attributes, "verb": "delete"}}
    hers = await admin.post(f"{path}/subjectaccessreviews", {"spec": spec})
    assert hers.json()["status"]["allowed"] is False
    assert (await jane.post(f"{path}/subjectaccessreviews", {"spec": spec})).status == 403
    rules = await jane.post(f"{path}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    assert rule("get", "pods") in rules.json()["status"]["resourceRules"]
    who = await jane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.json()["status"]["userInfo"]["username"] == "jane"


async def test_a_token_stands_for_its_service_account_until_it_expires(
    api: ApiServer, admin: LocalClient, clock: Clock
) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await admin.post(accounts, {"metadata": {"name": "bot"}})
    request = {"spec": {"expirationSeconds": 600, "audiences": ["a"]}}
    issued = (await admin.post(f"{accounts}/bot/token", request)).json()
    assert issued["status"]["expirationTimestamp"] == "2026-01-02T03:14:05Z"
    token = issued["status"]["token"]
    nobody = LocalClient(api)
    headers = {"Authorization": f"Bearer {token}"}
    refused = await nobody.send("GET", PODS, headers=headers)
    assert 'User "system:serviceaccount:default:bot" cannot list' in refused.json()["message"]
    review = {"spec": {"token": token}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = (await admin.post(path, review)).json()["status"]
    assert status["user"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    clock.time += timedelta(seconds=601)
    assert (await nobody.send("GET", PODS, headers=headers)).status == 401
    short = await admin.post(f"{accounts}/bot/token", {"spec": {"expirationSeconds": 5}})
    assert short.status == 422
    assert "may not specify a duration less than 10 minutes" in short.json()["message"]


async def test_a_token_ends_with_its_account(api: ApiServer, admin: LocalClient) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await admin.post(accounts, {"metadata": {"name": "bot"}})
    token = (await admin.post(f"{accounts}/bot/token", {})).json()["status"]["token"]
    await admin.delete(f"{accounts}/bot")
    headers = {"Authorization": f"Bearer {token}"}
    assert (await LocalClient(api).send("GET", PODS, headers=headers)).status == 401


async def test_a_service_account_is_bound_by_its_namespace_and_name(api: ApiServer) -> None:
    api.install(role("r", rule("list", "pods")))
    bound = binding("b", "r")
    bound["subjects"] = [{"kind": "ServiceAccount", "name": "bot", "namespace": "kube-system"}]
    api.install(bound)
    bot = LocalClient(api, service_account_user("kube-system", "bot"))
    assert (await bot.get(PODS)).status == 200
    other = LocalClient(api, service_account_user("default", "bot"))
    assert (await other.get(PODS)).status == 403


async def test_only_those_allowed_may_impersonate(
    api: ApiServer, admin: LocalClient, jane: LocalClient
) -> None:
    as_root = {"Impersonate-User": "root", "Impersonate-Group": "system:masters"}
    assert (await jane.send("GET", PODS, headers=as_root)).status == 403
    as_jane = {"Impersonate-User": "jane"}
    refused = await admin.send("GET", PODS, headers=as_jane)
    assert 'User "jane" cannot list' in refused.json()["message"]


async def test_a_quota_refuses_what_goes_over_it() -> None:
    api = ApiServer(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    client = LocalClient(api)
    quota = {
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": "1", "count/configmaps": "2"}},
    }
    path = "/api/v1/namespaces/default/resourcequotas"
    await client.post(path, quota)
    assert (await client.post(PODS, pod("a"))).status == 201
    refused = await client.post(PODS, pod("b"))
    assert refused.status == 403
    assert refused.json()["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    await api.settled()
    status = (await client.get(f"{path}/q")).json()["status"]
    assert status == {
        "hard": {"pods": "1", "count/configmaps": "2"},
        "used": {"pods": "1", "count/configmaps": "0"},
    }
    await client.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    assert (await client.post(PODS, pod("b"))).status == 201


async def test_a_compute_quota_wants_requests_declared() -> None:
    client = LocalClient(ApiServer())
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}}
    await client.post("/api/v1/namespaces/default/resourcequotas", quota)
    refused = await client.post(PODS, pod("a"))
    assert "failed quota: q: must specify requests.cpu for: main" in refused.json()["message"]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "600m"}}}
    assert (await client.post(PODS, pod("a", containers=[container]))).status == 201
    over = await client.post(PODS, pod("b", containers=[container]))
    assert "requested: requests.cpu=600m, used: requests.cpu=600m" in over.json()["message"]


async def test_service_accounts_are_made_and_mounted_when_asked() -> None:
    api = ApiServer(service_accounts=True, random=Random(3))
    client = LocalClient(api)
    created = (await client.post(PODS, pod())).json()
    assert created["spec"]["serviceAccountName"] == "default"
    (volume,) = created["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    mount = created["spec"]["containers"][0]["volumeMounts"][0]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    refused = await client.post(PODS, pod("b", serviceAccountName="nobody"))
    assert refused.status == 403
    assert 'serviceaccount "nobody" not found' in refused.json()["message"]
    await client.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.settled()
    assert api.store.get("", "serviceaccounts", "team", "default") is not None
