"""Requests drawn from a seed, for the comparison of two API servers.

A sequence is about two or three kinds and three names each, so that its requests meet each other.
About one in three is wrong on purpose. What only one server knows (a resourceVersion, a uid, a
continue token) is written as a placeholder that each side fills from its own answers; see
`differential.Memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from arc_controller.testing.apiserver.messages import JSON, Object
from arc_controller.testing.apiserver.patch import APPLY, JSON_PATCH, MERGE, STRATEGIC

WIDGETS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.differential.example.com"},
    "spec": {
        "group": "differential.example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "minimum": 0},
                                    "mode": {
                                        "type": "string",
                                        "enum": ["Fast", "Slow"],
                                        "default": "Fast",
                                    },
                                    "tags": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "x-kubernetes-list-type": "set",
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""The custom resource of generated sequences; install it on both sides."""

_CORE = "/api/v1/namespaces/{namespace}"
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
_OURS = "/apis/actions.github.com/v1alpha1/namespaces/{namespace}"

COLLECTIONS = {
    "widgets": "/apis/differential.example.com/v1/namespaces/{namespace}/widgets",
    "pods": f"{_CORE}/pods",
    "configmaps": f"{_CORE}/configmaps",
    "secrets": f"{_CORE}/secrets",
    "serviceaccounts": f"{_CORE}/serviceaccounts",
    "roles": f"{_RBAC}/roles",
    "rolebindings": f"{_RBAC}/rolebindings",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
    "ephemeralrunners": f"{_OURS}/ephemeralrunners",
    "ephemeralrunnersets": f"{_OURS}/ephemeralrunnersets",
    "autoscalingrunnersets": f"{_OURS}/autoscalingrunnersets",
    "autoscalinglisteners": f"{_OURS}/autoscalinglisteners",
}
"""Where the kinds of a sequence live. The last four need the definitions of config/crd."""

WATCH = "WATCH"
"""The method of a step that opens a watch; its events are compared when the sequence is over."""

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"

Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `{namespace}` in the path is filled in, placeholders everywhere else.

    `raw` is sent instead of the body as it is.
    """

    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    query: Query = ()
    accept: str = ""
    raw: str | None = None


def generate(random: Random, count: int, kinds: tuple[str, ...] = tuple(COLLECTIONS)) -> list[Step]:
    """A sequence of `count` requests about some of the kinds."""
    chosen = random.sample(kinds, min(len(kinds), random.choice([1, 2, 3])))
    return [_draw(random, random.choice(chosen)) for _ in range(count)]


def collections_of(steps: Sequence[Step]) -> list[str]:
    """The paths of the collections that the steps are about."""
    return [
        path
        for path in COLLECTIONS.values()
        if any(step.path == path or step.path.startswith(f"{path}/") for step in steps)
    ]


def _draw(random: Random, kind: str) -> Step:
    operation = random.choice(_OPERATIONS)
    return operation(random, kind, random.choice("abc"))


def _path(kind: str, name: str = "") -> str:
    return f"{COLLECTIONS[kind]}/{name}" if name else COLLECTIONS[kind]


# What is asked


def _create(random: Random, kind: str, name: str) -> Step:
    query: Query = (("dryRun", "All"),) if random.random() < 0.1 else ()
    return Step("POST", _path(kind), valid(random, kind, name), query=query)


def _generate_name(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    del body["metadata"]["name"]
    # A prefix of its own: what is generated behind it then never decides an order.
    body["metadata"]["generateName"] = f"g{random.randrange(10**6)}-"
    return Step("POST", _path(kind), body)


def _put(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    lock = random.choice(["", f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}", "junk"])
    if lock:
        body["metadata"]["resourceVersion"] = lock
    if random.random() < 0.2:
        body["metadata"]["uid"] = f"${{uid:{kind}/{random.choice('abc')}}}"
    return Step("PUT", _path(kind, name), body)


def _put_status(random: Random, kind: str, name: str) -> Step:
    body = valid(random, kind, name)
    body["status"] = _status(random, kind)
    body["metadata"]["resourceVersion"] = f"${{version:{kind}/{name}}}"
    return Step("PUT", f"{_path(kind, name)}/status", body)


def _merge(random: Random, kind: str, name: str) -> Step:
    patch = _change(random, kind)
    lock = random.choice(["", "", f"${{version:{kind}/{name}}}", f"${{first:{kind}/{name}}}"])
    if lock:
        patch.setdefault("metadata", {})["resourceVersion"] = lock
    query: Query = ()
    if random.random() < 0.15:
        query = (("fieldValidation", random.choice(["Strict", "Warn", "Ignore", "Never"])),)
    return Step("PATCH", _path(kind, name), patch, MERGE, query)


def _strategic(random: Random, kind: str, name: str) -> Step:
    if kind == "pods" and random.random() < 0.5:
        containers: list[Object] = [{"name": "c", "image": random.choice(["i", "i:2"])}]
        if random.random() < 0.2:
            containers.append({"name": "d", "image": "i"})
        return Step("PATCH", _path(kind, name), {"spec": {"containers": containers}}, STRATEGIC)
    if kind == "serviceaccounts" and random.random() < 0.5:
        secrets: list[Object] = [{"name": random.choice("xyz")}]
        if random.random() < 0.3:
            secrets[0]["$patch"] = "delete"
        body: Object = {random.choice(["secrets", "imagePullSecrets"]): secrets}
        return Step("PATCH", _path(kind, name), body, STRATEGIC)
    return Step("PATCH", _path(kind, name), _change(random, kind), STRATEGIC)


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
    return Step("PATCH", _path(kind, name), changes, JSON_PATCH)


def _status_patch(random: Random, kind: str, name: str) -> Step:
    body = {
        "status": _status(random, kind),
        "metadata": {"annotations": {"x": random.choice("12")}},
    }
    return Step("PATCH", f"{_path(kind, name)}/status", body, MERGE)


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
    return Step("PATCH", _path(kind, name), body, APPLY, query)


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
    return Step("DELETE", _path(kind, name), options or None)


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
    return Step("DELETE", _path(kind, name), options)


def _delete_collection(random: Random, kind: str, name: str) -> Step:
    return Step("DELETE", _path(kind), query=(("labelSelector", random.choice(["l=1", "l=2"])),))


def _hold(random: Random, kind: str, name: str) -> Step:
    return Step("PATCH", _path(kind, name), {"metadata": {"finalizers": ["x.io/f"]}}, MERGE)


def _release(random: Random, kind: str, name: str) -> Step:
    return Step("PATCH", _path(kind, name), {"metadata": {"finalizers": None}}, MERGE)


def _get(random: Random, kind: str, name: str) -> Step:
    return Step("GET", _path(kind, name), accept=random.choice(["", "", "", TABLE, PARTIAL]))


def _list(random: Random, kind: str, name: str) -> Step:
    accept = random.choice(["", "", "", TABLE, PARTIAL_LIST])
    return Step("GET", _path(kind), query=_selector(random, kind), accept=accept)


def _page(random: Random, kind: str, name: str) -> Step:
    query: Query = (("limit", random.choice("12")),)
    if random.random() < 0.6:
        query += (("continue", f"${{continue:{kind}}}"),)
    elif random.random() < 0.5:
        query += _selector(random, kind)
    return Step("GET", _path(kind), query=query)


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
    return Step("GET", _path(kind), query=query)


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
    return Step(WATCH, _path(kind), query=query, accept=random.choice(["", "", "", PARTIAL]))


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
    return Step(WATCH, _path(kind), query=query)


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
    random.choice(_MISTAKES)(random, body)
    method = random.choice(["POST", "POST", "POST", "PUT", "APPLY"])
    query: Query = ()
    if random.random() < 0.4:
        query = (("fieldValidation", random.choice(["Strict", "Warn", "Ignore"])),)
    if method == "POST":
        return Step("POST", _path(kind), body, query=query)
    if method == "PUT":
        return Step("PUT", _path(kind, name), body, query=query)
    return Step("PATCH", _path(kind, name), body, APPLY, (("fieldManager", "m3"), *query))


def _not_an_object(random: Random, kind: str, name: str) -> Step:
    raw = random.choice(['{"metadata":', "[]", "null", '"x"', "", "{}", "nonsense", "7"])
    types = {"POST": [JSON], "PUT": [JSON], "PATCH": [MERGE, JSON_PATCH, STRATEGIC, APPLY]}
    method = random.choice(list(types))
    path = _path(kind) if method == "POST" else _path(kind, name)
    query: Query = (("fieldManager", "m1"),) if method == "PATCH" else ()
    return Step(method, path, None, random.choice(types[method]), query, raw=raw)


def _wrong_type(random: Random, kind: str, name: str) -> Step:
    method = random.choice(["POST", "PUT", "PATCH"])
    path = _path(kind) if method == "POST" else _path(kind, name)
    content_type = random.choice(["text/plain", "application/xml", "application/octet-stream"])
    return Step(method, path, valid(random, kind, name), content_type)


def _wrong_place(random: Random, kind: str, name: str) -> Step:
    collection = _path(kind)
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


# What it is about


def valid(random: Random, kind: str, name: str) -> Object:
    """An object that its kind accepts (a widget's replicas aside, which are wrong now and then)."""
    body = _OBJECTS[kind](random)
    meta: Object = {"name": name}
    if random.random() < 0.4:
        meta["labels"] = {"l": random.choice("12")}
    if random.random() < 0.2:
        meta["finalizers"] = ["x.io/f"]
    if random.random() < 0.15:
        owner = random.choice("abc")
        reference: Object = {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "name": owner,
            "uid": f"${{uid:{kind}/{owner}}}",
        }
        if random.random() < 0.5:
            reference |= {"controller": True, "blockOwnerDeletion": True}
        meta["ownerReferences"] = [reference]
    return {
        "apiVersion": body.pop("apiVersion"),
        "kind": body.pop("kind"),
        "metadata": meta,
        **body,
    }


def _widget(random: Random) -> Object:
    spec: Object = {"replicas": random.choice([0, 1, 2, 2, -1, "x"])}
    if random.random() < 0.4:
        spec["tags"] = random.sample(["x", "y", "z"], random.randint(0, 3))
    if random.random() < 0.3:
        spec["mode"] = random.choice(["Slow", "Medium"])
    return {"apiVersion": "differential.example.com/v1", "kind": "Widget", "spec": spec}


def _pod(random: Random) -> Object:
    spec: Object = {"containers": [{"name": "c", "image": random.choice(["i", "i:1"])}]}
    if random.random() < 0.5:
        spec["nodeName"] = "n1"
    if random.random() < 0.3:
        spec["terminationGracePeriodSeconds"] = random.choice([0, 1, 30])
    if random.random() < 0.2:
        spec["volumes"] = [{"name": "v", "emptyDir": {}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    if random.random() < 0.2:
        spec["initContainers"] = [{"name": "i", "image": "i", "env": [{"name": "A"}]}]
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def _configmap(random: Random) -> Object:
    data = {random.choice("pqr"): random.choice("12") for _ in range(random.randint(0, 2))}
    body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
    if random.random() < 0.1:
        body["immutable"] = True
    return body


def _secret(random: Random) -> Object:
    body: Object = {"apiVersion": "v1", "kind": "Secret"}
    body[random.choice(["data", "stringData"])] = {
        random.choice("pq"): random.choice(["YQ==", "Yg=="])
    }
    if random.random() < 0.3:
        body["type"] = random.choice(["Opaque", "x.io/mine", "kubernetes.io/basic-auth"])
    if random.random() < 0.1:
        body["immutable"] = True
    return body


def _service_account(random: Random) -> Object:
    body: Object = {"apiVersion": "v1", "kind": "ServiceAccount"}
    if random.random() < 0.4:
        body["automountServiceAccountToken"] = random.choice([True, False])
    if random.random() < 0.4:
        body["imagePullSecrets"] = [{"name": random.choice("xy")}]
    return body


def _role(random: Random) -> Object:
    rules = [
        {"apiGroups": [""], "resources": [random.choice(["pods", "secrets"])], "verbs": ["get"]}
        for _ in range(random.randint(0, 2))
    ]
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}


def _role_binding(random: Random) -> Object:
    subjects = [
        {"kind": "ServiceAccount", "name": random.choice("ab"), "namespace": "default"},
        {"kind": "User", "name": "jane"},
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": random.choice(["a", "a", "b"]),
        },
        "subjects": random.sample(subjects, random.randint(0, 2)),
    }


def _lease(random: Random) -> Object:
    spec: Object = {"holderIdentity": random.choice("xy")}
    if random.random() < 0.5:
        spec["leaseDurationSeconds"] = random.choice([15, 15, 30, 0])
    if random.random() < 0.5:
        spec["renewTime"] = "2026-01-01T00:00:00.000000Z"
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}


_REGISTERED: Object = {
    "githubConfigUrl": "https://github.com/my-org",
    "githubConfigSecret": "pre-defined-secret",
}


def _template(random: Random) -> Object:
    container: Object = {"name": "runner", "image": random.choice(["r:1", "r:2"])}
    if random.random() < 0.3:
        container["resources"] = {"limits": {"cpu": random.choice([1, "500m"])}}
    if random.random() < 0.3:
        container["env"] = [{"name": "A", "value": random.choice("12")}]
    return {"containers": [container]}


def _ours(kind: str, spec: Object) -> Object:
    return {"apiVersion": "actions.github.com/v1alpha1", "kind": kind, "spec": spec}


def _runner(random: Random) -> Object:
    spec = {**_REGISTERED, "runnerScaleSetId": random.choice([1, 2]), "spec": _template(random)}
    return _ours("EphemeralRunner", spec)


def _runner_set(random: Random) -> Object:
    spec: Object = {"ephemeralRunnerSpec": _runner(random)["spec"]}
    if random.random() < 0.5:
        spec |= {"replicas": random.choice([0, 1, 3]), "patchID": random.choice([0, 1, 2])}
    return _ours("EphemeralRunnerSet", spec)


def _scale_set(random: Random) -> Object:
    spec: Object = {**_REGISTERED, "template": {"spec": _template(random)}}
    if random.random() < 0.5:
        spec |= {"minRunners": random.choice([0, 1]), "maxRunners": random.choice([1, 5])}
    return _ours("AutoscalingRunnerSet", spec)


def _listener(random: Random) -> Object:
    spec: Object = {
        **_REGISTERED,
        "runnerScaleSetId": 1,
        "autoscalingRunnerSetNamespace": "default",
        "autoscalingRunnerSetName": random.choice("ab"),
        "ephemeralRunnerSetName": "a",
        "image": random.choice(["m:1", "m:2"]),
    }
    return _ours("AutoscalingListener", spec)


_OBJECTS: dict[str, Callable[[Random], Object]] = {
    "widgets": _widget,
    "pods": _pod,
    "configmaps": _configmap,
    "secrets": _secret,
    "serviceaccounts": _service_account,
    "roles": _role,
    "rolebindings": _role_binding,
    "leases": _lease,
    "ephemeralrunners": _runner,
    "ephemeralrunnersets": _runner_set,
    "autoscalingrunnersets": _scale_set,
    "autoscalinglisteners": _listener,
}


def _status(random: Random, kind: str) -> Object:
    if kind in ("pods", "widgets", "ephemeralrunners"):
        return {"phase": random.choice(["Running", "Pending", "Succeeded"])}
    if kind == "ephemeralrunnersets":
        return {"currentReplicas": random.choice([1, 2])}
    if kind == "autoscalingrunnersets":
        return {"currentRunners": random.choice([1, 2, "x"])}
    return {}


_CHANGES: dict[str, list[Object]] = {
    "widgets": [{"spec": {"replicas": each, "nope": 1}} for each in (1, 2, None, "x")],
    "pods": [
        {"spec": {"activeDeadlineSeconds": 5}},
        {"spec": {"activeDeadlineSeconds": 6}},
        {"spec": {"nodeName": "n2"}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"containers": None}},
        {"spec": {"containers": [{"name": "c", "image": "i:3"}]}},
        {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
    ],
    "configmaps": [
        {"data": {"p": "1"}},
        {"data": {"p": None}},
        {"data": {"bad key": "1"}},
        {"data": {"p": 5}},
        {"immutable": False},
        {"binaryData": {"p": "YQ=="}},
    ],
    "secrets": [
        {"data": {"p": "YQ=="}},
        {"data": {"p": "not base64"}},
        {"stringData": {"p": "x"}},
        {"type": "Other"},
        {"immutable": False},
        {"data": {"bad key": "YQ=="}},
    ],
    "serviceaccounts": [
        {"automountServiceAccountToken": False},
        {"automountServiceAccountToken": "x"},
        {"secrets": [{"name": "x"}]},
        {"imagePullSecrets": None},
    ],
    "roles": [
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]},
        {"rules": [{"verbs": ["get"]}]},
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]},
        {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
        {"rules": None},
    ],
    "rolebindings": [
        {"roleRef": {"name": "c"}},
        {"roleRef": {"kind": "Nope"}},
        {"roleRef": None},
        {"subjects": None},
        {"subjects": [{"kind": "ServiceAccount", "name": "x"}]},
        {"subjects": [{"kind": "Thing", "name": "x"}]},
        {"subjects": [{"kind": "User"}]},
    ],
    "leases": [
        {"spec": {"leaseDurationSeconds": -1}},
        {"spec": {"leaseDurationSeconds": 20}},
        {"spec": {"renewTime": "soon"}},
        {"spec": {"leaseTransitions": -1}},
        {"spec": {"holderIdentity": ""}},
        {"spec": {"holderIdentity": None}},
    ],
    "ephemeralrunners": [
        {"spec": {"githubConfigUrl": None}},
        {"spec": {"runnerScaleSetId": "x"}},
        {"spec": {"spec": {"containers": None}}},
        {"spec": {"nope": 1}},
    ],
    "ephemeralrunnersets": [
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": -1}},
        {"spec": {"patchID": "x"}},
        {"spec": {"ephemeralRunnerSpec": None}},
    ],
    "autoscalingrunnersets": [
        {"spec": {"minRunners": -1}},
        {"spec": {"maxRunners": None}},
        {"spec": {"template": {"spec": {"containers": None}}}},
        {"spec": {"githubConfigUrl": ""}},
        {"spec": None},
    ],
    "autoscalinglisteners": [
        {"spec": {"image": None}},
        {"spec": {"image": 5}},
        {"spec": {"maxRunners": 3}},
    ],
}


def _change(random: Random, kind: str) -> Object:
    if random.random() < 0.4:
        return random.choice(
            [
                {"metadata": {"labels": {"l": random.choice(["1", "2", None])}}},
                {"metadata": {"labels": {"l": "x y"}}},
                {"metadata": {"annotations": {"x": random.choice(["1", "2", None])}}},
                {"metadata": {"annotations": {"x": 5}}},
                {"metadata": {"name": "other"}},
                {"metadata": {"namespace": "other"}},
                {"metadata": {"uid": "00000000-0000-0000-0000-000000000002"}},
                {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}},
                {"metadata": {"generation": 77}},
                {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}},
                {"metadata": {"managedFields": []}},
                {"metadata": {"ownerReferences": None}},
                {"kind": "Other"},
                {"apiVersion": "v9"},
            ]
        )
    change = random.choice(_CHANGES[kind])
    return dict(change)


# What is wrong with it

Mistake = Callable[[Random, Object], None]


def _in_metadata(key: str, *values: Any) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body["metadata"][key] = random.choice(values)

    return make


def _at_top(key: str, *values: Any) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body[key] = random.choice(values)

    return make


def _without(key: str) -> Mistake:
    def make(random: Random, body: Object) -> None:
        body.pop(key, None)

    return make


def _no_name(random: Random, body: Object) -> None:
    body["metadata"].pop("name")


def _in_body(random: Random, body: Object) -> None:
    """Something wrong in whatever the kind calls its contents."""
    keys = [key for key in body if key not in ("apiVersion", "kind", "metadata")]
    if not keys:
        return
    key = random.choice(keys)
    inner = body[key]
    if isinstance(inner, dict) and inner and random.random() < 0.7:
        field = random.choice(list(inner))
        mistake = random.choice(["unknown", "gone", "type", "null"])
        if mistake == "unknown":
            inner["nope"] = random.choice(["1", {"deep": True}])
        elif mistake == "gone":
            del inner[field]
        else:
            inner[field] = None if mistake == "null" else random.choice([5, "x", [], {}, True, 1.5])
        return
    body[key] = random.choice([None, 5, "x", [], {}, ["x"], True])


_OWNER: Object = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}

_MISTAKES: list[Mistake] = [
    _no_name,
    _in_metadata("name", "Bad_Name", "-x", "x" * 254, "", "x/y", "..", 5, None),
    _in_metadata("generateName", "Bad_", "ok-"),
    _in_metadata("namespace", "other", "", "Bad Namespace"),
    _in_metadata(
        "labels", {"bad key": "1"}, {"l": "x y"}, {"l": "x" * 64}, {"l": 5}, "x", [], None
    ),
    _in_metadata("labels", {"/x": "1"}, {"x.io/": "1"}, {"UP.io/x": "1"}, {"a/b/c": "1"}),
    _in_metadata("annotations", {"bad key": "1"}, {"x": 5}, {"x": None}, "x", {"": "1"}),
    _in_metadata("finalizers", ["nope"], ["x.io/"], [""], ["bad key/x"], "x", [5]),
    _in_metadata("ownerReferences", [{**_OWNER, "uid": ""}], [{}], [{**_OWNER, "name": ""}], "x"),
    _in_metadata(
        "ownerReferences",
        [{**_OWNER, "controller": True}, {**_OWNER, "uid": "2", "controller": True}],
        [{**_OWNER, "apiVersion": ""}],
        [{**_OWNER, "kind": ""}],
        [_OWNER, _OWNER],
        [{"kind": "Event", "apiVersion": "v1", "name": "x", "uid": "1"}],
    ),
    _in_metadata("nope", "x", {"y": 1}),
    _in_metadata("resourceVersion", "7", "x", 5),
    _in_metadata("deletionTimestamp", "2020-01-01T00:00:00Z", "x"),
    _in_metadata("creationTimestamp", "2020-01-01T00:00:00Z", "x", None),
    _in_metadata("generation", 5, "x"),
    _at_top("metadata", "x", None, [], {}),
    _at_top("nope", "x", {"y": 1}),
    _at_top("apiVersion", "v9", "x.io/v1", "", 5, "a/b/c"),
    _at_top("kind", "Nope", "", "ConfigMap", 5),
    _at_top("spec", "x", None, [], {}, 5),
    _at_top("status", "x", None, {"nope": 1}),
    _without("apiVersion"),
    _without("kind"),
    _without("metadata"),
    _without("spec"),
    _without("roleRef"),
    *[_in_body] * 8,
]
