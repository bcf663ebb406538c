"""The embedded API server: lists, pages, selectors and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer, Watch
from arc_controller.testing.apiserver.local import LocalClient

PATH = "/api/v1/namespaces/default/configmaps"
ALL = "/api/v1/configmaps"


def config_map(name: str, label: str = "", value: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name}
    if label:
        meta["labels"] = {"app": label}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": value}}


@pytest.fixture
def api() -> ApiServer:
    return ApiServer(random=Random(7))


@pytest.fixture
def client(api: ApiServer) -> LocalClient:
    return LocalClient(api)


@asynccontextmanager
async def watching(client: LocalClient, path: str = PATH, **query: Any) -> AsyncIterator[Any]:
    """A function that returns the next event as (type, name), waiting for it."""
    stream = client.watch(path, **query)
    reader = aiter(stream)

    async def following() -> tuple[str, str, dict[str, Any]]:
        event = await asyncio.wait_for(anext(reader), 5)
        obj = event["object"]
        return event["type"], obj.get("metadata", {}).get("name", ""), obj

    try:
        yield following
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


def names(response: Any) -> list[str]:
    return [each["metadata"]["name"] for each in response.json()["items"]]


async def test_a_list_is_ordered_and_says_its_version(client: LocalClient, api: ApiServer) -> None:
    for name in ("b", "a", "c"):
        await client.post(PATH, config_map(name))
    response = await client.get(PATH)
    assert names(response) == ["a", "b", "c"]
    body = response.json()
    assert body["kind"] == "ConfigMapList"
    assert body["metadata"]["resourceVersion"] == str(api.store.revision)
    assert "kind" not in body["items"][0]


@pytest.mark.parametrize(
    "selector, expected",
    [
        ("app=x", ["a"]),
        ("app==x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x)", ["b", "c"]),
        ("app,app!=y", ["a"]),
    ],
)
async def test_label_selectors(client: LocalClient, selector: str, expected: list[str]) -> None:
    await client.post(PATH, config_map("a", "x"))
    await client.post(PATH, config_map("b", "y"))
    await client.post(PATH, config_map("c"))
    assert names(await client.get(PATH, labelSelector=selector)) == expected


@pytest.mark.parametrize("selector", ["a=b=c", "(", "app in x", "a b"])
async def test_a_selector_that_is_none_is_a_bad_request(client: LocalClient, selector: str) -> None:
    assert (await client.get(PATH, labelSelector=selector)).status == 400


async def test_field_selectors_name_objects_and_what_the_kind_supports(
    client: LocalClient,
) -> None:
    await client.post(PATH, config_map("a"))
    await client.post(PATH, config_map("b"))
    assert names(await client.get(PATH, fieldSelector="metadata.name=b")) == ["b"]
    assert names(
        await client.get(PATH, fieldSelector="metadata.name!=b,metadata.namespace=default")
    ) == ["a"]
    refused = await client.get(PATH, fieldSelector="data.v=1")
    assert refused.status == 400
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    await client.post("/api/v1/namespaces/default/pods", pod)
    assert names(await client.get("/api/v1/pods", fieldSelector="spec.nodeName=n1")) == ["p"]
    assert names(await client.get("/api/v1/pods", fieldSelector="status.phase!=Pending")) == []


async def test_pages_show_one_snapshot_however_long_they_take(client: LocalClient) -> None:
    for name in "abcde":
        await client.post(PATH, config_map(name))
    first = await client.get(PATH, limit=2)
    assert names(first) == ["a", "b"]
    assert first.json()["metadata"]["remainingItemCount"] == 3
    await client.delete(f"{PATH}/d")
    await client.post(PATH, config_map("aa"))
    second = await client.get(PATH, limit=2, continue_=first.json()["metadata"]["continue"])
    third = await client.get(PATH, limit=2, continue_=second.json()["metadata"]["continue"])
    assert names(second) + names(third) == ["c", "d", "e"]
    versions = {page.json()["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1
    assert "continue" not in third.json()["metadata"]


async def test_an_expired_page_is_gone_and_offers_an_inconsistent_rest(
    client: LocalClient, api: ApiServer
) -> None:
    for name in "abc":
        await client.post(PATH, config_map(name))
    token = (await client.get(PATH, limit=1)).json()["metadata"]["continue"]
    await client.delete(f"{PATH}/b")
    api.store.compact()
    gone = await client.get(PATH, limit=5, continue_=token)
    assert gone.status == 410
    assert gone.json()["reason"] == "Expired"
    rest = await client.get(PATH, limit=5, continue_=gone.json()["metadata"]["continue"])
    assert names(rest) == ["c"]


async def test_an_exact_list_shows_the_past_until_it_is_gone(
    client: LocalClient, api: ApiServer
) -> None:
    await client.post(PATH, config_map("a", value="1"))
    then = api.store.revision
    await client.patch(f"{PATH}/a", {"data": {"v": "2"}})
    exact = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    past = (await client.get(PATH, **exact)).json()
    assert past["items"][0]["data"] == {"v": "1"}
    assert past["metadata"]["resourceVersion"] == str(then)
    api.store.compact()
    assert (await client.get(PATH, **exact)).status == 410
    future = await client.get(PATH, resourceVersion=api.store.revision + 100)
    assert future.status == 504
    assert "Too large resource version" in future.json()["message"]


async def test_a_watch_from_nowhere_starts_with_what_is_there(client: LocalClient) -> None:
    await client.post(PATH, config_map("a"))
    async with watching(client) as following:
        assert (await following())[:2] == ("ADDED", "a")
        await client.post(PATH, config_map("b"))
        assert (await following())[:2] == ("ADDED", "b")
        await client.patch(f"{PATH}/a", {"data": {"v": "2"}})
        kind, name, obj = await following()
        assert (kind, name, obj["data"]) == ("MODIFIED", "a", {"v": "2"})
        await client.delete(f"{PATH}/b")
        kind, name, obj = await following()
        assert (kind, name) == ("DELETED", "b")
        assert int(obj["metadata"]["resourceVersion"]) == client.api.store.revision


async def test_a_watch_from_a_version_replays_what_came_after_it(
    client: LocalClient, api: ApiServer
) -> None:
    await client.post(PATH, config_map("a"))
    version = api.store.revision
    await client.post(PATH, config_map("b"))
    await client.delete(f"{PATH}/a")
    async with watching(client, resourceVersion=version) as following:
        assert (await following())[:2] == ("ADDED", "b")
        assert (await following())[:2] == ("DELETED", "a")


async def test_a_watch_from_before_the_history_ends_with_an_error_event(
    client: LocalClient, api: ApiServer
) -> None:
    await client.post(PATH, config_map("a"))
    version = api.store.revision
    await client.post(PATH, config_map("b"))
    api.store.compact()
    events = [event async for event in client.watch(PATH, resourceVersion=version)]
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: ")


async def test_history_is_bounded(client: LocalClient) -> None:
    small = LocalClient(ApiServer(history=3))
    await small.post(PATH, config_map("a"))
    version = small.api.store.revision
    for value in "12345":
        await small.patch(f"{PATH}/a", {"data": {"v": value}})
    events = [event async for event in small.watch(PATH, resourceVersion=version)]
    assert events[0]["object"]["code"] == 410


async def test_a_watch_with_a_selector_sees_objects_come_and_go(client: LocalClient) -> None:
    async with watching(client, labelSelector="app=x") as following:
        await client.post(PATH, config_map("a", "y"))
        await client.patch(f"{PATH}/a", {"metadata": {"labels": {"app": "x"}}})
        assert (await following())[:2] == ("ADDED", "a")
        await client.patch(f"{PATH}/a", {"data": {"v": "1"}})
        assert (await following())[:2] == ("MODIFIED", "a")
        await client.patch(f"{PATH}/a", {"metadata": {"labels": {"app": "y"}}})
        kind, name, obj = await following()
        assert (kind, name) == ("DELETED", "a")
        assert obj["metadata"]["resourceVersion"] == str(client.api.store.revision)


async def test_a_watch_of_one_name_sees_only_that_object(client: LocalClient) -> None:
    await client.post(PATH, config_map("other"))
    async with watching(client, fieldSelector="metadata.name=a") as following:
        await client.post(PATH, config_map("a"))
        assert (await following())[:2] == ("ADDED", "a")
    async with watching(client, f"{PATH}/other") as following:
        assert (await following())[:2] == ("ADDED", "other")


async def test_a_watch_of_all_namespaces_sees_every_one(client: LocalClient) -> None:
    async with watching(client, ALL) as following:
        await client.post(PATH, config_map("a"))
        await client.post("/api/v1/namespaces/kube-system/configmaps", config_map("b"))
        assert (await following())[:2] == ("ADDED", "a")
        assert (await following())[:2] == ("ADDED", "b")


async def test_a_streamed_list_ends_with_a_bookmark(client: LocalClient, api: ApiServer) -> None:
    await client.post(PATH, config_map("a"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with watching(client, **query) as following:
        assert (await following())[:2] == ("ADDED", "a")
        kind, _, obj = await following()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["metadata"]["resourceVersion"] == str(api.store.revision)
    wrong = await client.get(PATH, watch="true", sendInitialEvents="true")
    assert wrong.status == 422


async def test_bookmarks_come_to_those_who_asked() -> None:
    client = LocalClient(ApiServer(bookmark_interval=0.01))
    async with watching(client, allowWatchBookmarks="true") as following:
        kind, _, obj = await following()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["resourceVersion"] == str(client.api.store.revision)
        assert obj["kind"] == "ConfigMap"


async def test_a_watch_ends_after_its_timeout(client: LocalClient, api: ApiServer) -> None:
    events = [event async for event in client.watch(PATH, timeoutSeconds="0.01")]
    assert events == []
    assert api.open_watches == 0


async def test_closing_the_body_ends_the_watch(client: LocalClient, api: ApiServer) -> None:
    response = await client.get(PATH, watch="true")
    assert isinstance(response.body, Watch)
    assert api.open_watches == 1
    await response.body.aclose()
    assert api.open_watches == 0
    with pytest.raises(StopAsyncIteration):
        await anext(response.body)


async def test_watchers_share_the_bytes_of_an_event(client: LocalClient) -> None:
    bodies = [(await client.get(PATH, watch="true")).body for _ in range(3)]
    await client.post(PATH, config_map("a"))
    frames = []
    for body in bodies:
        assert isinstance(body, Watch)
        frames.append(await anext(body))
        await body.aclose()
    assert frames[0] is frames[1] is frames[2]


async def test_a_cancelled_reader_loses_nothing(client: LocalClient) -> None:
    body = (await client.get(PATH, watch="true")).body
    assert isinstance(body, Watch)
    reading = asyncio.ensure_future(anext(body))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await client.post(PATH, config_map("a"))
    assert b'"ADDED"' in await anext(body)
    await body.aclose()


async def test_closing_the_server_ends_every_watch(client: LocalClient, api: ApiServer) -> None:
    stream = client.watch(PATH)
    reading = asyncio.ensure_future(anext(aiter(stream)))
    await asyncio.sleep(0)
    await api.aclose()
    with pytest.raises(StopAsyncIteration):
        await reading


async def test_metadata_alone_is_served_to_those_who_ask(client: LocalClient) -> None:
    await client.post(PATH, config_map("a"))
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    body = (await client.send("GET", PATH, headers=accept)).json()
    assert body["kind"] == "PartialObjectMetadataList"
    assert set(body["items"][0]) == {"kind", "apiVersion", "metadata"}
    refused = await client.send("GET", PATH, headers={"Accept": "text/html"})
    assert refused.status == 406
