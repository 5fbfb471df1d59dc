"""JW: the cost of the JDBC sink, against Spark's own writer in a ``foreachBatch``, which repeats rows after a crash.

``python -m benchmarks.jdbc``. Epochs of 200,000 rows (a number, a time, a key, a double, a text), and of 1,000, from
two partitions of a warm driver into MariaDB and into H2 in memory. The sink's time is prepare, the trial unless it is
switched off, and commit: each row is written twice, into the attempt's table and from there into the target.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from benchmarks.beside import in_turns
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.connectors.jdbc.database import Database
from sparkjet.connectors.jdbc.settings import JdbcSettings
from sparkjet.connectors.jdbc.sink import JdbcSink
from sparkjet.options import Options
from sparkjet.sinks.protocol import TransactionId
from tests.servers.jdbc import MariaServer, drivers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = {200_000: (2, 4), 1_000: (10, 20)}
"""Warm-up and measured rounds by the rows of an epoch."""
GOALS = {"false": 0.8, "true": 0.0}
"""Goals for epochs of many rows, by ``tryOut``."""


def result(session: SparkSession, size: int) -> DataFrame:
    """Rows like a window's, persisted in memory so that computing them costs neither side."""
    rows = session.range(size, numPartitions=2).select(
        F.col("id").alias("n"),
        F.timestamp_seconds(F.col("id") + 1_700_000_000).alias("since"),
        (F.col("id") % 1000).alias("k"),
        (F.col("id") / 7).alias("mean"),
        F.concat(F.lit("symbol-"), F.col("id") % 500).alias("sym"),
    )
    held = rows.cache()
    held.count()
    return held


class Target:
    """A table in a database, which is emptied before each round."""

    def __init__(self, session: SparkSession, options: Mapping[str, str], table: str) -> None:
        self.options = {**options, "dbtable": table}
        self._database = Database(session, JdbcSettings.of(Options(self.options)))
        self._table = table

    def empty(self) -> None:
        """Remove all rows."""
        with self._database.connected() as connection:
            connection.execute(f"TRUNCATE TABLE {self._table}")


def ours(session: SparkSession, target: Target, rows: DataFrame, tries: str) -> Callable[[int], float]:
    """An epoch through the sink."""
    sink = JdbcSink(JdbcSettings.of(Options({**target.options, "tryOut": tries})), session)
    sink.check(rows.schema)
    sink.create()
    epochs = iter(range(1, 1 << 30))

    def epoch(_: int) -> float:
        started = time.perf_counter()
        handle = sink.prepare(rows, TransactionId("benchmark", target.options["dbtable"], 0, next(epochs), 0))
        if handle is None:
            sys.exit("nothing was prepared")
        sink.try_out(handle, [])
        sink.commit(handle, lambda: None)
        return time.perf_counter() - started

    return epoch


def spark(target: Target, rows: DataFrame, _: int) -> float:
    """The same rows as ``foreachBatch`` would write them."""
    started = time.perf_counter()
    rows.write.format("jdbc").options(**target.options).mode("append").save()
    return time.perf_counter() - started


def compared(session: SparkSession, name: str, options: Mapping[str, str], size: int) -> list[Ratio]:
    """The ratios of one database, paired by round."""
    rows = result(session, size)
    targets = {way: Target(session, options, f"{way}_{size}") for way in ("tried", "untried", "spark")}
    ways = {way: ours(session, targets[way], rows, tries) for way, tries in (("tried", "true"), ("untried", "false"))}
    rows.write.format("jdbc").options(**targets["spark"].options).save()

    def empty() -> None:
        for target in targets.values():
            target.empty()

    warm_up, rounds = SIZES[size]
    every: dict[str, Callable[[int], float]] = {**ways, "spark": partial(spark, targets["spark"], rows)}
    seconds = in_turns(every, rounds, warm_up, empty)
    rows.unpersist()
    return [
        Ratio.of_seconds(
            "JW",
            f"{size:,} rows into {name}, tryOut={tries}",
            Goal("Spark's write.jdbc", goal if size == max(SIZES) else 0.0),
            seconds["tried" if tries == "true" else "untried"],
            seconds["spark"],
            size,
        )
        for tries, goal in GOALS.items()
    ]


def study() -> list[Ratio]:
    """A ratio for each database, size of an epoch, and way."""
    found = []
    session = local_session(settings={"spark.jars": ",".join(map(str, drivers()))})
    h2 = {"url": "jdbc:h2:mem:bench;DB_CLOSE_DELAY=-1", "driver": "org.h2.Driver"}
    with MariaServer() as server:
        server.sql("CREATE DATABASE bench")
        for name, options in (("MariaDB", server.options("bench")), ("H2", h2)):
            for size in SIZES:
                found += compared(session, name, options, size)
    session.stop()
    return found


if __name__ == "__main__":
    main(study)
