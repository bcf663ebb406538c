"""The embedded API server: the four patch types, managed fields and apply conflicts."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.testing.apiserver import ApiServer, Response
from arc_controller.testing.apiserver.fieldset import difference, intersection, paths, union
from arc_controller.testing.apiserver.local import LocalClient
from arc_controller.testing.apiserver.patch import APPLY, JSON_PATCH, STRATEGIC, merge_patch

PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(random=Random(7), now=lambda: MOMENT)


@pytest.fixture
def client(api: ApiServer) -> LocalClient:
    return LocalClient(api)


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    given = containers or ({"name": "main", "image": "busybox:1"},)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": list(given), **spec},
    }


def config_map(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def apply(
    client: LocalClient, body: dict[str, Any], manager: str = "m", **query: Any
) -> Response:
    path = f"{CONFIGMAPS}/{body['metadata']['name']}"
    return await client.patch(path, body, APPLY, fieldManager=manager, **query)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(json_values, json_values)
def test_a_merge_patch_twice_is_a_merge_patch_once(target: Any, patch: Any) -> None:
    once = merge_patch(_copy(target), _copy(patch))
    assert merge_patch(_copy(once), _copy(patch)) == once


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


keys = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}'])
parts: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(keys, inner, min_size=1).flatmap(
        lambda part: st.sampled_from([part, {".": {}, **part}])
    ),
    max_leaves=6,
)
trees = st.dictionaries(keys, parts, min_size=1)


def members(tree: dict[str, Any]) -> set[str]:
    return set(paths(tree))


@given(trees, trees)
def test_field_sets_behave_as_sets(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert members(union(one, other)) == members(one) | members(other)
    assert members(difference(one, other)) == members(one) - members(other)
    assert members(intersection(one, other)) == members(one) & members(other)
    assert difference(one, one) == {}


async def test_a_json_patch_tests_and_changes(client: LocalClient) -> None:
    await client.post(CONFIGMAPS, config_map(x="1"))
    good = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "add", "path": "/data/y", "value": "3"},
    ]
    changed = await client.patch(f"{CONFIGMAPS}/a", good, JSON_PATCH)
    assert changed.json()["data"] == {"x": "2", "y": "3"}
    stale = await client.patch(f"{CONFIGMAPS}/a", good, JSON_PATCH)
    assert stale.status == 422
    missing = [{"op": "remove", "path": "/data/nope"}]
    assert (await client.patch(f"{CONFIGMAPS}/a", missing, JSON_PATCH)).status == 422
    assert (await client.patch(f"{CONFIGMAPS}/a", {"op": "x"}, JSON_PATCH)).status == 400


async def test_a_strategic_patch_merges_lists_by_their_key(client: LocalClient) -> None:
    body = pod(
        {"name": "main", "image": "busybox:1", "env": [{"name": "A", "value": "1"}]},
        {"name": "side", "image": "side:1"},
    )
    await client.post(PODS, body)
    patch = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    changed = (await client.patch(f"{PODS}/a", patch, STRATEGIC)).json()
    images = {each["name"]: each["image"] for each in changed["spec"]["containers"]}
    assert images == {"main": "busybox:2", "side": "side:1"}
    assert changed["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_strategic_directives(client: LocalClient) -> None:
    deployment = {
        "metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/b"]},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {"name": "one", "image": "i"},
                        {"name": "two", "image": "i"},
                        {"name": "three", "image": "i"},
                    ],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
    }
    assert (await client.post(DEPLOYMENTS, deployment)).status == 201
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"], "finalizers": ["x.io/c"]},
        "spec": {
            "template": {
                "spec": {
                    "$setElementOrder/containers": [{"name": "three"}, {"name": "one"}],
                    "containers": [{"name": "two", "$patch": "delete"}],
                    "volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}}],
                }
            },
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        },
    }
    response = await client.patch(f"{DEPLOYMENTS}/a", patch, STRATEGIC)
    assert response.status == 200, response.body
    changed = response.json()
    spec = changed["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["containers"]] == ["three", "one"]
    assert [each["name"] for each in spec["volumes"]] == ["w"]
    assert changed["spec"]["strategy"] == {"type": "Recreate"}
    assert sorted(changed["metadata"]["finalizers"]) == ["x.io/b", "x.io/c"]


async def test_custom_resources_have_no_strategic_patch() -> None:
    from arc_controller.testing.apiserver.local import LocalClient as Client
    from tests.unit.test_apiserver_crud import WIDGETS, widget, widget_crd

    client = Client(ApiServer(crds=[widget_crd()]))
    await client.post(WIDGETS, widget())
    response = await client.patch(f"{WIDGETS}/a", {}, STRATEGIC)
    assert response.status == 415
    assert "application/merge-patch+json" in response.json()["message"]


async def test_updates_are_remembered_by_manager(client: LocalClient) -> None:
    body = config_map(x="1")
    created = (await client.post(CONFIGMAPS, body, fieldManager="first")).json()
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "first",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:x": {}}},
        }
    ]
    changed = await client.patch(
        f"{CONFIGMAPS}/a", {"data": {"x": "2", "y": "3"}}, fieldManager="second"
    )
    owners = {
        each["manager"]: each["fieldsV1"] for each in changed.json()["metadata"]["managedFields"]
    }
    assert owners == {
        "first": {"f:data": {}},
        "second": {"f:data": {"f:x": {}, "f:y": {}}},
    }


async def test_the_user_agent_is_the_manager_when_none_is_named(client: LocalClient) -> None:
    created = (await client.post(CONFIGMAPS, config_map(x="1"))).json()
    assert created["metadata"]["managedFields"][0]["manager"] == "local"


async def test_status_and_spec_have_separate_owners(client: LocalClient) -> None:
    await client.post(PODS, pod())
    patch = {"status": {"phase": "Running"}}
    changed = (await client.patch(f"{PODS}/a/status", patch, fieldManager="kubelet")).json()
    entry = next(
        each for each in changed["metadata"]["managedFields"] if each["manager"] == "kubelet"
    )
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {"f:status": {"f:phase": {}}}


async def test_apply_creates_then_changes_then_says_nothing_new(
    client: LocalClient, api: ApiServer
) -> None:
    first = await apply(client, config_map(x="1", y="2"))
    assert first.status == 201
    assert first.json()["metadata"]["managedFields"][0]["operation"] == "Apply"
    assert first.json()["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:data": {"f:x": {}, "f:y": {}}
    }
    before = api.store.revision
    again = await apply(client, config_map(x="1", y="2"))
    assert again.status == 200
    assert api.store.revision == before
    changed = await apply(client, config_map(x="9"))
    assert changed.json()["data"] == {"x": "9"}


async def test_apply_refuses_to_take_a_field_from_another(client: LocalClient) -> None:
    await apply(client, config_map(x="1", y="1"), "one")
    response = await apply(client, config_map(x="2"), "two")
    assert response.status == 409
    status = response.json()
    assert status["reason"] == "Conflict"
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one"',
            "field": ".data.x",
        }
    ]
    forced = await apply(client, config_map(x="2"), "two", force="true")
    assert forced.json()["data"] == {"x": "2", "y": "1"}
    several = await apply(client, config_map(x="3", y="3"), "three")
    assert several.json()["message"] == (
        "Apply failed with 2 conflicts: "
        'conflicts with "one":\n- .data.y\nconflicts with "two":\n- .data.x'
    )


async def test_apply_conflicts_with_an_update_name_its_version(client: LocalClient) -> None:
    await client.post(CONFIGMAPS, config_map(x="1"), fieldManager="updater")
    response = await apply(client, config_map(x="2"))
    assert response.json()["message"] == (
        'Apply failed with 1 conflict: conflict with "updater" using v1: .data.x'
    )


async def test_two_who_apply_the_same_value_share_it(client: LocalClient) -> None:
    await apply(client, config_map(x="1"), "one")
    assert (await apply(client, config_map(x="1"), "two")).status == 200
    left = await apply(client, config_map(), "one")
    assert left.json()["data"] == {"x": "1"}
    gone = await apply(client, config_map(), "two")
    assert "x" not in (gone.json().get("data") or {})


async def test_apply_merges_containers_by_name(client: LocalClient) -> None:
    def deployment(image: str, **container: Any) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "one", "image": image, **container}]},
                },
            },
        }

    path = f"{DEPLOYMENTS}/a"
    await client.patch(path, deployment("i:1"), APPLY, fieldManager="one")
    side = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [{"name": "two", "image": "s"}]}}},
    }
    added = await client.patch(path, side, APPLY, fieldManager="two")
    assert added.status == 200, added.body
    both = added.json()["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in both] == ["one", "two"]
    conflict = await client.patch(path, deployment("i:2"), APPLY, fieldManager="three")
    assert conflict.json()["details"]["causes"][0]["field"] == (
        '.spec.template.spec.containers[name="one"].image'
    )


async def test_apply_needs_a_manager_and_known_fields(client: LocalClient) -> None:
    response = await client.patch(f"{CONFIGMAPS}/a", config_map(), APPLY)
    assert response.status == 422
    assert "fieldManager: Required value" in response.json()["message"]
    unknown = {**config_map(), "speck": 1}
    refused = await apply(client, unknown)
    assert refused.status == 500
    assert ".speck: field not declared in schema" in refused.json()["message"]


async def test_fields_given_up_by_apply_go_away_but_not_what_others_hold(
    client: LocalClient,
) -> None:
    await apply(client, config_map(x="1", y="1"), "one")
    await client.patch(f"{CONFIGMAPS}/a", {"data": {"z": "1"}}, fieldManager="other")
    left = await apply(client, config_map(y="1"), "one")
    assert left.json()["data"] == {"y": "1", "z": "1"}


async def test_giving_up_the_finalizers_keeps_the_rest_of_the_metadata(
    client: LocalClient,
) -> None:
    held = config_map(x="1")
    held["metadata"]["finalizers"] = ["x.io/f"]
    await apply(client, held, "one")
    released = await apply(client, config_map(x="1"), "one")
    assert released.status == 200
    assert "finalizers" not in released.json()["metadata"]
    assert released.json()["metadata"]["name"] == "a"


async def test_managed_fields_can_be_reset(client: LocalClient) -> None:
    await apply(client, config_map(x="1"), "one")
    reset: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    changed = await client.patch(f"{CONFIGMAPS}/a", reset, fieldManager="resetter")
    assert "managedFields" not in changed.json()["metadata"]
    untracked = await client.patch(f"{CONFIGMAPS}/a", {"data": {"y": "1"}}, fieldManager="other")
    assert "managedFields" not in untracked.json()["metadata"]
    refused = await apply(client, config_map(x="2"), "two")
    assert 'conflict with "before-first-apply" using v1: .data.x' in refused.json()["message"]
