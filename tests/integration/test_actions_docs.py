"""The examples of docs/actions-client.md do what the text says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "actions-client.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def test_the_first_example_is_a_program() -> None:
    compile(examples()[0], str(DOCUMENT), "exec")


def test_the_example_with_the_fake_service_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", examples()[1]],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "job 1: succeeded, registrations left: 0\n"
    assert done.stderr == ""
