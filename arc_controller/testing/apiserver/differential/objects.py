"""The objects of a comparison: valid ones of every kind, their status, and what is changed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from arc_controller.testing.apiserver.messages import Object


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


def status(random: Random, kind: str) -> Object:
    if kind in ("pods", "widgets", "ephemeralrunners"):
        return {"phase": random.choice(["Running", "Pending", "Succeeded"])}
    if kind == "ephemeralrunnersets":
        return {"currentReplicas": random.choice([1, 2])}
    if kind == "autoscalingrunnersets":
        return {"currentRunners": random.choice([1, 2, "x"])}
    return {}


def change(random: Random, kind: str) -> Object:
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
    return dict(random.choice(_CHANGES[kind]))


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
