"""Rows into tables, exactly once, next to the writer of the table format's own connector on the same line of Spark.

Shared by DW (:mod:`benchmarks.delta_sink`) and IW (:mod:`benchmarks.iceberg_sink`). A connector is for a line of Spark,
so they run in a process of that line's. Both sides read the same Parquet files, one an epoch, and have the same filter
and projection; an epoch's time is from its start to that of the next.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.peers.micro_batches import begun
from benchmarks.pipelines import SCHEMA, feed, shaped
from benchmarks.process import REPOSITORY, PeerError
from benchmarks.ratio import Ratio
from benchmarks.work import Goal
from scripts.sparks import LINES, pyspark

GOAL = 0.9
_HERE = "SPARKJET_BENCHMARK_LINE"
"""Variable of the process that is of the line."""


@dataclass(frozen=True)
class Size:
    """Epochs of so many rows.

    Args:
        rows: Of an epoch.
        epochs: Of a round.
        measured: The last ones.
        rounds: Measured rounds, behind one in which Java compiles.
    """

    rows: int
    epochs: int
    measured: int
    rounds: int


SIZES = (Size(1_000_000, 6, 4, 3), Size(1_000, 20, 14, 4))
"""A minute or two each, on a quiet machine."""


@dataclass(frozen=True)
class Format:
    """A table format.

    Args:
        id: Of the study.
        name: In ``format(…)``.
        line: Of Spark, for which there is a connector.
        settings: Of the session, in a directory for its tables.
        start: Has a writer begin with a table of that name in that directory; the same for both sides.
        table: The rows of such a table, as the connector reads them.
    """

    id: str
    name: str
    line: str
    settings: Callable[[Path], Mapping[str, str]]
    start: Callable[[Any, Path, str], Any]
    table: Callable[[SparkSession, Path, str], DataFrame]


NAMES = ("ts", "key", "gross", "`upper(hex(value))` AS text")
"""Tables have no parentheses in names."""


def ours(rows: DataFrame) -> Any:
    """Exactly once: the writer of a stream."""
    return shaped(sj.stream(rows)).selectExpr(*NAMES).writeStream


def theirs(rows: DataFrame) -> Any:
    """The connector's own."""
    return shaped(rows).selectExpr(*NAMES).writeStream


def seconds(session: SparkSession, of: Format, given: Path, place: Path, name: str, size: Size, side: Any) -> float:
    """Seconds of a measured epoch, from its start to that of the next."""
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given))
    writer = side(source).format(of.name).option("checkpointLocation", f"{place}/{name}-checkpoint")
    query = of.start(writer, place, name)
    query.processAllAvailable()
    # A query without a trigger goes on looking for files.
    reports = [progress for progress in query.recentProgress if progress["numInputRows"]]
    query.stop()
    apart = [(after - before).total_seconds() for before, after in pairwise(map(begun, reports))]
    return statistics.median(apart[-size.measured :])


def added_up(rows: DataFrame) -> Row:
    """What rows add up to."""
    columns = [F.col(f"`{name}`") for name in rows.columns]
    return (
        rows.select(F.xxhash64(*columns).cast("decimal(38)").alias("row")).agg(F.count("*"), F.sum("row")).collect()[0]
    )


def compared(session: SparkSession, of: Format, size: Size, place: Path) -> Ratio:
    """The ratio for epochs of so many rows, without one if the results differ."""
    given = place / f"given-{size.rows}"
    feed(session, size.rows, given, size.epochs)
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    what = f"no windows, {size.rows:,} rows an epoch, into {of.name.capitalize()} on Spark {LINES[of.line]}"
    goal = Goal(f"the connector, {size.rows:,} rows", GOAL)
    for round_ in range(1 + size.rounds):
        # In turns, also as to who begins.
        sides = (ours, theirs) if round_ % 2 else (theirs, ours)
        sums = {}
        for side in sides:
            name = f"{side.__name__}_{size.rows}_{round_}"
            taken = seconds(session, of, given, place, name, size, side)
            print(f"{size.rows:9,} {round_:3} {side.__name__:6} {taken:7.3f} s", file=sys.stderr, flush=True)
            sums[side.__name__] = added_up(of.table(session, place, name))
            if round_:
                found[side.__name__].append(taken)
        if sums["ours"] != sums["theirs"]:
            return Ratio(of.id, what, goal, wrong=f"{sums['ours']} in ours, {sums['theirs']} in theirs")
    return Ratio.of_seconds(of.id, what, goal, found["ours"], found["theirs"], size.rows)


def study(of: Format, sizes: tuple[Size, ...] = SIZES) -> list[Ratio]:
    """A ratio for each size, measured in a process of the format's line.

    Raises:
        PeerError: That process has failed.
    """
    if os.environ.get(_HERE) != of.line:
        return _on_line(of)
    with tempfile.TemporaryDirectory(prefix=f"sparkjet-{of.name}-") as directory:
        session = local_session(settings=of.settings(Path(directory)))
        try:
            return [compared(session, of, size, Path(directory)) for size in sizes]
        finally:
            session.stop()


def _on_line(of: Format) -> list[Ratio]:
    """The same study, by another process with the line's PySpark."""
    # The package of this repository, wherever another one is installed.
    paths = [*pyspark(LINES[of.line]), str(REPOSITORY / "src"), str(REPOSITORY)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), _HERE: of.line}
    environment.pop("SPARK_HOME", None)
    words = [sys.executable, "-m", f"benchmarks.{of.name}_sink"]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY, check=False)
    if ended.returncode:
        raise PeerError(f"{of.id} on Spark {LINES[of.line]} ended with {ended.returncode}.")
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=list[Ratio])
