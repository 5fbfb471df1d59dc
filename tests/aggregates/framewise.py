"""Aggregates computed as windows compute them: rows by key and frame first, then the frames combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Inputs
from sparkjet.plan.aggregation import key_name, result_name
from sparkjet.plan.resolved_aggregates import resolved_aggregates
from sparkjet.windows import Accumulators

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def framewise(rows: DataFrame, expressions: Sequence[Column], key: str = "g") -> DataFrame:
    """The result of ``rows.groupBy(key).agg(*expressions)``, put together from frames.

    Args:
        rows: With ``t``, a time in microseconds, and ``frame``.
        expressions: What ``agg`` takes.
        key: The grouping column.
    """
    aggregates, columns = resolved_aggregates(expressions, Inputs(rows, F.col("t")), [F.col(key)])
    named = [(result_name(number), each.operation) for number, each in enumerate(aggregates)]
    partials = rows.groupBy(F.col(key).alias(key_name(0)), "frame").agg(*Accumulators.aggregations(named))
    accumulators = Accumulators(named, partials.schema)
    finished = accumulators.group(partials, key_name(0)).select(key_name(0), *accumulators.finish())
    return finished.select(F.col(key_name(0)).alias(key), *(each.column.alias(each.name) for each in columns))
