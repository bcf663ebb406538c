"""String formats that a schema may demand."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
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
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
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
    for position, character in enumerate(value):
        if character not in _BASE64 and character not in "\r\n":
            return f"illegal base64 data at input byte {position}"
    if _parses(lambda text: base64.b64decode(text, validate=True), value.replace("\n", "")):
        return ""
    return f"illegal base64 data at input byte {len(value)}"


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
