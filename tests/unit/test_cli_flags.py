"""Flags as Go programs read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arc_controller.cli.flags import (
    Duration,
    Flag,
    FlagError,
    Names,
    Number,
    Switch,
    parse_flags,
    usage,
)

FLAGS = (
    Flag("name", "A name.", "x"),
    Flag("level", "A level.", "low", ("low", "high")),
    Switch("on", "A switch."),
    Number("count", "A number.", "3", least=1),
    Duration("every", "A duration.", "1m"),
    Names("tags", "Names."),
)


def parse(*arguments: str) -> dict[str, Any]:
    return parse_flags(arguments, FLAGS, {"old": "it is gone"})


def test_without_arguments_everything_has_its_default() -> None:
    assert parse() == {
        "name": "x",
        "level": "low",
        "on": False,
        "count": 3,
        "every": 60.0,
        "tags": (),
    }


@pytest.mark.parametrize(
    "arguments", [("-name", "y"), ("--name", "y"), ("-name=y",), ("--name=y",)]
)
def test_one_dash_or_two_a_space_or_an_equals_sign_are_the_same(arguments: tuple[str, ...]) -> None:
    assert parse(*arguments)["name"] == "y"


@given(st.text().filter(lambda text: not text.startswith("-")))
def test_a_value_arrives_as_it_is(text: str) -> None:
    assert parse(f"--name={text}")["name"] == text
    assert parse("--name", text)["name"] == text


def test_a_value_may_begin_with_a_dash_and_hold_an_equals_sign() -> None:
    assert parse("--name", "-y")["name"] == "-y"
    assert parse("--name=a=b")["name"] == "a=b"
    assert parse("--name=")["name"] == ""


def test_the_last_one_counts_except_for_lists_which_add_up() -> None:
    values = parse("--name=a", "--name=b", "--tags=a,b", "--tags", "c,,", "--tags=")
    assert values["name"] == "b"
    assert values["tags"] == ("a", "b", "c")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("F", False), ("1", True)])
def test_a_switch_takes_its_value_only_after_an_equals_sign(text: str, value: bool) -> None:
    assert parse(f"--on={text}")["on"] is value
    assert parse("--on", "--count", "4")["on"] is True
    with pytest.raises(FlagError, match="'false' is not a flag"):
        parse("--on", "false")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1m30s", 90), ("1h", 3600), ("500ms", 0.5), ("0", 0), ("1.5m", 90)],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert parse(f"--every={text}")["every"] == seconds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--nmae=x",), "--nmae is not a flag of this program; did you mean --name?"),
        (("--zzz",), "--zzz is not a flag of this program; --help lists all flags"),
        (("--old=1",), "--old is not supported: it is gone"),
        (("--name",), "--name needs a value"),
        (("--level=middle",), "--level is 'middle', expected one of low, high"),
        (("--count=0",), "--count is '0', expected a whole number, 1 or more"),
        (("--count=many",), "--count is 'many', expected a whole number, 1 or more"),
        (("--on=perhaps",), "--on is 'perhaps', expected true or false"),
        (("--every=60",), "--every is '60', expected a duration like 90s or 1m30s"),
        (("---name=x",), "'---name=x' is not a flag: flags begin with - or --"),
        (("run",), "'run' is not a flag: flags begin with - or --"),
        (("--", "run"), "'run' is not a flag, and arguments are not expected"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse(*arguments)
    assert str(caught.value) == sentence


def test_usage_shows_every_flag() -> None:
    text = usage("program", FLAGS)
    assert "--level low|high" in text
    assert "(default 1m)" in text
    assert all(f"--{flag.name}" in text for flag in FLAGS)
