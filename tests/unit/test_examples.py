"""The examples pass their own tests, run as their README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_passes_its_own_tests(example: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(example)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_there_is_an_example() -> None:
    assert EXAMPLES
