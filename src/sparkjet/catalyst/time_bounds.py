"""Comparisons of two event times, read as bounds on the difference between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import get_field

from sparkjet.catalyst.logical_plans import attribute_id, children, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
DAY = 86_400 * SECOND
SHORTEST_MONTH, LONGEST_MONTH = 28 * DAY, 31 * DAY
UNITS = {
    "UnixMicros": 1,
    "UnixMillis": 1_000,
    "UnixSeconds": SECOND,
    "UnixTimestamp": SECOND,
    "ToUnixTimestamp": SECOND,
}
"""Microseconds per unit of the value that a function makes of a timestamp; fractions are cut off."""
FLIPPED = {"LessThan": "GreaterThan", "LessThanOrEqual": "GreaterThanOrEqual"}
FLIPPED |= {flipped: kind for kind, flipped in FLIPPED.items()} | {"EqualTo": "EqualTo"}


@dataclass(frozen=True)
class TimeBounds:
    """The known range of the right event time minus the left one, in microseconds.

    Attributes:
        lower: The least it can be, None if there is no bound below ``upper``.
        upper: The most it can be, None if there is no bound above ``lower``.
        exact: Whether the comparison is true for all differences between them.
    """

    lower: int | None = None
    upper: int | None = None
    exact: bool = True

    def within(self, other: TimeBounds) -> TimeBounds:
        """The range if both hold."""
        lower = max((each.lower for each in (self, other) if each.lower is not None), default=None)
        upper = min((each.upper for each in (self, other) if each.upper is not None), default=None)
        return TimeBounds(lower, upper, self.exact and other.exact)


@dataclass(frozen=True)
class _Term:
    """A multiple of each event time, plus something between ``low`` and ``high``.

    ``unit`` is the number of microseconds that one stands for, None for a plain number, which takes the unit of what it
    is added to or compared with.
    """

    left: int
    right: int
    low: Fraction
    high: Fraction
    unit: int | None = 1

    def plus(self, other: _Term, sign: int = 1) -> _Term | None:
        unit = self.unit if self.unit is not None else other.unit
        one, two = self._of(unit), other._of(unit)
        if one is None or two is None:
            return None
        low, high = (two.low, two.high) if sign > 0 else (-two.high, -two.low)
        return _Term(one.left + sign * two.left, one.right + sign * two.right, one.low + low, one.high + high, one.unit)

    def wider(self, below: int, above: int) -> _Term:
        return replace(self, low=self.low - below, high=self.high + above)

    def _of(self, unit: int | None) -> _Term | None:
        if self.unit == unit:
            return self
        if self.unit is not None or unit is None:
            return None
        return replace(self, low=self.low * unit, high=self.high * unit, unit=unit)


class TimeComparisons:
    """Reads comparisons of two event times; on the driver.

    It understands constant intervals, added or subtracted, differences of timestamps, and timestamps as numbers. A
    bound is never narrower than the comparison: a month has 28 to 31 days, and calendar days that Spark adds are longer
    or shorter when clocks change.

    Args:
        session: The session whose JVM holds the expressions.
        left: Identities of the columns that hold the left event time.
        right: The same for the right one.
    """

    def __init__(self, session: SparkSession, left: Collection[int], right: Collection[int]) -> None:
        self._session = session
        self._left = left
        self._right = right
        self._readers: dict[str, Callable[[Any], _Term | None]] = {
            "AttributeReference": self._event_time,
            "Cast": self._cast,
            # Spark 4.0's name for it.
            "TimeAdd": self._later,
            "TimestampAddInterval": self._later,
            "TimestampAddYMInterval": self._later,
            "SubtractTimestamps": self._difference,
            "Subtract": lambda each: self._sum(each, -1),
            "Add": lambda each: self._sum(each, 1),
            **dict.fromkeys(UNITS, self._number),
        }

    def bounds(self, comparison: Any) -> TimeBounds | None:
        """The bounds that an analyzed comparison sets on the two event times, None if it sets none."""
        kind = kind_of(comparison)
        if kind not in FLIPPED:
            return None
        one, other = (self._term(side) for side in children(comparison))
        difference = None if one is None or other is None else one.plus(other, -1)
        if difference is None or (difference.left, difference.right) not in {(-1, 1), (1, -1)}:
            return None
        exact = difference.low == difference.high and difference.unit == 1
        low, high = difference.low, difference.high
        if difference.left == 1:
            kind, low, high = FLIPPED[kind], -high, -low
        # Now: right - left + something between low and high, compared with zero.
        strict = int(kind in {"LessThan", "GreaterThan"})
        upper = None if kind.startswith("Greater") else math.floor(-low) - (strict if low.denominator == 1 else 0)
        lower = None if kind.startswith("Less") else math.ceil(-high) + (strict if high.denominator == 1 else 0)
        return TimeBounds(lower, upper, exact and low.denominator == 1)

    def _term(self, expression: Any) -> _Term | None:
        if expression.foldable():
            return self._constant(expression)
        reader = self._readers.get(kind_of(expression))
        return None if reader is None else reader(expression)

    def _event_time(self, attribute: Any) -> _Term | None:
        identity = attribute_id(attribute)
        if identity in self._left:
            return _Term(1, 0, Fraction(0), Fraction(0))
        return _Term(0, 1, Fraction(0), Fraction(0)) if identity in self._right else None

    def _cast(self, cast: Any) -> _Term | None:
        child = cast.child()
        term = self._term(child)
        if term is None or cast.dataType().sameType(child.dataType()):
            return term
        before, after = kind_of(child.dataType()), kind_of(cast.dataType())
        if before == "TimestampType$":
            if after == "LongType$":
                return replace(term.wider(SECOND - 1, 0), unit=SECOND)
            # Seconds with a fraction, rounded to double precision.
            return replace(term.wider(1, 1), unit=SECOND) if after == "DoubleType$" else None
        widened = before == after == "DayTimeIntervalType" or (before == "LongType$" and after == "DoubleType$")
        return term if widened else None

    def _number(self, function: Any) -> _Term | None:
        timestamp = children(function)[0]
        unit = UNITS[kind_of(function)]
        term = self._term(timestamp) if kind_of(timestamp.dataType()) == "TimestampType$" else None
        return None if term is None else replace(term.wider(unit - 1, 0), unit=unit)

    def _later(self, addition: Any) -> _Term | None:
        timestamp, interval = children(addition)
        term, length = self._term(timestamp), self._term(interval)
        total = None if term is None or length is None else term.plus(length)
        if total is None or length is None:
            return None
        # Days and months are added by the calendar of the session's time zone; hours and below are not.
        by_calendar = length.low != length.high or abs(length.low) >= DAY or _has_days(interval)
        spread = _spread(addition.zoneId()) if by_calendar else 0
        return total.wider(spread, spread)

    def _difference(self, subtraction: Any) -> _Term | None:
        difference = self._sum(subtraction, -1)
        # Spark subtracts wall-clock times, not instants.
        spread = _spread(subtraction.zoneId()) if difference is not None else 0
        return None if difference is None else difference.wider(spread, spread)

    def _sum(self, operation: Any, sign: int) -> _Term | None:
        one, other = (self._term(side) for side in children(operation)[:2])
        return None if one is None or other is None else one.plus(other, sign)

    def _constant(self, expression: Any) -> _Term | None:
        value, kind = expression.eval(None), kind_of(expression.dataType())
        if value is None:
            return None
        if kind == "DayTimeIntervalType":
            return _between(value, value)
        if kind == "YearMonthIntervalType":
            return _months(value)
        if kind == "CalendarIntervalType$":
            exact = get_field(value, "days") * DAY + get_field(value, "microseconds")
            return _months(get_field(value, "months")).plus(_between(exact, exact))
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return replace(_between(value, value), unit=None)
        return None


def _between(low: float, high: float) -> _Term:
    return _Term(0, 0, Fraction(low), Fraction(high))


def _months(count: int) -> _Term:
    ends = sorted((count * SHORTEST_MONTH, count * LONGEST_MONTH))
    return _between(ends[0], ends[1])


def _has_days(interval: Any) -> bool:
    """Whether a constant interval counts calendar days, even if they cancel out with its hours."""
    is_calendar = kind_of(interval.dataType()) == "CalendarIntervalType$"
    return is_calendar and get_field(interval.eval(None), "days") != 0


def _spread(zone: Any) -> int:
    """The largest difference between two offsets of a time zone, in all its history."""
    rules = zone.getRules()
    if rules.isFixedOffset():
        return 0
    changes = [*_listed(rules.getTransitions()), *_listed(rules.getTransitionRules())]
    offsets = [
        offset.getTotalSeconds() for change in changes for offset in (change.getOffsetBefore(), change.getOffsetAfter())
    ]
    return (max(offsets) - min(offsets)) * SECOND if offsets else 0


def _listed(collection: Any) -> list[Any]:
    """A Java list as a list."""
    return [collection.get(i) for i in range(collection.size())]
