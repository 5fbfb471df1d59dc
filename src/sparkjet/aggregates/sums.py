"""count, sum, avg and product: totals that can be added and, if exact, subtracted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.totals import Overflow, Total, failing, summing, total_of
from sparkjet.aggregates.values import column_of, none_null, number, summable
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs

Reader: TypeAlias = "Callable[[Total], Callable[[Accumulator], Column]]"


def count(col: ColumnOrName = "*", *cols: ColumnOrName) -> Aggregate:
    """Number of rows, or of those where none of the columns is null; bigint. Deducts."""
    counts_rows = not cols and label(col) in {"*", "unresolvedstar()"}
    name = "count(1)" if counts_rows else f"count({', '.join(map(label, (col, *cols)))})"
    return Aggregate(name, lambda inputs: counting(inputs, *(() if counts_rows else (col, *cols))))


def counting(inputs: Inputs, *cols: ColumnOrName) -> AggregateOperation:
    """The operation that counts the rows where none of the columns is null."""
    for col in cols:
        inputs.type_of(col)
    counted = F.count(F.when(none_null(*cols), 1) if len(cols) > 1 else column_of(cols[0]) if cols else F.lit(1))
    return replace(summing({"count": "bigint"}, {"count": counted}, exact=True), finish=lambda acc: acc["count"])


def sum(col: ColumnOrName) -> Aggregate:  # noqa: A001 - Spark's name
    """Sum of the non-null values; null if there are none.

    The result has Spark's type: bigint for integers, double for floating-point numbers, decimal(min(38, p+10), s) for
    decimals, the column's own for intervals. Integers and decimals are exact, and overflow is an error whatever
    ``spark.sql.ansi.enabled`` is. Only the sum of the whole window is checked, partial sums may exceed 64 bits (except
    for intervals, and for decimals of 28 digits and more, where a partial sum must not exceed 38 digits either, or 37
    if the scale is above 6). More than 2^31 bigint values per window and key are an overflow, too. Integers, and
    decimals up to 27 digits, deduct; floating-point sums do not, because deducting leaves a residue.
    """
    return _reading(f"sum({label(col)})", col, lambda total: total.sum)


def avg(col: ColumnOrName) -> Aggregate:
    """Mean of the non-null values; null if there are none.

    The result has Spark's type: double, or decimal(min(38, p+4), min(38, s+4)) for decimals, whose last digits may be
    rounded if s is above 24, or an interval of all its units for intervals. The mean of integers is
    their exact sum divided by their number, so it cannot overflow. Deducts if :func:`sum` does.
    """
    return _reading(f"avg({label(col)})", col, lambda total: total.mean)


def try_sum(col: ColumnOrName) -> Aggregate:
    """Sum of the non-null values, like :func:`sum`, but null if it overflows the result type."""
    return _reading(f"try_sum({label(col)})", col, lambda total: total.sum, _null)


def try_avg(col: ColumnOrName) -> Aggregate:
    """Mean of the non-null values, like :func:`avg`, but null if it overflows the result type."""
    return _reading(f"try_avg({label(col)})", col, lambda total: total.mean, _null)


def product(col: ColumnOrName) -> Aggregate:
    """Product of the non-null values, as double; null if there are none.

    Numbers are cast to double. If partial products leave the range of a double, the result depends on the order of the
    rows, as in Spark. Does not deduct.
    """
    name = f"product({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, col)
        value = column_of(col).cast("double")
        return AggregateOperation(
            accumulate={"product": F.coalesce(F.product(value), F.lit(1.0)), "count": F.count(value)},
            create={"product": F.lit(1.0), "count": F.lit(0).cast("bigint")},
            combine=lambda left, right: {
                "product": left["product"] * right["product"],
                "count": left["count"] + right["count"],
            },
            finish=lambda acc: F.when(acc["count"] > 0, acc["product"]),
            combine_group=lambda acc: {"product": F.product(acc["product"]), "count": F.sum(acc["count"])},
        )

    return Aggregate(name, resolve)


def mean_of(name: str, value: Column, data_type: DataType) -> AggregateOperation:
    """The operation that computes the mean of a numeric column."""
    return _read(total_of(name, value, data_type), lambda total: total.mean)


def _reading(name: str, col: ColumnOrName, reader: Reader, overflow: Overflow = failing) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        return _read(total_of(name, column_of(col), summable(inputs, name, col), overflow), reader)

    return Aggregate(name, resolve)


def _read(total: Total, reader: Reader) -> AggregateOperation:
    read = reader(total)
    return replace(total.operation, finish=lambda acc: F.when(acc["count"] > 0, read(acc)))


def _null(_message: str, result: str) -> Column:
    return F.lit(None).cast(result)
