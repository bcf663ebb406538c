"""Scenarios, written once and run on both API servers: see `tests.scenarios.stage`."""

from tests.scenarios import jobs
from tests.scenarios.stage import SCENARIOS

__all__ = ["SCENARIOS", "jobs"]
