"""kubectl prints the same about our kinds on the embedded API server and on a real one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from arc_controller.api.crd import CUSTOM_RESOURCES, custom_resource_definitions
from arc_controller.testing.apiserver import ApiServer, HttpApiServer
from arc_controller.testing.envtest import Envtest
from arc_controller.testing.envtest.assets import find_assets

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTERED = {
    "githubConfigUrl": "https://github.com/my-org",
    "githubConfigSecret": "pre-defined-secret",
}
POD: dict[str, Any] = {"containers": [{"name": "runner", "image": "runner:1"}]}
SPECS: dict[str, dict[str, Any]] = {
    "AutoscalingRunnerSet": {**REGISTERED, "maxRunners": 5, "template": {"spec": POD}},
    "EphemeralRunnerSet": {
        "replicas": 2,
        "ephemeralRunnerSpec": {**REGISTERED, "runnerScaleSetId": 1, "spec": POD},
    },
    "EphemeralRunner": {**REGISTERED, "runnerScaleSetId": 1, "spec": POD},
    "AutoscalingListener": {
        **REGISTERED,
        "runnerScaleSetId": 1,
        "autoscalingRunnerSetNamespace": "default",
        "autoscalingRunnerSetName": "set",
        "ephemeralRunnerSetName": "set",
        "image": "manager:1",
    },
}
each_kind = pytest.mark.parametrize("kind", sorted(SPECS))


@dataclass(frozen=True)
class Both:
    """The same kubectl against both servers."""

    program: Path
    real: Path
    embedded: Path

    async def __call__(self, *arguments: str, manifest: Any = None) -> tuple[str, str]:
        """What kubectl said and how it ended: of the real server, of the embedded one."""
        said = []
        for kubeconfig in (self.real, self.embedded):
            process = await asyncio.create_subprocess_exec(
                str(self.program),
                f"--kubeconfig={kubeconfig}",
                f"--cache-dir={kubeconfig.parent / kubeconfig.stem}-cache",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            given = None if manifest is None else json.dumps(manifest).encode()
            out, _ = await process.communicate(given)
            said.append(f"{settled(out.decode())}\nexit {process.returncode}")
        return said[0], said[1]


def settled(text: str) -> str:
    """Without ages, times, uids, versions, and the random folder that diff compares in."""
    text = re.sub(r"\b\d+m?\d*s\b( *)", "AGE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*( \+0000)?Z?", "TIME", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r'resourceVersion: "\d+"', "resourceVersion", text)
    return re.sub(r"/\S*/(LIVE|MERGED)-\d+", r"\1", text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    folder = tmp_path_factory.mktemp("kubectl")
    definitions = custom_resource_definitions()
    api = ApiServer(crds=definitions)
    async with Envtest(crds=definitions) as env, HttpApiServer(api, tls=True) as http:
        await until_documented(env)
        real = env.admin.write_kubeconfig(folder / "real.json")
        embedded = http.write_kubeconfig(folder / "embedded.json")
        yield Both(find_assets().program("kubectl"), real, embedded)
    await api.aclose()


async def until_documented(env: Envtest) -> None:
    """The real server publishes the schema of a kind some time after it serves it."""
    kinds = {each.plural for each in CUSTOM_RESOURCES}
    async with asyncio.timeout(60):
        while kinds:
            answer = await env.rest.try_request(
                "GET", "/openapi/v3/apis/actions.github.com/v1alpha1"
            )
            paths = answer.body.get("paths", {}) if answer.ok else {}
            kinds -= {path.rpartition("/")[2] for path in paths}
            await asyncio.sleep(0.1)


def manifest(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {**SPECS[kind], **spec},
    }


@each_kind
async def test_explain_says_the_same(kubectl: Both, kind: str) -> None:
    plural = next(each.plural for each in CUSTOM_RESOURCES if each.kind.__name__ == kind)
    for path in (plural, f"{plural}.spec", f"{plural}.status"):
        real, embedded = await kubectl("explain", path)
        assert real.endswith("exit 0")
        assert embedded == real


@each_kind
async def test_apply_diff_and_get_say_the_same(kubectl: Both, kind: str) -> None:
    for said in (
        await kubectl("apply", "--server-side", "-f", "-", manifest=manifest(kind)),
        await kubectl("apply", "--server-side", "-f", "-", manifest=manifest(kind)),
    ):
        assert said[0].endswith("exit 0")
        assert said[1] == said[0]
    changed = manifest(kind, githubConfigUrl="https://github.com/other")
    if kind == "EphemeralRunnerSet":
        changed = manifest(kind, replicas=3)
    real, embedded = await kubectl("diff", "--server-side", "-f", "-", manifest=changed)
    assert real.endswith("exit 1")
    assert embedded == real
    other = ("--server-side", "--field-manager=other")
    real, embedded = await kubectl("apply", *other, "-f", "-", manifest=changed)
    assert "conflict" in real
    assert embedded == real
    for output in ((), ("-o", "wide")):
        real, embedded = await kubectl("get", kind, *output)
        assert "one" in real
        assert embedded == real
