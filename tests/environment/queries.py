"""The queries of the table, each with Spark's batch query of the same rows; results have the same four columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ODD = "ü'\"\\,;{日"
"""A key that has to be quoted, escaped and encoded."""
LATE = "late"
"""The key of a row that every run drops."""
SCHEMA = "ts long, p string, k string, v long"
COLUMNS = ("k", "at", "n", "total")


class Input:
    """Two feeds of two batches each: one before the environment changes, one after."""

    def __init__(self, place: Path) -> None:
        self._feeds = [Feed(place / name) for name in ("left", "right")]

    def first(self) -> None:
        """The batch of the first run."""
        left, right = self._feeds
        left.add(*rows([1, 2, 2, 12], p="a", k="x", v=7), *rows([3], p="b", k=ODD, v=2), *rows([3], p="b", k="y", v=0))
        right.add(*rows([4, 13], p="a", k="x", v=70), *rows([2], p="b", k=ODD, v=20))

    def second(self) -> None:
        """That of the next one, with rows for what the first one has left open."""
        left, right = self._feeds
        left.add(
            *rows([2, 14, 31], p="a", k="x", v=7),
            *rows([4, 15], p="b", k=ODD, v=3),
            *rows([-100], p="b", k=LATE, v=5),
            *rows([15], p="b", k="z", v=0),
        )
        right.add(*rows([6, 33], p="a", k="x", v=71), *rows([16], p="b", k=ODD, v=21))

    def streams(self, session: SparkSession) -> list[DataFrame]:
        """Both as streams."""
        return [
            _typed(session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(feed.directory)))
            for feed in self._feeds
        ]

    def tables(self, session: SparkSession) -> list[DataFrame]:
        """All that has come, in a session without settings."""
        return [_typed(session.read.schema(SCHEMA).json(str(feed.directory))) for feed in self._feeds]


def _typed(found: DataFrame) -> DataFrame:
    # By functions, not by the reader: what it makes of a text or a number depends on the session, as users want it.
    # In milliseconds: a user may want no more in their own files.
    return found.select(F.expr("timestamp_millis(ts * 1000 + v)").alias("ts"), "p", "k", "v")


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        stream: Makes the result of the streams, and with it the late rows if there are any.
        batch: Makes Spark's batch query of the same rows.
        mode: The output mode.
        closes: Whether it has windows to close at the end.
        fails: Keys of rows that become dead letters.
    """

    stream: Callable[[list[DataFrame]], tuple[Any, Any]]
    batch: Callable[[list[DataFrame]], DataFrame]
    mode: str = "append"
    closes: bool = False
    fails: Sequence[str] = ()


TEN = "10 seconds"
NEAR = "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS"


def _windows(inputs: list[DataFrame]) -> tuple[Any, Any]:
    marked = sj.stream(inputs[0]).withWatermark("ts", "0 seconds", by="p", idleTimeout="10 minutes")
    counts = marked.groupBy(F.window("ts", TEN), "k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    return counts.select("k", F.col("window.start").alias("at"), "n", "total"), counts.lateRows


def _windows_batch(inputs: list[DataFrame]) -> DataFrame:
    counts = inputs[0].where(F.col("k") != LATE).groupBy(F.window("ts", TEN), "k")
    found = counts.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    return found.select("k", F.col("window.start").alias("at"), "n", "total")


def _rolled(grouped: Any) -> Any:
    found = grouped.agg(F.max("ts").alias("at"), F.count("*").alias("n"), F.sum("v").alias("total"))
    return found.select(*COLUMNS)


def _joined(left: Any, right: Any) -> Any:
    return left.alias("a").join(right.alias("b"), F.expr(NEAR)).select("a.k", "a.ts", "a.v", F.expr("b.v").alias("w"))


def _join(inputs: list[DataFrame]) -> tuple[Any, Any]:
    left, right = (sj.stream(each).withWatermark("ts", "5 minutes") for each in inputs)
    return _joined(left, right).selectExpr("k", "ts AS at", "v AS n", "w AS total"), None


def _each(rows: Any) -> Any:
    return rows.where("v > 0").selectExpr("k", "ts AS at", "v AS n", "v * 2 AS total")


def _diverted(inputs: list[DataFrame]) -> tuple[Any, Any]:
    tried = sj.stream(inputs[0]).divert(errors=True).withColumn("total", F.expr("100 div v"))
    return tried.selectExpr("k", "ts AS at", "v AS n", "total"), None


def _diverted_batch(inputs: list[DataFrame]) -> DataFrame:
    return inputs[0].where("v <> 0").selectExpr("k", "ts AS at", "v AS n", "100 div nullif(v, 0) AS total")


QUERIES: Mapping[str, Query] = {
    "windows": Query(_windows, _windows_batch, closes=True),
    "rolling": Query(
        lambda inputs: (_rolled(sj.stream(inputs[0]).groupBy("k")), None),
        lambda inputs: _rolled(inputs[0].groupBy("k")),
        "update",
    ),
    "dedup": Query(
        lambda inputs: (_each(sj.stream(inputs[0]).dropDuplicates(["k", "ts", "v"])), None),
        lambda inputs: _each(inputs[0].dropDuplicates(["k", "ts", "v"])),
    ),
    "join": Query(
        _join,
        lambda inputs: _joined(*inputs).selectExpr("k", "ts AS at", "v AS n", "w AS total"),
    ),
    "windowless": Query(lambda inputs: (_each(sj.stream(inputs[0])), None), lambda inputs: _each(inputs[0])),
    "diverted": Query(_diverted, _diverted_batch, fails=["y", "z"]),
}
