"""Histories as DataFrames: when rows came and how old they were, counted by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import ONLY_SUBSTREAM, quoted
from sparkjet.errors import AnalysisError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARKS = T.StructType([T.StructField("at", T.LongType()), T.StructField("mark", T.LongType())])


def told(
    history: DataFrame,
    event_time: str | Column,
    arrival: str | Column,
    by: str | Column | Sequence[str | Column],
    trigger: int,
) -> DataFrame:
    """The epoch, the substream and the event time of each row; epoch and time are whole numbers."""
    if history.isStreaming:
        raise AnalysisError("lag_for: history is a stream, and has to be a batch: read it with spark.read")
    named = [by] if isinstance(by, str | Column) else by
    parts = [F.coalesce(_column(history, "by", each).cast("string"), F.lit("null")) for each in named]
    rows = history.select(
        _column(history, "arrival", arrival).alias("at"),
        (F.concat_ws("/", *parts) if parts else F.lit(ONLY_SUBSTREAM)).alias("substream"),
        _column(history, "event_time", event_time).alias("time"),
    )
    for name, option, given in (("at", "arrival", arrival), ("time", "event_time", event_time)):
        kind = rows.schema[name].dataType
        if not isinstance(kind, T.TimestampType):
            message = (
                f"{option}: {given!r} is {kind.simpleString()}, and has to be a timestamp: "
                'F.timestamp_millis("…"), F.col("…").cast("timestamp")'
            )
            raise AnalysisError(message)
    known = rows.where("at IS NOT NULL AND time IS NOT NULL")
    at = F.unix_micros("at")
    # Rounded down, before 1970 too; in whole numbers, as a quotient of two has 53 bits.
    begins = (at - F.pmod(at, F.lit(trigger))).alias("at")
    rounded = known.select(begins, "substream", F.unix_micros("time").alias("time"))
    return rounded.withColumn("at", F.expr(f"at div {trigger}L"))


def epochs(rows: DataFrame) -> Iterator[tuple[int, str, int]]:
    """Epochs ascending, each with the highest event time of each of its substreams."""
    highest = rows.groupBy("at", "substream").agg(F.max("time")).orderBy("at")
    yield from highest.toLocalIterator()


def behind(rows: DataFrame, marks: Sequence[tuple[int, int]], digits: int) -> Iterator[tuple[str, int, int]]:
    """Substream, how far behind the watermark of their epoch, rounded up to some digits, and number of rows."""
    judged = rows.join(F.broadcast(rows.sparkSession.createDataFrame(list(marks), _MARKS)), "at")
    time = F.when(F.col("mark") > F.col("time"), F.col("mark") - F.col("time")).otherwise(F.lit(0))
    unit = F.pow(F.lit(10), F.greatest(F.length(F.col("behind").cast("string")) - digits, F.lit(0))).cast("long")
    rounded = F.expr("(behind + unit - 1) div unit * unit")
    counted = judged.withColumn("behind", time).withColumn("unit", unit).groupBy("substream", rounded.alias("behind"))
    yield from counted.count().toLocalIterator()


def _column(history: DataFrame, option: str, given: str | Column) -> Column:
    """A column, by its whole name as in ``withWatermark``, or by a path such as that of a file's metadata."""
    if not isinstance(given, str):
        return given
    found = F.col(quoted(given) if given in history.columns else given)
    try:
        history.select(found)
    except AnalysisException as error:
        raise AnalysisError(f"{option}: there is no column {given!r}; {nearest(given, history.columns)}") from error
    return found
