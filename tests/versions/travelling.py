"""A query with every operator that has state, which moves between lines of Spark.

Run as a program, ``python -m tests.versions.travelling PLACE``, it is one stretch, with the PySpark of the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import sparkjet as sj
from tests.feed import Feed, rows
from tests.interpreting import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter

TEN = "10 seconds"
NEAR = "l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 5 SECONDS"
STRETCHES: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
    (
        [*rows([1, 2, 2, 12, 14, 21], k="x", v=7), *rows([3], k="y", v=0), *rows([15], k=None, v=4)],
        [*rows([4, 13], k="x", v=70), *rows([15], k="y", v=20)],
    ),
    ([*rows([22, 31], k="x", v=7), *rows([24, 24], k="y", v=3)], [*rows([23, 33], k="x", v=71)]),
    (
        [*rows([27, 35], k="x", v=1), *rows([37], k="z", v=9), *rows([61], k="y", v=5)],
        [*rows([37], k="x", v=72), *rows([62], k="y", v=6)],
    ),
]
"""An epoch of both feeds before the first move, one between the two, and one after the way back."""


def visited(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Emits the number of rows of a key when there has been none for a while."""
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})
        state.remove()
        return
    count, last = state.getOption or (0, 0)
    for frame in frames:
        count, last = count + len(frame), max(last, int(frame["second"].max()))
    state.update((count, last))
    state.setTimeoutTimestamp(1_000 * (last + 20))


class Kept(StatefulProcessor):
    """Adds up values, and holds them in a variable of each kind."""

    def init(self, handle: Any) -> None:
        """Declare the variables, one with a lifetime."""
        self._sum = handle.getValueState("sum", "n long")
        self._values = handle.getListState("values", "v long")
        self._seen = handle.getMapState("seen", "v long", "times long", 3_600_000)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Emit all that is known after each epoch."""
        for frame in rows:
            for value in frame["v"].tolist():
                self._sum.update(((self._sum.get() or (0,))[0] + value,))
                self._values.appendValue((value,))
                self._seen.updateValue((value,), ((self._seen.getValue((value,)) or (0,))[0] + 1,))
        values, seen = sorted(v for (v,) in self._values.get()), sorted((v, n) for (v,), (n,) in self._seen.iterator())
        yield pd.DataFrame({"k": [key[0]], "known": [f"{self._sum.get()[0]} {values} {seen}"]})

    def close(self) -> None:
        """Nothing is open."""


def operators(left: Any, right: Any) -> dict[str, tuple[Any, str]]:
    """A result of each operator with its output mode; of a union, homes/shops has them."""
    tumbling = left.groupBy(F.window("ts", TEN), "k")
    apart = F.when(F.col("v") > 5, "3 seconds").otherwise("9 seconds")
    pairs = ("l.k", "l.v", F.col("r.v").alias("w"))
    counted = left.groupBy(F.window("ts", TEN), "k").agg(F.count("*").alias("n"))
    others = right.groupBy(F.window("ts", TEN), "k").agg(F.sum("v").alias("w"))
    timed = left.withColumn("second", F.unix_seconds("ts"))
    return {
        "tumbling": (
            tumbling.agg(
                *(F.count("*").alias("n"), F.avg("v"), F.stddev("v"), F.max_by("v", "ts"), F.collect_set("v")),
                *(F.first("v"), F.mode("v"), F.approx_count_distinct("v"), F.count_distinct("v"), F.median("v")),
            ),
            "append",
        ),
        "sliding": (
            left.groupBy(F.window("ts", TEN, "5 seconds"), F.upper("k").alias("k")).agg(F.sum("v")),
            "append",
        ),
        "session": (left.groupBy(F.session_window("ts", "4 seconds"), "k").agg(F.sum("v")), "append"),
        "sessions of each row": (left.groupBy(F.session_window("ts", apart), "k").agg(F.sum("v")), "append"),
        "kept windows": (tumbling.agg(F.sum("v").alias("t")), "update"),
        "complete": (left.groupBy("k").agg(F.sum("v").alias("t"), F.max("v")), "complete"),
        "rolling": (left.groupBy("k").agg(F.count("*").alias("n"), F.min("v"), F.last("v")), "update"),
        "all rows": (left.agg(F.sum("v").alias("t")), "update"),
        "distinct": (left.select("k", "v").distinct(), "append"),
        "duplicates": (left.dropDuplicates(["k"]).select("k", "v"), "append"),
        "within the watermark": (left.dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v"), "append"),
        "inner join": (left.join(right, F.expr(NEAR)).select(*pairs), "append"),
        "outer join": (left.join(right, F.expr(NEAR), "full_outer").select(*pairs), "append"),
        "anti join": (left.join(right, F.expr(NEAR), "left_anti").select("l.k", "l.v"), "append"),
        "join of windows": (counted.join(others, ["window", "k"], "outer"), "append"),
        "function": (
            timed.groupBy("k").applyInPandasWithState(
                *(visited, "k string, n long", "n long, last long", "append", GroupStateTimeout.EventTimeTimeout)
            ),
            "append",
        ),
        "processor": (
            left.groupBy("k").transformWithStateInPandas(Kept(), "k string, known string", "update", "ProcessingTime"),
            "update",
        ),
    }


def run(spark: SparkSession, place: Path, *, last: bool) -> None:
    """Take all that has come, with what the query has left in the place."""

    def stream(name: str, lag: str) -> Any:
        reader = spark.readStream.schema("ts long, k string, v long").option("maxFilesPerTrigger", 1)
        read = reader.json(str(place / name)).withColumn("ts", F.timestamp_seconds("ts"))
        # One alias for all that is derived from it.
        return sj.stream(read).withWatermark("ts", lag).alias(name[0])

    left, right = stream("left", "5 seconds"), stream("right", "6 seconds")

    def keep(folder: Path) -> Callable[[DataFrame, int], None]:
        def keep_in(rows: DataFrame, epoch: int) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            shown = [row.asDict(recursive=True) for row in rows.collect()]
            (folder / f"{epoch:03}.json").write_text(json.dumps(shown, default=str, sort_keys=True))

        return keep_in

    writers: list[StreamWriter] = [
        result.writeStream.queryName(name).outputMode(mode).foreachBatch(keep(place / "out" / name))
        for name, (result, mode) in operators(left, right).items()
    ]
    first, *others = writers
    first = first.option("closeWindowsAtEnd", last).trigger(availableNow=True)
    sj.start(first, *others, queryName="travels", checkpointLocation=str(place / "home")).awaitTermination()


def feeds_of(place: Path) -> tuple[Feed, Feed]:
    """Both feeds below a place."""
    return Feed(place / "left"), Feed(place / "right")


def arrive(feeds: tuple[Feed, Feed], stretch: int) -> None:
    """Add the file of a stretch to each."""
    for feed, each in zip(feeds, STRETCHES[stretch], strict=True):
        feed.add(*each)


def found(place: Path) -> dict[str, list[str]]:
    """The rows of each output; of one whose rows replace others, in the order of their epochs."""
    return {
        folder.name: [
            row
            for file in sorted(folder.glob("*.json"))
            for row in sorted(json.dumps(each) for each in json.loads(file.read_text()))
        ]
        for folder in sorted((place / "out").iterdir())
    }


def main() -> None:
    """Run a stretch in a session of this process."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        **INTERPRETED,
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    run(spark, Path(sys.argv[1]), last=False)
    print(spark.version)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
