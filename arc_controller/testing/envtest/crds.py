"""CustomResourceDefinitions: from files to a server that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from arc_controller.testing.envtest.assets import EnvtestError
from arc_controller.testing.envtest.rest import Rest

# libyaml, where PyYAML has it, reads a CRD of half a megabyte eight times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

CrdSource = str | Path | Mapping[str, Any]

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_SECONDS = 0.05
# The schema is published and the handler installed shortly after the CRD; these say what is wrong.
_TROUBLE = {"NonStructuralSchema": "True", "NamesAccepted": "False"}


class CrdInvalid(EnvtestError):
    """The server took a CRD but will not serve it as it is."""


def load_crds(sources: Iterable[CrdSource]) -> list[dict[str, Any]]:
    """The CRDs in files, folders (``*.yaml``, ``*.yml``, ``*.json``) or given as objects.

    Other kinds in the same files (a kustomization, say) are left out.
    """
    found: list[dict[str, Any]] = []
    for source in sources:
        if isinstance(source, Mapping):
            found.append(dict(source))
            continue
        for path in _files(Path(source)):
            found += [
                document
                for document in yaml.load_all(path.read_text(), Loader=_Loader)
                if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition"
            ]
    return found


async def install_crds(rest: Rest, crds: Iterable[Mapping[str, Any]], timeout: float = 30) -> None:
    """Creates the CRDs, or replaces what is there, and returns once each is served.

    Raises `RestError` when the server refuses one, `CrdInvalid` when it has no structural schema,
    its names are taken, or it is not served after ``timeout`` seconds.
    """
    wanted = list(crds)
    for crd in wanted:
        await _write(rest, crd)
    for crd in wanted:
        name = crd["metadata"]["name"]
        try:
            async with asyncio.timeout(timeout):
                await _served(rest, name)
        except TimeoutError:
            raise CrdInvalid(f"CRD {name} is not served after {timeout:g} s") from None


async def _write(rest: Rest, crd: Mapping[str, Any]) -> None:
    name = crd["metadata"]["name"]
    answer = await rest.try_request("GET", f"{_PATH}/{name}")
    if answer.status == 404:
        await rest.request("POST", _PATH, crd)
        return
    version = answer.body["metadata"]["resourceVersion"]
    metadata = {**crd["metadata"], "resourceVersion": version}
    await rest.request("PUT", f"{_PATH}/{name}", {**crd, "metadata": metadata})


async def _served(rest: Rest, name: str) -> None:
    while True:
        crd = await rest.request("GET", f"{_PATH}/{name}")
        conditions = {
            condition["type"]: condition
            for condition in crd.get("status", {}).get("conditions") or ()
        }
        for kind, bad in _TROUBLE.items():
            if conditions.get(kind, {}).get("status") == bad:
                raise CrdInvalid(f"CRD {name}: {kind}: {conditions[kind]['message']}")
        if conditions.get("Established", {}).get("status") == "True":
            spec = crd["spec"]
            paths = [
                f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?limit=1"
                for version in spec["versions"]
                if version["served"]
            ]
            if all([(await rest.try_request("GET", path)).ok for path in paths]):
                return
        await asyncio.sleep(_POLL_SECONDS)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in {".yaml", ".yml", ".json"})
