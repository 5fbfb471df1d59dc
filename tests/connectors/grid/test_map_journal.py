"""A map with a journal of its changes: both with one decision, each change once, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.grid.journal_sink import GridJournalSink
from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings
from sparkjet.connectors.grid.map_journal import JournalledMapSink
from sparkjet.connectors.grid.map_sink import GridMapSink
from sparkjet.connectors.grid.map_sink_settings import GridMapSettings
from sparkjet.connectors.grid.options import MAP_OPTIONS
from sparkjet.errors import AnalysisError, RecoveryError, SinkError
from sparkjet.options import Options
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing import StreamDriver
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, crash_at, transaction
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.map_reader import Map
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.places import JournalPlace, MapPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Made = Callable[..., GridMapSink]
Rows = dict[str, dict[str, Any]]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> MapPlace:
    return MapPlace(request.node.name)


@pytest.fixture
def made(spark: SparkSession, location: GridLocation, place: MapPlace) -> Made:
    def make(schema: str = SCHEMA, journal: str | None = place.name, **settings: Any) -> GridMapSink:
        of = None if journal is None else GridJournalSettings(f"{location}/{journal}", ("k",), 3)
        given = GridMapSettings(f"{location}/{place.name}", ("k",), journal=of, **settings)
        kind = GridMapSink if of is None else JournalledMapSink
        sink = kind(given, location, place)
        sink.check(spark.createDataFrame([], schema).schema)
        return sink

    return make


@pytest.fixture
def journal(location: GridLocation, place: MapPlace) -> Journal:
    return Journal(str(location), place.name, client=location.client)


@pytest.fixture
def reader(location: GridLocation, place: MapPlace) -> Map:
    return Map(str(location), place.name, client=location.client)


def changes_of(journal: Journal) -> list[dict[str, Any]]:
    ends = journal.latest().ends
    first = journal.earliest()
    rows = [
        row for each, end in ends.items() for batch in journal.read(each, first[each], end) for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["_epoch"], row["k"]))


def folded(journal: Journal) -> Rows:
    """The map that the changes are, each of which must begin where the one before has ended."""
    rows: Rows = {}
    seen = set()
    for row in changes_of(journal):
        assert (row["k"], row["_epoch"]) not in seen
        seen.add((row["k"], row["_epoch"]))
        assert row["old"] == rows.pop(row["k"], None)
        assert (row["old"], row["new"]) != (None, None)
        if row["new"] is not None:
            rows[row["k"]] = row["new"]
    return rows


def shown(reader: Map) -> Rows:
    return {row["k"]: row for row in reader.scan().read_all().to_pylist()}


@pytest.mark.long
class TestJournalledMapSink(SinkContract):
    @pytest.fixture
    def target(self, made: Made, reader: Map, journal: Journal) -> SinkUnderTest:
        sink = made()
        stores = sink._store, sink._journal._store  # type: ignore[attr-defined]

        def left() -> int:
            found = []
            for store in stores:
                visible = {held.name for held in map(store.manifest_at, store.numbers()) if held is not None}
                found.append(len({held.name for held in store._manifests()} - visible))
            # What a commit cut short has published is in one of the two.
            return max(found)

        def read() -> list[tuple[str, int]]:
            try:
                rows = shown(reader)
            except AnalysisError:
                return []
            assert folded(journal) == rows
            return [(row["k"], row["n"]) for row in rows.values()]

        return SinkUnderTest(sink, read, left, lambda rows: rows.withColumn("k", F.lit(None).cast("string")))


def test_a_driver_that_dies_at_any_step_leaves_each_change_once_and_expired_rows_are_changes(
    spark: SparkSession, made: Made, reader: Map, journal: Journal, tmp_path: Path
) -> None:
    second = 1_000_000
    schema = "k string, n long, gone boolean"
    sink = made(schema, deleted="gone", time_to_live=60 * second, expire_interval=10 * second)
    driver = StreamDriver(spark, lambda rows: rows, schema, sinks=[sink], directory=tmp_path)
    driver.process([("a", 1, False), ("b", 1, False), ("x", 0, True)])
    assert [(row["k"], row["old"], row["new"]) for row in changes_of(journal)] == [
        ("a", None, {"k": "a", "n": 1}),
        ("b", None, {"k": "b", "n": 1}),
    ]
    # What dies between the two is below.
    phases = [sj.EpochPhase.PREPARE, sj.EpochPhase.DECIDE, sj.EpochPhase.COMMIT]
    for number, phase in enumerate(phases, 2):
        driver.clock.advance(5 * second)
        with driver.crash(phase):
            driver.process([("a", number, False), ("b", None, number % 2 == 0), (f"c{number}", number, False)])
        # Never more changes than rows; after the next start as many.
        there = journal.latest().epoch
        assert there <= reader.version().epoch
        driver.restart()
        assert folded(journal) == shown(reader)
        assert journal.latest().epoch == reader.version().epoch
    last = driver.engine.record.epoch
    driver.clock.advance(42 * second)
    driver.process([("d", 0, False)])
    assert "c2" in shown(reader)
    # Rows go by the clock though none of their keys comes, and that is a change.
    driver.clock.advance(14 * second)
    with driver.crash(sj.EpochPhase.DECIDE):
        driver.process([("d", 1, False)])
    driver.restart()
    assert {"c2", "c3", "c4"} & shown(reader).keys() == {"c4"}
    assert folded(journal) == shown(reader)
    # Too soon to look again: what has expired meanwhile is there for as long in both.
    driver.clock.advance(5 * second)
    driver.process([("e", 0, False)])
    assert {"a", "c4", "d", "e"} == shown(reader).keys()
    assert folded(journal) == shown(reader)
    driver.advance("10 seconds")
    assert {"d", "e"} == shown(reader).keys()
    assert folded(journal) == shown(reader)
    driver.advance("70 seconds")
    assert folded(journal) == shown(reader) == {}
    gone = [row for row in changes_of(journal) if row["_epoch"] > last and row["new"] is None]
    assert len({row["k"] for row in gone}) == len(gone)
    epoch = driver.engine.record.epoch
    driver.advance("70 seconds")
    assert driver.engine.record.epoch == epoch
    driver.stop()


def test_changes_are_a_stream_with_the_watermark_of_the_map(
    spark: SparkSession, location: GridLocation, made: Made, journal: Journal, tmp_path: Path
) -> None:
    sj.register_sources(spark)
    sink = made("k string, n long, ts timestamp")

    def sums_of(rows: sj.Stream) -> sj.Stream:
        windows = rows.withWatermark("ts", "0 seconds").groupBy("k", sj.window("ts", "10 seconds"))
        return windows.agg(F.sum("n").alias("n")).select("k", "n", F.expr("window.end - INTERVAL 1 MICROSECOND AS ts"))

    driver = StreamDriver(spark, sums_of, "k string, n long, ts timestamp", sinks=[sink], directory=tmp_path / "first")
    driver.process([("a", 1, "2026-01-01 00:00:01"), ("b", 2, "2026-01-01 00:00:02")])
    driver.process([("a", 5, "2026-01-01 00:00:15")])
    # Too soon to tell, and no row: the end of the run tells it.
    driver.process([("a", 7, "2026-01-01 00:00:45")])
    driver.process([("a", 0, "2026-01-01 00:00:49")])
    driver.stop()
    watermark = journal.latest().watermark
    assert watermark is not None
    assert watermark >= 1_767_225_640_000_000
    options = {"path": f"{location}/{sink._place.name}", "tokenFile": str(location.access.token_file)}
    changes = sj.stream(spark.readStream.format("sparkjet-grid-journal").options(**options).load())
    changes = changes.select(
        F.coalesce("new.ts", "old.ts").alias("ts"), "k", F.expr("new.n - ifnull(old.n, 0)").alias("more")
    )
    sums = (
        changes.withWatermark("ts", sj.carried()).groupBy(sj.window("ts", "10 seconds")).agg(F.sum("more").alias("n"))
    )
    writer = sums.select("window.start", "n").writeStream.format("files").option("path", str(tmp_path / "out"))
    started = writer.option("checkpointLocation", str(tmp_path / "second")).trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    # Of the first window two keys, in the second the one that has changed from 1 to 5.
    assert sorted(row["n"] for row in sj.read_files(str(tmp_path / "out")).collect()) == [3, 4]


def test_a_journal_has_no_hole_where_a_map_was_written_without_it(
    spark: SparkSession, made: Made, location: GridLocation, journal: Journal, reader: Map
) -> None:
    def written(sink: GridMapSink, epoch: int) -> Any:
        handle = sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch))
        assert handle is not None
        sink.check_alive(handle)
        return handle

    sink = made()
    first = written(sink, 1)
    sink.commit(first, lambda: None)
    # What was decided is published, whether or not the map still has the journal.
    second, plain = written(sink, 2), made(journal=None)
    assert plain.published_after(transaction(2), second) is None
    with pytest.raises(Exception, match=r"^$"):
        plain.commit(second, crash_at(1))
    # A row that has changed is there before its change is told.
    assert (shown(reader)["a"]["n"], journal.latest().epoch) == (2, 1)
    plain.commit(second, lambda: None)
    assert folded(journal) == shown(reader) == {"a": {"k": "a", "n": 2}}
    third = written(plain, 3)
    plain.commit(third, lambda: None)
    with pytest.raises(
        RecoveryError, match=r"has the changes up to epoch 2, and .* was written without it up to epoch 3"
    ):
        made().published_after(transaction(3), third)
    assert made(journal="another").published_after(transaction(3), third) is None
    other = GridJournalSink(GridJournalSettings("j"), location, JournalPlace("taken"))
    other.check(spark.createDataFrame([], SCHEMA).schema)
    by = sj.sinks.TransactionId("another", "results", 0, 1, 0)
    taken = other.prepare(spark.createDataFrame([("a", 1)], SCHEMA), by)
    assert taken is not None
    other.commit(taken, lambda: None)
    with pytest.raises(AnalysisError, match=r'journal "taken" has the columns k string, n bigint, but these rows have'):
        made(journal="taken")


def test_what_only_tells_a_watermark_lets_no_row_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that was published late: a look was due when its readers were told, and none had been made."""
    sink = object.__new__(JournalledMapSink)
    base = MapVersion(
        number=1,
        epoch=1,
        clock=5,
        watermark=None,
        query="q",
        output="results",
        run="",
        keys=("k",),
        arrow_schema=b"",
        spark_schema="",
        partitions=1,
        layers={},
        expiry=(7, 30_000_000),
    )
    told: list[tuple[int, object]] = []
    given: dict[str, Any] = {
        "_settings": GridMapSettings("grid:///m", ("k",), time_to_live=2),
        "_newest": base,
        "_seen_ahead": (0, 0),
        "_begin": lambda _: (base, 20_000_000),
        "_journal": SimpleNamespace(begun=lambda _: (None, None)),
        "_version": lambda _base, _written, expiry, _transaction, clock: told.append((clock, expiry)),
        "_both": lambda *_: {},
    }
    for name, value in given.items():
        monkeypatch.setattr(sink, name, value, raising=False)
    assert sink.is_due(20_000_000)
    sink.tell(transaction(2))
    assert told == [(5, (7, 30_000_000))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"journal.retentionBytes": "1g"},
            r"journal\.retentionbytes: the map has no journal of its changes\. Name one with",
        ),
        ({"journal": "a/b"}, r'journal: "a/b" is not a name of a journal'),
        ({"journal": "j", "journal.onFull": "block"}, r'journal: option: onFull="block" is not one of wait, trim'),
    ],
)
def test_wrong_options_of_the_journal_are_refused_before_the_start(options: dict[str, str], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        GridMapSettings.of(Options({"path": "grid:///m", "keys": "k", **options}))
    with pytest.raises(AnalysisError, match=r'"journal.onFul" is not an option.*did you mean "journal.onFull"'):
        Options({"journal.onFul": "wait"}).only(MAP_OPTIONS, "grid-map")


def test_options_of_the_journal_are_those_of_a_journal_with_a_prefix() -> None:
    options = {"path": "grid://h:1/m", "keys": "k, l", "journal": "j", "Journal.NumPartitions": "4"}
    assert GridMapSettings.of(Options(options)).journal == GridJournalSettings("grid://h:1/j", ("k", "l"), 4)


def test_a_key_cannot_have_the_name_of_a_row(spark: SparkSession, location: GridLocation) -> None:
    journal = GridJournalSettings(f"{location}/j", ("Old",))
    sink = JournalledMapSink(GridMapSettings(f"{location}/m", ("Old",), journal=journal), location, MapPlace("m"))
    with pytest.raises(AnalysisError, match="a journal of changes has a column 'old' itself, and the key 'Old' is"):
        sink.check(spark.createDataFrame([], "Old string, n long").schema)


def test_a_journal_without_room_lets_nothing_of_the_epoch_be_visible(
    spark: SparkSession, location: GridLocation, reader: Map
) -> None:
    place = reader._store.place
    options = {"path": f"{location}/{place.name}", "keys": "k", "journal": place.name, "journal.retentionBytes": "2k"}
    settings = GridMapSettings.of(Options(options))
    sink = JournalledMapSink(settings, location, MapPlace(place.name))
    rows = spark.range(2000).selectExpr("cast(id as string) k", "id n")
    sink.check(rows.schema)
    with pytest.raises(
        SinkError, match=r"maxBytes: journal .* would retain \d+ bytes with epoch 1, and may retain 4096"
    ):
        sink.prepare(rows, transaction(1))
    sink.abort(transaction(1))
    assert (sink._store.used(), sink._store.newest()) == (0, None)
