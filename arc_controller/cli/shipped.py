"""The manifests that come with the package: permissions and samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import arc_controller

_SEARCHED = (
    Path(arc_controller.__file__).parent / "config",  # installed
    Path(arc_controller.__file__).parent.parent / "config",  # in the repository
)


def manifests(*folders: str) -> Iterator[dict[str, Any]]:
    """The objects in folders of ``config/``, in the order of a kustomization's resources.

    Raises `FileNotFoundError` when they are not where they should be.
    """
    for folder in folders:
        path = _root() / folder
        kustomization = yaml.safe_load((path / "kustomization.yaml").read_text())
        for name in kustomization["resources"]:
            if (path / name).is_file():
                yield from _objects(path / name)


def load(path: str) -> Iterator[dict[str, Any]]:
    """The objects in one file of ``config/``."""
    return _objects(_root() / path)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(path.read_text()):
        if document:
            yield document


def _root() -> Path:
    for root in _SEARCHED:
        if (root / "samples").is_dir():
            return root
    raise FileNotFoundError(f"no config/samples in {' or '.join(map(str, _SEARCHED))}")
