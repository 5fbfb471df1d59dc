"""Two queries in a row over a Delta table: the second has the watermark of the first, read by Delta's connector."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.sinks.pace import Pace
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing import StreamDriver
from tests.connectors.grid.chained import SCHEMA, at, both_in_batch, per_hour, per_ten_minutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

HOUR = 3_600_000_000


class First:
    """A query that writes into the table."""

    def __init__(self, spark: SparkSession, table: Path, home: Path, keys: str) -> None:
        sink = DeltaSink(PosixDirectory(table), spark, pace=Pace(1))
        self._driver = StreamDriver(spark, per_ten_minutes, SCHEMA, sinks=[sink], directory=home)
        self._chance, self._keys = random.Random(keys), keys
        self.sent: list[tuple[Any, ...]] = []

    def hours(self, since: int, until: int) -> None:
        """An epoch with rows of some time, by a driver of its own."""
        chance = self._chance
        self._process([(at(chance.uniform(since, until)), chance.choice(self._keys), 1) for _ in range(20)])
        self._driver.restart()

    def end(self, minute: int) -> None:
        """An epoch whose rows are not written, and the end of the run."""
        self._process([(at(minute), "nobody", 1)])
        self._driver.stop()

    def _process(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.sent += sorted(rows)
        self._driver.process(sorted(rows))


class Second:
    """The query over the table, with a driver of its own for each run."""

    def __init__(self, spark: SparkSession, table: str, home: Path, policy: Any = None, **options: Any) -> None:
        self._spark, self._table, self._home, self._options = spark, table, home, options
        self._policy = policy

    def run(self) -> dict[str, Any]:
        """Read what is there; returns the progress of the last epoch."""
        reader = self._spark.readStream.format("delta").options(**self._options)
        rows = reader.load(self._table) if "/" in self._table else reader.table(self._table)
        results = per_hour(rows) if self._policy is None else per_hour(rows, self._policy)
        writer = results.writeStream.format("files").option("path", self._home / "out")
        query = writer.option("checkpointLocation", self._home / "home").trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        progress: dict[str, Any] = query.lastProgress
        assert progress["lateRows"]["total"] == 0
        return progress

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        """What it has written."""
        found = sj.read_files(str(self._home / "out"))
        return Counter(map(tuple, found.select("hour", "k", "n", "v", "windows").collect()))


def in_batch(spark: SparkSession, firsts: Sequence[First]) -> Counter[tuple[Any, ...]]:
    """Spark's batch of all queries."""
    rows = spark.createDataFrame([row for each in firsts for row in each.sent], "ts string, k string, v long")
    return both_in_batch(rows.withColumn("ts", F.to_timestamp("ts")))


def delta(spark: SparkSession, place: Path) -> None:
    """All that a stream of a table meets."""
    table = place / "tens"
    firsts = [First(spark, table, place / "one", "ab"), First(spark, table, place / "other", "cd")]
    second = Second(spark, str(table), place / "second", maxFilesPerTrigger=1)
    for first in firsts:
        first.hours(0, 100)
    spark.sql(f"CREATE TABLE tens USING delta LOCATION '{table}'")
    for since in (100, 200):
        for first in firsts:
            first.hours(since, since + 100)
            # That of the other one, which is behind.
            _is_at(second.run(), table)
    named = Second(spark, "tens", place / "named", startingVersion=0)
    _is_at(named.run(), table)
    spark.sql("OPTIMIZE tens")
    for first in firsts:
        first.end(500)
        progress = second.run()
        _is_at(progress, table)
    expected = in_batch(spark, firsts)
    assert max(row[0] for row in expected) < datetime(2026, 1, 1, 8, 10)
    assert second.rows == expected
    named.run()
    assert named.rows == expected
    # A stream that begins with the rows of all versions, a few at a time, when the log has been cleaned.
    newest = DeltaTable(table)
    newest.create_checkpoint()
    for version in range(newest.version()):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    later = Second(spark, str(table), place / "later", maxFilesPerTrigger=1)
    progress = later.run()
    _is_at(progress, table)
    assert later.rows == expected
    _others(spark, place, table, progress["watermark"])
    shutil.rmtree(table)
    First(spark, table, place / "anew", "ab").hours(0, 100)
    try:
        second.run()
    except StreamingQueryException as error:
        assert "DIFFERENT_DELTA_TABLE" in str(error)  # noqa: PT017 - this is no test of pytest's
    else:
        message = "another table was read on"
        raise AssertionError(message)


def _others(spark: SparkSession, place: Path, table: Path, before: int) -> None:
    """Rows of others: they are waited for, unless there is another policy or they are said not to count."""
    names = {"later": str(table), "named": "tens", "second": str(table)}
    gone = [each.name for each in sj.complete_until(table).writers]
    spark.sql("INSERT INTO tens VALUES (TIMESTAMP '2026-01-01 20:00:00', 'z', 1, 1)")
    others = sj.complete_until(table).others
    assert len(others) == 1
    First(spark, table, place / "third", "ab").hours(1300, 1400)
    without = sj.carried(without=[*gone, *others])
    policies = [None, sj.carried(otherwise=sj.limiting_lag("1 hour")), without]
    found = [
        Second(spark, which, place / name, each).run()
        for (name, which), each in zip(names.items(), policies, strict=True)
    ]
    assert found[0]["watermark"] == before
    assert found[1]["watermark"] > before + 12 * HOUR
    third = sj.complete_until(table).without(*gone, *others).until
    assert [each["watermark"] for each in found[2]["substreams"].values()] == [_micros(third)]


def _is_at(progress: dict[str, Any], table: Path) -> None:
    """The watermark is the least that a writer has told, whatever of it is an hour's."""
    least = _micros(sj.complete_until(table).until)
    assert [each["watermark"] for each in progress["substreams"].values()] == [least]
    assert progress["watermark"] == least - least % HOUR


def _micros(until: datetime | None) -> int:
    assert until is not None
    return (until - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
