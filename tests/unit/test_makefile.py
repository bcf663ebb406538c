"""The Makefile: which commands a target runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="there is no make here")


def would_run(*arguments: str, **environ: str) -> str:
    """What make would run, without running it."""
    unset = ("SEED", "SEEDS", "PLAN", "MAKEFLAGS", "MAKELEVEL")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    command = (str(MAKE), "--dry-run", *arguments)
    done = subprocess.run(
        command, cwd=ROOT, env={**kept, **environ}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_one_seed_or_plan_is_simulated_alone() -> None:
    alone = "-m pytest tests/simulation/test_seeds.py\n"
    assert would_run("simulation", "SEED=17").endswith(alone)
    assert would_run("simulation", PLAN="plan.json").endswith(alone)
    assert would_run("simulation", "SEEDS=200").endswith("-m pytest tests/simulation\n")
    assert would_run("simulation").endswith("-m pytest tests/simulation\n")


def test_the_long_installation_is_announced() -> None:
    # As if nothing were installed: every target with a recipe is made anew.
    lines = would_run("--always-make", "venv").splitlines()
    said = next(number for number, line in enumerate(lines) if line.startswith("echo 'Installing"))
    installs = next(number for number, line in enumerate(lines) if "pip install" in line)
    assert said < installs
    assert "a few minutes" in lines[said]
