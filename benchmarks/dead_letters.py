"""DL: what ``divert(errors=True)`` costs where no row fails: the same queries with it and without, in paired rounds.

``python -m benchmarks.dead_letters [ROWS]``. A parser, casts and a filter over rows like Kafka's, once into files and
once into windows. Input, epochs and times are those of P1 (:mod:`benchmarks.projection`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.projection import ROUNDS, WARM_UP, feed, seconds
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal

SIZES = (100_000, 1_000_000)
"""Rows of an epoch."""
GOAL = 0.95
WITHOUT = "the same query without divert"

Query = Callable[[sj.Stream], Any]


def parsed(stream: sj.Stream) -> sj.Stream:
    """What may fail for a row."""
    read = stream.withColumn("offer", F.from_json(F.col("value").cast("string"), "offer long, price string"))
    read = read.select(F.col("key").cast("string").alias("carrier"), "offer.*", "timestamp")
    return read.withColumn("price", F.col("price").cast("long")).where("price >= 300")


def windows(stream: sj.Stream) -> Any:
    """The same in windows."""
    timed = parsed(stream).withWatermark("timestamp", "10 milliseconds")
    keys = F.window("timestamp", "50 milliseconds"), "carrier"
    return timed.groupBy(*keys).agg(F.sum("price").alias("price")).select("window.end", "carrier", "price")


QUERIES: dict[str, Query] = {"without windows": parsed, "windows": windows}


def writer(query: Query, *, diverts: bool) -> Callable[[DataFrame, Path], Any]:
    """The query into files, with or without dead letters."""

    def written(rows: DataFrame, home: Path) -> Any:
        stream = sj.stream(rows)
        result = query(stream.divert(errors=True) if diverts else stream)
        found = result.writeStream.format("files").option("path", home / "out")
        return found.option("deadLettersPath", home / "dead") if diverts else found

    return written


def total(session: SparkSession, home: Path) -> Row:
    """What the output adds up to."""
    rows = session.read.parquet(str(home / "out"))
    hashed = rows.select(F.xxhash64(*sorted(rows.columns)).cast("decimal(38)").alias("row"))
    return hashed.agg(F.count("*"), F.sum("row")).collect()[0]


def compared(session: SparkSession, name: str, size: int, given: Path, directory: Path, rounds: int = ROUNDS) -> Ratio:
    """The ratio for epochs of so many rows, without one if the results differ."""
    found: dict[bool, list[float]] = {True: [], False: []}
    what, goal = f"divert(errors=True) without a failure, {name}, {size:,} rows an epoch", Goal(WITHOUT, GOAL)
    for round_ in range(WARM_UP + rounds):
        outputs = []
        # The first of a round by turns.
        for diverts in (round_ % 2 == 0, round_ % 2 == 1):
            home = directory / f"{name}-{size}-{round_}-{diverts}"
            home.mkdir()
            took = seconds(session, given, home, writer(QUERIES[name], diverts=diverts))
            told = "with" if diverts else "without"
            print(f"{name} {size:9,} {round_:3} {told:7} {took:7.3f} s", file=sys.stderr, flush=True)
            outputs.append(total(session, home))
            if round_ >= WARM_UP:
                found[diverts].append(took)
        if outputs[0] != outputs[1]:
            return Ratio("DL", what, goal, wrong=f"the results differ: {outputs}")
    return Ratio.of_seconds("DL", what, goal, found[True], found[False], size)


def study(sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> list[Ratio]:
    """The ratios of both queries."""
    session = local_session()
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        for size in sizes:
            given = Path(place) / f"given-{size}"
            feed(session, size, given)
            ratios += [compared(session, name, size, given, Path(place), rounds) for name in QUERIES]
    session.stop()
    return ratios


if __name__ == "__main__":
    main(lambda: study((int(sys.argv[1]),), 1) if len(sys.argv) > 1 else study())
