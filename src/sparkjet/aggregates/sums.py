"""count, sum and avg: totals that can be added and, if exact, subtracted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.totals import Total, summing, total_of
from sparkjet.aggregates.values import column_of, number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, AggregateOperation, ColumnOrName, Inputs


def count(col: ColumnOrName = "*") -> Aggregate:
    """Number of rows, or of non-null values of a column; bigint. Deducts.

    >>> from sparkjet import functions as J
    >>> rows = spark.createDataFrame([(1,), (None,)], "x int")
    >>> J.count().evaluate(rows), J.count("x").evaluate(rows)
    (2, 1)
    """
    counts_rows = label(col) in {"*", "unresolvedstar()"}

    def resolve(inputs: Inputs) -> AggregateOperation:
        if not counts_rows:
            inputs.type_of(col)
        counted = F.count(F.lit(1)) if counts_rows else F.count(column_of(col))
        return replace(summing({"count": "bigint"}, {"count": counted}, exact=True), finish=lambda acc: acc["count"])

    return Aggregate("count(1)" if counts_rows else f"count({label(col)})", resolve)


def sum(col: ColumnOrName) -> Aggregate:  # noqa: A001 - Spark's name
    """Sum of the non-null values; null if there are none.

    The result has Spark's type: bigint for integers, double for floating-point numbers, decimal(min(38, p+10), s) for
    decimals. Integers and decimals are exact, and overflow is an error whatever ``spark.sql.ansi.enabled`` is. Only the
    sum of the whole window is checked, partial sums may exceed 64 bits (except for decimals of 28 digits and more,
    where a partial sum must not exceed 38 digits either, or 37 if the scale is above 6). More than 2^31 bigint values
    per window and key are an overflow, too. Integers, and decimals up to 27 digits, deduct; floating-point sums do not,
    because deducting leaves a residue.

    Raises:
        AnalysisError: When resolved: the column is not a number, or is decimal(38,38).

    >>> from sparkjet import functions as J
    >>> J.sum("id").evaluate(spark.range(5))
    10
    """
    return _reading(f"sum({label(col)})", col, lambda total: total.sum)


def avg(col: ColumnOrName) -> Aggregate:
    """Mean of the non-null values; null if there are none.

    The result has Spark's type: double, or decimal(min(38, p+4), min(38, s+4)) for decimals, whose last digits may be
    rounded if s is above 24. The mean of integers is their exact sum divided by their number, so it cannot overflow.
    Deducts if :func:`sum` does.

    Raises:
        AnalysisError: When resolved: the column is not a number, or is decimal(38,38).

    >>> from sparkjet import functions as J
    >>> J.avg("id").evaluate(spark.range(4))
    1.5
    """
    return _reading(f"avg({label(col)})", col, lambda total: total.mean)


mean = avg


def _reading(name: str, col: ColumnOrName, reader: Callable[[Total], Callable[[Accumulator], Column]]) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        total = total_of(name, column_of(col), number(inputs, name, col))
        read = reader(total)
        return replace(total.operation, finish=lambda acc: F.when(acc["count"] > 0, read(acc)))

    return Aggregate(name, resolve)
