"""Durations as users write them, in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from sparkjet.errors import AnalysisError, nearest
from sparkjet.time.frames import MAX

Duration: TypeAlias = int | str | timedelta
"""A number of time units (microseconds in a query), a Spark interval string, or a ``timedelta``."""

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
"""Length of each unit of an interval string."""

_PART = re.compile(r"\s*([+-]?\s*(?:\d+(?:\.\d*)?|\.\d+))\s*([a-z]+)", re.IGNORECASE)
_PREFIX = re.compile(r"\s*interval\s+", re.IGNORECASE)


def parse_duration(value: Duration, option: str, minimum: int = 0) -> int:
    """Read a duration, as in every option of sparkjet that takes one.

    Called on the driver when a query is written. An integer is taken as it is; strings are Spark intervals: an optional
    ``interval``, then numbers with units from microsecond(s) to week(s), where only seconds may have a fraction. A day
    has 24 hours.

    Args:
        value: The user's value.
        option: Name of the option, for the message.
        minimum: Shortest duration allowed, in microseconds.

    Raises:
        AnalysisError: Not a duration, too short, or of no fixed length.

    >>> parse_duration("1 hour 30 minutes", "lag")
    5400000000
    >>> parse_duration("interval 0.5 seconds", "lag"), parse_duration(timedelta(milliseconds=5), "lag")
    (500000, 5000)
    >>> parse_duration("1 month", "lag")
    Traceback (most recent call last):
    sparkjet.errors.AnalysisError: [SPARKJET_ANALYSIS] lag = '1 month': a month has no fixed length; write days or weeks
    """
    if isinstance(value, timedelta):
        amount = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        amount = _parse_interval(value, option)
    elif isinstance(value, bool) or not isinstance(value, int):
        raise AnalysisError(
            f"{option} = {value!r}: a duration is a whole number of microseconds, "
            f"a string such as '10 seconds', or a timedelta"
        )
    else:
        amount = value
    if amount < minimum:
        least = "negative" if minimum == 0 else f"less than {minimum} microsecond{'s' * (minimum > 1)}"
        raise AnalysisError(f"{option} = {value!r}: it must not be {least}")
    if amount > MAX:
        raise AnalysisError(f"{option} = {value!r}: longer than {MAX} microseconds, about 292,000 years")
    return amount


def _parse_interval(text: str, option: str) -> int:
    prefix = _PREFIX.match(text)
    position = prefix.end() if prefix else 0
    total = Fraction(0)
    parts = 0
    while text[position:].strip():
        part = _PART.match(text, position)
        if part is None:
            raise AnalysisError(
                f"{option} = {text!r}: cannot read {text[position:].strip()!r}; "
                f"write numbers with units, such as '1 minute 30 seconds'"
            )
        total += _amount(part[1].replace(" ", ""), part[2].lower(), f"{option} = {text!r}")
        position = part.end()
        parts += 1
    if not parts:
        raise AnalysisError(f"{option} = {text!r}: empty; write a number and a unit, such as '10 seconds'")
    if total.denominator != 1:
        raise AnalysisError(f"{option} = {text!r}: the shortest time is the microsecond")
    return int(total)


def _amount(number: str, word: str, where: str) -> Fraction:
    unit = word.removesuffix("s")
    if unit in {"month", "year"}:
        raise AnalysisError(f"{where}: a {unit} has no fixed length; write days or weeks")
    if unit not in MICROSECONDS:
        raise AnalysisError(f"{where}: unknown unit {word!r}: {nearest(unit, MICROSECONDS)}")
    if "." in number and unit != "second":
        raise AnalysisError(f"{where}: only seconds may have a fraction; write {number} {word} in smaller units")
    return Fraction(number) * MICROSECONDS[unit]


def format_duration(microseconds: int) -> str:
    """A duration as :func:`parse_duration` reads it, in the largest unit that needs no fraction.

    >>> format_duration(90_000_000), format_duration(3_600_000_000)
    ('90 seconds', '1 hour')
    """
    unit, length = max(
        ((unit, length) for unit, length in MICROSECONDS.items() if microseconds % length == 0),
        key=lambda each: each[1],
    )
    amount = microseconds // length
    return f"{amount} {unit}" if amount == 1 else f"{amount} {unit}s"
