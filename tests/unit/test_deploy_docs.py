"""docs/deploy.md lists the flags and metrics that there are: its tables are those of the code.

``python -m tests.unit.test_deploy_docs`` prints them, to be pasted.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from arc_controller.cli.flags import Flag, Switch
from arc_controller.cli.manager_flags import FLAGS, read_settings
from arc_controller.cli.manager_process import make_manager
from arc_controller.listener.metrics import DEFINITIONS
from arc_controller.runtime.httpmetrics import TransportMetrics
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.transport import InProcessTransport

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
ENVIRON = {
    "CONTROLLER_MANAGER_CONTAINER_IMAGE": "arc:1",
    "CONTROLLER_MANAGER_POD_NAMESPACE": "default",
}


def flag_rows() -> list[str]:
    return [
        f"| `--{flag.name}` | {_default(flag)} | {_help(flag)} |"
        for flag in FLAGS
        if flag.name != "h"
    ]


def _default(flag: Flag) -> str:
    if isinstance(flag, Switch):
        return "off"
    return f"`{flag.default}`" if flag.default else "empty"


def _help(flag: Flag) -> str:
    choices = ", ".join(f"`{choice}`" for choice in flag.choices if choice)
    return f"{flag.help} One of {choices}." if choices else flag.help


async def manager_rows() -> list[str]:
    registry, api = CollectorRegistry(), ApiServer()
    TransportMetrics(registry, "host")
    _, service = make_manager(InProcessTransport(api), read_settings((), ENVIRON), registry)
    await service.aclose()
    await api.aclose()
    found = {}
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = f"| `{name}` | {family.type} | {family.documentation} |"
    return [found[name] for name in sorted(found)]


def listener_rows() -> list[str]:
    return [f"| `{each.name}` | {each.kind} | {each.help} |" for each in DEFINITIONS.values()]


def rows(heading: str) -> list[str]:
    """The rows of the first table below a heading of the page."""
    text = PAGE.read_text()
    assert f"\n{heading}\n" in text, f"docs/deploy.md has no {heading!r}"
    section = text.partition(f"\n{heading}\n")[2]
    table = re.search(r"^\|.*\n\|[ -|]+\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert table is not None
    return table[1].splitlines()


def test_the_page_has_every_flag_with_its_default_and_meaning() -> None:
    assert rows("## Flags") == flag_rows()


async def test_the_page_has_every_metric_of_the_manager() -> None:
    assert rows("### Of the manager") == await manager_rows()


def test_the_page_has_every_metric_of_a_listener() -> None:
    assert rows("### Of a listener") == listener_rows()


@pytest.mark.parametrize("name", [*ENVIRON, "LISTENER_ENTRYPOINT", "KUBECONFIG"])
def test_the_page_has_every_environment_variable(name: str) -> None:
    assert f"| `{name}` |" in PAGE.read_text()


if __name__ == "__main__":
    for each in (flag_rows(), asyncio.run(manager_rows()), listener_rows()):
        print("\n".join(each), end="\n\n")
