"""T19: each operator by key and each join next to Spark's own, the same query on the same files.

``python -m benchmarks.operators [name…]``. Both take turns in one warm driver, each round from the first file to the
last, and write into noop. A file is an epoch; the first third, in which Java compiles, is not counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal

FILES = 9
PARTITIONS = 2
WARM_UP = 2
"""In the second round Java still compiles for longer than the rows take."""
ROUNDS = 5
DELAY = "8 seconds"


@dataclass(frozen=True)
class Work:
    """A query that is given Spark's streams or sparkjet's.

    Args:
        what: Its description, for the table.
        rows: Rows of a file.
        goal: The least ratio to Spark's speed.
        query: From the session and the streams by name to the results.
        mode: The output mode.
    """

    what: str
    rows: int
    goal: float
    query: Callable[[SparkSession, dict[str, Any]], Any]
    mode: str = "append"


def duplicates(_: SparkSession, inputs: dict[str, Any]) -> Any:
    """One row in five repeats one of the file before; the keys of eight files are remembered."""
    return inputs["orders"].withWatermark("ts", DELAY).dropDuplicatesWithinWatermark(["key"])


def with_table(session: SparkSession, inputs: dict[str, Any]) -> Any:
    """Each row finds one of a table's."""
    table = session.range(10_000).selectExpr("id AS shop", "concat('shop ', id) AS name")
    return inputs["orders"].join(table, "shop", "left")


def with_stream(_: SparkSession, inputs: dict[str, Any]) -> Any:
    """Each payment finds one order, of the same file or the one before."""
    orders = inputs["orders"].withWatermark("ts", DELAY)
    payments = inputs["payments"].withWatermark("paid", DELAY)
    soon = F.expr("order = key AND paid >= ts AND paid <= ts + INTERVAL 4 SECONDS")
    return orders.join(payments, soon, "leftOuter")


def function(_: SparkSession, inputs: dict[str, Any]) -> Any:
    """A running total of each shop."""

    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        (total,) = state.get if state.exists else (0,)
        for frame in frames:
            total += int(frame["cents"].sum())
        state.update((total,))
        yield pd.DataFrame({"shop": [key[0]], "total": [total]})

    given = inputs["orders"].select("shop", "cents").groupBy("shop")
    return given.applyInPandasWithState(
        add, "shop long, total long", "total long", "update", GroupStateTimeout.NoTimeout
    )


WORKS = {
    "duplicates": Work("duplicates: keys of eight files are remembered", 300_000, 1.2, duplicates),
    "static-join": Work("left join with a table of 10,000 rows", 500_000, 1.0, with_table),
    "stream-join": Work("left join with a stream, within 4 seconds", 100_000, 1.0, with_stream),
    "function": Work("applyInPandasWithState, a total of each of 10,000 keys", 50_000, 0.9, function, "update"),
}


USUAL = ("duplicates", "static-join", "stream-join")
"""Those that run without a name: the function takes longer than all others."""


def write_inputs(session: SparkSession, directory: Path, size: int) -> dict[str, DataFrame]:
    """The files of every input, in their order, as streams."""
    for number in range(FILES):
        own = F.col("id") + number * size
        key = F.when(F.col("id") % 5 == 0, own - size + 1).otherwise(own)
        orders = session.range(size).select(
            F.concat(F.lit("order-"), key).alias("key"),
            F.timestamp_seconds(F.lit(number)).alias("ts"),
            (own * 7919 % 10_000).alias("shop"),
            F.col("id").alias("cents"),
            F.concat_ws(" ", F.lit("some words about"), "id").alias("text"),
        )
        payments = session.range(size).select(
            F.concat(F.lit("order-"), own - F.col("id") % 2 * size).alias("order"),
            F.timestamp_seconds(F.lit(number)).alias("paid"),
            F.col("id").alias("amount"),
        )
        for name, rows in (("orders", orders), ("payments", payments)):
            file = directory / name / f"{number:03}"
            rows.coalesce(1).write.parquet(str(file))
            for part in file.glob("*.parquet"):
                # Spark's file source reads the oldest first.
                os.utime(part, (1_700_000_000 + number, 1_700_000_000 + number))
    return {name: _stream(session, directory / name) for name in ("orders", "payments")}


def _stream(session: SparkSession, directory: Path) -> DataFrame:
    schema = session.read.parquet(str(directory / "000")).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory / "*"))


def seconds(session: SparkSession, work: Work, inputs: dict[str, DataFrame], home: Path, *, ours: bool) -> float:
    """Seconds of all epochs but the first third."""
    given = {name: sj.stream(rows) if ours else rows for name, rows in inputs.items()}
    writer = work.query(session, given).writeStream.format("noop").outputMode(work.mode)
    writer = writer.option("checkpointLocation", str(home)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    durations = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    return float(sum(durations[len(durations) // 3 :])) / 1000


def measured(session: SparkSession, name: str) -> Ratio:
    """One work's ratio."""
    work = WORKS[name]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="sparkjet-operators-") as directory:
        inputs = write_inputs(session, Path(directory), work.rows)
        for round_ in range(WARM_UP + ROUNDS):
            homes = [Path(directory) / f"{round_}-{side}" for side in ("theirs", "ours")]
            taken = [seconds(session, work, inputs, home, ours=home is homes[1]) for home in homes]
            sys.stderr.write(f"{name:12} {round_:3} sparkjet {taken[1]:7.2f} s, spark {taken[0]:7.2f} s\n")
            if round_ >= WARM_UP:
                theirs.append(taken[0])
                ours.append(taken[1])
    amount = work.rows * (FILES - FILES // 3)
    return Ratio.of_seconds(
        f"T19-{name}", f"{work.what}, {work.rows:,} rows an epoch", Goal("spark", work.goal), ours, theirs, amount
    )


def study(*names: str) -> list[Ratio]:
    """The ratio of each work."""
    # Both keep state in the heap, Spark also for minutes after a query has ended.
    session = local_session(memory="12g")
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    ratios = [measured(session, name) for name in names or USUAL]
    session.stop()
    return ratios


if __name__ == "__main__":
    main(lambda: study(*sys.argv[1:]))
