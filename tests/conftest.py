"""What holds in every test: cached objects are not changed, and logs are plain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arc_controller.runtime.logs import configure_logging
from arc_controller.testing.mutations import mutations_detected

# So that an assertion of a scenario shows its values, as one of a test does.
pytest.register_assert_rewrite("tests.scenarios")

# structlog's default prints the variables of every frame of a traceback, tokens included.
configure_logging("info", "text")


@pytest.fixture(autouse=True)
def nobody_changes_cached_objects() -> Iterator[None]:
    """Fails a test in which a cached object was changed other than through a `LazyCopy`."""
    with mutations_detected():
        yield
