"""Scenarios, written once and run on both API servers: see `tests.scenarios.stage`."""

from tests.scenarios import (
    changes,
    deletions,
    jobs,
    listeners,
    networks,
    pods,
    processes,
    specs,
    vaults,
)
from tests.scenarios.stage import SCENARIOS

__all__ = [
    "SCENARIOS",
    "changes",
    "deletions",
    "jobs",
    "listeners",
    "networks",
    "pods",
    "processes",
    "specs",
    "vaults",
]
