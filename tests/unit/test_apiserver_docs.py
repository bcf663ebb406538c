"""docs/apiserver.md: its example runs, and it lists every difference that is known."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from arc_controller.testing.apiserver.differential import KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "apiserver.md"


async def test_the_example_of_the_page_runs() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    test: Callable[[], Awaitable[None]] = names["test_a_config_map_is_kept"]
    await test()


def test_the_page_lists_every_difference_that_is_known() -> None:
    listed = re.findall(r"^- (.*)$", PAGE.read_text(), re.MULTILINE)
    assert listed == [why for why, _ in KNOWN]
