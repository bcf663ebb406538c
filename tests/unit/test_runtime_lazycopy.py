"""Merge patches (RFC 7396) and the one door through which a cached object is changed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.api.core import PodManifest
from arc_controller.api.v1alpha1 import EphemeralRunner, Phase
from arc_controller.runtime.errors import Conflict, Status
from arc_controller.runtime.lazycopy import LazyCopy, apply_merge_patch, merge_patch
from arc_controller.runtime.objects import K, KubeObject, NamespacedName, ObjectMeta

# --- merge patches --------------------------------------------------------------------------------

RFC_7396_APPENDIX = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396_APPENDIX)
def test_patches_apply_as_in_the_appendix_of_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert apply_merge_patch(target, patch) == result
    assert target == before


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(["", "x", "y"]),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner | st.none(), max_size=3)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


def text(value: Any) -> bytes:
    """Python's ``True == 1`` is not JSON's."""
    return msgspec.json.encode(value, order="sorted")


@given(OBJECTS, OBJECTS)
def test_the_difference_of_two_objects_turns_one_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = merge_patch(before, after)
    result = apply_merge_patch(before, patch)
    assert result == after
    assert (patch == {}) is (merge_patch(after, before) == {})


@given(OBJECTS)
def test_equal_objects_have_no_difference(obj: dict[str, Any]) -> None:
    assert merge_patch(obj, copy.deepcopy(obj)) == {}


@given(OBJECTS, OBJECTS)
def test_the_difference_names_nothing_that_is_equal(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    for name in merge_patch(before, after):
        assert text(before.get(name)) != text(after.get(name)) or name not in before


def test_true_is_not_one() -> None:
    assert merge_patch({"a": 1}, {"a": True}) == {"a": True}
    assert merge_patch({"a": [0]}, {"a": [False]}) == {"a": [False]}
    assert merge_patch({"a": [{"b": 0}]}, {"a": [{"b": False}]}) == {"a": [{"b": False}]}


def test_null_counts_as_absent() -> None:
    assert merge_patch({"a": None}, {}) == {}
    assert merge_patch({}, {"a": None}) == {}
    assert merge_patch({"a": 1}, {"a": None}) == {"a": None}
    assert merge_patch({}, {"a": {"b": None, "c": 1}}) == {"a": {"c": 1}}


# --- LazyCopy -------------------------------------------------------------------------------------

KEY = NamespacedName("ns", "r")


def runner(version: str = "5", **status: Any) -> EphemeralRunner:
    meta = ObjectMeta(name="r", namespace="ns", uid="u", resource_version=version)
    meta.labels = {"app": "x"}
    obj = EphemeralRunner(metadata=meta)
    obj.spec.spec = {"containers": [{"name": "runner"}]}
    for name, value in status.items():
        setattr(obj.status, name, value)
    return obj


class Recorder:
    """Applies merge patches to one object, as an API server does, and writes them down."""

    def __init__(self, obj: KubeObject) -> None:
        self.obj: Any = obj
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.error: Exception | None = None
        self.pause: asyncio.Event | None = None

    async def create(self, obj: K) -> K:
        raise NotImplementedError

    async def delete(self, kind: type[KubeObject], key: NamespacedName, **_: Any) -> bool:
        raise NotImplementedError

    async def patch(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return await self._patch("patch", kind, key, patch)

    async def patch_status(self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]) -> K:
        return await self._patch("patch_status", kind, key, patch)

    async def _patch(
        self, method: str, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]
    ) -> K:
        self.sent.append((method, copy.deepcopy(patch)))
        if self.pause is not None:
            await self.pause.wait()
        if self.error is not None:
            raise self.error
        before = msgspec.to_builtins(self.obj)
        half = {"status": patch["status"]} if method == "patch_status" else {**patch}
        half.pop("status", None) if method == "patch" else None
        half.setdefault("metadata", {})
        version = str(int(before["metadata"]["resourceVersion"]) + 1)
        half["metadata"] = {**half["metadata"], "resourceVersion": version}
        self.obj = msgspec.convert(apply_merge_patch(before, half), kind)
        return cast("K", self.obj)


def test_reading_copies_nothing() -> None:
    cached = runner()
    lazy = LazyCopy(cached)
    assert lazy.obj is cached
    assert not lazy.is_mutated
    assert lazy.diff() == lazy.diff_status() == {}


def test_the_first_mutate_copies_and_later_ones_return_the_same_copy() -> None:
    cached = runner()
    lazy = LazyCopy(cached)

    copied = lazy.mutate()
    copied.status.phase = Phase.PENDING
    copied.spec.spec["containers"][0]["name"] = "changed"

    assert lazy.mutate() is copied
    assert lazy.obj is copied
    assert cached == runner()
    assert lazy.is_mutated


def test_the_snapshot_is_taken_at_the_first_mutate() -> None:
    """What went around `mutate` before is part of the snapshot, and so is never sent."""
    cached = runner()
    lazy = LazyCopy(cached)
    cached.status.reason = "smuggled"

    lazy.mutate().status.phase = Phase.PENDING
    cached.status.message = "too late"

    assert lazy.diff_status() == {"status": {"phase": "Pending"}}


async def test_a_patch_carries_only_the_difference_and_the_lock() -> None:
    cached = runner()
    server = Recorder(cached)
    lazy = LazyCopy(cached)
    lazy.mutate().metadata.labels["app"] = "y"
    lazy.mutate().metadata.finalizers = ["f"]

    assert await lazy.patch(server)

    metadata = {"labels": {"app": "y"}, "finalizers": ["f"], "resourceVersion": "5"}
    assert server.sent == [("patch", {"metadata": metadata})]


async def test_a_status_patch_is_locked_too() -> None:
    server = Recorder(runner(phase=Phase.PENDING, ready=True))
    lazy = LazyCopy(runner(phase=Phase.PENDING, ready=True))
    lazy.mutate().status.phase = Phase.RUNNING
    lazy.mutate().status.ready = False

    assert await lazy.patch_status(server)

    patch = {"status": {"phase": "Running", "ready": None}, "metadata": {"resourceVersion": "5"}}
    assert server.sent == [("patch_status", patch)]


async def test_without_a_lock_only_the_difference_is_sent() -> None:
    server = Recorder(runner())
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.RUNNING
    lazy.mutate().metadata.labels.clear()

    await lazy.patch_status(server, lock=False)
    await lazy.patch(server, lock=False)

    assert server.sent == [
        ("patch_status", {"status": {"phase": "Running"}}),
        ("patch", {"metadata": {"labels": {"app": None}}}),
    ]


async def test_emptying_a_map_removes_its_keys_and_not_what_others_added() -> None:
    server = Recorder(runner())
    lazy = LazyCopy(runner())
    lazy.mutate().metadata.labels.clear()
    server.obj.metadata.labels["theirs"] = "z"

    await lazy.patch(server, lock=False)

    assert server.obj.metadata.labels == {"theirs": "z"}


async def test_nothing_is_sent_when_nothing_changed() -> None:
    server = Recorder(runner())
    untouched, touched = LazyCopy(runner()), LazyCopy(runner())
    touched.mutate().status.phase = "x"
    touched.mutate().status.phase = ""

    for lazy in (untouched, touched):
        assert not await lazy.patch(server)
        assert not await lazy.patch_status(server)

    assert server.sent == []


async def test_the_servers_answer_becomes_the_view_and_the_next_lock() -> None:
    server = Recorder(runner())
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.PENDING
    await lazy.patch_status(server)

    assert lazy.obj is server.obj
    assert not lazy.is_mutated
    lazy.mutate().status.phase = Phase.RUNNING
    await lazy.patch_status(server)

    assert server.sent[-1][1]["metadata"] == {"resourceVersion": "6"}
    assert server.obj.status.phase == Phase.RUNNING


@pytest.mark.parametrize("status_first", [True, False])
async def test_the_half_that_was_not_written_stays_pending(status_first: bool) -> None:
    server = Recorder(runner())
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.PENDING
    lazy.mutate().metadata.finalizers.append("f")
    halves: list[Callable[[Recorder], Awaitable[bool]]] = [lazy.patch_status, lazy.patch]
    first, second = halves if status_first else halves[::-1]

    await first(server)
    assert lazy.obj.status.phase == Phase.PENDING
    assert lazy.obj.metadata.finalizers == ["f"]
    assert lazy.obj.metadata.resource_version == "6"
    await second(server)

    assert server.sent[1][1]["metadata"]["resourceVersion"] == "6"
    assert server.obj.status.phase == Phase.PENDING
    assert server.obj.metadata.finalizers == ["f"]
    assert lazy.obj is server.obj


async def test_what_others_changed_is_kept_under_the_pending_half() -> None:
    server = Recorder(runner())
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.PENDING
    lazy.mutate().metadata.finalizers.append("f")
    server.obj = runner(runner_id=7)

    await lazy.patch(server, lock=False)

    assert lazy.obj.status.runner_id == 7
    assert lazy.obj.status.phase == Phase.PENDING


async def test_a_conflict_keeps_the_changes_pending() -> None:
    server = Recorder(runner())
    server.error = Conflict(Status(code=409))
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.PENDING

    with pytest.raises(Conflict):
        await lazy.patch_status(server)

    assert lazy.obj.status.phase == Phase.PENDING
    assert lazy.diff_status() == {"status": {"phase": "Pending"}}


async def test_a_cancelled_patch_keeps_the_changes_pending() -> None:
    server = Recorder(runner())
    server.pause = asyncio.Event()
    lazy = LazyCopy(runner())
    lazy.mutate().status.phase = Phase.PENDING
    task = asyncio.create_task(lazy.patch_status(server))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert lazy.diff_status() == {"status": {"phase": "Pending"}}


async def test_times_numbers_and_inline_templates_survive_the_copy() -> None:
    moment = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    cached = runner(failures={"pod-uid": moment}, runner_id=2**40)
    lazy = LazyCopy(cached)
    lazy.mutate()
    assert lazy.obj == cached
    assert lazy.diff_status() == lazy.diff() == {}
    lazy.mutate().status.failures["other"] = moment
    assert lazy.diff_status() == {"status": {"failures": {"other": "2025-01-02T03:04:05.678901Z"}}}


def test_a_subclass_is_copied_with_all_its_fields() -> None:
    pod = PodManifest(metadata=ObjectMeta(name="a"), spec={"nodeName": "n"})
    assert LazyCopy(pod).mutate().spec == {"nodeName": "n"}


async def test_what_was_never_read_cannot_be_locked() -> None:
    lazy = LazyCopy(runner(version=""))
    lazy.mutate().status.phase = "x"
    with pytest.raises(ValueError, match="EphemeralRunner ns/r has no resourceVersion to lock"):
        await lazy.patch_status(Recorder(runner()))


async def test_maps_with_numbers_as_keys_stay_pending_like_all_others() -> None:
    """JSON has strings as keys only; they must come back as numbers."""

    class Ports(KubeObject):
        names: dict[int, str] = msgspec.field(default_factory=dict)
        status: dict[str, str] = msgspec.field(default_factory=dict)

    ports = Ports(metadata=ObjectMeta(name="a", namespace="ns", resource_version="1"))

    class Server:
        async def patch_status(
            self, kind: type[K], key: NamespacedName, patch: Mapping[str, Any]
        ) -> K:
            merged = apply_merge_patch(msgspec.to_builtins(ports), patch)
            return cast("K", msgspec.convert(merged, Ports))

    lazy = LazyCopy(ports)
    lazy.mutate().names[80] = "http"
    lazy.mutate().status["seen"] = "yes"

    assert await lazy.patch_status(Server())
    assert lazy.obj.names == {80: "http"}
    assert lazy.diff() == {"names": {"80": "http"}}
