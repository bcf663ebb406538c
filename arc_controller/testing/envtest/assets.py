"""Where the programs are: the ``KUBEBUILDER_ASSETS`` convention, or what ``make envtest`` built."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


class EnvtestError(Exception):
    """The real API server could not do what a test asked of it."""


class AssetsMissing(EnvtestError):
    """A program that the environment needs is not on this machine."""


@dataclass(frozen=True)
class Assets:
    """A folder with ``etcd``, ``kube-apiserver`` and perhaps more programs."""

    folder: Path

    def program(self, name: str) -> Path:
        """The path of program ``name``. Raises `AssetsMissing` when it is not there."""
        path = self.folder / name
        if not os.access(path, os.X_OK):
            raise AssetsMissing(
                f"no program {name} in {self.folder}: "
                "run `make envtest` or set KUBEBUILDER_ASSETS to a folder that holds it"
            )
        return path

    def has(self, name: str) -> bool:
        return os.access(self.folder / name, os.X_OK)


def find_assets(environ: Mapping[str, str] | None = None, repository: Path = REPOSITORY) -> Assets:
    """The folder that ``KUBEBUILDER_ASSETS`` names, else the one that ``make envtest`` fills.

    Raises `AssetsMissing` when it lacks ``etcd`` or ``kube-apiserver``.
    """
    named = (os.environ if environ is None else environ).get("KUBEBUILDER_ASSETS", "")
    assets = Assets(Path(named) if named else _built_folder(repository))
    assets.program("etcd")
    assets.program("kube-apiserver")
    return assets


def _built_folder(repository: Path) -> Path:
    """``.cache/envtest/VERSION`` of the version that tools/go.mod names."""
    go_mod = repository / "tools" / "go.mod"
    built = repository / ".cache" / "envtest"
    if not go_mod.is_file():
        return built
    version = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", go_mod.read_text(), re.MULTILINE)
    return built / version.group(1) if version else built
