from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.errors import AnalysisError
from sparkjet.time import MAX, parse_duration
from sparkjet.time.durations import MICROSECONDS
from tests.time.laws import law


@pytest.mark.parametrize(
    ("written", "microseconds"),
    [
        (0, 0),
        (17, 17),
        ("500 milliseconds", 500_000),
        ("2 minutes", 120_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("interval 1 hour 30 minutes", 5_400_000_000),
        ("INTERVAL  1  Second", 1_000_000),
        ("1 week 1 day", 8 * 86_400_000_000),
        ("1.5 seconds", 1_500_000),
        (".25 second", 250_000),
        ("2. seconds", 2_000_000),
        ("+3 microseconds", 3),
        ("1 minute -10 seconds", 50_000_000),
        ("10seconds", 10_000_000),
        ("  5 seconds ", 5_000_000),
        (timedelta(milliseconds=3), 3000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
    ],
)
def test_read(written: Any, microseconds: int) -> None:
    assert parse_duration(written, "lag") == microseconds


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1 month", ["a month has no fixed length", "days"]),
        ("2 years", ["a year has no fixed length"]),
        ("-1 second", ["negative"]),
        (-1, ["negative"]),
        (timedelta(seconds=-1), ["negative"]),
        ("10", ["'10'", "numbers with units"]),
        ("ten seconds", ["ten seconds"]),
        ("1 second and more", ["and more"]),
        ("", ["empty"]),
        ("interval ", ["empty"]),
        ("1.5 hours", ["only seconds"]),
        ("0.0000005 seconds", ["microsecond"]),
        ("5 secnds", ['did you mean "second"']),
        ("1 fortnight", ["unknown unit", "week"]),
        (1.5, ["1.5", "whole number"]),
        (True, ["whole number"]),
        (None, ["whole number"]),
        (MAX + 1, ["292,000 years"]),
        ("99999999999999 weeks", ["292,000 years"]),
    ],
)
def test_refused_naming_option_and_value(written: Any, words: list[str]) -> None:
    with pytest.raises(AnalysisError) as refused:
        parse_duration(written, "idleTimeout")
    assert all(word in str(refused.value) for word in ["idleTimeout", repr(written), *words])


def test_a_least_duration() -> None:
    assert parse_duration(1, "slideDuration", minimum=1) == 1
    with pytest.raises(AnalysisError, match=r"less than 1 microsecond$"):
        parse_duration("0 seconds", "slideDuration", minimum=1)


@law
@given(st.dictionaries(st.sampled_from(sorted(MICROSECONDS)), st.integers(0, 999)).filter(bool), st.booleans())
def test_parts_add_up(parts: dict[str, int], plural: bool) -> None:
    text = " ".join(f"{number} {unit}{'s' * plural}" for unit, number in parts.items())
    assert parse_duration(text, "lag") == sum(number * MICROSECONDS[unit] for unit, number in parts.items())


@law
@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000_000)))
def test_a_timedelta_and_its_microseconds_are_one(delta: timedelta) -> None:
    microseconds = parse_duration(delta, "lag")
    assert parse_duration(f"{microseconds} microseconds", "lag") == microseconds
    assert timedelta(microseconds=microseconds) == delta
