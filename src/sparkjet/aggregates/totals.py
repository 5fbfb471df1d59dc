"""Totals: the sum and the number of non-null values, as exact as the input's type allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    LongType,
    YearMonthIntervalType,
)

from sparkjet.aggregates.operation import AggregateOperation
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator

Overflow: TypeAlias = "Callable[[str, str], Column]"
_HALF = 32
_LOW_MASK = (1 << _HALF) - 1
_MOST_HALVES = 1 << 31
"""Number of values whose halves can be summed: 2^31 times the largest low half still fits in 64 bits."""
_MOST_DIGITS = 38
_SPARE_DIGITS = 10
_PLAIN_SCALE = 17
"""Up to this scale, a quotient has seven digits more than a mean, so that it is not rounded twice."""
_KEPT_SCALE = 6
"""Up to this scale, Spark adds two decimal(38,s) without dropping a digit."""


@dataclass(frozen=True, eq=False)
class Total:
    """The accumulator of a sum, and how to read it.

    Attributes:
        operation: The operation, with a ``finish`` that returns null.
        sum: The sum, of Spark's type; what was asked for if it overflows that type.
        mean: The mean, of Spark's type; likewise.
    """

    operation: AggregateOperation
    sum: Callable[[Accumulator], Column]
    mean: Callable[[Accumulator], Column]


def failing(message: str, result: str) -> Column:
    """The default for a total that overflows: an error."""
    return F.raise_error(f"[ARITHMETIC_OVERFLOW] {message}").cast(result)


def total_of(name: str, value: Column, data_type: DataType, overflow: Overflow = failing) -> Total:
    """The total of a column of numbers or intervals."""
    if isinstance(data_type, LongType):
        return _long(name, value, overflow)
    if isinstance(data_type, DecimalType):
        digits = data_type.precision + _SPARE_DIGITS
        exact = digits < _MOST_DIGITS
        return (_decimal if exact else _wide_decimal)(name, value, data_type, overflow)
    if isinstance(data_type, DayTimeIntervalType | YearMonthIntervalType):
        return _interval(name, value, data_type, overflow)
    if isinstance(data_type, FractionalType):
        return _floating(value)
    return _integer(value)


def summing(types: dict[str, str], accumulate: dict[str, Column], *, exact: bool) -> AggregateOperation:
    """An operation whose fields are added and, if ``exact``, can be subtracted."""

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        return {field: (left[field] + right[field]).cast(types[field]) for field in types}

    def deduct(left: Accumulator, right: Accumulator) -> Accumulator:
        return {field: (left[field] - right[field]).cast(types[field]) for field in types}

    return AggregateOperation(
        accumulate=accumulate,
        create={field: F.lit(0).cast(data_type) for field, data_type in types.items()},
        combine=combine,
        finish=lambda _: F.lit(None),
        deduct=deduct if exact else None,
        combine_group=lambda acc: {field: F.sum(acc[field]) for field in types},
    )


def _integer(value: Column) -> Total:
    # Cannot overflow: 2^32 values of 32 bits fit in 64.
    zero = F.lit(0).cast("bigint")
    accumulate = {"total": F.coalesce(F.sum(value), zero), "count": F.count(value)}
    return Total(
        summing({"total": "bigint", "count": "bigint"}, accumulate, exact=True),
        sum=lambda acc: acc["total"],
        mean=lambda acc: acc["total"].cast("double") / acc["count"],
    )


def halves_of(total: Column) -> dict[str, Column]:
    """A sum of 64 bits as the accumulator of sums of bigint has it, but for the number of values."""
    return {"high": F.shiftright(total, _HALF), "low": total.bitwiseAND(F.lit(_LOW_MASK))}


def _long(name: str, value: Column, overflow: Overflow) -> Total:
    zero = F.lit(0).cast("bigint")
    accumulate = {
        "high": F.coalesce(F.sum(F.shiftright(value, _HALF)), zero),
        "low": F.coalesce(F.sum(value.bitwiseAND(F.lit(_LOW_MASK))), zero),
        "count": F.count(value),
    }
    message = f"{name}: the sum exceeds 64 bits (long overflow). Cast the column to decimal(20,0) for larger sums."

    def high(acc: Accumulator) -> Column:
        return acc["high"] + F.shiftright(acc["low"], _HALF)

    def low(acc: Accumulator) -> Column:
        return acc["low"].bitwiseAND(F.lit(_LOW_MASK))

    def read(acc: Accumulator) -> Column:
        bound = 1 << (_HALF - 1)
        fits = (high(acc) >= -bound) & (high(acc) < bound) & (acc["count"] <= _MOST_HALVES)
        return F.when(fits, F.shiftleft(high(acc), _HALF).bitwiseOR(low(acc))).otherwise(overflow(message, "bigint"))

    def mean(acc: Accumulator) -> Column:
        # Rounded once as long as the sum fits in 64 bits, and without overflow if it does not.
        return (high(acc).cast("double") * float(1 << _HALF) + low(acc).cast("double")) / acc["count"]

    types = dict.fromkeys(("high", "low", "count"), "bigint")
    return Total(summing(types, accumulate, exact=True), read, mean)


def _floating(value: Column) -> Total:
    accumulate = {"total": F.coalesce(F.sum(value), F.lit(0.0)), "count": F.count(value)}
    return Total(
        summing({"total": "double", "count": "bigint"}, accumulate, exact=False),
        sum=lambda acc: acc["total"],
        mean=lambda acc: acc["total"] / acc["count"],
    )


def _decimal(name: str, value: Column, data_type: DecimalType, overflow: Overflow) -> Total:
    # Up to decimal(27,s): ten more digits make 37, and the sum of two of those has 38, without loss of scale.
    summed = f"decimal({data_type.precision + _SPARE_DIGITS},{data_type.scale})"
    accumulate = {"total": F.coalesce(F.sum(value), F.lit(0).cast(summed)), "count": F.count(value)}
    return Total(
        summing({"total": summed, "count": "bigint"}, accumulate, exact=True),
        sum=lambda acc: F.coalesce(acc["total"], _decimal_overflow(name, summed, overflow)),
        mean=lambda acc: decimal_mean(name, acc["total"], acc["count"], data_type, overflow),
    )


def _wide_decimal(name: str, value: Column, data_type: DecimalType, overflow: Overflow) -> Total:
    check_addable(name, data_type)
    scale = data_type.scale
    summed = f"decimal({_MOST_DIGITS},{scale})"

    def operand(column: Column) -> Column:
        # Spark drops a digit of scale when adding two 38-digit decimals; the price is that 38-digit sums overflow.
        return column if scale <= _KEPT_SCALE else column.try_cast(f"decimal({_MOST_DIGITS - 1},{scale})")

    def mean(total: Column, count: Column) -> Column:
        return decimal_mean(name, total, count, data_type, overflow)

    return _tried(value, F.lit(0).cast(summed), summed, _decimal_overflow(name, summed, overflow), mean, operand)


def _interval(name: str, value: Column, data_type: DataType, overflow: Overflow) -> Total:
    summed = data_type.simpleString()
    message = f"{name}: the sum exceeds {summed} (interval overflow). Sum a number of its units instead."
    return _tried(value, no_time(data_type), summed, overflow(message, summed), lambda total, count: total / count)


def check_addable(name: str, data_type: DataType) -> None:
    """Refuse decimal(38,38): Spark adds it with one digit less, and loses the last one."""
    if isinstance(data_type, DecimalType) and data_type.scale == _MOST_DIGITS:
        raise AnalysisError(f"{name}: decimal(38,38) cannot be added exactly. Cast the column to decimal(38,37).")


def no_time(data_type: DataType) -> Column:
    """The interval of length zero."""
    none = F.make_ym_interval() if isinstance(data_type, YearMonthIntervalType) else F.make_dt_interval()
    return none.cast(data_type)


def _tried(
    value: Column,
    zero: Column,
    summed: str,
    overflow: Column,
    mean: Callable[[Column, Column], Column],
    operand: Callable[[Column], Column] = lambda column: column,
) -> Total:
    """The total of values whose partial sums may leave the range of their type."""
    total = F.coalesce(F.try_sum(value), F.when(F.count(value) == 0, zero))
    accumulate = {"total": total, "count": F.count(value), "broken": F.max(F.lit(False))}

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        added = F.try_add(operand(left["total"]), operand(right["total"])).cast(summed)
        broken = left["broken"] | right["broken"] | left["total"].isNull() | right["total"].isNull()
        return {"total": added, "count": left["count"] + right["count"], "broken": broken | added.isNull()}

    def combine_group(acc: Accumulator) -> Accumulator:
        # SUM skips nulls, so a total that overflowed (null) must be recorded separately.
        broken = F.max(acc["broken"] | acc["total"].isNull())
        return {"total": F.try_sum(acc["total"]), "count": F.sum(acc["count"]), "broken": broken}

    def intact(acc: Accumulator) -> Column:
        return F.coalesce(F.when(acc["broken"], None).otherwise(acc["total"]), overflow)

    operation = AggregateOperation(
        accumulate=accumulate,
        create={"total": zero, "count": F.lit(0).cast("bigint"), "broken": F.lit(False)},
        combine=combine,
        finish=lambda _: F.lit(None),
        combine_group=combine_group,
    )
    return Total(operation, intact, lambda acc: mean(intact(acc), acc["count"]))


def _decimal_overflow(name: str, result: str, overflow: Overflow) -> Column:
    return overflow(f"{name}: the result exceeds {result}. Cast the column to a decimal of smaller scale.", result)


def decimal_mean(name: str, total: Column, count: Column, data_type: DecimalType, overflow: Overflow) -> Column:
    """The quotient with all digits of Spark's avg, some of which Spark's ``/`` would round away."""
    scale = min(_MOST_DIGITS, data_type.scale + 4)
    digits = min(_MOST_DIGITS, data_type.precision + 4)
    result = f"decimal({digits},{scale})"
    rows = count.cast("decimal(10,0)")
    rough = F.try_divide(total, rows).try_cast(result)
    if scale < _MOST_DIGITS:
        rest = total % rows
        quotient = F.try_divide(F.try_subtract(total, rest), rows)
        part = _fraction(rest, rows, data_type.scale).cast(f"decimal({scale + 1},{scale})")
        # One digit less if whole and part would have 39, as Spark would drop a digit of scale.
        whole = quotient.try_cast(f"decimal({max(1, min(digits, _MOST_DIGITS - 1) - scale)},0)")
        exact = [(whole + part).try_cast(result)]
        if digits == _MOST_DIGITS > scale + 1:
            # Put side by side instead: only a part that was rounded up to 1 has to be added.
            whole = quotient.try_cast(f"decimal({digits - scale},0)")
            # With a one before the point: without ANSI arithmetic, Spark writes 0.00000003 as 3E-8.
            point = (F.lit(1).cast("decimal(1,0)") + F.abs(part)).cast("string")
            joined = F.concat(whole.cast("string"), F.substr(point, F.lit(2)))
            exact.append(
                F.when(F.abs(part) < 1, joined.try_cast(result)).otherwise(
                    (whole + F.signum(part).cast("decimal(1,0)")).try_cast(result)
                )
            )
        rough = F.coalesce(*exact, rough)
    return F.coalesce(rough, _decimal_overflow(name, result, overflow))


def _fraction(rest: Column, rows: Column, scale: int) -> Column:
    """The quotient of what a division by a number of rows leaves, with all digits of a mean."""
    if scale <= _PLAIN_SCALE:
        return rest / rows
    # The quotient's type has ten digits before the point, where there are none, and too few after it: what is smaller
    # than 18 digits can say is divided by itself.
    unit = (rows * F.lit("1E-18").cast("decimal(18,18)")).cast("decimal(18,18)")
    fine = (rest % unit) / rows
    return (rest / rows - fine).cast("decimal(18,18)") + fine.cast(f"decimal({scale + 4},{scale + 4})")
