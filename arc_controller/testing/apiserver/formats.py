"""String formats that a schema may demand."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import string
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit
from uuid import UUID

_DURATION = re.compile(
    r"-?(\d+(\.\d+)?\s*(ns|us|µs|ms|s|m|h|d|w|"
    r"milliseconds?|seconds?|minutes?|hours?|days?|weeks?)\s*)+"
)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[tT ]\d\d:\d\d:\d\d(\.\d+)?([zZ]|[+-]\d\d:\d\d)")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_BASE64 = frozenset(string.ascii_letters + string.digits + "+/")
_HOSTNAME = re.compile(r"([a-zA-Z0-9](-?[a-zA-Z0-9])*)(\.[a-zA-Z0-9](-?[a-zA-Z0-9])*)*\.?")


def format_problem(name: str, value: str) -> bool:
    """Whether the value does not have the format. Formats nobody knows hold for everything."""
    check = _CHECKS.get(name)
    return check is not None and not check(value)


def is_date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value):
        return False
    return _parses(lambda text: datetime.fromisoformat(text.upper()), value)


def _parses(parse: Callable[[str], object], value: str) -> bool:
    try:
        parse(value)
    except (ValueError, binascii.Error):
        return False
    return True


def base64_error(value: str) -> str:
    """Go's complaint about text that is not base64; empty when it is."""
    position = _base64_stumbles(value)
    return "" if position is None else f"illegal base64 data at input byte {position}"


def _base64_stumbles(value: str) -> int | None:
    """Where Go's decoder gives up."""
    text = [(place, each) for place, each in enumerate(value) if each not in "\r\n"]
    for index, (place, each) in enumerate(text):
        if each in _BASE64:
            continue
        column = index % 4
        if each != "=" or column < 2:
            return place
        if column == 2:
            if index + 1 == len(text):
                return len(value)
            if text[index + 1][1] != "=":
                return text[index + 1][0] - 1
        rest = text[index + 4 - column :]
        return rest[0][0] if rest else None
    # Of a group that is cut off, its beginning is named.
    return len(value) - len(text) % 4 if len(text) % 4 else None


def _is_uri(value: str) -> bool:
    return _parses(urlsplit, value) and bool(urlsplit(value).scheme or value.startswith("/"))


_CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "datetime": is_date_time,
    "date": lambda value: _parses(date.fromisoformat, value) and len(value) == 10,
    "duration": lambda value: bool(_DURATION.fullmatch(value)) or value == "0",
    "byte": lambda value: _parses(lambda text: base64.b64decode(text, validate=True), value),
    "uri": _is_uri,
    "email": lambda value: bool(_EMAIL.fullmatch(value)),
    "hostname": lambda value: bool(_HOSTNAME.fullmatch(value)) and len(value) <= 255,
    "ipv4": lambda value: _parses(ipaddress.IPv4Address, value),
    "ipv6": lambda value: _parses(ipaddress.IPv6Address, value),
    "cidr": lambda value: _parses(ipaddress.ip_interface, value) and "/" in value,
    "uuid": lambda value: _parses(UUID, value),
}
