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
