"""The embedded API server: create, read, update, delete of single objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer, Request, RequestInfo, Response, StatusError
from arc_controller.testing.apiserver.local import LocalClient

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


def widget_crd(**version: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                    **version,
                }
            ],
        },
    }


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(clock: Clock) -> ApiServer:
    return ApiServer(crds=[widget_crd()], now=clock, random=Random(7))


@pytest.fixture
def client(api: ApiServer) -> LocalClient:
    return LocalClient(api)


async def test_a_created_object_gets_what_only_the_server_knows(client: LocalClient) -> None:
    response = await client.post(WIDGETS, widget(size=3))
    assert response.status == 201
    meta = response.json()["metadata"]
    assert meta["namespace"] == "default"
    assert meta["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert meta["generation"] == 1
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert (await client.get(f"{WIDGETS}/a")).json() == response.json()


async def test_generate_name_appends_five_characters(client: LocalClient) -> None:
    body = widget()
    body["metadata"] = {"generateName": "w-"}
    names = {(await client.post(WIDGETS, body)).json()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("w-") and len(name) == 7 for name in names)


async def test_a_second_object_of_the_same_name_already_exists(client: LocalClient) -> None:
    await client.post(WIDGETS, widget())
    response = await client.post(WIDGETS, widget())
    assert response.status == 409
    assert response.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'widgets.example.com "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "group": "example.com", "kind": "widgets"},
        "code": 409,
    }


async def test_a_missing_object_is_not_found(client: LocalClient) -> None:
    response = await client.get(f"{PODS}/nobody")
    assert response.status == 404
    assert response.json()["message"] == 'pods "nobody" not found'
    assert response.json()["details"] == {"name": "nobody", "kind": "pods"}


async def test_nothing_is_created_in_a_missing_namespace(client: LocalClient) -> None:
    response = await client.post("/api/v1/namespaces/nowhere/pods", pod())
    assert response.status == 404
    assert response.json()["message"] == 'namespaces "nowhere" not found'


async def test_a_bad_name_is_invalid(client: LocalClient) -> None:
    response = await client.post(WIDGETS, widget("Not_A_Name"))
    assert response.status == 422
    status = response.json()
    assert status["reason"] == "Invalid"
    assert status["message"].startswith(
        'Widget.example.com "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": '
        "a lowercase RFC 1123 subdomain must consist of"
    )
    assert status["details"]["causes"][0]["field"] == "metadata.name"
    assert status["details"]["causes"][0]["reason"] == "FieldValueInvalid"


async def test_an_update_with_an_old_resource_version_conflicts(client: LocalClient) -> None:
    old = (await client.post(WIDGETS, widget(size=1))).json()
    await client.patch(f"{WIDGETS}/a", {"spec": {"size": 2}})
    response = await client.put(f"{WIDGETS}/a", old)
    assert response.status == 409
    assert response.json()["reason"] == "Conflict"
    assert response.json()["message"] == (
        'Operation cannot be fulfilled on widgets.example.com "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_a_patch_that_carries_an_old_resource_version_conflicts(
    client: LocalClient,
) -> None:
    old = (await client.post(WIDGETS, widget(size=1))).json()["metadata"]["resourceVersion"]
    locked = {"metadata": {"resourceVersion": old}, "spec": {"size": 2}}
    assert (await client.patch(f"{WIDGETS}/a", locked)).status == 200
    assert (await client.patch(f"{WIDGETS}/a", locked)).status == 409


async def test_a_custom_resource_cannot_be_replaced_without_a_version(client: LocalClient) -> None:
    await client.post(WIDGETS, widget())
    response = await client.put(f"{WIDGETS}/a", widget(size=9))
    assert response.status == 422
    assert "must be specified for an update" in response.json()["message"]
    await client.post(CONFIGMAPS, config_map(x="1"))
    assert (await client.put(f"{CONFIGMAPS}/a", config_map(x="2"))).status == 200


async def test_the_name_in_the_body_must_be_the_one_in_the_url(client: LocalClient) -> None:
    await client.post(CONFIGMAPS, config_map())
    response = await client.put(f"{CONFIGMAPS}/a", config_map("b"))
    assert response.status == 400
    assert response.json()["message"] == (
        "the name of the object (b) does not match the name on the URL (a)"
    )


async def test_status_and_spec_do_not_touch_each_other(client: LocalClient) -> None:
    body = {**widget(size=1), "status": {"phase": "Set by the client"}}
    created = (await client.post(WIDGETS, body)).json()
    assert "status" not in created
    both = {"spec": {"size": 2}, "status": {"phase": "Ready"}, "metadata": {"labels": {"x": "y"}}}
    main = (await client.patch(f"{WIDGETS}/a", both)).json()
    assert main["spec"] == {"size": 2}
    assert "status" not in main
    assert main["metadata"]["generation"] == 2
    both["spec"] = {"size": 3}
    status = (await client.patch(f"{WIDGETS}/a/status", {**both, "metadata": {}})).json()
    assert status["spec"] == {"size": 2}
    assert status["status"] == {"phase": "Ready"}
    assert status["metadata"]["generation"] == 2


async def test_a_write_that_changes_nothing_is_not_written(
    api: ApiServer, client: LocalClient
) -> None:
    created = (await client.post(WIDGETS, widget(size=1))).json()
    before = api.store.revision
    again = (await client.patch(f"{WIDGETS}/a", {"spec": {"size": 1}})).json()
    assert again == created
    assert api.store.revision == before


async def test_a_dry_run_answers_and_keeps_nothing(api: ApiServer, client: LocalClient) -> None:
    before = api.store.revision
    assert (await client.post(WIDGETS, widget(), dryRun="All")).status == 201
    assert (await client.get(f"{WIDGETS}/a")).status == 404
    await client.post(WIDGETS, widget(size=1))
    changed = await client.patch(f"{WIDGETS}/a", {"spec": {"size": 2}}, dryRun="All")
    assert changed.json()["spec"]["size"] == 2
    assert (await client.delete(f"{WIDGETS}/a", dryRun="All")).status == 200
    assert (await client.get(f"{WIDGETS}/a")).json()["spec"]["size"] == 1
    assert api.store.revision == before + 1


async def test_metadata_that_is_the_servers_cannot_be_changed(client: LocalClient) -> None:
    created = (await client.post(WIDGETS, widget())).json()
    patch = {
        "metadata": {
            "creationTimestamp": "2000-01-01T00:00:00Z",
            "generation": 77,
            "deletionTimestamp": None,
        },
        "spec": {"size": 5},
    }
    changed = (await client.patch(f"{WIDGETS}/a", patch)).json()["metadata"]
    assert changed["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert changed["generation"] == 2
    wrong = await client.patch(f"{WIDGETS}/a", {"metadata": {"uid": "other"}})
    assert wrong.status == 422
    assert 'metadata.uid: Invalid value: "other": field is immutable' in wrong.json()["message"]
    other = {**created, "metadata": {**changed, "uid": "other"}}
    assert (await client.put(f"{WIDGETS}/a", other)).status == 409


async def test_deleting_answers_with_a_status_that_names_the_object(client: LocalClient) -> None:
    uid = (await client.post(WIDGETS, widget())).json()["metadata"]["uid"]
    response = await client.delete(f"{WIDGETS}/a")
    assert response.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "group": "example.com", "kind": "widgets", "uid": uid},
    }
    assert (await client.get(f"{WIDGETS}/a")).status == 404


async def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_away(
    client: LocalClient, clock: Clock
) -> None:
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/keep"]
    await client.post(WIDGETS, body)
    clock.time += timedelta(seconds=10)
    deleted = (await client.delete(f"{WIDGETS}/a")).json()
    assert deleted["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:15Z"
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleted["metadata"]["generation"] == 2
    more = await client.patch(
        f"{WIDGETS}/a", {"metadata": {"finalizers": ["example.com/keep", "example.com/more"]}}
    )
    assert more.status == 422
    assert "no new finalizers can be added" in more.json()["message"]
    assert (await client.patch(f"{WIDGETS}/a", {"metadata": {"finalizers": None}})).status == 200
    assert (await client.get(f"{WIDGETS}/a")).status == 404


async def test_preconditions_of_a_delete_are_checked(client: LocalClient) -> None:
    created = (await client.post(WIDGETS, widget())).json()["metadata"]
    wrong = await client.delete(f"{WIDGETS}/a", {"preconditions": {"uid": "someone-else"}})
    assert wrong.status == 409
    assert "the UID in the precondition (someone-else) does not match" in wrong.json()["message"]
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    assert (await client.delete(f"{WIDGETS}/a", {"preconditions": right})).status == 200


async def test_a_pod_without_a_node_goes_at_once(client: LocalClient) -> None:
    await client.post(PODS, pod())
    assert (await client.delete(f"{PODS}/a")).json()["kind"] == "Pod"
    assert (await client.get(f"{PODS}/a")).status == 404


async def test_a_pod_on_a_node_waits_for_its_kubelet(client: LocalClient, clock: Clock) -> None:
    await client.post(PODS, pod(nodeName="n1", terminationGracePeriodSeconds=60))
    deleted = (await client.delete(f"{PODS}/a")).json()["metadata"]
    assert deleted["deletionGracePeriodSeconds"] == 60
    assert deleted["deletionTimestamp"] == "2026-01-02T03:05:05Z"
    shorter = (await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 10})).json()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 10
    assert shorter["deletionTimestamp"] == "2026-01-02T03:04:15Z"
    longer = (await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 90})).json()["metadata"]
    assert longer == shorter
    assert (await client.delete(f"{PODS}/a", {"gracePeriodSeconds": 0})).status == 200
    assert (await client.get(f"{PODS}/a")).status == 404


async def test_a_pod_gets_the_defaults_people_see(client: LocalClient) -> None:
    created = (await client.post(PODS, pod())).json()
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = created["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["containers"][0]["terminationMessagePath"] == "/dev/termination-log"


async def test_a_pod_without_containers_is_invalid(client: LocalClient) -> None:
    body = pod()
    body["spec"] = {"containers": []}
    response = await client.post(PODS, body)
    assert response.status == 422
    assert response.json()["message"] == 'Pod "a" is invalid: spec.containers: Required value'
    assert response.json()["details"]["causes"] == [
        {
            "reason": "FieldValueRequired",
            "message": "Required value",
            "field": "spec.containers",
        }
    ]


async def test_a_pods_spec_is_fixed_but_for_its_image(client: LocalClient) -> None:
    await client.post(PODS, pod())
    container = {"name": "main", "image": "busybox:2", "imagePullPolicy": "Always"}
    change = {"spec": {"containers": [container]}}
    assert (await client.patch(f"{PODS}/a", change)).status == 200
    response = await client.patch(f"{PODS}/a", {"spec": {"nodeName": "n9"}})
    assert response.status == 422
    assert "pod updates may not change fields other than" in response.json()["message"]


async def test_a_pod_is_bound_once(client: LocalClient) -> None:
    await client.post(PODS, pod())
    binding = {"target": {"kind": "Node", "name": "n1"}}
    assert (await client.post(f"{PODS}/a/binding", binding)).status == 201
    assert (await client.get(f"{PODS}/a")).json()["spec"]["nodeName"] == "n1"
    again = await client.post(f"{PODS}/a/binding", binding)
    assert again.status == 409
    assert 'already assigned to node "n1"' in again.json()["message"]


async def test_an_eviction_deletes_the_pod(client: LocalClient) -> None:
    await client.post(PODS, pod())
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    assert (await client.post(f"{PODS}/a/eviction", eviction)).status == 201
    assert (await client.get(f"{PODS}/a")).status == 404


async def test_a_pods_log_comes_from_whoever_plays_the_kubelet(
    api: ApiServer, client: LocalClient
) -> None:
    await client.post(PODS, pod(nodeName="n1"))
    api.pod_logs = lambda namespace, name, container, query: (
        f"{namespace}/{name}/{container}".encode()
    )
    response = await client.get(f"{PODS}/a/log")
    assert response.body == b"default/a/main"


async def test_string_data_of_a_secret_becomes_data(client: LocalClient) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "stringData": {"token": "s3cret"},
    }
    created = (await client.post("/api/v1/namespaces/default/secrets", body)).json()
    assert created["data"] == {"token": "czNjcmV0"}
    assert created["type"] == "Opaque"
    assert "stringData" not in created


async def test_events_are_one_thing_in_two_groups(client: LocalClient) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e1"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "Started",
        "note": "hello",
        "type": "Normal",
        "action": "Start",
        "reportingController": "example.com/test",
        "reportingInstance": "test-1",
        "eventTime": "2026-01-02T03:04:05.000000Z",
    }
    response = await client.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert response.status == 201
    assert response.json()["note"] == "hello"
    old = (await client.get("/api/v1/namespaces/default/events/e1")).json()
    assert old["apiVersion"] == "v1"
    assert old["message"] == "hello"
    assert old["involvedObject"]["name"] == "a"
    listed = await client.get(
        "/api/v1/namespaces/default/events", fieldSelector="involvedObject.name=a"
    )
    assert len(listed.json()["items"]) == 1


async def test_the_subject_of_a_role_binding_is_fixed(client: LocalClient) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "a"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "default"}],
    }
    created = await client.post(path, body)
    assert created.json()["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    changed = await client.patch(f"{path}/a", {"roleRef": {"name": "other"}})
    assert changed.status == 422
    assert "cannot change roleRef" in changed.json()["message"]


async def test_yaml_bodies_are_read_and_unknown_ones_refused(client: LocalClient) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {when: 2026-01-01}\n"
    response = await client.send("POST", CONFIGMAPS, text, content_type="application/yaml")
    assert response.json()["data"] == {"when": "2026-01-01"}
    refused = await client.send("POST", CONFIGMAPS, b"x", content_type="text/html")
    assert refused.status == 415
    assert refused.json()["reason"] == "UnsupportedMediaType"
    with_charset = await client.send(
        "POST",
        CONFIGMAPS,
        config_map("z"),
        content_type="application/json; charset=utf-8",
    )
    assert with_charset.status == 201


async def test_json_that_does_not_parse_is_a_bad_request(client: LocalClient) -> None:
    response = await client.send("POST", CONFIGMAPS, b"{nope")
    assert response.status == 400
    assert response.json()["reason"] == "BadRequest"


async def test_what_does_not_exist_is_404_and_what_is_not_allowed_405(client: LocalClient) -> None:
    assert (await client.get("/apis/nope.example.com/v1/things")).status == 404
    missing = await client.get("/api/v1/namespaces/default/things")
    assert missing.json()["message"] == "the server could not find the requested resource"
    wrong = await client.post(f"{CONFIGMAPS}/a", config_map())
    assert wrong.status == 405
    assert wrong.json()["reason"] == "MethodNotAllowed"


async def test_deletecollection_takes_what_is_selected(client: LocalClient) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        body = config_map(name)
        body["metadata"]["labels"] = {"l": label}
        await client.post(CONFIGMAPS, body)
    response = await client.delete(CONFIGMAPS, labelSelector="l=x")
    assert response.status == 200
    left = (await client.get(CONFIGMAPS)).json()["items"]
    assert [each["metadata"]["name"] for each in left] == ["c"]


async def test_a_definition_installed_by_request_serves_its_resource(
    client: LocalClient, api: ApiServer
) -> None:
    crd = widget_crd()
    crd["metadata"]["name"] = "gadgets.example.com"
    crd["spec"]["names"] = {"plural": "gadgets", "kind": "Gadget"}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    created = (await client.post(path, crd)).json()
    assert {each["type"]: each["status"] for each in created["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    gadgets = "/apis/example.com/v1/namespaces/default/gadgets"
    body = {**widget(), "kind": "Gadget"}
    assert (await client.post(gadgets, body)).status == 201
    assert (await client.delete(f"{path}/gadgets.example.com")).status == 200
    await api.settled()
    assert (await client.get(gadgets)).status == 404
    assert api.store.get("example.com", "gadgets", "default", "a") is None


async def test_a_deleted_namespace_takes_its_objects_along(
    client: LocalClient, api: ApiServer
) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await client.post("/api/v1/namespaces", body)
    await client.post("/api/v1/namespaces/team/configmaps", config_map())
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.post("/api/v1/namespaces/team/configmaps", held)
    deleted = (await client.delete("/api/v1/namespaces/team")).json()
    assert deleted["status"]["phase"] == "Terminating"
    refused = await client.post("/api/v1/namespaces/team/configmaps", config_map("late"))
    assert refused.status == 403
    assert "because it is being terminated" in refused.json()["message"]
    await api.settled()
    assert (await client.get("/api/v1/namespaces/team")).status == 200
    await client.patch("/api/v1/namespaces/team/configmaps/held", {"metadata": {"finalizers": []}})
    await api.settled()
    assert (await client.get("/api/v1/namespaces/team")).status == 404


async def test_the_request_log_counts_who_asked_for_what(
    client: LocalClient, api: ApiServer
) -> None:
    await client.post(WIDGETS, widget())
    await client.patch(f"{WIDGETS}/a/status", {"status": {"phase": "Ready"}})
    await LocalClient(api, user_agent="other/2").get(WIDGETS)
    log = api.request_log
    assert log.requests_by(user_agent="local", resource="widgets") == 2
    assert log.requests_by(verb="patch", resource="widgets", subresource="status") == 1
    assert log.requests_by(user_agent="other", verb="list") == 1
    (record,) = log.find(verb="patch")
    assert record.patch == {"status": {"phase": "Ready"}}
    assert record.patch_type == "application/merge-patch+json"
    assert record.status == 200
    assert record.user == "kubernetes-admin"
    assert log.table("verb") == {("create",): 1, ("patch",): 1, ("list",): 1}


async def test_a_fault_before_hides_the_write_and_one_after_only_the_answer(
    client: LocalClient, api: ApiServer
) -> None:
    phase_to_fail = "before"

    async def faults(request: Request, info: RequestInfo) -> Response | None:
        if info.verb == "create" and info.phase == phase_to_fail:
            return StatusError(500, "InternalError", "injected").response()
        return None

    api.faults = faults
    assert (await client.post(WIDGETS, widget("lost"))).status == 500
    assert (await client.get(f"{WIDGETS}/lost")).status == 404
    phase_to_fail = "after"
    assert (await client.post(WIDGETS, widget("kept"))).status == 500
    assert (await client.get(f"{WIDGETS}/kept")).status == 200
    assert [record.status for record in api.request_log.find(verb="create")] == [500, 500]
