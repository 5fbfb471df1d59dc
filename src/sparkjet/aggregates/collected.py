"""collect_list, collect_set, top_n and bottom_n: arrays of values, in an order independent of their arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.ranked import MOST_VALUES, ranked
from sparkjet.aggregates.value_sets import value_set
from sparkjet.aggregates.values import column_of, orderable_type, whole_number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from sparkjet.aggregates.operation import ColumnOrName, Inputs


def collect_list(col: ColumnOrName) -> Aggregate:
    """The non-null values in order of event time, simultaneous ones in ascending order; empty if there are none.

    Its state grows with the input: each value is kept with its event time.
    """
    name = f"collect_list({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "values of the same event time are listed in their order")
        return in_time_order(inputs, column_of(col), data_type, lambda values: values)

    return Aggregate(name, resolve)


def in_time_order(
    inputs: Inputs, value: Column, data_type: DataType, finish: Callable[[Column], Column]
) -> AggregateOperation:
    """The operation that keeps the non-null values in order of event time, simultaneous ones in ascending order.

    Args:
        inputs: The input rows.
        value: The column; its values can be ordered.
        data_type: Its nullable type.
        finish: Makes the result from the array of values.
    """
    row = F.struct(inputs.event_time.alias("time"), value.alias("value"))
    rows = ArrayType(StructType([StructField("time", LongType()), StructField("value", data_type)]))
    return AggregateOperation(
        accumulate={"rows": F.collect_list(F.when(value.isNotNull(), row)).cast(rows)},
        create={"rows": F.array().cast(rows)},
        combine=lambda left, right: {"rows": F.concat(left["rows"], right["rows"])},
        finish=lambda acc: finish(F.transform(F.sort_array(acc["rows"]), lambda item: item["value"])),
        combine_group=lambda acc: {"rows": F.flatten(F.collect_list(acc["rows"]))},
        bounded=False,
    )


def collect_set(col: ColumnOrName) -> Aggregate:
    """The distinct non-null values in ascending order, NaN last; empty if there are none.

    Its state grows with the number of distinct values.
    """
    name = f"collect_set({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "the set is listed in ascending order")
        return value_set(column_of(col), data_type, F.sort_array)

    return Aggregate(name, resolve)


def top_n(col: ColumnOrName, n: int) -> Aggregate:
    """The n greatest non-null values, in descending order, with duplicates; NaN is greater than any other number.

    Raises:
        AnalysisError: ``n`` is not from 1 to 100,000; when resolved: the values cannot be ordered.

    >>> from sparkjet import functions as J
    >>> J.top_n("id", 2).evaluate(spark.range(5))
    [4, 3]
    """
    return _ranked("top_n", col, n, greatest=True)


def bottom_n(col: ColumnOrName, n: int) -> Aggregate:
    """The n least non-null values, in ascending order, with duplicates; NaN is greater than any other number.

    Raises:
        AnalysisError: ``n`` is not from 1 to 100,000; when resolved: the values cannot be ordered.

    >>> from sparkjet import functions as J
    >>> J.bottom_n("id", 2).evaluate(spark.range(5))
    [0, 1]
    """
    return _ranked("bottom_n", col, n, greatest=False)


def _ranked(function: str, col: ColumnOrName, n: int, *, greatest: bool) -> Aggregate:
    name = f"{function}({label(col)}, {n})"
    whole_number(name, "n", n, 1, MOST_VALUES)

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "only ordered values have a rank")
        return ranked(column_of(col), data_type, n, greatest=greatest, read=lambda values: values)

    return Aggregate(name, resolve)
