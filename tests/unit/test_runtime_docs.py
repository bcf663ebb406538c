"""The Python in docs/library.md runs, from top to bottom, as it stands there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import arc_controller.runtime
from arc_controller.runtime import ApiClient, NamespacedName, ObjectMeta
from arc_controller.testing.apiserver import ApiServer
from arc_controller.testing.loop import run_simulated
from arc_controller.testing.transport import InProcessTransport

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library.md"
CRD = yaml.safe_load((ROOT / "examples" / "greeter" / "crd.yaml").read_text())
KEY = NamespacedName("default", "first")


def blocks() -> list[tuple[int, str]]:
    """The Python blocks of the page, each with its line."""
    text = PAGE.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match[1]) for match in found]


async def execute(block: str, line: int, names: dict[str, Any]) -> None:
    padded = "\n" * line + block
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(padded, str(PAGE), "exec", flags=flags, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


async def run_the_page(names: dict[str, Any]) -> None:
    server = ApiServer(crds=[CRD])
    names |= {"transport": InProcessTransport(server), "key": KEY, "CRD": CRD}
    running = None
    for line, block in blocks():
        await execute(block, line, names)
        if running is None and "manager" in names:
            manager = names["manager"]
            manager.cache.detect_mutations = True
            running = asyncio.create_task(manager.run())
            greeting = names["Greeting"](metadata=ObjectMeta(namespace="default", name="first"))
            await ApiClient(InProcessTransport(server), names["SCHEME"]).create(greeting)
            await asyncio.sleep(1)
    assert running is not None
    names["manager"].cache.check_mutations()
    names["manager"].stop()
    await running
    await server.aclose()


def test_the_blocks_of_the_page_run_one_after_the_other() -> None:
    names: dict[str, Any] = {"__name__": "library"}
    run_simulated(run_the_page(names))
    test: Callable[[], None] = names["test_a_greeting_is_answered"]
    test()


def test_the_table_of_contents_names_every_module() -> None:
    package = Path(arc_controller.runtime.__file__).parent
    contents = arc_controller.runtime.__doc__ or ""
    missing = [
        path.stem
        for path in package.glob("*.py")
        if path.stem != "__init__" and f"`{path.stem}`" not in contents
    ]
    assert missing == []


def test_all_names_of_the_package_can_be_imported() -> None:
    package = arc_controller.runtime
    assert sorted(package.__all__) == sorted(package._MODULE_OF)
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(arc_controller.runtime, "Nothing")
