"""Writes ``config/crd/``: ``python -m arc_controller.api.manifests [--check] [FOLDER]``.

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
        for name, content in {**crds, "kustomization.yaml": kustomization}.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="manifests", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether files are stale")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    wanted = manifests()
    if options.check:
        stale = [name for name, content in wanted.items() if _read(folder / name) != content]
        for name in stale:
            print(f"{folder / name} is stale: run `make manifests`", file=sys.stderr)
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in wanted.items():
        if _read(folder / name) != content:
            (folder / name).write_text(content)
            print(f"wrote {folder / name}")
    return 0


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
