"""percentile_approx and approx_percentile: KLL sketches, which keep a sample spread evenly over the ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, NumericType, TimestampType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.percentages import Percentages
from sparkjet.aggregates.values import column_of, whole_number
from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import LINE, LINE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs

_ACCURACY_OF_K = 10
_LEAST_K, _MOST_K = 8, 65535
_SKETCHING, _UNITING = (4, 1), (4, 2)
"""The first Spark lines with KLL sketches, and with an aggregate that merges them."""


def percentile_approx(col: ColumnOrName, percentage: float | Sequence[float], accuracy: int = 10000) -> Aggregate:
    """Approximately the smallest value such that a ``percentage`` (0 to 1) of the non-null values do not exceed it.

    The result has the type of the column; for a list of percentages it is an array. It is null if there are no values.
    NaN is greater than any other number. Decimals are converted to double, as in Spark.

    The state is a DataSketches KLL sketch with k = accuracy / 10 (8 to 65,535): exact up to k values in a window; above
    that, the rank of the result is off by at most 2.3 / k^0.97 of the values with a confidence of 99 %, which is 0.3 %
    at the default k of 1,000, and two runs may differ within this bound. A full sketch holds about 3 k values; a
    sketch of few values still takes k × 8 bytes of memory while rows are added, so a lower accuracy is faster for many
    small groups.
    """
    return _sketched("percentile_approx", col, percentage, accuracy)


def _sketched(function: str, col: ColumnOrName, percentage: float | Sequence[float], accuracy: int) -> Aggregate:
    percentages = Percentages.of(percentage)
    name = f"{function}({label(col)}, {percentages}, {accuracy})"
    percentages.check(name)
    whole_number(name, "accuracy", accuracy, 1, _MOST_K * _ACCURACY_OF_K)
    if LINE < _SKETCHING:
        raise AnalysisError(f"{name}: sketches need Spark 4.1 or later; this is {LINE_NAME}. percentile_disc is exact.")
    k = max(_LEAST_K, math.ceil(accuracy / _ACCURACY_OF_K))

    def resolve(inputs: Inputs) -> AggregateOperation:
        form = _form(name, col, inputs.type_of(col))
        return form.operation(column_of(col), k, percentages)

    return Aggregate(name, resolve)


@dataclass(frozen=True)
class _Form:
    """How values of a type are added to a sketch and read from it."""

    of: str
    encode: Callable[[Column], Column]
    decode: Callable[[Column], Column]

    def operation(self, value: Column, k: int, percentages: Percentages) -> AggregateOperation:
        sketch, merge = (getattr(F, f"{function}_{self.of}") for function in ("kll_sketch_agg", "kll_sketch_merge"))

        counts = ("nans",) if self.of == "double" else ()

        def combine(left: Accumulator, right: Accumulator) -> Accumulator:
            both = merge(left["sketch"], right["sketch"])
            joined = {field: left[field] + right[field] for field in counts}
            return {"sketch": F.coalesce(both, left["sketch"], right["sketch"]), **joined}

        def combine_group(acc: Accumulator) -> Accumulator:
            # k is passed explicitly: a sketch of only nulls would otherwise bring Spark's default into the union.
            united = getattr(F, f"kll_merge_agg_{self.of}")(acc["sketch"], k)
            return {"sketch": united, **{field: F.sum(acc[field]) for field in counts}}

        nans = F.count(F.when(F.isnan(value), 1))
        return AggregateOperation(
            accumulate={"sketch": sketch(self.encode(value), k), **dict.fromkeys(counts, nans)},
            create={"sketch": F.lit(None).cast("binary"), **dict.fromkeys(counts, F.lit(0).cast("bigint"))},
            combine=combine,
            finish=lambda acc: percentages.result(self._quantiles(acc, percentages)),
            combine_group=combine_group if LINE >= _UNITING else None,
        )

    def _quantiles(self, acc: Accumulator, percentages: Percentages) -> Column:
        size: Column = getattr(F, f"kll_sketch_get_n_{self.of}")(acc["sketch"])
        ranks = percentages.column()
        values: Column = getattr(F, f"kll_sketch_get_quantile_{self.of}")(acc["sketch"], ranks)

        def value(item: Column, index: Column) -> Column:
            if self.of == "double":
                # A sketch drops NaN, so NaN was added as infinity; the rank distinguishes the two.
                rank = F.greatest(F.ceil(F.get(ranks, index) * size), F.lit(1))
                after_numbers = rank > size - acc["nans"]
                item = F.when((item == math.inf) & after_numbers, math.nan).otherwise(item)
            return self.decode(item)

        # Spark fails on a quantile of an empty sketch.
        return F.when(size > 0, F.transform(values, value))


def _form(name: str, col: ColumnOrName, data_type: DataType) -> _Form:
    if isinstance(data_type, IntegralType):
        return _Form("bigint", lambda c: c.cast("bigint"), lambda c: c.cast(data_type))
    if isinstance(data_type, NumericType):
        return _Form("double", _without_nan, lambda c: c.cast(data_type))
    if isinstance(data_type, DateType):
        return _Form("bigint", lambda c: F.unix_date(c).cast("bigint"), lambda c: F.date_from_unix_date(c.cast("int")))
    if isinstance(data_type, TimestampType):
        return _Form("bigint", F.unix_micros, F.timestamp_micros)
    raise AnalysisError(
        f"{name}: {label(col)} is {data_type.simpleString()}; percentile_approx takes numbers, dates and timestamps. "
        "Cast it to one of them."
    )


def _without_nan(value: Column) -> Column:
    return F.when(F.isnan(value), F.lit(math.inf)).otherwise(value.cast("double"))
