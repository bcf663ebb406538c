"""Logs: text for people, JSON for machines, with the bound context of `structlog`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TextIO

import structlog

from arc_controller.runtime.clock import utc_now

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}
Format = Literal["text", "json"]


def configure_logging(
    level: str = "info",
    format: str = "text",
    *,
    stream: TextIO | None = None,
    now: Callable[[], datetime] = utc_now,
) -> None:
    """Set up structlog and the standard library's logging for the whole process.

    `level` is one of ``debug``, ``info``, ``warn``, ``error``; `format` is ``text`` or ``json``;
    `stream` is stderr unless given. Raises `ValueError` for anything else.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: use one of {', '.join(LEVELS)}")
    if format not in ("text", "json"):
        raise ValueError(f"log format {format!r}: use text or json")
    stream = stream or sys.stderr

    def timestamp(_logger: Any, _method: str, event: Any) -> Any:
        event["ts"] = now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        timestamp,
    ]
    render: list[Any]
    if format == "json":
        render = [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        render = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(),
                timestamp_key="ts",
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    _configure_stdlib(LEVELS[level], stream, shared, render)


def _configure_stdlib(level: int, stream: TextIO, shared: list[Any], render: list[Any]) -> None:
    # Libraries (aiohttp, the official client) log here; below warnings they are only chatty.
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
