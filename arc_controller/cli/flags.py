"""Command line flags as Go programs have them, which is how existing charts write them.

``-flag value``, ``--flag value`` and ``--flag=value`` mean the same; a boolean flag takes its value
only after ``=``; ``--`` and the first argument that is no flag end the flags.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class FlagError(ValueError):
    """The command line cannot be used; the message names the flag, the value and what is right."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that takes any text. `choices`, if given, are all that it may be."""

    name: str
    help: str
    default: str = ""
    choices: tuple[str, ...] = ()

    def read(self, text: str, before: Any) -> Any:
        """The value for `text`; `before` is the value so far. Raises `ValueError`: what it wants"""
        if self.choices and text not in self.choices:
            raise ValueError(f"one of {', '.join(self.choices)}")
        return text

    @property
    def initial(self) -> Any:
        return self.default

    @property
    def takes_value(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Switch(Flag):
    """A boolean, False unless given."""

    def read(self, text: str, before: Any) -> Any:
        if text not in _BOOLEANS:
            raise ValueError("true or false")
        return _BOOLEANS[text]

    @property
    def initial(self) -> Any:
        return False

    @property
    def takes_value(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Number(Flag):
    """A whole number of at least `least`."""

    least: int = 0

    def read(self, text: str, before: Any) -> Any:
        if not re.fullmatch(r"[+-]?\d+", text) or int(text) < self.least:
            raise ValueError(f"a whole number, {self.least} or more")
        return int(text)

    @property
    def initial(self) -> Any:
        return int(self.default)


@dataclass(frozen=True, slots=True)
class Duration(Flag):
    """``90s``, ``1m30s``, ``1h``; seconds as a float."""

    def read(self, text: str, before: Any) -> Any:
        parts = _DURATION.findall(text)
        if text != "0" and "".join(number + unit for number, unit in parts) != text:
            raise ValueError("a duration like 90s or 1m30s")
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)

    @property
    def initial(self) -> Any:
        return self.read(self.default, None)


@dataclass(frozen=True, slots=True)
class Names(Flag):
    """May be given several times, and each time several names with commas between them."""

    def read(self, text: str, before: Any) -> Any:
        names = (name.strip() for name in text.split(","))
        return (*before, *(name for name in names if name))

    @property
    def initial(self) -> Any:
        return ()


def parse_flags(
    arguments: Sequence[str], flags: Iterable[Flag], unwanted: Mapping[str, str]
) -> dict[str, Any]:
    """Every flag's value by name. `unwanted` maps names to the reason why there is no such flag.

    Raises `FlagError`.
    """
    known = {flag.name: flag for flag in flags}
    values = {name: flag.initial for name, flag in known.items()}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            break
        name, equals, text = argument.partition("=")
        if not name.startswith("-") or name.lstrip("-") == "" or name.startswith("---"):
            raise FlagError(f"{argument!r} is not a flag: flags begin with - or --")
        name = name.removeprefix("-").removeprefix("-")
        flag = known.get(name)
        if flag is None:
            raise FlagError(_unknown(name, known, unwanted))
        if not equals:
            if not flag.takes_value:
                text = "true"
            elif rest:
                text = rest.pop(0)
            else:
                raise FlagError(f"--{name} needs a value")
        try:
            values[name] = flag.read(text, values[name])
        except ValueError as error:
            raise FlagError(f"--{name} is {text!r}, expected {error}") from None
    if rest:
        raise FlagError(f"{rest[0]!r} is not a flag, and arguments are not expected")
    return values


def usage(program: str, flags: Iterable[Flag]) -> str:
    """What ``--help`` shows."""
    lines = [f"Usage: {program} [flags]", ""]
    for flag in flags:
        value = "" if not flag.takes_value else f" {'|'.join(flag.choices) or 'value'}"
        default = f" (default {flag.default})" if flag.default else ""
        lines += [f"  --{flag.name}{value}", f"        {flag.help}{default}"]
    return "\n".join(lines) + "\n"


def _unknown(name: str, known: Mapping[str, Flag], unwanted: Mapping[str, str]) -> str:
    reason = unwanted.get(name)
    if reason is not None:
        return f"--{name} is not supported: {reason}"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean --{close[0]}?" if close else "; --help lists all flags"
    return f"--{name} is not a flag of this program{hint}"
