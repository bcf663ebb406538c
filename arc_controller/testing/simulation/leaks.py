"""Nothing secret in logs, events and statuses.

Every secret of a simulation is recognisable: the user's tokens begin with ``ghp_``, passwords hold
``S3CRET``, and JSON web tokens and JIT configurations are base64 of JSON objects, which begins with
``eyI`` or ``eyJ``. `Leaks.learn` checks that this is so for each one that is given out.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import structlog

from arc_controller.actions import ActionsError, HttpResponse
from arc_controller.runtime.errors import ApiError, TransportError
from arc_controller.testing.apiserver.store import Event
from arc_controller.testing.simulation import facts

_SECRET: Final = re.compile(r"ghp_\w|S3CRET|ey[IJ][\w+/-]{8}|ZXl[JK][\w+/-]{8}")
_GIVEN_OUT: Final = ("token", "messageQueueAccessToken", "encodedJITConfig")
_SHOWN: Final = frozenset(
    {facts.SCALE_SETS, facts.RUNNER_SETS, facts.RUNNERS, facts.LISTENERS, "events"}
)

EXPECTED: Final = (ActionsError, ApiError, TransportError)

Complain = Callable[[str, str], None]


class Leaks:
    """Looks at log lines, stored objects and the service's answers."""

    name = "nothing secret in logs, events or statuses"

    def __init__(self, fail: Complain, crashed: Complain) -> None:
        self._fail = fail
        self._crashed = crashed
        self.lines = 0

    def learn(self, answer: HttpResponse) -> None:
        """Make sure that the secrets of an answer would be recognised."""
        if not answer.body.startswith(b"{"):
            return
        content = msgspec.json.decode(answer.body)
        for key in _GIVEN_OUT:
            value = content.get(key)
            if isinstance(value, str) and not _SECRET.search(value):
                raise AssertionError(f"the {key} of the fake service would not be recognised")

    def on_write(self, event: Event, actor: str) -> None:
        stored = event.stored
        if stored.resource not in _SHOWN or event.type == "DELETED":
            return
        shown: Any = stored.obj
        if stored.resource != "events":
            annotations = stored.obj["metadata"].get("annotations", {})
            shown = [stored.obj.get("status", {}), annotations]
        found = _SECRET.search(msgspec.json.encode(shown).decode())
        if found:
            self._fail(
                self.name, f"{actor} wrote {found.group()}… into {stored.resource} {stored.name}"
            )

    def on_line(
        self,
        level: str,
        event: str,
        context: Mapping[str, Any],
        trace: str,
        *,
        is_expected: bool = False,
    ) -> None:
        """A line of a log, however it was written; ``trace`` is the traceback in it."""
        self.lines += 1
        text = f"{event} {context} {trace}"
        if found := _SECRET.search(text):
            start = max(0, found.start() - 200)
            self._fail(self.name, f"a log line says {text[start : found.end()]}…")
        if trace and not is_expected:
            self._crashed("no unexpected exception", f"{event} {dict(context)}\n{trace}")


class Capture:
    """Where log lines go: to ``leaks``, and warnings to ``note`` too, as soon as there are any."""

    leaks: Leaks | None = None
    note: Callable[[str], None] | None = None

    def line(
        self, level: str, event: str, context: Mapping[str, Any], trace: str, expected: bool
    ) -> None:
        if self.leaks is not None:
            self.leaks.on_line(level, event, context, trace, is_expected=expected)
        if self.note is not None and level in ("warning", "error", "exception", "critical"):
            pairs = " ".join(f"{key}={value}" for key, value in sorted(context.items()))
            self.note(f"log {level}: {event} {pairs}"[:600])


@contextmanager
def captured_logs() -> Iterator[Capture]:
    """Capture all logs, those of structlog and those of the standard library.

    Loggers that were bound before are not affected: begin early.
    """
    capture_ = Capture()

    def capture(_logger: Any, method: str, event: Any) -> Any:
        text, trace = str(event.pop("event", "")), str(event.pop("exception", ""))
        capture_.line(method, text, event, trace, event.pop("is_expected", False))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _judge_exception,
            structlog.processors.format_exc_info,
            capture,
        ],
        cache_logger_on_first_use=False,
    )
    handler = _Handler(capture_)
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    try:
        yield capture_
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        structlog.configure(**before)


def _judge_exception(_logger: Any, _method: str, event: Any) -> Any:
    error = event.get("exc_info")
    if not isinstance(error, BaseException):
        error = sys.exc_info()[1] if error else None
    event["is_expected"] = error is not None and _is_expected(error)
    return event


def _is_expected(error: BaseException) -> bool:
    """Whether it says that somebody else refuses or is away."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(EXPECTED)[1] is None
    return isinstance(error, EXPECTED)


class _Handler(logging.Handler):
    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        info = record.exc_info
        trace = self._formatter.formatException(info) if info else ""
        expected = info is not None and info[1] is not None and _is_expected(info[1])
        context = {"logger": record.name}
        self._capture.line(record.levelname.lower(), record.getMessage(), context, trace, expected)
