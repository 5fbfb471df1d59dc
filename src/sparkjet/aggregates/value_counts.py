"""Value counts: the distinct values of a column in ascending order, each with its count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from sparkjet.aggregates.operation import AggregateOperation
from sparkjet.aggregates.values import bound

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator


def value_counts(
    value: Column, data_type: DataType, finish: Callable[[Column], Column], frequency: Column | None = None
) -> AggregateOperation:
    """The operation that counts each non-null value."""
    entries = ArrayType(StructType([StructField("value", data_type), StructField("count", LongType())]))
    often = F.lit(1).cast("bigint") if frequency is None else frequency
    entry = F.struct(value.alias("value"), often.alias("count"))

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        return {"counts": added_up(F.concat(left["counts"], right["counts"]))}

    return AggregateOperation(
        accumulate={
            "counts": added_up(F.collect_list(F.when(value.isNotNull() & often.isNotNull(), entry))).cast(entries)
        },
        create={"counts": F.array().cast(entries)},
        combine=combine,
        finish=lambda acc: finish(acc["counts"]),
        combine_group=lambda acc: {"counts": added_up(F.flatten(F.collect_list(acc["counts"])))},
        bounded=False,
    )


def added_up(entries: Column) -> Column:
    """Structs of ``value`` and ``count`` in ascending order, with equal values merged.

    Sorted, then cut at the first of each value: appending to an array in a fold would copy it each time.
    """

    def cut(ordered: Column) -> Column:
        def is_first(index: Column) -> Column:
            return ~F.get(ordered, index)["value"].eqNullSafe(F.get(ordered, index - 1)["value"])

        def joined(starts: Column) -> Column:
            return F.transform(starts, lambda start, i: one(start, F.coalesce(F.get(starts, i + 1), F.size(ordered))))

        def one(start: Column, end: Column) -> Column:
            equal = F.slice(ordered, start + 1, end - start)
            return F.struct(F.get(ordered, start)["value"].alias("value"), total_count(equal).alias("count"))

        return bound(F.filter(F.transform(ordered, lambda _, i: i), is_first), joined)

    return bound(F.sort_array(entries), cut)


def total_count(entries: Column) -> Column:
    """Number of values, including repeated ones."""
    return F.aggregate(entries, F.lit(0).cast("bigint"), lambda done, entry: done + entry["count"])


def first_where(entries: Column, reached: Callable[[Column], Column], data_type: DataType) -> Column:
    """The first entry's value for which a condition on the number of values up to and including it holds."""
    nothing = F.struct(F.lit(0).cast("bigint").alias("seen"), F.lit(None).cast(data_type).alias("value"))

    def step(done: Column, entry: Column) -> Column:
        seen = done["seen"] + entry["count"]
        value = F.coalesce(done["value"], F.when(reached(seen), entry["value"]))
        return F.struct(seen.alias("seen"), value.alias("value"))

    return F.aggregate(entries, nothing, step, lambda done: done["value"])
