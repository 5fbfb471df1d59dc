"""Two queries in a row over a table: the second has the watermark of the first, read by the table's connector."""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.connectors.iceberg.library import CatalogTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.sinks.pace import Pace
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing import StreamDriver
from tests.connectors.grid.chained import SCHEMA, at, both_in_batch, per_hour, per_ten_minutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Sink

HOUR = 3_600_000_000
CONNECT = {
    "snapshot-property.kafka.connect.commit-id": "c",
    "snapshot-property.kafka.connect.offsets.control.connect-tens": "{}",
}
"""Options of Iceberg's writer for Spark with which a snapshot says what one of Kafka Connect's says."""


class Table(ABC):
    """A table of a connector."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place

    @abstractmethod
    def sink(self) -> Sink:
        """Of a query that writes into it."""

    @property
    @abstractmethod
    def told(self) -> sj.Completeness:
        """The progress of its writers."""

    def is_at(self, progress: dict[str, Any]) -> None:
        """The watermark is the least that a writer has told, whatever of it is an hour's."""
        least = _micros(self.told.until)
        assert [each["watermark"] for each in progress["substreams"].values()] == [least]
        assert progress["watermark"] == least - least % HOUR


class OfDelta(Table):
    """A Delta table."""

    def sink(self) -> Sink:
        return DeltaSink(PosixDirectory(self.place), self.spark, pace=Pace(1))

    @property
    def told(self) -> sj.Completeness:
        return sj.complete_until(self.place)


class OfIceberg(Table):
    """An Iceberg table of the catalog ``lake``."""

    def sink(self) -> Sink:
        return IcebergSink(CatalogTable(self.spark, "lake.db.tens"), self.spark, pace=Pace(1))

    @property
    def told(self) -> sj.Completeness:
        metadata = self.place / "metadata"
        newest = (metadata / "version-hint.text").read_text()
        return sj.complete_until(StaticTable.from_metadata(str(metadata / f"v{newest}.metadata.json")))


class First:
    """A query that writes into the table."""

    def __init__(self, table: Table, home: Path, keys: str) -> None:
        self._driver = StreamDriver(table.spark, per_ten_minutes, SCHEMA, sinks=[table.sink()], directory=home)
        self._chance, self._keys = random.Random(keys), keys
        self.sent: list[tuple[Any, ...]] = []

    def hours(self, since: int, until: int) -> None:
        """An epoch with rows of some time, by its own driver."""
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
    """The query over the table, with its own driver for each run."""

    def __init__(self, spark: SparkSession, reads: tuple[str, str], home: Path, **options: Any) -> None:
        self._spark, self._reads, self._home, self._options = spark, reads, home, options

    def run(self, policy: Any = None) -> dict[str, Any]:
        """Read what is there; returns the progress of the last epoch."""
        kind, place = self._reads
        reader = self._spark.readStream.format(kind).options(**self._options)
        rows = reader.load(place) if "/" in place else reader.table(place)
        writer = per_hour(rows, policy).writeStream.format("files").option("path", self._home / "out")
        query = writer.option("checkpointLocation", self._home / "home").trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        progress: dict[str, Any] = query.lastProgress
        assert progress["lateRows"]["total"] == 0
        return progress

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        """The rows that it has written."""
        found = sj.read_files(str(self._home / "out"))
        return Counter(map(tuple, found.select("hour", "k", "n", "v", "windows").collect()))


def delta(spark: SparkSession, place: Path) -> None:
    """All that a stream of a Delta table meets."""
    table = OfDelta(spark, place / "tens")
    second = Second(spark, ("delta", str(table.place)), place / "second", maxFilesPerTrigger=1)
    named = Second(spark, ("delta", "tens"), place / "named", startingVersion=0)

    def between() -> None:
        spark.sql(f"CREATE TABLE IF NOT EXISTS tens USING delta LOCATION '{table.place}'")
        table.is_at(named.run())
        spark.sql("OPTIMIZE tens")

    expected = _followed(table, second, place, between)
    named.run()
    assert named.rows == expected
    _others(table, second, named, place)
    # A stream that begins with the rows of all versions, a few at a time, when the log has been cleaned.
    newest = DeltaTable(table.place)
    newest.create_checkpoint()
    for version in range(newest.version()):
        (table.place / "_delta_log" / f"{version:020}.json").unlink()
    later = Second(spark, ("delta", str(table.place)), place / "later", maxFilesPerTrigger=1)
    later.run()
    assert later.rows == expected
    shutil.rmtree(table.place)
    First(table, place / "anew", "ab").hours(0, 100)
    try:
        second.run()
    except StreamingQueryException as error:
        assert "DIFFERENT_DELTA_TABLE" in str(error)  # noqa: PT017 - this is no test of pytest's
    else:
        raise AssertionError("another table was read on")


def iceberg(spark: SparkSession, place: Path) -> None:
    """The same of an Iceberg table; and one that Kafka Connect writes."""
    table = OfIceberg(spark, place / "db" / "tens")
    spark.sql("CREATE TABLE lake.db.tens (ts TIMESTAMP, k STRING, n BIGINT, v BIGINT) USING iceberg")
    limit = {"streaming-max-files-per-micro-batch": 1}
    second = Second(spark, ("iceberg", "lake.db.tens"), place / "second", **limit)
    rewrite = "CALL lake.system.rewrite_data_files(table => 'db.tens', options => map('rewrite-all', 'true'))"
    _followed(table, second, place, lambda: spark.sql(rewrite).collect())
    connected = Second(spark, ("iceberg", "lake.db.connected"), place / "connected", **limit)
    spark.sql("CREATE TABLE lake.db.connected (ts TIMESTAMP, k STRING, n BIGINT, v BIGINT) USING iceberg")
    found = []
    for minute, until in ((30, "2026-01-01T00:20:00Z"), (90, None), (130, "2026-01-01T02:05:00Z")):
        rows = spark.sql(f"SELECT TIMESTAMP '{at(minute)}' AS ts, 'a' AS k, 1L AS n, 1L AS v")
        says = CONNECT if until is None else {**CONNECT, "snapshot-property.kafka.connect.valid-through-ts": until}
        rows.writeTo("lake.db.connected").options(**says).append()
        found += [each["watermark"] for each in connected.run()["substreams"].values()]
    first, last = (_micros(datetime(2026, 1, 1, *time, tzinfo=timezone.utc)) for time in ((0, 20), (2, 5)))
    assert found == [first, first, last]
    assert sum(connected.rows.values()) == 2


def _followed(table: Table, second: Second, place: Path, between: Any) -> Counter[tuple[Any, ...]]:
    """Two queries write, a third follows them with its own driver for each of their epochs; returns what it writes."""
    firsts = [First(table, place / "one", "ab"), First(table, place / "other", "cd")]
    for first in firsts:
        first.hours(0, 100)
    for since in (100, 200):
        for first in firsts:
            first.hours(since, since + 100)
            # That of the other one, which is behind.
            table.is_at(second.run())
    between()
    for first in firsts:
        first.end(500)
        table.is_at(second.run())
    rows = table.spark.createDataFrame([row for each in firsts for row in each.sent], "ts string, k string, v long")
    expected = both_in_batch(rows.withColumn("ts", F.to_timestamp("ts")))
    assert len({row[0] for row in expected}) == 5
    assert second.rows == expected
    return expected


def _others(table: Table, second: Second, named: Second, place: Path) -> None:
    """Rows of others: they are waited for, unless there is another policy or they are said not to count."""
    gone = [each.name for each in table.told.writers]
    before = _micros(table.told.until)
    table.spark.sql("INSERT INTO tens VALUES (TIMESTAMP '2026-01-01 20:00:00', 'z', 1, 1)")
    others = table.told.others
    assert len(others) == 1
    assert second.run()["watermark"] == before - before % HOUR
    First(table, place / "third", "ab").hours(1300, 1400)
    found = second.run(sj.carried(without=[*gone, *others]))
    third = table.told.without(*gone, *others).until
    assert [each["watermark"] for each in found["substreams"].values()] == [_micros(third)]
    assert named.run(sj.carried(otherwise=sj.limiting_lag("1 hour")))["watermark"] > before + 12 * HOUR


def _micros(until: datetime | None) -> int:
    assert until is not None
    return (until - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
