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


@contextmanager
def captured_logs(leaks: Leaks, note: Callable[[str], None]) -> Iterator[None]:
    """All logs of structlog and of the standard library go to `leaks`, warnings to `note` too."""

    def capture(_logger: Any, method: str, event: Any) -> Any:
        text = str(event.pop("event", ""))
        trace = str(event.pop("exception", ""))
        leaks.on_line(method, text, event, trace, is_expected=event.pop("is_expected", False))
        if method in ("warning", "error", "exception", "critical"):
            pairs = " ".join(f"{key}={value}" for key, value in event.items())
            note(f"log {method}: {text} {pairs}"[:600])
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
    handler = _Handler(leaks, note)
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    try:
        yield
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
    def __init__(self, leaks: Leaks, note: Callable[[str], None]) -> None:
        super().__init__()
        self._leaks = leaks
        self._note = note
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        trace = self._formatter.formatException(record.exc_info) if record.exc_info else ""
        level = record.levelname.lower()
        message = record.getMessage()
        self._leaks.on_line(level, message, {"logger": record.name}, trace)
        if record.levelno >= logging.WARNING:
            self._note(f"log {level}: {record.name}: {message}"[:600])
