"""Variances and the linear trend: central moments, merged around their means so that they stay stable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

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

    >>> from sparkjet import functions as J
    >>> rows = spark.createDataFrame([(1e9 + x,) for x in (4, 7, 13, 16)], "x double")
    >>> J.var_pop("x").evaluate(rows)
    22.5
    """
    return _variance("var_pop", col, _population)


def var_samp(col: ColumnOrName) -> Aggregate:
    """Sample variance of the non-null values, as double; null for fewer than two. See :func:`var_pop`.

    >>> from sparkjet import functions as J
    >>> J.var_samp("id").evaluate(spark.range(3))
    1.0
    """
    return _variance("var_samp", col, _sample)


def variance(col: ColumnOrName) -> Aggregate:
    """Sample variance, the same as :func:`var_samp`.

    >>> from sparkjet import functions as J
    >>> J.variance("id").evaluate(spark.range(1)) is None
    True
    """
    return _variance("variance", col, _sample)


def stddev_pop(col: ColumnOrName) -> Aggregate:
    """Population standard deviation of the non-null values, as double; null if there are none. See :func:`var_pop`.

    >>> from sparkjet import functions as J
    >>> J.stddev_pop("id").evaluate(spark.range(1))
    0.0
    """
    return _variance("stddev_pop", col, lambda acc: F.sqrt(_population(acc)))


def stddev_samp(col: ColumnOrName) -> Aggregate:
    """Sample standard deviation of the non-null values, as double; null for fewer than two. See :func:`var_pop`.

    >>> from sparkjet import functions as J
    >>> J.stddev_samp("id").evaluate(spark.range(3))
    1.0
    """
    return _variance("stddev_samp", col, lambda acc: F.sqrt(_sample(acc)))


def stddev(col: ColumnOrName) -> Aggregate:
    """Sample standard deviation, the same as :func:`stddev_samp`.

    >>> from sparkjet import functions as J
    >>> J.stddev("id").evaluate(spark.range(3))
    1.0
    """
    return _variance("stddev", col, lambda acc: F.sqrt(_sample(acc)))


def linear_trend(x: ColumnOrName, y: ColumnOrName) -> Aggregate:
    """Slope of the least-squares line through the points (x, y), as double; Jet's ``linearTrend``.

    Like Spark's ``regr_slope``, with Jet's order of arguments: points with a null are ignored, and the slope is null if
    it is undefined (no two distinct x). Numbers are cast to double, and timestamps to seconds, so that the slope is
    per second. Parts are merged around their means, which is numerically stable, unlike sums of products. Does not
    deduct.

    Raises:
        AnalysisError: When resolved: ``x`` is neither a number nor a timestamp, or ``y`` is not a number.

    >>> from sparkjet import functions as J
    >>> rows = spark.createDataFrame([(1, 2.0), (2, 4.0), (4, 8.0)], "x int, y double")
    >>> J.linear_trend("x", "y").evaluate(rows)
    2.0
    """
    name = f"linear_trend({label(x)}, {label(y)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        if not isinstance(inputs.type_of(x), TimestampType):
            number(inputs, name, x)
        number(inputs, name, y)
        across, up = column_of(x).cast("double"), column_of(y).cast("double")
        return AggregateOperation(
            accumulate={
                "count": F.regr_count(up, across),
                "mean_x": F.coalesce(F.regr_avgx(up, across), F.lit(0.0)),
                "mean_y": F.coalesce(F.regr_avgy(up, across), F.lit(0.0)),
                "xx": F.coalesce(F.regr_sxx(up, across), F.lit(0.0)),
                "xy": F.coalesce(F.regr_sxy(up, across), F.lit(0.0)),
            },
            create={"count": _no_rows(), **{field: F.lit(0.0) for field in ("mean_x", "mean_y", "xx", "xy")}},
            combine=_combine_trend,
            finish=lambda acc: F.when(acc["xx"] != 0, acc["xy"] / acc["xx"]),
        )

    return Aggregate(name, resolve)


def _variance(function: str, col: ColumnOrName, finish: Callable[[Accumulator], Column]) -> Aggregate:
    name = f"{function}({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, col)
        value = column_of(col).cast("double")
        return AggregateOperation(
            accumulate={
                "count": F.count(value),
                "mean": F.coalesce(F.avg(value), F.lit(0.0)),
                "m2": F.coalesce(F.var_pop(value) * F.count(value), F.lit(0.0)),
            },
            create={"count": _no_rows(), "mean": F.lit(0.0), "m2": F.lit(0.0)},
            combine=_combine_variance,
            finish=finish,
        )

    return Aggregate(name, resolve)


def _no_rows() -> Column:
    return F.lit(0).cast("bigint")


def _population(acc: Accumulator) -> Column:
    return F.when(acc["count"] > 0, acc["m2"] / acc["count"])


def _sample(acc: Accumulator) -> Column:
    return F.when(acc["count"] > 1, acc["m2"] / (acc["count"] - 1))


def _combine_variance(left: Accumulator, right: Accumulator) -> Accumulator:
    count, share = _shares(left, right)
    delta = right["mean"] - left["mean"]
    # Multiplied in this order: with an empty left side, delta squared may be infinite, and 0 × inf is NaN.
    shifted = delta * (left["count"] * share) * delta
    return {
        "count": count,
        "mean": left["mean"] + delta * share,
        "m2": left["m2"] + right["m2"] + shifted,
    }


def _combine_trend(left: Accumulator, right: Accumulator) -> Accumulator:
    count, share = _shares(left, right)
    across, up = right["mean_x"] - left["mean_x"], right["mean_y"] - left["mean_y"]
    weight = left["count"] * share
    return {
        "count": count,
        "mean_x": left["mean_x"] + across * share,
        "mean_y": left["mean_y"] + up * share,
        "xx": left["xx"] + right["xx"] + across * weight * across,
        "xy": left["xy"] + right["xy"] + across * weight * up,
    }


def _shares(left: Accumulator, right: Accumulator) -> tuple[Column, Column]:
    """Number of rows on both sides, and the right side's share of them (0 if there are none)."""
    count = left["count"] + right["count"]
    return count, right["count"] / F.greatest(count, F.lit(1))
