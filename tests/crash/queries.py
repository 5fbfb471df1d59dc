"""Queries whose stages are not all windows, from streams to outputs; their rules are in ``keyed`` and ``joins``."""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.functions import COUNT, VISIT, Buckets, visited
from tests.crash.joins import NAMED, NAMES, RATES, JoinRules
from tests.crash.keyed import BUCKETS, NO_KEY, TOTALS, VISITS, KeyedRules
from tests.crash.outputs import into_files, into_table, with_home
from tests.crash.replay import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from sparkjet import Stream
    from sparkjet.api.grouped import GroupedStream
    from sparkjet.api.writer import StreamWriter
    from tests.crash.jobs import Place
    from tests.crash.replay import Rules


def keyed(stream: Stream, place: Place, rules: KeyedRules, *, tables: bool = False) -> list[StreamWriter]:
    """First rows, rolling sums and two functions with state, each with state by key; into files, and into tables."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    firsts = stream.dropDuplicatesWithinWatermark(["sub", "key"])
    totals = stream.groupBy("key").agg(F.count("*").alias("rows"), F.sum("n").alias("total"), F.max("n").alias("high"))
    timed = stream.withColumn("ms", F.unix_millis("ts"))
    visits = timed.groupBy("key").applyInPandasWithState(
        visited, VISIT, "rows long, last long, ids long", "append", GroupStateTimeout.EventTimeTimeout
    )
    buckets = timed.groupBy("sub", "key").transformWithStateInPandas(Buckets(), COUNT, "append", "EventTime")
    shaped = firsts.select("id", "sub", "key", (F.col("n") * 2).alias("twice"))
    outputs = {RESULTS: shaped, VISITS: visits, BUCKETS: buckets}
    first, *others = _files(outputs, place)
    # Rows that replace each other cannot go into files that are only added to.
    rolling = totals.writeStream.outputMode("update").foreachBatch(by_epoch(place.root / TOTALS))
    writers = [with_home(first, place), rolling, *others]
    if tables:
        writers += _tables(outputs, place, rules)
        # Merged in a temporary table, which no prepared transaction may use: published after the decision.
        keys = {"mode": "upsert", "keyColumns": "key"}
        named = totals.withColumn("key", F.coalesce("key", F.lit(NO_KEY)))
        writers.append(into_table(named, place, rules, "never", TOTALS).outputMode("update").options(**keys))
    return writers


def joined(left: Stream, right: Stream, place: Place, rules: JoinRules, *, tables: bool = False) -> list[StreamWriter]:
    """Two streams by an interval, windows over both by their window, and rows with a table, also below windows."""
    from pyspark.sql import functions as F

    import sparkjet as sj

    spark = left.sparkSession
    names = spark.createDataFrame(NAMES, "key string, name string")
    near = f"at >= ts + INTERVAL {rules.lower} MICROSECONDS AND at <= ts + INTERVAL {rules.upper} MICROSECONDS"
    pairs = left.join(right, F.expr(f"key = okey AND {near}"), "full_outer")
    apart = (F.unix_micros("at") - F.unix_micros("ts")).alias("apart")

    def per_window(stream: Stream, time: str, key: str) -> GroupedStream:
        window = sj.window(time, f"{rules.size} microseconds", f"{rules.slide} microseconds")
        return stream.groupBy(window, F.col(key).alias("key"))

    named = per_window(left.join(names, "key"), "ts", "key").agg(F.count("name").alias("names"))
    sums = per_window(right, "at", "okey").agg(F.sum("m").alias("total"))
    rates = named.join(sums, ["window", "key"], "outer")
    bounds = [F.unix_micros(f"window.{bound}").alias(bound) for bound in ("start", "end")]
    outputs = {
        RESULTS: pairs.select("id", "key", "other", apart),
        RATES: rates.select(*bounds, "key", "names", "total"),
        NAMED: left.join(names, "key", "left").select("id", "name"),
    }
    first, *others = _files(outputs, place)
    return [with_home(first, place), *others, *(_tables(outputs, place, rules) if tables else [])]


def right_of(events: DataFrame, rules: JoinRules) -> Stream:
    """The right stream: the same events under other names, with its own watermark."""
    import sparkjet as sj

    names = {"id": "other", "sub": "osub", "key": "okey", "ts": "at", "n": "m"}
    renamed = sj.stream(events.select(*names).withColumnsRenamed(names))
    timed = renamed.withWatermark("at", f"{rules.behind} microseconds", by="osub", substreams=rules.listed)
    return timed.alias("right").where("m > 0")


def by_epoch(directory: Path) -> Callable[[DataFrame, int], None]:
    """A function of ``foreachBatch`` that writes the rows of each epoch into its own directory, once.

    It may be called again with an epoch, by another driver meanwhile, and must then get the same rows.
    """

    def write(rows: DataFrame, epoch: int) -> None:
        target = directory / f"epoch-{epoch:09d}"
        hidden = directory / f".{target.name}-{uuid.uuid4().hex}"
        rows.coalesce(1).write.parquet(f"file:{hidden}")
        with suppress(OSError):
            # It fails if there is one with files in it.
            hidden.rename(target)
        if hidden.exists():
            before = rows.sparkSession.read.parquet(f"file:{target}")
            assert sorted(map(repr, before.collect())) == sorted(map(repr, rows.collect())), (
                f"epoch {epoch} has come with other rows than before"
            )
            shutil.rmtree(hidden)

    return write


def _files(outputs: Mapping[str, Stream], place: Place) -> list[StreamWriter]:
    return [into_files(rows, place, output) for output, rows in outputs.items()]


def _tables(outputs: Mapping[str, Stream], place: Place, rules: Rules) -> list[StreamWriter]:
    return [into_table(rows, place, rules, output=output) for output, rows in outputs.items()]
