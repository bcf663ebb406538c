"""Requests drawn from a seed.

A sequence is about two or three kinds and three names each, so that its requests meet each other.
About one in three is wrong on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from arc_controller.testing.apiserver.differential.mistakes import spoil
from arc_controller.testing.apiserver.differential.objects import change, status, valid
from arc_controller.testing.apiserver.differential.steps import (
    COLLECTIONS,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    WATCH,
    Query,
    Step,
    path_of,
)
from arc_controller.testing.apiserver.messages import JSON, Object
from arc_controller.testing.apiserver.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC


def generate(random: Random, count: int, kinds: tuple[str, ...] = tuple(COLLECTIONS)) -> list[Step]:
    """A sequence of `count` requests about some of the kinds."""
    chosen = random.sample(kinds, min(len(kinds), random.choice([1, 2, 3])))
    return [_draw(random, random.choice(chosen)) for _ in range(count)]


def _draw(random: Random, kind: str) -> Step:
    operation = random.choice(_OPERATIONS)
    return operation(random, kind, random.choice("abc"))


def _create(random: Random, kind: str, name: str) -> Step:
    query: Query = (("dryRun", "All"),) if random.random() < 0.1 else ()
    return Step("POST", path_of(kind), valid(random, kind, name), query=query)


def _generate_name(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    del body["metadata"]["name"]
    # A prefix of its own: what is generated behind it then never decides an order.
    body["metadata"]["generateName"] = f"g{random.randrange(10**6)}-"
    return Step("POST", path_of(kind), body)


def _put(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    lock = random.choice(["", f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}", "junk"])
    if lock:
        body["metadata"]["resourceVersion"] = lock
    if random.random() < 0.2:
        body["metadata"]["uid"] = f"${{uid:{kind}/{random.choice('abc')}}}"
    return Step("PUT", path_of(kind, name), body)


def _put_status(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    body["status"] = status(random, kind)
    body["metadata"]["resourceVersion"] = f"${{version:{kind}/{name}}}"
    return Step("PUT", f"{path_of(kind, name)}/status", body)


def _merge(random: Random, kind: str, name: str) -> Step:
    patch = change(random, kind)
    lock = random.choice(["", "", f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}"])
    if lock:
        patch.setdefault("metadata", {})["resourceVersion"] = lock
    query: Query = ()
    if random.random() < 0.15:
        query = (("fieldValidation", random.choice(["Strict", "Warn", "Ignore", "Never"])),)
    return Step("PATCH", path_of(kind, name), patch, MERGE, query)


def _strategic(random: Random, kind: str, name: str) -> Step:
    if kind == "pods" and random.random() < 0.5:
        containers: list[Object] = [{"name": "c", "image": random.choice(["i", "i:2"])}]
        if random.random() < 0.2:
            containers.append({"name": "d", "image": "i"})
        return Step("PATCH", path_of(kind, name), {"spec": {"containers": containers}}, STRATEGIC)
    if kind == "serviceaccounts" and random.random() < 0.5:
        secrets: list[Object] = [{"name": random.choice("xyz")}]
        if random.random() < 0.3:
            secrets[0]["$patch"] = "delete"
        body: Object = {random.choice(["secrets", "imagePullSecrets"]): secrets}
        return Step("PATCH", path_of(kind, name), body, STRATEGIC)
    return Step("PATCH", path_of(kind, name), change(random, kind), STRATEGIC)


def _json_patch(random: Random, kind: str, name: str) -> Step:
    path = random.choice(
        [
            "/metadata/labels",
            "/metadata/annotations/x",
            "/metadata/labels/l",
            "/metadata/finalizers/-",
            "/metadata/finalizers/0",
            "/spec/replicas",
            "/data/p",
            "/nope/x",
            "metadata",
        ]
    )
    change = {
        "op": random.choice(["add", "replace", "remove", "test", "add", "replace", "move", "what"]),
        "path": path,
        "value": random.choice(["1", {"l": "2"}, "x.io/g"]),
    }
    changes = [change]
    if random.random() < 0.3:
        version = random.choice([f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}"])
        changes.insert(0, {"op": "test", "path": "/metadata/resourceVersion", "value": version})
    return Step("PATCH", path_of(kind, name), changes, JSON_PATCH)


def _status_patch(random: Random, kind: str, name: str) -> Step:
    body = {
        "status": status(random, kind),
        "metadata": {"annotations": {"x": random.choice("12")}},
    }
    return Step("PATCH", f"{path_of(kind, name)}/status", body, MERGE)


def _apply(random: Random, kind: str, name: str) -> Step:
    query: Query = (("fieldManager", random.choice(["m1", "m2"])),)
    if random.random() < 0.4:
        query += (("force", "true"),)
    if random.random() < 0.1:
        query = ()
    body = valid(random, kind, name)
    chance = random.random()
    if chance < 0.08:
        body["metadata"]["resourceVersion"] = random.choice(
            [f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}"]
        )
    elif chance < 0.12:
        body.pop(random.choice(["kind", "apiVersion"]))
    elif chance < 0.16:
        body["metadata"]["managedFields"] = [{"manager": "x"}]
    return Step("PATCH", path_of(kind, name), body, APPLY, query)


def _delete(random: Random, kind: str, name: str) -> Step:
    options: Object = {}
    if random.random() < 0.3:
        options["gracePeriodSeconds"] = random.choice([0, 1, 5])
    if random.random() < 0.5:
        options["propagationPolicy"] = random.choice(["Background", "Foreground", "Orphan"])
    if random.random() < 0.3:
        options["preconditions"] = random.choice(
            [
                {"uid": f"${{uid:{kind}/{name}}}"},
                {"uid": "00000000-0000-0000-0000-000000000001"},
                {"resourceVersion": f"${{version:{kind}/{name}}}"},
                {"resourceVersion": f"${{first:{kind}/{name}}}"},
            ]
        )
    return Step("DELETE", path_of(kind, name), options or None)


def _bad_delete(random: Random, kind: str, name: str) -> Step:
    options: Object = random.choice(
        [
            {"propagationPolicy": "Never"},
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            {"orphanDependents": random.choice([True, False])},
            {"gracePeriodSeconds": -1},
            {"dryRun": ["All"]},
            {"dryRun": ["Some"]},
            {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": "x"},
        ]
    )
    return Step("DELETE", path_of(kind, name), options)


def _delete_collection(random: Random, kind: str, name: str) -> Step:
    return Step("DELETE", path_of(kind), query=(("labelSelector", random.choice(["l=1", "l=2"])),))


def _hold(random: Random, kind: str, name: str) -> Step:
    return Step("PATCH", path_of(kind, name), {"metadata": {"finalizers": ["x.io/f"]}}, MERGE)


def _release(random: Random, kind: str, name: str) -> Step:
    return Step("PATCH", path_of(kind, name), {"metadata": {"finalizers": None}}, MERGE)


def _get(random: Random, kind: str, name: str) -> Step:
    return Step("GET", path_of(kind, name), accept=random.choice(["", "", "", TABLE, PARTIAL]))


def _list(random: Random, kind: str, name: str) -> Step:
    accept = random.choice(["", "", "", TABLE, PARTIAL_LIST])
    return Step("GET", path_of(kind), query=_selector(random, kind), accept=accept)


def _page(random: Random, kind: str, name: str) -> Step:
    query: Query = (("limit", random.choice("12")),)
    if random.random() < 0.6:
        query += (("continue", f"${{continue:{kind}}}"),)
    elif random.random() < 0.5:
        query += _selector(random, kind)
    return Step("GET", path_of(kind), query=query)


def _odd_list(random: Random, kind: str, name: str) -> Step:
    query: Query = random.choice(
        [
            (("continue", "!!"), ("limit", "1")),
            (("continue", f"${{continue:{kind}}}"), ("resourceVersion", "5")),
            (("limit", "x"),),
            (("resourceVersion", "x"),),
            (("resourceVersion", "99999999"),),
            (("resourceVersionMatch", "Exact"),),
            (("resourceVersion", "0"), ("resourceVersionMatch", "Exact")),
            (("resourceVersion", "${start}"), ("resourceVersionMatch", "Some")),
            (("resourceVersion", "${start}"), ("resourceVersionMatch", "Exact")),
            (("resourceVersion", f"${{list:{kind}}}"), ("resourceVersionMatch", "Exact")),
            (("resourceVersion", f"${{list:{kind}}}"), ("resourceVersionMatch", "NotOlderThan")),
            (("labelSelector", "l=="),),
            (("labelSelector", "l in ("),),
            (("labelSelector", "l=x y"),),
            (("labelSelector", "-l=1"),),
            (("fieldSelector", "spec.nope=1"),),
            (("fieldSelector", "metadata.name"),),
        ]
    )
    return Step("GET", path_of(kind), query=query)


def _watch(random: Random, kind: str, name: str) -> Step:
    starts: list[Query] = [
        (),
        (("resourceVersion", "${start}"),),
        (("resourceVersion", f"${{list:{kind}}}"),),
        (("resourceVersion", f"${{first:{kind}/{name}}}"),),
        (("resourceVersion", f"${{version:{kind}/{name}}}"),),
        (
            ("sendInitialEvents", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
        ),
    ]
    query = random.choice(starts)
    if random.random() < 0.4:
        query += random.choice(_selectors(kind))
    return Step(WATCH, path_of(kind), query=query, accept=random.choice(["", "", "", PARTIAL]))


def _odd_watch(random: Random, kind: str, name: str) -> Step:
    query: Query = random.choice(
        [
            (("resourceVersion", "junk"),),
            (("sendInitialEvents", "true"),),
            (("sendInitialEvents", "true"), ("resourceVersionMatch", "Exact")),
            (("resourceVersionMatch", "NotOlderThan"), ("resourceVersion", "${start}")),
            (("fieldSelector", "spec.nope=1"),),
            (("labelSelector", "l in ("),),
            (("timeoutSeconds", "x"),),
        ]
    )
    return Step(WATCH, path_of(kind), query=query)


def _selectors(kind: str) -> list[Query]:
    found: list[Query] = [
        (("labelSelector", "l=1"),),
        (("labelSelector", "!l"),),
        (("labelSelector", "l"),),
        (("labelSelector", "l in (1,3)"),),
        (("labelSelector", "l notin (1)"),),
        (("labelSelector", "l!=2,l"),),
        (("fieldSelector", "metadata.name=a"),),
        (("fieldSelector", "metadata.name!=a"),),
        (("labelSelector", "l=1"), ("fieldSelector", "metadata.name!=b")),
    ]
    if kind == "pods":
        found += [
            (("fieldSelector", "status.phase=Running"),),
            (("fieldSelector", "spec.nodeName=n1"),),
            (("fieldSelector", "spec.nodeName!=n1,metadata.name!=c"),),
        ]
    if kind == "secrets":
        found.append((("fieldSelector", "type=Opaque"),))
    return found


def _selector(random: Random, kind: str) -> Query:
    return () if random.random() < 0.3 else random.choice(_selectors(kind))


def _invalid(random: Random, kind: str, name: str) -> Step:
    """A create, update or apply of an object with one thing wrong."""
    body = valid(random, kind, name)
    spoil(random, body)
    method = random.choice(["POST", "POST", "POST", "PUT", "APPLY"])
    query: Query = ()
    if random.random() < 0.4:
        query = (("fieldValidation", random.choice(["Strict", "Warn", "Ignore"])),)
    if method == "POST":
        return Step("POST", path_of(kind), body, query=query)
    if method == "PUT":
        return Step("PUT", path_of(kind, name), body, query=query)
    return Step("PATCH", path_of(kind, name), body, APPLY, (("fieldManager", "m3"), *query))


def _not_an_object(random: Random, kind: str, name: str) -> Step:
    raw = random.choice(['{"metadata":', "[]", "null", '"x"', "", "{}", "nonsense", "7"])
    types = {"POST": [JSON], "PUT": [JSON], "PATCH": [MERGE, JSON_PATCH, STRATEGIC, APPLY]}
    method = random.choice(list(types))
    path = path_of(kind) if method == "POST" else path_of(kind, name)
    query: Query = (("fieldManager", "m1"),) if method == "PATCH" else ()
    return Step(method, path, None, random.choice(types[method]), query, raw=raw)


def _wrong_type(random: Random, kind: str, name: str) -> Step:
    method = random.choice(["POST", "PUT", "PATCH"])
    path = path_of(kind) if method == "POST" else path_of(kind, name)
    content_type = random.choice(["text/plain", "application/xml", "application/octet-stream"])
    return Step(method, path, valid(random, kind, name), content_type)


def _wrong_place(random: Random, kind: str, name: str) -> Step:
    collection = path_of(kind)
    return random.choice(
        [
            Step("PUT", collection, valid(random, kind, name)),
            Step("POST", f"{collection}/{name}", valid(random, kind, name)),
            Step("PATCH", collection, {}, MERGE),
            Step("GET", f"{collection}/{name}/nope"),
            Step("GET", f"{collection}s"),
            Step("POST", collection.replace("{namespace}", "nowhere"), valid(random, kind, name)),
            Step("GET", collection.replace("{namespace}", "nowhere")),
            Step("POST", collection, valid(random, kind, name), query=(("dryRun", "Some"),)),
            Step(
                "POST", collection, valid(random, kind, name), query=(("fieldManager", "x" * 129),)
            ),
        ]
    )


Operation = Callable[[Random, str, str], Step]

_OPERATIONS: list[Operation] = [
    *[_create] * 8,
    *[_merge] * 6,
    *[_apply] * 6,
    *[_delete] * 5,
    *[_status_patch] * 4,
    *[_put] * 4,
    *[_invalid] * 8,
    *[_json_patch] * 3,
    *[_strategic] * 3,
    *[_page] * 3,
    *[_list] * 2,
    *[_get] * 2,
    *[_watch] * 2,
    _put_status,
    _generate_name,
    _hold,
    _release,
    _release,
    _bad_delete,
    _delete_collection,
    _odd_list,
    _odd_watch,
    _not_an_object,
    _wrong_type,
    _wrong_place,
]
