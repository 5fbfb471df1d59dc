"""approx_count_distinct: HyperLogLog sketches of a few kilobytes, however many values there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.value_sets import has_collation, value_set
from sparkjet.aggregates.values import column_of, orderable_type
from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs

_DEFAULT_LG, _LEAST_LG, _MOST_LG = 12, 4, 21
_ERROR_OF_ONE = 1.04
"""Relative standard error of a merged sketch with one register; it falls with the square root of their number."""


def approx_count_distinct(col: ColumnOrName, rsd: float | None = None) -> Aggregate:
    """Approximate number of distinct non-null values, as bigint; 0 if there are none.

    The state is a DataSketches HLL sketch with 2^k registers of one byte each (fewer bytes while there are few values);
    its relative standard error is 1.04 / √2^k, and small counts are exact. Texts with a collation are counted exactly,
    by a state that holds the distinct ones.
    """
    name = f"approx_count_distinct({label(col)})"
    size = _size(name, rsd)

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = orderable_type(inputs, name, col, "its values cannot be distinguished")
        value = column_of(col)
        if has_collation(data_type):
            # Spark hashes their bytes, and would count what is equal twice: all distinct values are kept instead.
            return value_set(value, data_type, lambda values: F.size(values).cast("bigint"))
        # Hashed here: a sketch accepts few types, and skips empty strings as if they were null.
        whole = isinstance(data_type, IntegralType)
        item = value.cast("bigint") if whole else F.when(value.isNotNull(), F.xxhash64(value))
        return AggregateOperation(
            accumulate={"sketch": F.hll_sketch_agg(item, size)},
            create={"sketch": F.lit(None).cast("binary")},
            combine=_combine,
            finish=lambda acc: F.coalesce(F.hll_sketch_estimate(acc["sketch"]), F.lit(0)).cast("bigint"),
            combine_group=lambda acc: {"sketch": F.hll_union_agg(acc["sketch"])},
        )

    return Aggregate(name, resolve, unsaid={"lgConfigK": size})


def _combine(left: Accumulator, right: Accumulator) -> Accumulator:
    union: Column = F.hll_union(left["sketch"], right["sketch"])
    return {"sketch": F.coalesce(union, left["sketch"], right["sketch"])}


def _size(name: str, rsd: float | None) -> int:
    """The binary logarithm of the number of registers."""
    if rsd is None:
        return _DEFAULT_LG
    finest = _ERROR_OF_ONE / math.sqrt(1 << _MOST_LG)
    if not finest <= rsd < 1:
        raise AnalysisError(f"{name}: rsd is {rsd!r}; give a deviation from {finest:.5f} to below 1, e.g. 0.02.")
    return max(_LEAST_LG, math.ceil(2 * math.log2(_ERROR_OF_ONE / rsd)))
