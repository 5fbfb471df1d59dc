"""histogram_numeric: bins of varying width; when there are too many, the nearest are merged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, LongType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.value_counts import added_up
from sparkjet.aggregates.values import bound, column_of, number, whole_number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs

_LEAST_BINS, _MOST_BINS = 2, 10_000
_BINS = ArrayType(StructType([StructField("value", DoubleType()), StructField("count", LongType())]))


def histogram_numeric(col: ColumnOrName, nBins: int) -> Aggregate:
    """Histogram of the non-null values: an array of bins with center ``x`` and height ``y``; null without values.

    Exact up to ``nBins`` distinct values. With more it is approximate, as in Spark: the two nearest bins are merged
    into one, whose center is their weighted mean, so that the result depends on which rows are aggregated together. The
    center
    has the type of the column, the height is a double.
    """
    name = f"histogram_numeric({label(col)}, {nBins})"
    whole_number(name, "nBins", nBins, _LEAST_BINS, _MOST_BINS)

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        return {"bins": _reduced(F.concat(left["bins"], right["bins"]), nBins)}

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = number(inputs, name, col)
        empty = F.array().cast(_BINS)

        def finish(acc: Accumulator) -> Column:
            bins = F.transform(
                acc["bins"],
                lambda one: F.struct(one["value"].cast(data_type).alias("x"), one["count"].cast("double").alias("y")),
            )
            return F.when(F.size(bins) > 0, bins)

        # Spark keeps bins with the same center apart if they come from several partitions.
        counted = F.histogram_numeric(column_of(col).cast("double"), F.lit(nBins)).cast(_BINS)
        return AggregateOperation(
            accumulate={"bins": F.coalesce(_reduced(counted, nBins), empty)},
            create={"bins": empty},
            combine=combine,
            finish=finish,
            combine_group=lambda acc: {"bins": _reduced(F.flatten(F.collect_list(acc["bins"])), nBins)},
        )

    return Aggregate(name, resolve)


def _reduced(bins: Column, most: int) -> Column:
    """The bins in ascending order, with the nearest merged until there are ``most``."""

    def joined(ordered: Column) -> Column:
        surplus = F.slice(ordered, most + 1, F.greatest(F.size(ordered), F.lit(1)))
        return F.aggregate(surplus, ordered, lambda done, _: _join_nearest(done))

    return bound(added_up(bins), joined)


def _join_nearest(bins: Column) -> Column:
    gaps = F.transform(
        F.slice(bins, 2, F.size(bins)),
        lambda upper, i: F.struct((upper["value"] - F.get(bins, i)["value"]).alias("gap"), i.alias("at")),
    )

    def joined(at: Column) -> Column:
        lower, upper = F.get(bins, at), F.get(bins, at + 1)
        count = lower["count"] + upper["count"]
        center = (lower["value"] * lower["count"] + upper["value"] * upper["count"]) / count
        one = F.array(F.struct(center.alias("value"), count.alias("count")))
        return F.concat(F.slice(bins, F.lit(1), at), one, F.slice(bins, at + 3, F.size(bins)))

    return bound(F.array_min(gaps)["at"], joined)
