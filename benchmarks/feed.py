"""The generated input as a formula of the row number, and the checksum of its results, for the Spark engines.

``java/…/Feed.java`` and ``peers/bytewax_flow.py`` have the same formulas. All values are whole, or multiples of 1/8 far
below 2**53: sums are exact in any order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.report import Totals
from benchmarks.work import Work

PARTITIONS = 2
RUN = 1_000
"""Rows per row of Spark's source, which generates rows one by one, at a tenth of the cost of a query."""
MICROSECONDS = 1_000_000
SESSION = 20
"""Rows per session."""
PAUSE = 2 * MICROSECONDS
"""Event time between sessions; their gap is half of it."""
REAL = ("avg", "percentile")
"""Floating-point aggregates."""


def complete(row: int, work: Work) -> int:
    """The last second up to which all windows are complete when ``row`` arrives."""
    if work.shape != "sessions":
        return row // work.density
    # Sessions end within seconds, and count as ending at the full second before.
    pauses = row // (SESSION * work.keys) * PAUSE
    return (row * MICROSECONDS // work.density + pauses) // MICROSECONDS - 1


def rows(session: SparkSession, work: Work, keys: int | None = None) -> DataFrame:
    """The endless input, ``work.batch`` rows per epoch: columns ts, key, value and price.

    For sessions event time pauses after every 20 rows of each key.

    Spark's own ``rate-micro-batch`` source numbers runs of 1,000 rows; a batch that is rerun has the same ones.
    """
    if work.batch % RUN:
        raise ValueError(f"batch={work.batch} must be a multiple of {RUN}.")
    source = session.readStream.format("rate-micro-batch")
    # The source timestamps rows too; these are not used, so every batch may have the same.
    numbered = source.options(
        rowsPerBatch=work.batch // RUN, numPartitions=PARTITIONS, startTimestamp=0, advanceMillisPerBatch=0
    )
    first = F.col("value") * RUN
    value = F.col("value")
    pauses = "" if work.shape != "sessions" else f" + value div {SESSION * work.keys} * {PAUSE}"
    each = numbered.load().select(F.explode(F.sequence(first, first + (RUN - 1))).alias("value"))
    return each.select(
        F.expr(f"timestamp_micros(value * {MICROSECONDS} div {work.density}{pauses})").alias("ts"),
        ((value * 7919) % (keys or work.keys)).alias("key"),
        value,
        ((value % 1000) / F.lit(8.0)).alias("price"),
    )


def sides(session: SparkSession, work: Work) -> tuple[DataFrame, DataFrame]:
    """Two streams of columns ts, key, entry and opening: of twice as many keys as have entries, all have openings."""
    one, none = F.lit(1).alias, F.lit(0).alias
    entries = rows(session, work).select("ts", "key", one("entry"), none("opening"))
    openings = rows(session, work, 2 * work.keys).select("ts", "key", none("entry"), one("opening"))
    return entries, openings


def checksum(end: Column, key: Column, whole: Sequence[Column]) -> Column:
    """A hash of one result row below 2**31; sums of it do not depend on the order of rows."""
    mixed = end * 8191 + key * 1_000_003
    for place, column in enumerate(whole):
        mixed = mixed + column * (131 + place)
    return ((mixed % 2_147_483_647) * (mixed % 65_521 + 1)) % 2_147_483_647


def totals(results: DataFrame, whole: Sequence[str], real: Sequence[str]) -> dict[int, Totals]:
    """The totals of the results of each window end.

    Args:
        results: Columns ``window``, ``key`` and the named ones.
        whole: Columns of whole numbers, which must agree exactly.
        real: Floating-point columns, which are summed and compared with a tolerance.
    """
    end = F.unix_seconds("window.end")
    value = checksum(end, F.col("key"), [F.col(name).cast("long") for name in whole])
    added = sum((F.col(name) for name in real), start=F.lit(0.0))
    table = results.groupBy(end.alias("end")).agg(F.count(F.lit(1)), F.sum(value), F.sum(added))
    return {row[0]: Totals(rows=row[1], checksum=row[2], real=row[3]) for row in table.collect()}


def read(session: SparkSession, directory: str, work: Work) -> dict[int, Totals]:
    """Totals of the Parquet files in a directory."""
    whole = [name for name in work.aggregates if name not in REAL]
    return totals(session.read.parquet(directory), whole, [name for name in work.aggregates if name in REAL])
