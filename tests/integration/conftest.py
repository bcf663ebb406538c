"""What all integration tests have in common. The clusters are in `runners` and `scale_sets`."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def plain_logs() -> None:
    """Log lines as in production: structlog's default shows the local variables of every frame,
    which is slow, and credentials are among them."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
