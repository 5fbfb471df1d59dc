"""collect_list, collect_set, top_n and bottom_n: arrays of values, in an order independent of their arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.values import column_of, orderable_type, whole_number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import ColumnOrName, Inputs

_MOST_VALUES = 100_000
"""The maximum k of Spark's max_by, which keeps the values."""


def collect_list(col: ColumnOrName) -> Aggregate:
    """The non-null values in order of event time, simultaneous ones in ascending order; empty if there are none.

    Its state grows with the input: each value is kept with its event time.

    Raises:
        AnalysisError: When resolved: the values cannot be ordered.

    >>> from sparkjet import functions as J
    >>> rows = spark.createDataFrame([(3, "a"), (1, "c"), (3, None), (1, "b")], "t bigint, v string")
    >>> J.collect_list("v").evaluate(rows, "t")
    ['b', 'c', 'a']
    """
    name = f"collect_list({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "values of the same event time are listed in their order")
        value = column_of(col)
        row = F.struct(inputs.event_time.alias("time"), value.alias("value"))
        rows = ArrayType(StructType([StructField("time", LongType()), StructField("value", data_type)]))
        return AggregateOperation(
            accumulate={"rows": F.collect_list(F.when(value.isNotNull(), row)).cast(rows)},
            create={"rows": F.array().cast(rows)},
            combine=lambda left, right: {"rows": F.concat(left["rows"], right["rows"])},
            finish=lambda acc: F.transform(F.sort_array(acc["rows"]), lambda item: item["value"]),
            combine_group=lambda acc: {"rows": F.flatten(F.collect_list(acc["rows"]))},
            bounded=False,
        )

    return Aggregate(name, resolve)


def collect_set(col: ColumnOrName) -> Aggregate:
    """The distinct non-null values in ascending order, NaN last; empty if there are none.

    Its state grows with the number of distinct values.

    Raises:
        AnalysisError: When resolved: the values cannot be ordered.

    >>> from sparkjet import functions as J
    >>> J.collect_set("v").evaluate(spark.createDataFrame([("b",), ("a",), ("b",), (None,)], "v string"))
    ['a', 'b']
    """
    name = f"collect_set({label(col)})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        values = ArrayType(orderable_type(inputs, name, col, "the set is listed in ascending order"))
        return AggregateOperation(
            accumulate={"values": F.collect_set(column_of(col)).cast(values)},
            create={"values": F.array().cast(values)},
            combine=lambda left, right: {"values": F.array_union(left["values"], right["values"])},
            finish=lambda acc: F.sort_array(acc["values"]),
            combine_group=lambda acc: {"values": F.array_distinct(F.flatten(F.collect_list(acc["values"])))},
            bounded=False,
        )

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
    whole_number(name, "n", n, 1, _MOST_VALUES)

    def resolve(inputs: Inputs) -> AggregateOperation:
        values: DataType = ArrayType(orderable_type(inputs, name, col, "only ordered values have a rank"))
        value, empty = column_of(col), F.array().cast(values)

        def best(candidates: Column) -> Column:
            return F.slice(F.sort_array(candidates, asc=not greatest), 1, n)

        # min_by and max_by with k keep n values in memory, whereas a sorted collect_list would keep all.
        ranked = F.max_by(value, value, n) if greatest else F.min_by(value, value, n)
        return AggregateOperation(
            accumulate={"values": F.coalesce(ranked.cast(values), empty)},
            create={"values": empty},
            combine=lambda left, right: {"values": best(F.concat(left["values"], right["values"]))},
            finish=lambda acc: acc["values"],
            combine_group=lambda acc: {"values": best(F.flatten(F.collect_list(acc["values"])))},
        )

    return Aggregate(name, resolve)
