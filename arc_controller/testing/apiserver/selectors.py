"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from arc_controller.testing.apiserver.errors import bad_request
from arc_controller.testing.apiserver.messages import Object
from arc_controller.testing.apiserver.metadata import qualified_name_problems

Matcher = Callable[[Mapping[str, str]], bool]
FieldMatcher = Callable[[Object], bool]

_TOKEN = re.compile(r"\s*(?:(==|=|!=|!|\(|\)|,|<|>)|([^\s,()=!<>]+))")
_NO_LABELS: dict[str, str] = {}


def labels_of(obj: Object) -> dict[str, str]:
    labels: dict[str, str] = obj["metadata"].get("labels") or _NO_LABELS
    return labels


@lru_cache(maxsize=4096)
def parse_label_selector(text: str) -> Matcher | None:
    """A matcher for the selector's text, None when it selects everything.

    Raises the server's BadRequest on text that is not a selector.
    """
    requirements = _Parser(text).requirements() if text.strip() else []
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(requirement(labels) for requirement in requirements)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise self._error(f"found '{stripped[position]}'")
            self._tokens.append(match.group(1) or match.group(2))
            position = match.end()
        self._next = 0

    def requirements(self) -> list[Matcher]:
        found = [self._requirement()]
        while self._peek() == ",":
            self._take()
            found.append(self._requirement())
        if self._peek():
            raise bad_request(f"found '{self._peek()}', expected: ',' or 'end of string'")
        return found

    def _requirement(self) -> Matcher:
        if self._peek() == "!":
            self._take()
            absent = self._key()
            return lambda labels: absent not in labels
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._take()
        if operator in ("=", "=="):
            value = self._value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self._value()
            return lambda labels: labels.get(key) != value
        if operator == "in":
            values = self._values()
            return lambda labels: labels.get(key) in values
        if operator == "notin":
            values = self._values()
            return lambda labels: labels.get(key) not in values
        if operator in ("<", ">"):
            return _compare(key, operator, self._value())
        raise self._error(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        token = self._take()
        if not token or token in "=!<>(),":
            raise self._error(f"found '{token}', expected: identifier")
        for problem in qualified_name_problems(token):
            raise self._error(f'<nil>: Invalid value: "{token}": {problem}')
        return token

    def _value(self) -> str:
        return "" if self._peek() in ("", ",") else self._take()

    def _values(self) -> frozenset[str]:
        if self._take() != "(":
            raise self._error(f"found '{self._tokens[-1] if self._peek() else ''}' expected: '('")
        values: set[str] = set()
        expects_value = True
        while (token := self._take()) != ")":
            if not token:
                wanted = "',', ')' or identifier" if expects_value and not values else "',' or ')'"
                raise self._error(f"found '', expected: {wanted}")
            if token == ",":
                if expects_value:
                    values.add("")
                expects_value = True
            else:
                values.add(token)
                expects_value = False
        if expects_value:
            values.add("")
        return frozenset(values)

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _error(self, why: str) -> Exception:
        return bad_request(f"unable to parse requirement: {why}")


def _compare(key: str, operator: str, value: str) -> Matcher:
    try:
        bound = int(value)
    except ValueError:
        raise bad_request(
            f"unable to parse requirement: values[0][{key}]: Invalid value: "
            f"\"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def matches(labels: Mapping[str, str]) -> bool:
        try:
            found = int(labels.get(key, ""))
        except ValueError:
            return False
        return found > bound if operator == ">" else found < bound

    return matches


def parse_field_selector(text: str) -> list[tuple[str, bool, str]]:
    """(field, equal, value) of every term. Raises the server's BadRequest on other text."""
    terms: list[tuple[str, bool, str]] = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = re.match(r"([^=!]*)(==|!=|=)(.*)$", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        value = re.sub(r"\\([,=\\])", r"\1", match.group(3))
        terms.append((match.group(1), match.group(2) != "!=", value))
    return terms


def field_matcher(
    text: str, supported: Mapping[str, str], unsupported: Callable[[str], Exception]
) -> FieldMatcher | None:
    """A matcher over objects. `supported` maps the selector's field to a path in the object."""
    terms = parse_field_selector(text)
    if not terms:
        return None
    paths: list[tuple[list[str], bool, str]] = []
    for name, equal, value in terms:
        if name not in supported:
            raise unsupported(name)
        paths.append((supported[name].split("."), equal, value))

    def matches(obj: Object) -> bool:
        return all((field_text(obj, path) == value) is equal for path, equal, value in paths)

    return matches


def selected_value(text: str, field: str) -> str:
    """The value that a selector wants of a field (`metadata.name=NAME`); empty if it wants none."""
    for name, equal, value in parse_field_selector(text):
        if name == field and equal:
            return value
    return ""


def field_text(obj: Object, path: list[str]) -> str:
    found: Any = obj
    for part in path:
        if not isinstance(found, dict):
            return ""
        found = found.get(part)
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)
