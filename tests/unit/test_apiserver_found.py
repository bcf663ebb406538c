"""What the comparison with a real API server found, kept without one."""

from __future__ import annotations

from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.apiserver.formats import base64_error
from arc_controller.testing.apiserver.local import LocalClient
from arc_controller.testing.apiserver.patch import APPLY, MERGE, STRATEGIC

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PODS = "/api/v1/namespaces/default/pods"
SECRETS = "/api/v1/namespaces/default/secrets"

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}


@pytest.fixture
def client() -> LocalClient:
    return LocalClient(ApiServer())


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def lease(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": spec or None,
    }


async def test_a_full_page_goes_on_even_if_nothing_more_is_selected(client: LocalClient) -> None:
    await client.post(CONFIGMAPS, config_map("a", labels={"l": "1"}))
    await client.post(CONFIGMAPS, config_map("b"))
    first = await client.get(CONFIGMAPS, limit="1", labelSelector="l=1")
    assert [each["metadata"]["name"] for each in first.json()["items"]] == ["a"]
    token = first.json()["metadata"]["continue"]
    rest = await client.get(CONFIGMAPS, limit="1", labelSelector="l=1", continue_=token)
    assert rest.json()["items"] == []
    assert "continue" not in rest.json()["metadata"]


async def test_an_owner_given_twice_counts_once_and_is_warned_about(client: LocalClient) -> None:
    answer = await client.post(CONFIGMAPS, config_map("a", ownerReferences=[OWNER, OWNER]))
    assert answer.json()["metadata"]["ownerReferences"] == [OWNER]
    assert "duplicate entries" in answer.headers["Warning"]


async def test_a_version_on_what_is_created_is_wrong_before_it_exists_already(
    client: LocalClient,
) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    answer = await client.post(CONFIGMAPS, config_map("a", resourceVersion="7"))
    assert answer.status == 500
    answer = await client.post(CONFIGMAPS, config_map("a", resourceVersion="0"))
    assert answer.status == 409


async def test_a_struct_that_is_null_is_empty(client: LocalClient) -> None:
    answer = await client.post(LEASES, lease())
    assert answer.json()["spec"] == {}


async def test_applying_null_to_a_struct_leaves_what_is_in_it(client: LocalClient) -> None:
    await client.post(LEASES, lease(holderIdentity="y"))
    answer = await client.patch(f"{LEASES}/a", lease(), APPLY, fieldManager="m")
    assert answer.json()["spec"] == {"holderIdentity": "y"}


async def test_a_conflict_of_an_apply_comes_before_a_value_that_does_not_fit(
    client: LocalClient,
) -> None:
    await client.post(LEASES, lease(holderIdentity="y"))
    wrong = lease(holderIdentity="x", renewTime=1.5)
    answer = await client.patch(f"{LEASES}/a", wrong, APPLY, fieldManager="m")
    assert answer.status == 409
    answer = await client.patch(f"{LEASES}/a", wrong, APPLY, fieldManager="m", force="true")
    assert answer.status == 500
    assert "cannot unmarshal number" in answer.json()["message"]


async def test_all_that_an_applied_type_does_not_have_is_listed(client: LocalClient) -> None:
    wrong = lease(nope=1, holderIdentity=5)
    answer = await client.patch(f"{LEASES}/a", wrong, APPLY, fieldManager="m")
    assert "errors:\n  .spec.nope: field not declared in schema\n" in answer.json()["message"]
    assert ".spec.holderIdentity: expected string" in answer.json()["message"]


async def test_a_strategic_patch_cannot_change_the_kind(client: LocalClient) -> None:
    await client.post(CONFIGMAPS, config_map("a"))
    answer = await client.patch(f"{CONFIGMAPS}/a", {"apiVersion": "v9"}, STRATEGIC)
    assert (answer.status, answer.json()["apiVersion"]) == (200, "v1")
    answer = await client.patch(f"{CONFIGMAPS}/a", {"apiVersion": "v9"}, MERGE)
    assert answer.status == 422


async def test_the_status_of_a_pod_takes_finalizers_along_and_no_owners(
    client: LocalClient,
) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    await client.post(PODS, pod)
    change = {
        "metadata": {"finalizers": ["x.io/f"], "ownerReferences": [OWNER]},
        "status": {"phase": "Running"},
    }
    answer = await client.patch(f"{PODS}/a/status", change, MERGE)
    assert answer.json()["metadata"]["finalizers"] == ["x.io/f"]
    assert "ownerReferences" not in answer.json()["metadata"]


async def test_folded_base64_is_kept_in_one_line(client: LocalClient) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    answer = await client.post(SECRETS, {**secret, "data": {"q": "YW\nJj\n"}})
    assert answer.json()["data"] == {"q": "YWJj"}


@pytest.mark.parametrize(
    ("text", "position"),
    [("1", 0), ("YWJjZ", 4), ("YQ=", 3), ("YQ==x", 4), ("Y=Q=", 1), ("not base64", 3)],
)
def test_base64_goes_wrong_where_go_says(text: str, position: int) -> None:
    assert base64_error(text) == f"illegal base64 data at input byte {position}"


@pytest.mark.parametrize("text", ["", "YQ==", "YWI=", "YWJj", "YQ\n=="])
def test_base64_that_go_reads(text: str) -> None:
    assert base64_error(text) == ""
