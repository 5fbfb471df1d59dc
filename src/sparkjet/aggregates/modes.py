"""mode: the value that occurs most often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.value_counts import value_counts
from sparkjet.aggregates.values import column_of, orderable_type
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import AggregateOperation, ColumnOrName, Inputs


def mode(col: ColumnOrName, deterministic: bool = False) -> Aggregate:
    """The most frequent non-null value; among equally frequent ones, the least; null if there are none.

    The state holds every distinct value with its count: it grows with the number of distinct values.
    """
    return most_frequent(
        f"mode() WITHIN GROUP (ORDER BY {label(col)} DESC)" if deterministic else f"mode({label(col)})", col
    )


def most_frequent(name: str, col: ColumnOrName, *, greatest: bool = False) -> Aggregate:
    """The most frequent non-null value; among equally frequent ones, the least or the greatest."""

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "the least of equally frequent values is taken")

        def finish(entries: Column) -> Column:
            none = F.struct(F.lit(None).cast(data_type).alias("value"), F.lit(0).cast("bigint").alias("count"))

            def step(best: Column, entry: Column) -> Column:
                more = entry["count"] >= best["count"] if greatest else entry["count"] > best["count"]
                return F.when(more, entry).otherwise(best)

            return F.aggregate(entries, none, step, lambda best: best["value"])

        return value_counts(column_of(col), data_type, finish)

    return Aggregate(name, resolve, f"mode({label(col)}{' DESC' if greatest else ''})")
