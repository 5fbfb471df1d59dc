"""Ranked values: the n greatest or least of the compared values, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from sparkjet.aggregates.operation import AggregateOperation
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

MOST_VALUES = 100_000
"""The maximum k of Spark's max_by, which keeps the values."""
_WITH_K = (4, 2)
"""The first Spark line whose ``min_by`` and ``max_by`` take a k."""


def ranked(
    compared: Column, data_type: DataType, n: int, *, greatest: bool, read: Callable[[Column], Column]
) -> AggregateOperation:
    """The operation that keeps the n greatest or least non-null values."""
    values: DataType = ArrayType(data_type)
    empty = F.array().cast(values)

    def best(candidates: Column) -> Column:
        return F.slice(F.sort_array(candidates, asc=not greatest), 1, n)

    if LINE < _WITH_K:
        kept = best(F.collect_list(compared))
    else:
        # These keep n values in memory; the list would keep all of them.
        kept = F.max_by(compared, compared, n) if greatest else F.min_by(compared, compared, n)
    return AggregateOperation(
        accumulate={"values": F.coalesce(kept.cast(values), empty)},
        create={"values": empty},
        combine=lambda left, right: {"values": best(F.concat(left["values"], right["values"]))},
        finish=lambda acc: read(acc["values"]),
        combine_group=lambda acc: {"values": best(F.flatten(F.collect_list(acc["values"])))},
    )
