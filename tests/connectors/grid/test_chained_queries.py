"""Two queries over a journal: the second has the watermark of the first, and both equal Spark's batch."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.grid.journal_sink import GridJournalSink
from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.pins import Pins
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing import StreamDriver
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.places import JournalPlace
from tests.connectors.grid.chained import SCHEMA, at, both_in_batch, per_hour, per_ten_minutes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4


class Second:
    """The second query, which is started again for each epoch of the first."""

    def __init__(self, spark: SparkSession, options: dict[str, str], home: Path) -> None:
        self._spark, self._options, self._home = spark, options, home

    def run(self, **options: Any) -> dict[str, Any]:
        """Read what is there; returns the progress of the last epoch."""
        query = self.writer().option("checkpointLocation", self._home / "home").options(**options).start()
        assert query.awaitTermination(120)
        progress: dict[str, Any] = query.lastProgress
        return progress

    def writer(self) -> Any:
        """The results that it writes."""
        journal = self._spark.readStream.format("sparkjet-grid-journal").options(**self._options).load()
        writer = per_hour(journal).writeStream.format("files").option("path", self._home / "out")
        return writer.trigger(availableNow=True)

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        """The rows that it has written."""
        return _rows(self._home / "out")


def _rows(place: Path | str) -> Counter[tuple[Any, ...]]:
    found = sj.read_files(str(place))
    return Counter(map(tuple, found.select("hour", "k", "n", "v", "windows").collect()))


# In CI that of files shows it (`files/test_source.py`), and `test_map_journal.py` that a journal carries its watermark.
@pytest.mark.long
@pytest.mark.parametrize("length", [300, 150])
def test_the_second_query_equals_spark_s_batch_restored_after_each_epoch_and_waits_for_no_idle_partition(
    spark: SparkSession, location: GridLocation, tmp_path: Path, length: int
) -> None:
    sj.register_sources(spark)
    place = JournalPlace(f"ten{length}")
    path = f"{location}/{place.name}"
    sink = GridJournalSink(GridJournalSettings(path, keys=("k",), partitions=PARTITIONS), location, place)
    first = StreamDriver(spark, per_ten_minutes, SCHEMA, sinks=[sink], directory=tmp_path / "first")
    options = {"path": path, "tokenFile": str(location.access.token_file), "includeMetadata": "true"}
    # Partitions that are ahead wait, and all is read at the end of each run.
    options |= {"maxOffsetsPerTrigger": "2", "maxWatermarkDrift": "5 minutes"}
    second = Second(spark, options, tmp_path / "second")

    chance, sent = random.Random(7), []
    for start in range(0, 300, length):
        # Two keys, so two partitions of four never have a row.
        batch = [(at(start + chance.uniform(0, length)), chance.choice("ab"), chance.randint(1, 9)) for _ in range(30)]
        sent += sorted(batch)
        first.process(sorted(batch))
        progress = second.run()
        told = Journal(str(location), place.name, client=location.client).latest()
        assert sum(end > 0 for end in told.ends.values()) <= 2
        assert {name: each["watermark"] for name, each in progress["substreams"].items()} == {
            str(each): told.watermark for each in range(PARTITIONS)
        }
        hour = 3_600_000_000
        assert progress["watermark"] == told.watermark - told.watermark % hour
        assert progress["lateRows"]["total"] == 0
    # Nobody's rows are written, but they move the watermark of both: the hours before them are complete. It is too soon
    # to tell, and no other epoch comes: the end of the run tells it.
    before = second.rows.total()
    nobody = [(at(500), "nobody", 1)]
    first.process(nobody)
    first.stop()
    second.run()
    everything = spark.createDataFrame([*sent, *nobody], "ts string, k string, v long").withColumn(
        "ts", F.to_timestamp("ts")
    )
    assert second.rows == both_in_batch(everything)
    assert second.rows.total() > before


@pytest.mark.long
def test_forks_of_the_second_query_read_the_journal_and_hold_nothing_in_it(
    spark: SparkSession, location: GridLocation, tmp_path: Path
) -> None:
    sj.register_sources(spark)
    place = JournalPlace("forked")
    path = f"{location}/{place.name}"
    sink = GridJournalSink(GridJournalSettings(path, keys=("k",), partitions=PARTITIONS), location, place)
    first = StreamDriver(spark, per_ten_minutes, SCHEMA, sinks=[sink], directory=tmp_path / "first")
    second = Second(spark, {"path": path, "tokenFile": str(location.access.token_file)}, tmp_path / "second")
    home, pins = tmp_path / "second" / "home", Pins(DirectoryStore(tmp_path / "second" / "home" / "snapshots"))
    for minute, pin in ((10, "early"), (130, None), (250, None)):
        first.process([(at(minute), "a", 1), (at(minute + 70), "b", 2)])
        second.run()
        if pin is not None:
            before = second.rows
            pins.put(pin, 0)

    def held() -> set[str]:
        return {each.name for each in location.client.entries(place.leases())}

    registered = held()
    going_on = sj.fork(home, at="early", to=tmp_path / "going-on")
    assert going_on.start(second.writer()).awaitTermination(120)
    replaying = sj.fork(home, at="early", to=tmp_path / "replaying")
    assert replaying.replay(second.writer()).epochs > 0
    assert replaying.start(second.writer()).awaitTermination(120)
    more = second.rows - before
    assert more.total() > 0
    assert _rows(f"{going_on.outputs}/results") == _rows(f"{replaying.outputs}/results") == more
    assert held() <= registered
    first.stop()
