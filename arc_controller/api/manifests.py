"""Writes ``config/crd/`` and the chart's copy: ``python -m arc_controller.api.manifests [--check]
[FOLDER]``. With a folder, only that.

``--check`` writes nothing and fails when a file differs from what would be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from arc_controller.api.crd import custom_resource_definitions

FOLDER = Path("config/crd")
CHART_FOLDER = Path("charts/gha-runner-scale-set-controller/crds")
"""Copies, not links: helm warns of each link whenever it reads the chart."""
KUSTOMIZATION = "kustomization.yaml"
_HEADER = "# Made by `make manifests` from arc_controller/api; do not edit.\n"


def manifests() -> dict[str, str]:
    """File name → content of everything in ``config/crd/``."""
    crds = {
        f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": crd
        for crd in custom_resource_definitions()
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(crds),
    }
    return {
        name: _HEADER + _yaml(content)
        for name, content in {**crds, KUSTOMIZATION: kustomization}.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="manifests", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether files are stale")
    parser.add_argument("folder", type=Path, nargs="?")
    options = parser.parse_args(arguments)
    stale = {
        path: content
        for path, content in _files(options.folder).items()
        if path.is_symlink() or _read(path) != content
    }
    for path, content in stale.items():
        if options.check:
            print(f"{path} is stale: run `make manifests`", file=sys.stderr)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content)
        print(f"wrote {path}")
    return 1 if stale and options.check else 0


def _files(folder: Path | None) -> dict[Path, str]:
    wanted = manifests()
    if folder is not None:
        return {folder / name: content for name, content in wanted.items()}
    crds = {CHART_FOLDER / name: content for name, content in wanted.items()}
    del crds[CHART_FOLDER / KUSTOMIZATION]
    return {FOLDER / name: content for name, content in wanted.items()} | crds


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


class _Dumper(yaml.SafeDumper):
    """Block style without the references (``&id001``) that people cannot read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(content: Any) -> str:
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=100)
    return text


if __name__ == "__main__":
    sys.exit(main())
