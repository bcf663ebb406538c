"""The debug log of writes and reconciles: enough to follow them, and no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from arc_controller.api import SCHEME
from arc_controller.api.core import Secret
from arc_controller.runtime import client as client_module
from arc_controller.runtime import controller as controller_module
from arc_controller.runtime.changes import changed_fields
from arc_controller.runtime.client import ApiClient
from arc_controller.runtime.controller import Controller, Result
from arc_controller.runtime.objects import NamespacedName, ObjectMeta
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import simulated
from arc_controller.testing.transport import InProcessTransport

KEY = NamespacedName("default", "creds")


def test_fields_are_named_and_texts_are_not_shown() -> None:
    patch = {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"example.com/note": "planted", "old": None},
            "finalizers": ["planted"],
        },
        "spec": {"replicas": 3, "paused": True, "share": 0.5, "extra": {}, "name": "planted"},
        "status": None,
    }
    assert changed_fields(patch) == [
        "metadata.annotations[example.com/note]",
        "metadata.annotations.old=null",
        "metadata.finalizers",
        "spec.replicas=3",
        "spec.paused=true",
        "spec.share=0.5",
        "spec.extra",
        "spec.name",
        "status=null",
    ]


Lines = list[dict[str, Any]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What client and controller log at level debug."""
    taken: Lines = []

    def take(_logger: Any, _method: str, event: Any) -> Any:
        taken.append(dict(event))
        raise structlog.DropEvent

    processors = [structlog.contextvars.merge_contextvars, take]
    for module in (client_module, controller_module):
        logger = structlog.wrap_logger(
            structlog.PrintLogger(),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(10),
        )
        monkeypatch.setattr(module, "log", logger)
    yield taken
    assert "planted" not in repr(taken)


async def test_each_write_says_verb_kind_name_and_fields_but_not_what_is_in_a_secret(
    lines: Lines,
) -> None:
    api = ApiServer()
    client = ApiClient(InProcessTransport(api), SCHEME)
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await client.create(Secret(metadata=metadata, data={"github_token": b"planted"}))
    await client.patch(Secret, KEY, {"stringData": {"github_token": "planted-2"}})
    await client.get(Secret, KEY)
    await client.delete(Secret, KEY)
    await client.delete(Secret, KEY)
    await api.aclose()
    common = {"kind": "Secret", "object": "default/creds"}
    assert lines == [
        {"event": "created", **common},
        {"event": "patched", **common, "fields": ["stringData.github_token"]},
        {"event": "deleted", **common},
        {"event": "was deleted already", **common},
    ]


def test_each_reconcile_says_what_came_of_it(lines: Lines) -> None:
    class Reconciler:
        async def reconcile(self, key: NamespacedName) -> Result:
            return Result(requeue_after=30.0 if key.name == "later" else None)

    @simulated
    async def scenario() -> None:
        controller = Controller("things", Reconciler())
        for name in ("done", "later"):
            await controller._process(NamespacedName("ci", name))

    scenario()
    common = {"controller": "things", "namespace": "ci"}
    assert lines == [
        {"event": "reconciled", **common, "name": "done", "outcome": "success", "seconds": 0.0},
        {"event": "looks again later", **common, "name": "later", "seconds": 30.0},
        {
            "event": "reconciled",
            **common,
            "name": "later",
            "outcome": "requeue_after",
            "seconds": 0.0,
        },
    ]
