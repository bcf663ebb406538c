"""The client against the embedded API server, and against servers that answer badly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from arc_controller.api import SCHEME
from arc_controller.api.core import ConfigMap, Pod, PodManifest, Secret
from arc_controller.runtime.client import ApiClient, CachingClient
from arc_controller.runtime.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    MalformedAnswer,
    NotFound,
    TooManyRequests,
)
from arc_controller.runtime.objects import KubeObject, LabelSelector, NamespacedName, ObjectMeta
from arc_controller.runtime.transport import Response
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.transport import InProcessTransport

NS = "default"
KEY = NamespacedName(NS, "a")


def config(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=NS, labels=labels))


@pytest.fixture
def client() -> ApiClient:
    return ApiClient(InProcessTransport(ApiServer()), SCHEME)


async def test_what_was_created_can_be_read_listed_patched_and_deleted(client: ApiClient) -> None:
    made = await client.create(config("a", x="1"))
    assert made.metadata.resource_version
    assert await client.get(ConfigMap, KEY) == made
    assert await client.find(ConfigMap, KEY) == made
    assert await client.list(ConfigMap) == [made]
    assert await client.list(ConfigMap, namespace="other") == []
    patched = await client.patch(ConfigMap, KEY, {"data": {"k": "v"}})
    assert patched.data == {"k": "v"}
    assert await client.delete(ConfigMap, KEY)
    assert not await client.delete(ConfigMap, KEY)
    assert await client.find(ConfigMap, KEY) is None
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await client.get(ConfigMap, KEY)


async def test_lists_are_selected_by_the_server(client: ApiClient) -> None:
    for name, x in (("a", "1"), ("b", "2"), ("c", "1")):
        await client.create(config(name, x=x))
    found = await client.list(ConfigMap, namespace=NS, labels=LabelSelector({"x": "1"}))
    assert [obj.metadata.name for obj in found] == ["a", "c"]


async def test_a_stale_lock_and_a_taken_name_are_told_apart(client: ApiClient) -> None:
    made = await client.create(config("a"))
    with pytest.raises(AlreadyExists):
        await client.create(config("a"))
    await client.patch(ConfigMap, KEY, {"data": {"k": "v"}})
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"k": "w"}}
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, KEY, stale)


async def test_a_deletion_may_be_meant_for_one_object_or_one_version_only(
    client: ApiClient,
) -> None:
    made = await client.create(config("a"))
    await client.patch(ConfigMap, KEY, {"data": {"k": "v"}})
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, KEY, uid="another")
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, KEY, resource_version=made.metadata.resource_version)
    assert await client.delete(ConfigMap, KEY, uid=made.uid)


async def test_a_deletion_tells_what_remains(client: ApiClient) -> None:
    held = config("a")
    held.metadata.finalizers = ["example.com/hold"]
    await client.create(held)
    await client.create(config("b"))

    waiting = await client.request_deletion(ConfigMap, KEY)
    gone = await client.request_deletion(ConfigMap, NamespacedName(NS, "b"))
    nothing = await client.request_deletion(ConfigMap, NamespacedName(NS, "b"))

    assert waiting.remaining is not None
    assert waiting.remaining.is_being_deleted
    assert (gone.found, gone.remaining) == (True, None)
    assert not nothing.found


async def test_a_projection_is_created_whole_and_read_back_small(client: ApiClient) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await client.create(PodManifest(metadata=ObjectMeta(name="a", namespace=NS), spec=spec))
    assert type(made) is Pod
    assert type(await client.get(PodManifest, KEY)) is Pod


async def test_only_a_cache_has_indexes(client: ApiClient) -> None:
    with pytest.raises(LookupError, match="index 'owner': only the cache"):
        await client.list(ConfigMap, index=("owner", "x"))


async def test_an_object_without_a_namespace_is_refused_before_it_is_sent(
    client: ApiClient,
) -> None:
    with pytest.raises(ValueError, match="ConfigMap 'a': the namespace is empty"):
        await client.create(ConfigMap(metadata=ObjectMeta(name="a")))


# --- servers that answer badly --------------------------------------------------------------------


class Canned:
    """Plays answers, one a call."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, str, dict[str, str], bytes | None, str]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        self.calls.append((method, path, dict(query), body, content_type))
        return self.answers.pop(0)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        yield _nothing()

    async def close(self) -> None:
        pass


async def _nothing() -> AsyncIterator[bytes]:
    for line in list[bytes]():
        yield line


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    return Response(status, msgspec.json.encode(value), headers)


def page(*names: str, more: str = "") -> Response:
    items = [{"metadata": {"name": name}} for name in names]
    return answer({"metadata": {"continue": more}, "items": items})


async def test_a_long_list_is_read_in_pages() -> None:
    server = Canned(page("a", more="t1"), page("b", more="t2"), page("c"))

    found = await ApiClient(server, SCHEME).list(ConfigMap, namespace=NS)

    assert [obj.metadata.name for obj in found] == ["a", "b", "c"]
    assert [query for _, _, query, _, _ in server.calls] == [
        {"limit": "500"},
        {"limit": "500", "continue": "t1"},
        {"limit": "500", "continue": "t2"},
    ]


async def test_a_list_that_would_never_end_is_an_error() -> None:
    server = Canned(page("a", more="t1"), page("b", more="t1"))

    with pytest.raises(MalformedAnswer, match="the list would never end"):
        await ApiClient(server, SCHEME).list(ConfigMap)


async def test_pages_that_expire_are_read_again_in_one_piece() -> None:
    gone = answer({"kind": "Status", "reason": "Expired", "code": 410}, 410)
    server = Canned(page("a", more="t1"), gone, page("b", "c"))

    found = await ApiClient(server, SCHEME).list(ConfigMap)

    assert [obj.metadata.name for obj in found] == ["b", "c"]
    assert server.calls[-1][2] == {}


@pytest.mark.parametrize("body", [{"metadata": 7}, [], {"metadata": {"labels": "x"}}])
async def test_an_answer_that_cannot_be_read_is_an_api_error_that_names_the_call(body: Any) -> None:
    client = ApiClient(Canned(answer(body)), SCHEME)
    with pytest.raises(MalformedAnswer, match="GET /api/v1/namespaces/default/configmaps/a"):
        await client.get(ConfigMap, KEY)


async def test_a_list_that_cannot_be_read_is_an_api_error_too() -> None:
    with pytest.raises(MalformedAnswer, match="GET /api/v1/configmaps"):
        await ApiClient(Canned(Response(200, b"{")), SCHEME).list(ConfigMap)


STATUS = {"kind": "Status", "status": "Failure", "metadata": {}, "message": "try later"}


@pytest.mark.parametrize("body", [STATUS, {}, {"metadata": {"namespace": NS}}])
async def test_an_answer_that_is_another_thing_does_not_pass_for_an_object(body: Any) -> None:
    """All fields have defaults: a Status with code 200 would be a ConfigMap without data."""
    with pytest.raises(MalformedAnswer, match="the answer is no ConfigMap: it has no name"):
        await ApiClient(Canned(answer(body)), SCHEME).get(ConfigMap, KEY)
    with pytest.raises(MalformedAnswer, match="the answer is no ConfigMap"):
        await ApiClient(Canned(answer(body)), SCHEME).patch(ConfigMap, KEY, {})
    with pytest.raises(MalformedAnswer, match="the answer is no ConfigMap"):
        await ApiClient(Canned(answer(body)), SCHEME).create(config("a"))


async def test_what_is_answered_but_not_stored_needs_no_name() -> None:
    """Such as an access review; the request has no name either."""
    made = await ApiClient(Canned(answer({"metadata": {}})), SCHEME).create(
        ConfigMap(metadata=ObjectMeta(namespace=NS))
    )
    assert made.metadata.name == ""


async def test_an_answer_that_is_no_list_is_not_an_empty_one() -> None:
    with pytest.raises(MalformedAnswer, match="missing required field `items`"):
        await ApiClient(Canned(answer(STATUS)), SCHEME).list(ConfigMap)
    nothing = Canned(answer({"metadata": {}, "items": None}))
    assert await ApiClient(nothing, SCHEME).list(ConfigMap) == []


@pytest.mark.parametrize("body", [b"<html>", b"null", b"[]", b"\xff", b'{"a":' + b"[" * 5000])
async def test_no_body_raises_anything_but_an_api_error(body: bytes) -> None:
    def client() -> ApiClient:
        return ApiClient(Canned(Response(200, body)), SCHEME)

    with pytest.raises(MalformedAnswer):
        await client().get(ConfigMap, KEY)
    with pytest.raises(MalformedAnswer):
        await client().list(ConfigMap)
    with pytest.raises(MalformedAnswer):
        await client().delete(ConfigMap, KEY)


async def test_a_redirect_is_a_refusal_with_its_code() -> None:
    with pytest.raises(ApiError, match="the API server answered 302") as caught:
        await ApiClient(Canned(Response(302)), SCHEME).get(ConfigMap, KEY)
    assert caught.value.code == 302


async def test_an_unreadable_secret_is_not_quoted() -> None:
    body = {"metadata": {"name": "a"}, "data": {"token": "c2VjcmV0 broken"}}
    with pytest.raises(MalformedAnswer) as caught:
        await ApiClient(Canned(answer(body)), SCHEME).get(Secret, KEY)
    assert "c2VjcmV0" not in str(caught.value)


async def test_how_long_to_wait_is_taken_from_the_header() -> None:
    server = Canned(answer({}, 429, **{"Retry-After": "7"}))
    with pytest.raises(TooManyRequests) as caught:
        await ApiClient(server, SCHEME).get(ConfigMap, KEY)
    assert caught.value.retry_after == 7


async def test_writes_say_what_they_are() -> None:
    whole = answer({"metadata": {"name": "a"}})
    server = Canned(whole, whole, whole, answer({"kind": "Status"}))
    client = ApiClient(server, SCHEME)
    await client.create(config("a"))
    await client.patch(ConfigMap, KEY, {"data": {"k": None}})
    await client.patch_status(ConfigMap, KEY, {"status": {}})
    await client.delete(ConfigMap, KEY, uid="u", grace_period_seconds=0, propagation="Foreground")

    sent = [
        (method, path.rpartition(NS)[2], body, kind) for method, path, _, body, kind in server.calls
    ]
    merge = "application/merge-patch+json"
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }
    assert sent[0][:2] == ("POST", "/configmaps")
    assert sent[1] == ("PATCH", "/configmaps/a", b'{"data":{"k":null}}', merge)
    assert sent[2] == ("PATCH", "/configmaps/a/status", b'{"status":{}}', merge)
    assert sent[3][:2] == ("DELETE", "/configmaps/a")
    assert msgspec.json.decode(sent[3][2] or b"") == options


# --- with a cache ---------------------------------------------------------------------------------


class Shelf:
    """A cache of one kind that holds what it is given."""

    def __init__(self, *objects: KubeObject) -> None:
        self.objects = {obj.key: obj for obj in objects}
        self.observed: list[KubeObject] = []

    def covers(self, kind: type[KubeObject], namespace: str = "") -> bool:
        return kind is ConfigMap

    def get(self, kind: type[Any], key: NamespacedName) -> Any:
        return self.objects.get(key)

    def list(self, kind: type[Any], **_: Any) -> Sequence[Any]:
        return list(self.objects.values())

    def observe(self, obj: KubeObject) -> None:
        self.observed.append(obj)


async def test_a_cached_kind_is_read_from_the_cache_and_others_from_the_server() -> None:
    cached = config("a")
    server = Canned(answer({"metadata": {"name": "s"}}), page("s"))
    client = CachingClient(ApiClient(server, SCHEME), Shelf(cached))

    assert await client.get(ConfigMap, KEY) is cached
    assert await client.find(ConfigMap, KEY) is cached
    assert await client.list(ConfigMap) == [cached]
    assert await client.find(ConfigMap, NamespacedName(NS, "b")) is None
    with pytest.raises(NotFound, match='configmaps "b" not found') as caught:
        await client.get(ConfigMap, NamespacedName(NS, "b"))
    assert caught.value.code == 404
    assert server.calls == []

    assert (await client.get(Secret, KEY)).metadata.name == "s"
    assert len(await client.list(Secret)) == 1


async def test_the_answer_to_every_write_is_shown_to_the_cache() -> None:
    shelf = Shelf()
    server = Canned(*[answer({"metadata": {"name": f"a{i}"}}) for i in range(4)])
    client = CachingClient(ApiClient(server, SCHEME), shelf)

    await client.create(config("a"))
    await client.patch(ConfigMap, KEY, {})
    await client.patch_status(ConfigMap, KEY, {})
    await client.delete(ConfigMap, KEY)

    assert [obj.metadata.name for obj in shelf.observed] == ["a0", "a1", "a2", "a3"]
