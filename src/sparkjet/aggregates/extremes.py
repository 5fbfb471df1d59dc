"""min, max, first, last, any_value, min_by and max_by: the least or greatest of the compared values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.ranked import MOST_VALUES, ranked
from sparkjet.aggregates.values import column_of, null_of, orderable_type, whole_number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs


def min(col: ColumnOrName) -> Aggregate:  # noqa: A001 - Spark's name
    """Least non-null value, null if there are none; NaN is greater than any other number."""
    return _extreme_value(f"min({label(col)})", col, least=True)


def max(col: ColumnOrName) -> Aggregate:  # noqa: A001 - Spark's name
    """Greatest non-null value, null if there are none; NaN is greater than any other number."""
    return _extreme_value(f"max({label(col)})", col, least=False)


def first(col: ColumnOrName, ignorenulls: bool = False) -> Aggregate:
    """Value of the row with the lowest event time; unlike in Spark, never that of the row that arrived first.

    Of simultaneous rows, the one with the least value wins; null is less than any value.
    """
    return _by_time(f"first({label(col)})", col, ignorenulls=ignorenulls, least=True)


def last(col: ColumnOrName, ignorenulls: bool = False) -> Aggregate:
    """Value of the row with the highest event time; unlike in Spark, never that of the row that arrived last.

    Of simultaneous rows, the one with the greatest value wins; null is less than any value.
    """
    return _by_time(f"last({label(col)})", col, ignorenulls=ignorenulls, least=False)


def any_value(col: ColumnOrName, ignoreNulls: bool | None = None) -> Aggregate:
    """Value of the row with the lowest event time, the same as :func:`first`; Spark takes any row."""
    return _by_time(f"any_value({label(col)})", col, ignorenulls=bool(ignoreNulls), least=True)


def min_by(col: ColumnOrName, ord: ColumnOrName, k: int | None = None) -> Aggregate:
    """Value of ``col`` in the row with the least ``ord``, or an array of the values of the k least rows.

    Rows whose ``ord`` is null are ignored; if there are no others, the result is null. Among equals, the row with the
    lowest event time comes first; among simultaneous ones, that with the least value; null is less than any value.
    """
    return _by_order("min_by", col, ord, k, least=True)


def max_by(col: ColumnOrName, ord: ColumnOrName, k: int | None = None) -> Aggregate:
    """Value of ``col`` in the row with the greatest ``ord``, or an array of the values of the k greatest rows.

    Rows whose ``ord`` is null are ignored; if there are no others, the result is null. NaN is greater than any other
    number. Among equals, the row with the lowest event time comes first; among simultaneous ones, that with the
    greatest value; null is less than any value.
    """
    return _by_order("max_by", col, ord, k, least=False)


_TIE = "it breaks ties between rows of the same event time"


def _extreme_value(name: str, col: ColumnOrName, *, least: bool) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "only ordered values have an extreme")
        return _extreme(column_of(col), data_type, least=least, read=lambda best: best)

    return Aggregate(name, resolve)


def _by_time(name: str, col: ColumnOrName, *, ignorenulls: bool, least: bool) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, _TIE)
        value = column_of(col)
        row = F.struct(inputs.event_time.alias("time"), value.alias("value"))
        return _extreme(
            F.when(value.isNotNull(), row) if ignorenulls else row,
            _row_type(time=LongType(), value=data_type),
            least=least,
            read=lambda best: best["value"],
        )

    return Aggregate(name, resolve, unsaid={"ignorenulls": ignorenulls})


def _by_order(function: str, col: ColumnOrName, ord: ColumnOrName, k: int | None, *, least: bool) -> Aggregate:
    name = f"{function}({label(col)}, {label(ord)}{'' if k is None else f', {k}'})"
    if k is not None:
        whole_number(name, "k", k, 1, MOST_VALUES)

    def resolve(inputs: Inputs) -> AggregateOperation:
        order_type = orderable_type(inputs, name, ord, "only ordered values have an extreme")
        data_type = orderable_type(inputs, name, col, _TIE)
        order = column_of(ord)
        # The complement reverses the order of longs, without the overflow of a negation.
        earliest = inputs.event_time if least else F.bitwise_not(inputs.event_time)
        row = F.struct(order.alias("order"), earliest.alias("earliest"), column_of(col).alias("value"))
        compared = F.when(order.isNotNull(), row)
        row_type = _row_type(order=order_type, earliest=LongType(), value=data_type)
        if k is None:
            return _extreme(compared, row_type, least=least, read=lambda best: best["value"])
        return ranked(compared, row_type, k, greatest=not least, read=_values)

    return Aggregate(name, resolve)


def _values(rows: Column) -> Column:
    return F.when(F.size(rows) > 0, F.transform(rows, lambda row: row["value"]))


def _row_type(**fields: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in fields.items()])


def _extreme(
    compared: Column, data_type: DataType, *, least: bool, read: Callable[[Column], Column]
) -> AggregateOperation:
    aggregate, choose = (F.min, F.least) if least else (F.max, F.greatest)

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        return {"best": choose(left["best"], right["best"])}

    return AggregateOperation(
        accumulate={"best": aggregate(compared).cast(data_type)},
        create={"best": null_of(data_type)},
        combine=combine,
        finish=lambda acc: read(acc["best"]),
        combine_group=lambda acc: {"best": aggregate(acc["best"])},
    )
