"""regr_slope and its kin, and linear_trend: the least-squares line through points (x, y)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from sparkjet.aggregates.correlations import correlation, pairs
from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.sums import counting, mean_of
from sparkjet.aggregates.values import column_of, none_null, number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, AggregateOperation, ColumnOrName, Inputs


def linear_trend(x: ColumnOrName, y: ColumnOrName) -> Aggregate:
    """Slope of the least-squares line through the points (x, y), as double; Jet's ``linearTrend``.

    Like :func:`regr_slope`, with Jet's order of arguments; timestamps are cast to seconds, so that the slope is per
    second.

    Raises:
        AnalysisError: When resolved: ``x`` is neither a number nor a timestamp, or ``y`` is not a number.

    >>> from sparkjet import functions as J
    >>> rows = spark.createDataFrame([(1, 2.0), (2, 4.0), (4, 8.0)], "x int, y double")
    >>> J.linear_trend("x", "y").evaluate(rows)
    2.0
    """
    name = f"linear_trend({label(x)}, {label(y)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        across = column_of(x).cast("double") if isinstance(inputs.type_of(x), TimestampType) else x
        return pairs(name, y, across, ("xx", "xy"), _slope).resolve(inputs)

    return Aggregate(name, resolve)


def regr_slope(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Slope of the least-squares line through the points (x, y), as double; null without two distinct x.

    Points that contain a null are ignored. Numbers are cast to double. Parts are merged around their means, which is
    numerically stable, unlike sums of products. Does not deduct.
    """
    return _line("regr_slope", y, x, ("xx", "xy"), _slope)


def regr_intercept(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Value at 0 of the least-squares line through the points (x, y), as double. See :func:`regr_slope`."""
    return _line("regr_intercept", y, x, ("xx", "xy"), lambda acc: acc["mean_y"] - _slope(acc) * acc["mean_x"])


def regr_r2(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Coefficient of determination of the points (x, y), as double; 1 if all y are equal. See :func:`regr_slope`."""

    def finish(acc: Accumulator) -> Column:
        squared = F.pow(correlation(acc), F.lit(2))
        return F.when(acc["xx"] != 0, F.when(acc["yy"] == 0, 1.0).otherwise(squared))

    return _line("regr_r2", y, x, ("xx", "xy", "yy"), finish)


def regr_sxx(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Sum of the squared deviations of x from its mean, as double; null without points. See :func:`regr_slope`."""
    return _product("regr_sxx", y, x, "xx")


def regr_sxy(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Sum of the products of both deviations, as double; null without points. See :func:`regr_slope`."""
    return _product("regr_sxy", y, x, "xy")


def regr_syy(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Sum of the squared deviations of y from its mean, as double; null without points. See :func:`regr_slope`."""
    return _product("regr_syy", y, x, "yy")


def regr_avgx(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Mean of x over the points (x, y) without null, of the type of :func:`avg`. Deducts if :func:`avg` of x does."""
    return _mean("regr_avgx", y, x, of=x)


def regr_avgy(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Mean of y over the points (x, y) without null, of the type of :func:`avg`. See :func:`regr_avgx`."""
    return _mean("regr_avgy", y, x, of=y)


def regr_count(y: ColumnOrName, x: ColumnOrName) -> Aggregate:
    """Number of points (x, y) without null; bigint. Deducts."""
    name = f"regr_count({label(y)}, {label(x)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, y)
        number(inputs, name, x)
        return counting(inputs, y, x)

    return Aggregate(name, resolve)


def _line(
    function: str,
    y: ColumnOrName,
    x: ColumnOrName,
    products: Sequence[str],
    finish: Callable[[Accumulator], Column],
) -> Aggregate:
    return pairs(f"{function}({label(y)}, {label(x)})", y, x, products, finish)


def _product(function: str, y: ColumnOrName, x: ColumnOrName, product: str) -> Aggregate:
    return _line(function, y, x, (product,), lambda acc: F.when(acc["count"] > 0, acc[product]))


def _mean(function: str, y: ColumnOrName, x: ColumnOrName, *, of: ColumnOrName) -> Aggregate:
    name = f"{function}({label(y)}, {label(x)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, y)
        number(inputs, name, x)
        return mean_of(name, F.when(none_null(y, x), column_of(of)), number(inputs, name, of))

    return Aggregate(name, resolve)


def _slope(acc: Accumulator) -> Column:
    return F.when(acc["xx"] != 0, acc["xy"] / acc["xx"])
