"""Variances, skewness and kurtosis: central moments, merged around their means so that they stay stable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.values import column_of, number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs


def var_pop(col: ColumnOrName) -> Aggregate:
    """Population variance of the non-null values, as double; null if there are none.

    Numerically stable for values far from zero: parts are merged by the formula of Chan et al. Numbers are cast to
    double. Does not deduct.
    """
    return _variance("var_pop", col, _population)


def var_samp(col: ColumnOrName) -> Aggregate:
    """Sample variance of the non-null values, as double; null for fewer than two. See :func:`var_pop`."""
    return _variance("var_samp", col, _sample)


def variance(col: ColumnOrName) -> Aggregate:
    """Sample variance, the same as :func:`var_samp`."""
    return _variance("variance", col, _sample)


def stddev_pop(col: ColumnOrName) -> Aggregate:
    """Population standard deviation of the non-null values, as double; null if there are none. See :func:`var_pop`."""
    return _variance("stddev_pop", col, lambda acc: F.sqrt(_population(acc)))


def stddev_samp(col: ColumnOrName) -> Aggregate:
    """Sample standard deviation of the non-null values, as double; null for fewer than two. See :func:`var_pop`."""
    return _variance("stddev_samp", col, lambda acc: F.sqrt(_sample(acc)))


def std(col: ColumnOrName) -> Aggregate:
    """Sample standard deviation, the same as :func:`stddev_samp`."""
    return _variance("std", col, lambda acc: F.sqrt(_sample(acc)))


def stddev(col: ColumnOrName) -> Aggregate:
    """Sample standard deviation, the same as :func:`stddev_samp`."""
    return _variance("stddev", col, lambda acc: F.sqrt(_sample(acc)))


def skewness(col: ColumnOrName) -> Aggregate:
    """Skewness of the non-null values, as double; null without two distinct ones. See :func:`var_pop`."""
    return _shape("skewness", col, _skewness)


def kurtosis(col: ColumnOrName) -> Aggregate:
    """Excess kurtosis of the non-null values, as double; null without two distinct ones. See :func:`var_pop`."""
    return _shape("kurtosis", col, _kurtosis)


def _variance(function: str, col: ColumnOrName, finish: Callable[[Accumulator], Column]) -> Aggregate:
    name = f"{function}({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, col)
        value = column_of(col).cast("double")
        m2 = F.coalesce(F.var_pop(value) * F.count(value), F.lit(0.0))
        return AggregateOperation(
            accumulate={"count": F.count(value), "mean": exact_mean(value, m2), "m2": m2},
            create={"count": no_rows(), "mean": F.lit(0.0), "m2": F.lit(0.0)},
            combine=_combine_variance,
            finish=finish,
        )

    return Aggregate(name, resolve)


def _shape(function: str, col: ColumnOrName, finish: Callable[[Accumulator], Column]) -> Aggregate:
    name = f"{function}({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, col)
        value = column_of(col).cast("double")
        count, m2 = F.count(value), F.var_pop(value) * F.count(value)
        # Spark has no function of these moments, but they follow from its results; null if all values are equal.
        m3 = F.skewness(value) * m2 * F.sqrt(m2) / F.sqrt(count)
        m4 = (F.kurtosis(value) + 3) * m2 * (m2 / count)
        moments = {"mean": exact_mean(value, m2), "m2": m2, "m3": m3, "m4": m4}
        return AggregateOperation(
            accumulate={"count": count, **{field: F.coalesce(c, F.lit(0.0)) for field, c in moments.items()}},
            create={"count": no_rows(), **{field: F.lit(0.0) for field in moments}},
            combine=_combine_shape,
            finish=lambda acc: F.when(acc["m2"] != 0, finish(acc)),
        )

    return Aggregate(name, resolve)


def no_rows() -> Column:
    """The number of rows of the empty accumulator."""
    return F.lit(0).cast("bigint")


def exact_mean(value: Column, m2: Column) -> Column:
    """The mean of a column, 0 without values; the mean of equal values is that value.

    ``avg`` rounds it, and parts with one value would have different means: a deviation where there is none, by which
    the shape and the slope are divided.
    """
    return F.coalesce(F.when(m2 == 0, F.min(value)).otherwise(F.avg(value)), F.lit(0.0))


def _population(acc: Accumulator) -> Column:
    return F.when(acc["count"] > 0, acc["m2"] / acc["count"])


def _sample(acc: Accumulator) -> Column:
    return F.when(acc["count"] > 1, acc["m2"] / (acc["count"] - 1))


def _skewness(acc: Accumulator) -> Column:
    return F.try_divide(F.sqrt(acc["count"]) * acc["m3"], F.sqrt(acc["m2"] * acc["m2"] * acc["m2"]))


def _kurtosis(acc: Accumulator) -> Column:
    return F.try_divide(acc["count"] * acc["m4"], acc["m2"] * acc["m2"]) - 3


def _combine_variance(left: Accumulator, right: Accumulator) -> dict[str, Column]:
    count, share = shares(left, right)
    delta = right["mean"] - left["mean"]
    # Multiplied in this order: with an empty left side, delta squared may be infinite, and 0 × inf is NaN.
    shifted = delta * (left["count"] * share) * delta
    return {
        "count": count,
        "mean": left["mean"] + delta * share,
        "m2": left["m2"] + right["m2"] + shifted,
    }


def _combine_shape(left: Accumulator, right: Accumulator) -> Accumulator:
    merged = _combine_variance(left, right)
    share = shares(left, right)[1]
    delta, rest = right["mean"] - left["mean"], 1 - share
    between = left["count"] * share * delta * delta
    merged["m3"] = (
        left["m3"] + right["m3"] + between * delta * (rest - share)
        + 3 * delta * (rest * right["m2"] - share * left["m2"])
    )  # fmt: skip
    merged["m4"] = (
        left["m4"] + right["m4"] + between * delta * delta * (rest * rest - rest * share + share * share)
        + 6 * delta * delta * (rest * rest * right["m2"] + share * share * left["m2"])
        + 4 * delta * (rest * right["m3"] - share * left["m3"])
    )  # fmt: skip
    # With an empty side the powers of delta may be infinite, and 0 × inf is NaN.
    return {
        field: F.when(left["count"] == 0, right[field]).when(right["count"] == 0, left[field]).otherwise(column)
        for field, column in merged.items()
    }


def shares(left: Accumulator, right: Accumulator) -> tuple[Column, Column]:
    """Number of rows on both sides, and the right side's share of them (0 if there are none)."""
    count = left["count"] + right["count"]
    return count, right["count"] / F.greatest(count, F.lit(1))
