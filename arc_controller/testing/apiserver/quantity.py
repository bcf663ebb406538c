"""Quantities: `500m`, `2Gi`, `1e3`."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([a-zA-Z]*)([+-]?[0-9]*)")
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


def parse_quantity(value: str | float) -> Fraction:
    """The number that a quantity stands for. Raises `ValueError`."""
    text = str(value).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix, exponent = match.groups()
    if exponent and suffix in ("e", "E"):
        return Fraction(number) * Fraction(10) ** int(exponent)
    if exponent or suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    return Fraction(number) * _SUFFIXES[suffix]


def canonical_quantity(value: str | float) -> str:
    """The one spelling the API server gives a quantity: no fraction, the largest suffix of its
    kind. Raises `ValueError`."""
    text = str(value).strip()
    number = parse_quantity(text)
    suffix = text.lstrip("+-0123456789.")
    if suffix.endswith("i") and abs(number) >= 1024 and number.denominator == 1:
        return _spell(number, ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"))
    if suffix[:1] in ("e", "E") and suffix[1:]:
        exponent = 0
        while number and number % 1000 == 0:
            number /= 1000
            exponent += 3
        return f"{int(number)}e{exponent}" if exponent else str(int(number))
    return _spell(number, ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"))


def _spell(number: Fraction, suffixes: tuple[str, ...]) -> str:
    if not number:
        return "0"
    for suffix in suffixes:
        count = number / _SUFFIXES[suffix]
        if count.denominator == 1:
            return f"{int(count)}{suffix}"
    if suffixes[-1] == "n":
        nanos = number / _SUFFIXES["n"]
        return f"{-(-nanos.numerator // nanos.denominator)}n"
    return str(int(number))


def format_quantity(value: Fraction) -> str:
    """The shortest exact spelling: an integer, thousandths, or a binary suffix."""
    if value.denominator != 1:
        return f"{int(value * 1000)}m"
    number = int(value)
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        factor = int(_SUFFIXES[suffix])
        if number and number % factor == 0:
            return f"{number // factor}{suffix}"
    return str(number)
