"""Two tables compared: the rows that only one of them has, and the columns in which rows of one key differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException as SparkAnalysisError
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    VariantType,
)

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError, nearest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHANGE, COLUMNS, COUNT = "_change", "_columns", "_count"
ADDED, REMOVED, CHANGED, SAME = "added", "removed", "changed", "same"


@dataclass(frozen=True)
class Compared:
    """The differences between two tables.

    Attributes:
        rows: The differences, see :meth:`sparkjet.Diff.toDF`.
        counts: The number of rows that are ``added``, ``removed``, ``changed`` and the ``same``.
        schema: Columns that only one of them has, or whose types differ, each as a line.
    """

    rows: DataFrame
    counts: Mapping[str, int]
    schema: Sequence[str]

    @property
    def differs(self) -> bool:
        """Whether there is any difference between them."""
        return bool(self.schema) or any(count for name, count in self.counts.items() if name != SAME)


@dataclass(frozen=True)
class _Columns:
    """The common columns of two tables, with a type that fits the values of both, and those that are not compared."""

    types: dict[str, DataType] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)


def compared(old: DataFrame, new: DataFrame, keys: Sequence[str], what: str) -> Compared:
    """Compare two tables; runs one job.

    Args:
        old: The first table.
        new: The second table.
        keys: The columns that identify a row in each; none to compare all rows as a multiset.
        what: The name of the tables in messages.

    Raises:
        AnalysisError: A key is not a column of both, or identifies several rows; or columns cannot be compared.
    """
    for frame in (old, new):
        _check_names(frame, what)
    columns = _common(old, new)
    missing = [key for key in keys if key not in columns.types]
    if missing:
        message = f"keys: {what}: {missing[0]!r} is not a column of both: {nearest(missing[0], columns.types)}"
        raise AnalysisError(message)
    if not columns.types:
        told = "; ".join(columns.told)
        raise AnalysisError(f"diff: {what}: the two have no column in common that can be compared: {told}.")
    both = _tagged(old, columns, is_new=False).unionByName(_tagged(new, columns, is_new=True))
    return _by_key(both, columns, keys, what) if keys else _as_multiset(both, columns)


def _check_names(frame: DataFrame, what: str) -> None:
    if frame.isStreaming:
        raise AnalysisError(f"diff: {what}: this is a stream. Write it somewhere, and compare what is there.")
    is_exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    names = [name if is_exact else name.lower() for name in frame.columns]
    twice = [name for name, known in zip(frame.columns, names, strict=True) if names.count(known) > 1]
    if twice:
        raise AnalysisError(f"diff: {what}: two columns are called {twice[0]!r}. Give one another name with toDF(…).")
    ours = {CHANGE, COLUMNS, COUNT}.intersection(names)
    if ours:
        message = f"diff: {what}: the columns of differences are called {', '.join(sorted(ours))} too. Rename yours."
        raise AnalysisError(message)


def _common(old: DataFrame, new: DataFrame) -> _Columns:
    types = [{each.name: each.dataType for each in frame.schema} for frame in (old, new)]
    found = _Columns()
    for name in dict.fromkeys((*types[0], *types[1])):
        kinds = [each[name] for each in types if name in each]
        texts = [kind.simpleString() for kind in kinds]
        if len(kinds) == 1:
            which = "removed" if name in types[0] else "added"
            found.told.append(f"{name}: {texts[0]}, {which}")
            continue
        if texts[0] != texts[1]:
            found.told.append(f"{name}: {texts[0]}, now {texts[1]}")
        wider = kinds[0] if texts[0] == texts[1] else _wider(old, new, name, kinds)
        if wider is None:
            found.told[-1] += ", not compared"
        else:
            found.types[name] = wider
    return found


def _wider(old: DataFrame, new: DataFrame, name: str, kinds: Sequence[DataType]) -> DataType | None:
    if any(isinstance(kind, ArrayType | MapType | StructType) for kind in kinds):
        return None
    if any(isinstance(kind, StringType) for kind in kinds):
        # A union would read numbers and times from text, and fail if there are none.
        return StringType()
    try:
        united = old.select(quoted(name)).limit(0).union(new.select(quoted(name)).limit(0))
        wider = united.schema[0].dataType
    except SparkAnalysisError:
        return None
    return wider if all(_has_all_digits(wider, kind) for kind in kinds) else None


def _has_all_digits(wider: DataType, kind: DataType) -> bool:
    """Whether a decimal keeps all digits of another number: Spark rounds numbers with more than 38 digits."""
    if not isinstance(wider, DecimalType):
        return True
    whole, scale = _DIGITS.get(type(kind), 0), 0
    if isinstance(kind, DecimalType):
        whole, scale = kind.precision - kind.scale, kind.scale
    return wider.scale >= scale and wider.precision - wider.scale >= whole


_DIGITS: dict[type, int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}


def _tagged(frame: DataFrame, columns: _Columns, *, is_new: bool) -> DataFrame:
    """The common columns by number, as names may contain anything, and the table that a row belongs to."""
    values = [F.col(quoted(name)).cast(kind).alias(f"c{n}") for n, (name, kind) in enumerate(columns.types.items())]
    return frame.select(*values, F.lit(is_new).alias("is_new"))


def _as_multiset(both: DataFrame, columns: _Columns) -> Compared:
    names, kinds = list(columns.types), list(columns.types.values())
    by = [
        _comparable(F.col(f"c{n}"), kind, name).alias(f"k{n}") for n, (name, kind) in enumerate(columns.types.items())
    ]
    values = [F.first(f"c{n}").alias(f"c{n}") for n in range(len(kinds))]
    grouped = both.groupBy(*by).agg(
        *values, F.count_if(~F.col("is_new")).alias("before"), F.count_if("is_new").alias("after")
    )
    difference = F.col("after") - F.col("before")
    rows = grouped.where(difference != 0).select(
        F.when(difference > 0, ADDED).otherwise(REMOVED).alias(CHANGE),
        F.abs(difference).alias(COUNT),
        *(F.col(f"c{n}").alias(name) for n, name in enumerate(names)),
    )
    nothing = F.lit(0).cast("long")
    counted = {
        ADDED: F.greatest(difference, nothing),
        REMOVED: F.greatest(-difference, nothing),
        SAME: F.least("before", "after"),
    }
    [row] = grouped.agg(*(F.coalesce(F.sum(each), nothing).alias(name) for name, each in counted.items())).collect()
    return Compared(rows, {ADDED: row[ADDED], REMOVED: row[REMOVED], CHANGED: 0, SAME: row[SAME]}, columns.told)


def _by_key(both: DataFrame, columns: _Columns, keys: Sequence[str], what: str) -> Compared:
    numbers = {name: f"c{n}" for n, name in enumerate(columns.types)}
    others = [name for name in columns.types if name not in keys]
    by = [_comparable(F.col(numbers[key]), columns.types[key], key).alias(f"k{n}") for n, key in enumerate(keys)]
    values = F.struct(*(F.col(numbers[name]) for name in others)) if others else F.struct(F.lit(0).alias("none"))
    grouped = both.groupBy(*by).agg(
        *(F.first(numbers[key]).alias(numbers[key]) for key in keys),
        F.first(F.when(~F.col("is_new"), values), ignorenulls=True).alias("old"),
        F.first(F.when(F.col("is_new"), values), ignorenulls=True).alias("new"),
        F.count_if(~F.col("is_new")).alias("before"),
        F.count_if("is_new").alias("after"),
    )
    differing = [
        F.when(~_side("old", name, columns, numbers).eqNullSafe(_side("new", name, columns, numbers)), F.lit(name))
        for name in others
    ]
    different = F.array_compact(F.array(*differing)) if differing else F.array().cast("array<string>")
    change = (
        F.when(F.col("before") == 0, ADDED)
        .when(F.col("after") == 0, REMOVED)
        .when(F.size(COLUMNS) > 0, CHANGED)
        .otherwise(SAME)
    )
    judged = grouped.withColumn(COLUMNS, different).withColumn(CHANGE, change)
    counts = _counted(judged, [numbers[key] for key in keys], keys, what)
    pairs = (F.struct(*(F.col(f"{side}.{numbers[name]}").alias(side) for side in ("old", "new"))) for name in others)
    rows = judged.where(F.col(CHANGE) != SAME).select(
        CHANGE,
        *(F.col(numbers[key]).alias(key) for key in keys),
        F.when(F.col(CHANGE) == CHANGED, F.col(COLUMNS)).alias(COLUMNS),
        *(pair.alias(name) for name, pair in zip(others, pairs, strict=True)),
    )
    return Compared(rows, counts, columns.told)


def _side(side: str, name: str, columns: _Columns, numbers: Mapping[str, str]) -> Column:
    return _comparable(F.col(f"{side}.{numbers[name]}"), columns.types[name], name)


def _counted(judged: DataFrame, columns: Sequence[str], keys: Sequence[str], what: str) -> dict[str, int]:
    """The number of rows that are added, and so on; a key with several rows is refused."""
    kinds = (ADDED, REMOVED, CHANGED, SAME)
    several = (F.col("before") > 1) | (F.col("after") > 1)
    example = F.struct(*(F.col(each).alias(key) for each, key in zip(columns, keys, strict=True))).cast("string")
    [row] = judged.agg(
        *(F.count_if(F.col(CHANGE) == kind).alias(kind) for kind in kinds),
        F.count_if(several).alias("several"),
        F.first(F.when(several, example), ignorenulls=True).alias("example"),
    ).collect()
    if row["several"]:
        message = (
            f"keys: {what}: {row['several']} keys have several rows in one of the two, such as {row['example']} of "
            f"{', '.join(keys)}. Add columns that tell these apart, or leave keys out to compare all rows."
        )
        raise AnalysisError(message)
    return {kind: row[kind] for kind in kinds}


def _comparable(column: Column, kind: DataType, name: str) -> Column:
    """A value by which Spark can group, equal for equal values: maps by their entries, variants by their JSON."""
    if _is_plain(kind):
        return column
    if isinstance(kind, ArrayType | MapType | StructType):
        return _of_parts(column, kind, name)
    if isinstance(kind, VariantType):
        return F.to_json(column)
    if isinstance(kind, CalendarIntervalType):
        return column.cast("string")
    if isinstance(kind, StringType):
        # Under a collation, texts that are not the same may be equal.
        return F.collate(column, "UTF8_BINARY")
    message = f"diff: {name!r} is a {kind.simpleString()}, which cannot be compared. Leave it out with drop(…)."
    raise AnalysisError(message)


def _of_parts(column: Column, kind: ArrayType | MapType | StructType, name: str) -> Column:
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: _comparable(element, kind.elementType, name))
    if isinstance(kind, StructType):
        parts = [_comparable(column[each.name], each.dataType, name).alias(each.name) for each in kind]
        return F.when(column.isNotNull(), F.struct(*parts))
    entries = F.transform(
        F.map_entries(column),
        lambda entry: F.struct(
            _comparable(entry["key"], kind.keyType, name).alias("key"),
            _comparable(entry["value"], kind.valueType, name).alias("value"),
        ),
    )
    # Each key occurs once, so keys alone determine the order.
    return F.array_sort(entries)


_ORDERED = re.compile(
    "binary|boolean|tinyint|smallint|int|bigint|float|double|decimal.*|date|timestamp|timestamp_ntz|time[(].*|void"
    "|char.*|varchar.*|interval .+"
)
"""The names of types whose values Spark can order."""


def _is_plain(kind: DataType) -> bool:
    """Whether Spark can compare values of a type as they are."""
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_plain(each.dataType) for each in kind)
    if isinstance(kind, StringType):
        return kind == StringType()
    return _ORDERED.fullmatch(kind.simpleString()) is not None
