"""The embedded API server: owners, dependents and propagation policies."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.apiserver.local import LocalClient

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(random=Random(7))


@pytest.fixture
def client(api: ApiServer) -> LocalClient:
    return LocalClient(api)


async def make(
    client: LocalClient, name: str, *owners: dict[str, Any], finalizers: tuple[str, ...] = ()
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if owners:
        meta["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
            for owner in owners
        ]
    if finalizers:
        meta["finalizers"] = list(finalizers)
    response = await client.post(PATH, {"metadata": meta})
    assert response.status == 201
    created: dict[str, Any] = response.json()
    return created


async def there(client: LocalClient) -> list[str]:
    return [each["metadata"]["name"] for each in (await client.get(PATH)).json()["items"]]


async def test_dependents_follow_their_owner_down_the_tree(
    client: LocalClient, api: ApiServer
) -> None:
    owner = await make(client, "owner")
    child = await make(client, "child", owner)
    await make(client, "grandchild", child)
    await make(client, "stranger")
    await client.delete(f"{PATH}/owner")
    await api.settled()
    assert await there(client) == ["stranger"]


async def test_a_dependent_with_another_owner_stays_and_forgets_the_one_gone(
    client: LocalClient, api: ApiServer
) -> None:
    first, second = await make(client, "first"), await make(client, "second")
    await make(client, "child", first, second)
    await client.delete(f"{PATH}/first")
    await api.settled()
    child = (await client.get(f"{PATH}/child")).json()
    assert [each["name"] for each in child["metadata"]["ownerReferences"]] == ["second"]


async def test_orphans_lose_the_reference_and_live(client: LocalClient, api: ApiServer) -> None:
    owner = await make(client, "owner")
    await make(client, "child", owner)
    await client.delete(f"{PATH}/owner", {"propagationPolicy": "Orphan"})
    await api.settled()
    assert await there(client) == ["child"]
    child = (await client.get(f"{PATH}/child")).json()
    assert "ownerReferences" not in child["metadata"]


async def test_a_foreground_deletion_waits_for_its_dependents(
    client: LocalClient, api: ApiServer
) -> None:
    owner = await make(client, "owner")
    await make(client, "child", owner, finalizers=("example.com/hold",))
    deleted = await client.delete(f"{PATH}/owner", {"propagationPolicy": "Foreground"})
    assert deleted.json()["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.settled()
    assert await there(client) == ["child", "owner"]
    child = (await client.get(f"{PATH}/child")).json()
    assert child["metadata"]["deletionTimestamp"]
    await client.patch(f"{PATH}/child", {"metadata": {"finalizers": None}})
    await api.settled()
    assert await there(client) == []


async def test_an_object_whose_owner_never_was_is_collected(
    client: LocalClient, api: ApiServer
) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}}
    await make(client, "child", ghost)
    await api.settled()
    assert await there(client) == []


async def test_an_owner_recreated_under_its_name_is_another_owner(
    client: LocalClient, api: ApiServer
) -> None:
    old = await make(client, "owner")
    await client.delete(f"{PATH}/owner")
    await make(client, "owner")
    await make(client, "child", old)
    await api.settled()
    assert await there(client) == ["owner"]


async def test_an_owner_of_an_unknown_kind_keeps_its_dependents(
    client: LocalClient, api: ApiServer
) -> None:
    body = {
        "metadata": {
            "name": "child",
            "ownerReferences": [
                {"apiVersion": "other.com/v1", "kind": "Thing", "name": "x", "uid": "u"}
            ],
        }
    }
    await client.post(PATH, body)
    await api.settled()
    assert await there(client) == ["child"]


async def test_the_collector_can_be_turned_off() -> None:
    api = ApiServer(garbage_collection=False)
    client = LocalClient(api)
    owner = await make(client, "owner")
    await make(client, "child", owner)
    await client.delete(f"{PATH}/owner")
    await api.settled()
    assert await there(client) == ["child"]


async def test_two_runs_with_one_seed_do_the_same() -> None:
    async def run() -> list[str]:
        api = ApiServer(random=Random(3), now=lambda: MOMENT)
        client = LocalClient(api)
        owner = await make(client, "owner")
        for name in "abcdef":
            await make(client, name, owner)
        start = api.store.revision
        await client.delete(f"{PATH}/owner")
        await api.settled()
        return [
            f"{event.type} {event.stored.name} {event.revision}"
            for event in api.store.events_after("configmaps", start)
        ]

    from datetime import UTC, datetime

    MOMENT = datetime(2026, 1, 1, tzinfo=UTC)  # noqa: N806
    assert await run() == await run()
