"""How lists, watch events and the answers to own writes become one truth."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from arc_controller.api import SCHEME
from arc_controller.api.core import ConfigMap, Pod
from arc_controller.runtime.informer import Informer, Scope, number
from arc_controller.runtime.objects import KubeObject, LabelSelector, NamespacedName, ObjectMeta
from arc_controller.testing.transport import InProcessTransport

DELETED_AT = datetime(2025, 1, 1, tzinfo=UTC)


def config(name: str, version: int | str, *, uid: str = "", **more: Any) -> ConfigMap:
    meta = ObjectMeta(
        name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version)
    )
    for field, value in more.items():
        setattr(meta, field, value)
    return ConfigMap(metadata=meta, data={"version": str(version)})


class Diary:
    """A handler that writes down what it is told, and keeps its own picture from that alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[NamespacedName, KubeObject] = {}

    def on_add(self, obj: KubeObject, initial: bool) -> None:
        assert obj.key not in self.objects
        self.objects[obj.key] = obj
        self.lines.append(f"{'initial' if initial else 'add'} {_at(obj)}")

    def on_update(self, old: KubeObject, new: KubeObject) -> None:
        assert self.objects[old.key] is old
        assert old.uid == new.uid
        self.objects[new.key] = new
        self.lines.append(f"update {_at(old)} to {new.metadata.resource_version}")

    def on_delete(self, obj: KubeObject) -> None:
        assert self.objects.pop(obj.key).uid == obj.uid
        self.lines.append(f"delete {_at(obj)}")


def _at(obj: KubeObject) -> str:
    return f"{obj.metadata.name}@{obj.metadata.resource_version}"


class Nothing:
    """Informers of these tests are told what happens by hand: nobody is asked."""

    async def handle(self, request: Any) -> Any:
        raise NotImplementedError


def informer_of(*scopes: Scope) -> tuple[Informer[ConfigMap], Diary]:
    transport = InProcessTransport(Nothing())
    informer = Informer(ConfigMap, scopes or (Scope(),), transport, SCHEME, random=Random(1))
    diary = Diary()
    informer.add_handler(diary)
    return informer, diary


def stored(informer: Informer[ConfigMap]) -> dict[str, str]:
    return {obj.metadata.name: obj.metadata.resource_version for obj in informer.store}


def listed(
    informer: Informer[ConfigMap], version: int | str, *objects: ConfigMap, scope: int = 0
) -> None:
    informer._followers[scope].replaced(objects, frozenset(), str(version))


def changed(informer: Informer[ConfigMap], obj: ConfigMap, scope: int = 0) -> None:
    informer._followers[scope].changed(obj)


def deleted(informer: Informer[ConfigMap], obj: KubeObject, scope: int = 0) -> None:
    informer._followers[scope].deleted(obj)


def reached(informer: Informer[ConfigMap], version: int, scope: int = 0) -> None:
    informer._followers[scope].reached(str(version))


# --- lists and watches ----------------------------------------------------------------------------


def test_the_first_list_is_initial_and_later_ones_are_told_as_changes() -> None:
    informer, diary = informer_of()

    listed(informer, 5, config("a", 1), config("b", 2), config("c", 3))
    listed(informer, 9, config("b", 2), config("c", 8), config("d", 9))

    assert diary.lines == [
        *("initial a@1", "initial b@2", "initial c@3"),
        *("delete a@1", "update c@3 to 8", "add d@9"),
    ]
    assert stored(informer) == {"b": "2", "c": "8", "d": "9"}


def test_the_store_is_replaced_before_anybody_is_told() -> None:
    informer, _ = informer_of()
    seen: list[dict[str, str]] = []

    class Reader(Diary):
        def on_add(self, obj: KubeObject, initial: bool) -> None:
            seen.append(stored(informer))

    informer.add_handler(Reader())
    listed(informer, 5, config("a", 1), config("b", 2))

    assert seen == [{"a": "1", "b": "2"}] * 2


def test_an_object_that_was_made_again_under_its_name_is_a_deletion_and_an_addition() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1, uid="first"))

    listed(informer, 9, config("a", 8, uid="second"))

    assert diary.lines[1:] == ["delete a@1", "add a@8"]


def test_an_unreadable_object_keeps_its_last_readable_state() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1), config("b", 2))

    unreadable = frozenset({NamespacedName("ns", "a")})
    informer._followers[0].replaced([config("b", 2)], unreadable, "9")

    assert stored(informer) == {"a": "1", "b": "2"}
    assert diary.lines == ["initial a@1", "initial b@2"]


def test_a_restored_backup_goes_back_in_versions_and_is_believed() -> None:
    informer, _ = informer_of()
    listed(informer, 100, config("a", 90), config("b", 95))
    changed(informer, config("c", 110))

    listed(informer, 50, config("a", 40), config("d", 45))

    assert stored(informer) == {"a": "40", "d": "45"}
    changed(informer, config("a", 51))
    assert stored(informer)["a"] == "51"


def test_a_handler_that_fails_keeps_nobody_from_hearing() -> None:
    class Failing(Diary):
        def on_add(self, obj: KubeObject, initial: bool) -> None:
            raise RuntimeError("mistake")

    informer, _ = informer_of()
    informer.add_handler(Failing())
    last = Diary()
    informer.add_handler(last)

    listed(informer, 5, config("a", 1))

    assert last.lines == ["initial a@1"]


def test_a_handler_added_late_is_told_what_is_there_as_initial() -> None:
    informer, _ = informer_of()
    listed(informer, 5, config("a", 1))
    changed(informer, config("b", 6))
    late = Diary()

    informer.add_handler(late)
    changed(informer, config("c", 7))

    assert late.lines == ["initial a@1", "initial b@6", "add c@7"]


def test_a_removed_handler_hears_nothing_more() -> None:
    informer, diary = informer_of()
    informer.remove_handler(diary)

    listed(informer, 5, config("a", 1))

    assert diary.lines == []


def test_a_transform_that_fails_stops_nobody_and_the_object_is_stored_as_it_is() -> None:
    def broken(obj: ConfigMap) -> ConfigMap:
        obj.data["nobody has this"]
        return obj

    transport = InProcessTransport(Nothing())
    informer = Informer(ConfigMap, [Scope()], transport, SCHEME, transform=broken)
    with capture_logs() as logs:
        listed(informer, 5, config("a", 1))
        changed(informer, config("a", 6))
        informer.observe(config("a", 7))

    assert stored(informer) == {"a": "7"}
    assert [line["event"] for line in logs] == ["transform failed"] * 3


def test_a_version_of_ten_thousand_digits_is_no_number() -> None:
    assert number("9" * 10_000) == 0


def test_versions_that_are_no_numbers_are_taken_in_the_order_of_arrival() -> None:
    informer, diary = informer_of()
    listed(informer, "x9", config("a", "x9"))

    changed(informer, config("a", "x1"))
    informer.observe(config("a", "x10"))
    deleted(informer, config("a", "x0"))

    assert diary.lines == ["initial a@x9", "update a@x9 to x1", "delete a@x0"]
    assert (number("12"), number("x9"), number(""), number("²")) == (12, 0, 0, 0)


# --- reading one's own writes ---------------------------------------------------------------------


def test_the_answer_to_a_write_is_seen_at_once_and_its_event_is_dropped() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1))

    informer.observe(config("a", 6))
    assert stored(informer) == {"a": "6"}
    changed(informer, config("a", 6))

    assert diary.lines == ["initial a@1", "update a@1 to 6"]


def test_the_event_of_a_write_may_come_before_its_answer() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1))

    changed(informer, config("a", 6))
    informer.observe(config("a", 6))

    assert diary.lines == ["initial a@1", "update a@1 to 6"]


def test_events_older_than_an_observed_answer_are_dropped() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1))

    informer.observe(config("a", 8))
    changed(informer, config("a", 6))
    changed(informer, config("a", 7))

    assert stored(informer) == {"a": "8"}
    assert diary.lines == ["initial a@1", "update a@1 to 8"]


def test_an_answer_that_the_watch_has_overtaken_is_ignored() -> None:
    informer, _ = informer_of()
    listed(informer, 5, config("a", 1))
    changed(informer, config("a", 9))

    informer.observe(config("a", 8))

    assert stored(informer) == {"a": "9"}


def test_an_answer_for_what_was_deleted_meanwhile_does_not_bring_it_back() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1))
    changed(informer, config("a", 6))
    deleted(informer, config("a", 7))

    informer.observe(config("a", 6))

    assert stored(informer) == {}
    assert diary.lines[-1] == "delete a@7"


def test_an_answer_older_than_a_bookmark_does_not_bring_back_what_is_not_there() -> None:
    informer, _ = informer_of()
    listed(informer, 5)
    reached(informer, 20)

    informer.observe(config("a", 15))

    assert stored(informer) == {}


def test_a_created_object_is_there_before_its_event_and_told_once() -> None:
    informer, diary = informer_of()
    listed(informer, 5)

    informer.observe(config("a", 6))
    changed(informer, config("a", 6))

    assert diary.lines == ["add a@6"]


def test_the_deletion_of_an_observed_object_is_believed() -> None:
    informer, diary = informer_of()
    listed(informer, 5)
    informer.observe(config("a", 6))

    deleted(informer, config("a", 7))

    assert stored(informer) == {}
    assert diary.lines == ["add a@6", "delete a@7"]


def test_a_late_deletion_does_not_remove_what_was_made_again() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1, uid="first"))

    informer.observe(config("a", 8, uid="second"))
    deleted(informer, config("a", 7, uid="first"))

    assert stored(informer) == {"a": "8"}
    assert diary.lines == ["initial a@1", "delete a@1", "add a@8"]


def test_a_list_keeps_what_was_observed_and_is_newer() -> None:
    informer, diary = informer_of()
    listed(informer, 5, config("a", 1))
    informer.observe(config("a", 12))
    informer.observe(config("b", 13))

    listed(informer, 10, config("a", 9))

    assert stored(informer) == {"a": "12", "b": "13"}
    assert diary.lines == ["initial a@1", "update a@1 to 12", "add b@13"]


def test_a_newer_list_removes_what_was_observed_and_deleted_since() -> None:
    informer, diary = informer_of()
    listed(informer, 5)
    informer.observe(config("a", 6))

    listed(informer, 10)

    assert stored(informer) == {}
    assert diary.lines == ["add a@6", "delete a@6"]


def test_the_answer_that_ends_an_object_removes_it_at_once() -> None:
    informer, diary = informer_of()
    leaving = config("a", 6, deletion_timestamp=DELETED_AT, finalizers=["x"])
    listed(informer, 6, leaving)

    # The server answers the removal of the last finalizer with the version before.
    informer.observe(config("a", 6, deletion_timestamp=DELETED_AT))
    assert stored(informer) == {}
    changed(informer, leaving)
    deleted(informer, config("a", 7))

    assert diary.lines == ["initial a@6", "delete a@6"]
    assert informer._gone == {}


def test_a_list_from_before_the_end_does_not_bring_an_object_back() -> None:
    informer, diary = informer_of()
    leaving = config("a", 6, deletion_timestamp=DELETED_AT, finalizers=["x"])
    listed(informer, 6, leaving)
    informer.observe(config("a", 6, deletion_timestamp=DELETED_AT))

    listed(informer, 6, leaving)
    assert stored(informer) == {}
    listed(informer, 9)

    assert diary.lines == ["initial a@6", "delete a@6"]
    assert informer._gone == {}


def test_after_its_end_nothing_older_of_that_name_comes_back() -> None:
    informer, diary = informer_of()
    listed(informer, 5)
    informer.observe(config("a", 9, uid="second"))
    informer.observe(config("a", 9, uid="second", deletion_timestamp=DELETED_AT))

    changed(informer, config("a", 6, uid="first"))
    deleted(informer, config("a", 8, uid="first"))
    listed(informer, 8)  # Read before the second was made.
    changed(informer, config("a", 9, uid="second"))
    deleted(informer, config("a", 10, uid="second"))

    assert diary.lines == ["add a@9", "delete a@9"]
    assert informer._gone == {}


def test_a_restored_backup_ends_all_memory_of_what_ended() -> None:
    informer, _ = informer_of()
    listed(informer, 90, config("a", 90))
    informer.observe(config("a", 90, deletion_timestamp=DELETED_AT))

    listed(informer, 50)
    changed(informer, config("a", 51))

    assert stored(informer) == {"a": "51"}


def test_an_object_that_lives_on_after_all_comes_back() -> None:
    informer, _ = informer_of()
    listed(informer, 6, config("a", 6))
    informer.observe(config("a", 6, deletion_timestamp=DELETED_AT))

    changed(informer, config("a", 7))

    assert stored(informer) == {"a": "7"}


@pytest.mark.parametrize(
    "more", [{"finalizers": ["x"]}, {"deletion_grace_period_seconds": 30}], ids=str
)
def test_an_object_that_only_began_to_end_stays(more: dict[str, Any]) -> None:
    informer, _ = informer_of()
    listed(informer, 5, config("a", 1))

    informer.observe(config("a", 6, deletion_timestamp=DELETED_AT, **more))

    assert stored(informer) == {"a": "6"}


def test_the_end_of_an_object_nobody_knows_leaves_no_trace() -> None:
    informer, diary = informer_of()
    listed(informer, 9)

    informer.observe(config("a", 6, deletion_timestamp=DELETED_AT))

    assert (stored(informer), diary.lines, informer._gone) == ({}, [], {})


def test_every_order_of_write_answer_event_deletion_and_list_ends_in_the_same_state() -> None:
    """An object is made (6), changed by us (7), by somebody else (8), and deleted (9)."""
    made, ours, theirs = config("a", 6), config("a", 7), config("a", 8)
    watch = [
        ("event 6", lambda i: changed(i, made)),
        ("event 7", lambda i: changed(i, ours)),
        ("event 8", lambda i: changed(i, theirs)),
        ("event 9", lambda i: deleted(i, config("a", 9))),
    ]
    answers = [
        ("answer 6", lambda i: i.observe(made)),
        ("answer 7", lambda i: i.observe(ours)),
    ]
    for order in _interleavings(watch, answers):
        informer, diary = informer_of()
        listed(informer, 5)
        highest = 0
        for name, play in order:
            play(informer)
            version = int(stored(informer).get("a", "0"))
            assert version == 0 or version >= highest, (name, order)
            highest = max(highest, version)
        assert stored(informer) == {}, [name for name, _ in order]
        assert diary.objects == {}
        assert sum(line.startswith("delete") for line in diary.lines) == 1


def _interleavings(first: Sequence[Any], second: Sequence[Any]) -> Iterable[list[Any]]:
    total = len(first) + len(second)
    for places in itertools.combinations(range(total), len(second)):
        left, right = iter(first), iter(second)
        yield [next(right) if place in places else next(left) for place in range(total)]


# --- scopes ---------------------------------------------------------------------------------------

RED = Scope(labels=LabelSelector({"color": "red"}))
BIG = Scope(labels=LabelSelector({"size": "big"}))


def test_synced_is_when_every_scope_was_listed() -> None:
    informer, _ = informer_of(Scope("a"), Scope("b"))
    listed(informer, 5, scope=0)
    assert [informer.has_synced, informer.covers("a"), informer.covers()] == [False] * 3

    listed(informer, 6, scope=1)

    assert [informer.has_synced, informer.covers("a"), informer.covers()] == [True] * 3
    assert not informer.covers("c")


def test_an_object_in_two_scopes_is_one_object() -> None:
    informer, diary = informer_of(RED, BIG)
    both = config("a", 3, labels={"color": "red", "size": "big"})
    listed(informer, 5, both, scope=0)
    listed(informer, 5, both, scope=1)

    changed(informer, config("a", 6, labels=both.metadata.labels), scope=1)
    changed(informer, config("a", 6, labels=both.metadata.labels), scope=0)

    assert diary.lines == ["initial a@3", "update a@3 to 6"]


@pytest.mark.parametrize("leaver_first", [True, False])
def test_an_object_that_leaves_one_scope_stays_in_the_other(leaver_first: bool) -> None:
    informer, diary = informer_of(RED, BIG)
    both = config("a", 3, labels={"color": "red", "size": "big"})
    listed(informer, 5, both, scope=0)
    listed(informer, 5, both, scope=1)
    now = config("a", 6, labels={"size": "big"})

    if leaver_first:
        deleted(informer, now, scope=0)
        changed(informer, now, scope=1)
    else:
        changed(informer, now, scope=1)
        deleted(informer, now, scope=0)
    assert stored(informer) == {"a": "6"}

    deleted(informer, config("a", 7), scope=1)
    assert stored(informer) == {}
    assert diary.lines == ["initial a@3", "update a@3 to 6", "delete a@7"]


def test_a_list_of_one_scope_says_nothing_about_the_other() -> None:
    informer, _ = informer_of(RED, BIG)
    both = config("a", 3, labels={"color": "red", "size": "big"})
    listed(informer, 5, both, config("r", 2, labels={"color": "red"}), scope=0)
    listed(informer, 5, both, config("b", 4, labels={"size": "big"}), scope=1)

    listed(informer, 9, scope=0)
    assert stored(informer) == {"a": "3", "b": "4"}

    listed(informer, 9, scope=1)
    assert stored(informer) == {}


def test_an_older_list_of_one_scope_does_not_take_back_what_the_other_told() -> None:
    informer, _ = informer_of(RED, BIG)
    labels = {"color": "red", "size": "big"}
    listed(informer, 20, config("a", 12, labels=labels), scope=0)

    listed(informer, 10, config("a", 8, labels=labels), scope=1)

    assert stored(informer) == {"a": "12"}


@pytest.mark.parametrize("how", ["event", "list"])
def test_a_scope_that_lost_an_object_long_ago_does_not_keep_it(how: str) -> None:
    informer, diary = informer_of(RED, BIG)
    labels = {"color": "red", "size": "big"}
    listed(informer, 5, config("a", 3, labels=labels), scope=0)
    listed(informer, 5, config("a", 3, labels=labels), scope=1)
    changed(informer, config("a", 12, labels={"size": "big"}), scope=1)

    if how == "event":
        deleted(informer, config("a", 8), scope=0)
    else:
        listed(informer, 10, scope=0)
    assert stored(informer) == {"a": "12"}
    deleted(informer, config("a", 13), scope=1)

    assert stored(informer) == {}
    assert diary.objects == {}


def test_an_answer_outside_of_all_scopes_is_ignored() -> None:
    informer, _ = informer_of(Scope("other"), RED)
    listed(informer, 5, scope=0)
    listed(informer, 5, scope=1)

    informer.observe(config("a", 6, labels={"color": "blue"}))

    assert stored(informer) == {}


# --- a model --------------------------------------------------------------------------------------

NAMES = ("a", "b")
ACTIONS = st.sampled_from(
    [
        *("create", "write", "write by others", "delete", "finish", "read list"),
        *("event", "answer", "event", "answer"),
    ]
)
STEPS = st.tuples(ACTIONS, st.sampled_from(NAMES), st.integers(0, 5))
PLANS = st.lists(STEPS, min_size=20, max_size=60) | st.lists(STEPS)


@settings(max_examples=500, deadline=None)
@given(PLANS)
def test_whatever_the_order_the_cache_never_goes_back_and_ends_at_the_truth(
    plan: list[tuple[str, str, int]],
) -> None:
    """A server with a history; its events, our answers and lists arrive whenever they like."""
    server = ModelServer()
    informer, diary = informer_of()
    listed(informer, server.version)
    answers: list[ConfigMap] = []
    written: dict[str, int] = {}
    ended: set[str] = set()

    def answer(obj: ConfigMap) -> None:
        informer.observe(obj)
        if obj.is_being_deleted:
            ended.add(obj.uid)
        written[obj.uid] = max(written.get(obj.uid, 0), int(_version(obj)))

    for action, name, pick in plan:
        before = _versions_by_uid(informer)
        match action:
            case "create" | "write":
                answers += server.write(name, create=action == "create")
            case "write by others":
                server.write(name, create=False)
            case "delete":
                server.delete(name)
            case "finish":
                answers += server.finish(name)
            case "event":
                server.deliver_next(informer)
            case "answer" if answers:  # Those about one object come in order.
                uid = answers[pick % len(answers)].uid
                answer(next(obj for obj in answers if obj.uid == uid))
                answers.remove(next(obj for obj in answers if obj.uid == uid))
            case "read list":
                server.read_list()
        after = _versions_by_uid(informer)
        for uid in before.keys() & after.keys():
            assert after[uid] >= before[uid]
        for uid, version in written.items():  # We read our own writes, or it is gone.
            assert after.get(uid, version) >= version
        assert not ended & after.keys()
        assert diary.objects == {obj.key: obj for obj in informer.store}

    while server.deliver_next(informer):
        pass
    for obj in answers:
        answer(obj)
    assert dict(_items(informer.store)) == dict(_items(server.objects.values()))
    assert diary.objects == {obj.key: obj for obj in informer.store}
    assert informer._gone == {}


def _version(obj: KubeObject) -> str:
    return obj.metadata.resource_version


def _versions_by_uid(informer: Informer[ConfigMap]) -> dict[str, int]:
    return {obj.uid: int(_version(obj)) for obj in informer.store}


def _items(objects: Iterable[KubeObject]) -> Iterable[tuple[NamespacedName, tuple[str, str]]]:
    return ((obj.key, (obj.uid, _version(obj))) for obj in objects)


class ModelServer:
    """Objects, and the history of what happened to them that the watch has not told yet."""

    def __init__(self) -> None:
        self.version = 5
        self.objects: dict[str, ConfigMap] = {}
        self._history: list[tuple[str, ConfigMap]] = []
        self._list: tuple[int, list[ConfigMap]] | None = None
        self._made = itertools.count()

    def write(self, name: str, *, create: bool) -> list[ConfigMap]:
        """Returns the answer, if it could be done."""
        old = self.objects.get(name)
        if create is (old is not None):
            return []
        self.version += 1
        uid = old.uid if old is not None else f"{name}-{next(self._made)}"
        obj = self.objects[name] = config(name, self.version, uid=uid)
        self._history.append(("changed", obj))
        return [obj]

    def delete(self, name: str) -> ConfigMap | None:
        old = self.objects.pop(name, None)
        if old is not None:
            self.version += 1
            self._history.append(("deleted", config(name, self.version, uid=old.uid)))
        return old

    def finish(self, name: str) -> list[ConfigMap]:
        """Take the last finalizer from an object: the answer shows its state before that."""
        old = self.delete(name)
        if old is None:
            return []
        return [config(name, _version(old), uid=old.uid, deletion_timestamp=DELETED_AT)]

    def read_list(self) -> None:
        """The reflector reads a list: until it is delivered, there are no events."""
        self._list = self.version, list(self.objects.values())

    def deliver_next(self, informer: Informer[ConfigMap]) -> bool:
        if self._list is not None:
            (version, objects), self._list = self._list, None
            listed(informer, version, *objects)
            self._history = [item for item in self._history if int(_version(item[1])) > version]
            return True
        if not self._history:
            return False
        what, obj = self._history.pop(0)
        (changed if what == "changed" else deleted)(informer, obj)
        return True


# --- the whole thing ------------------------------------------------------------------------------


def test_the_transform_is_applied_to_all_that_comes_in() -> None:
    template = {"shared": "x"}

    def share(obj: ConfigMap) -> ConfigMap:
        obj.data = template
        return obj

    transport = InProcessTransport(Nothing())
    informer = Informer(ConfigMap, [Scope()], transport, SCHEME, transform=share)
    listed(informer, 5, config("a", 1))
    changed(informer, config("b", 6))
    informer.observe(config("c", 7))

    assert all(obj.data is template for obj in informer.store)
    assert len(informer.store) == 3


def test_an_informer_without_a_scope_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="Pod has no scope"):
        Informer(Pod, [], InProcessTransport(Nothing()), SCHEME)


async def test_its_status_tells_how_each_scope_is_doing() -> None:
    transport = InProcessTransport(Nothing())
    moment = datetime(2025, 3, 4, tzinfo=UTC)
    informer = Informer(ConfigMap, [Scope("ns"), RED], transport, SCHEME, now=lambda: moment)
    informer._followers[0].reached("7")

    first, second = informer.status()

    assert (first.namespace, first.last_heard) == ("ns", moment)
    assert (second.labels, second.last_heard) == ("color=red", None)
    assert not informer.has_synced
    waiting = asyncio.create_task(informer.wait_for_sync())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
