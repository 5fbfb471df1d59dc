"""The journal sink on members on loopback: the contract of sinks, offsets, what waits for readers and what is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import chain, count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.grid.journal_sink import GridJournalSink
from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings
from sparkjet.connectors.grid.journal_task import Appends, JournalTask, RefusedEpochError
from sparkjet.errors import AnalysisError, RecoveryError, SinkError
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing import StreamDriver
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, transaction
from sparkjet_grid.access import Access
from sparkjet_grid.errors import FallenBehindError
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.journal_version import Retention
from sparkjet_grid.places import JournalPlace, Writer
from sparkjet_grid.reader_leases import LEASE, LeaseBook
from tests.grid.grids import Grid
from tests.grid.journals import ROWS, JournalWriter
from tests.grid.test_journal_version import EMPTY
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Made = Callable[..., GridJournalSink]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> JournalPlace:
    return JournalPlace(request.node.name)


@pytest.fixture
def made(spark: SparkSession, location: GridLocation, place: JournalPlace) -> Made:
    def make(schema: str = SCHEMA, **settings: Any) -> GridJournalSink:
        sink = GridJournalSink(GridJournalSettings(f"{location}/{place.name}", **settings), location, place)
        sink.check(spark.createDataFrame([], schema).schema)
        return sink

    return make


@pytest.fixture
def journal(location: GridLocation, place: JournalPlace) -> Journal:
    return Journal(str(location), place.name, client=location.client)


def all_of(journal: Journal) -> list[dict[str, Any]]:
    """All rows that are retained, by partition; their offsets must be those that follow."""
    try:
        ends = journal.latest().ends
    except AnalysisError:
        return []
    found: list[dict[str, Any]] = []
    for partition, start in journal.earliest().items():
        rows = [row for batch in journal.read(partition, start, ends[partition]) for row in batch.to_pylist()]
        assert [row["_offset"] for row in rows] == [*range(start, ends[partition])]
        found += rows
    return found


def rows_of(journal: Journal) -> list[tuple[Any, ...]]:
    return [tuple(value for name, value in row.items() if name[0] != "_") for row in all_of(journal)]


class TestGridJournalSink(SinkContract):
    """In CI, without what `TestGridMapSink` does by the same versions."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_repeated_commit_changes_nothing",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_a_driver_that_slept_for_epochs_and_commits_again_changes_nothing",
        "test_epochs_add_up",
        "test_a_query_goes_on_from_a_copy_of_its_home",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
    )

    @pytest.fixture
    def target(self, made: Made, journal: Journal) -> SinkUnderTest:
        sink = made()
        store = sink._store

        def left() -> int:
            manifests = {held.name for held in map(store.manifest_at, store.numbers()) if held is not None}
            return len({held.name for held in store._manifests()} - manifests)

        return SinkUnderTest(sink, lambda: rows_of(journal), left)


def written(sink: GridJournalSink, rows: DataFrame, epoch: int) -> None:
    handle = sink.prepare(rows, transaction(epoch))
    assert handle is not None
    sink.check_alive(handle)
    sink.commit(handle, lambda: None)


def test_rows_of_one_key_are_in_one_partition_in_every_epoch(spark: SparkSession, made: Made, journal: Journal) -> None:
    sink = made("k string, n long", keys=("k",), partitions=5)
    for epoch in range(1, 4):
        rows = spark.range(60).selectExpr("if(id = 7, null, concat('k', id % 20)) k", f"id + {1000 * epoch} n")
        written(sink, rows.repartition(3), epoch)
    found = all_of(journal)
    assert sorted(row["n"] for row in found) == sorted(n + 1000 * epoch for n in range(60) for epoch in (1, 2, 3))
    where: dict[str | None, set[int]] = {}
    for row in found:
        where.setdefault(row["k"], set()).add(row["_partition"])
        assert row["n"] // 1000 == row["_epoch"]
    assert all(len(each) == 1 for each in where.values())
    assert len(set.union(*where.values())) == journal.partitions == 5
    with pytest.raises(AnalysisError, match=r"numPartitions: journal .* has 5, and keeps them"):
        made(keys=("k",), partitions=6)
    with pytest.raises(AnalysisError, match=r'keys: journal .* was begun with keys="k"'):
        made()
    with pytest.raises(
        AnalysisError, match=r"has the columns k string, n bigint, but these rows have the columns k st"
    ):
        made("k string", keys=("k",))
    made(keys=("k",))


def test_without_keys_tasks_take_turns_and_all_partitions_get_rows(
    spark: SparkSession, made: Made, journal: Journal
) -> None:
    sink = made(partitions=4)
    for epoch in range(1, 5):
        # One task has more rows than the other, always.
        rows = (
            spark.createDataFrame([("a", 1)], SCHEMA)
            .coalesce(1)
            .union(spark.range(9).selectExpr("'b'", "id").coalesce(1))
        )
        written(sink, rows, epoch)
    assert set(journal.latest().ends.values()) == {10}
    assert len(all_of(journal)) == 40


def test_values_of_every_type_come_back(spark: SparkSession, made: Made, journal: Journal) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    rows = spark.range(1).select(
        F.col("id").alias("a.b"),
        F.lit(at).alias("at"),
        F.expr("cast(1.20 as decimal(10, 2))").alias("dec"),
        F.array(F.lit("x"), F.lit(None)).alias("list"),
        F.struct(F.lit(True).alias("yes"), F.lit(at).alias("at")).alias("struct"),
        F.lit(b"\x00\xff").alias("bytes"),
        F.lit(None).cast("string").alias("none"),
    )
    sink = made(
        "`a.b` long, at timestamp, dec decimal(10, 2), list array<string>, "
        "struct struct<yes: boolean, at: timestamp>, bytes binary, none string"
    )
    written(sink, rows, 1)
    [row] = all_of(journal)
    assert (row["a.b"], row["at"], row["struct"]) == (0, at, {"yes": True, "at": at})
    assert (str(row["dec"]), row["list"], row["bytes"], row["none"]) == ("1.20", ["x", None], b"\x00\xff", None)


def test_many_rows_of_one_task_are_in_several_chunks_without_a_hole(
    spark: SparkSession, made: Made, journal: Journal
) -> None:
    rows = spark.range(20).selectExpr("id n", "repeat('x', 9000000) long").coalesce(1)
    sink = made("n long, long string")
    written(sink, rows, 1)
    version = sink._store.newest()
    assert version is not None
    assert max(map(len, version.chunks)) > 1
    assert [row["n"] for row in all_of(journal)] == [*range(20)]


@pytest.mark.parametrize(
    ("schema", "settings", "said"),
    [
        ("k double", {"keys": ("k",)}, r"keys: 'k' is double, and a key of a journal is an integer"),
        (SCHEMA, {"keys": ("kk",)}, "keys: no column 'kk' in the result; did you mean \"k\""),
        ("k string, _offset long", {}, "start: a journal has a column '_offset' itself. Give yours another name"),
    ],
)
def test_what_cannot_be_a_journal_is_refused_before_the_start(
    made: Made, schema: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(AnalysisError, match=said):
        made(schema, **settings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"retentionBytes": "much"},
            'retentionBytes must be a number of bytes, such as 1048576, 512m or 4g, not "much"',
        ),
        ({"retentionBytes": "2g", "maxBytes": "1g"}, "maxBytes: 1073741824 bytes are fewer than the 2147483648 of ret"),
        ({"onFull": "block"}, 'onFull="block" is not one of wait, trim'),
        ({"numPartitions": "2000"}, "numPartitions must be 1024 at most, not 2000"),
        ({"retentionAge": "soon"}, "retentionAge"),
        ({"partitions": "3"}, '"partitions" is not an option of format\\("grid-journal"\\); did you mean'),
    ],
)
def test_wrong_options_are_refused_before_the_start(
    spark: SparkSession, location: GridLocation, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    rows = sj.stream(spark.readStream.format("rate").load())
    writer = rows.writeStream.format("grid-journal").options(**options)
    with pytest.raises(AnalysisError, match=said):
        writer.option("checkpointLocation", str(tmp_path / "home")).start(f"{location}/refused")
    with pytest.raises(AnalysisError, match=r"needs a grid and a name of the journal: start\(\"grid://"):
        rows.writeStream.format("grid-journal").start()


def test_an_executor_without_token_says_so_in_one_line(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    access = Access(token_file=str(tmp_path / "none"))
    place, writer = JournalPlace("j"), Writer("q", "results")
    content = schema.serialize().to_pybytes()
    nobody = GridLocation(("127.0.0.1:1",), access)
    task = JournalTask(Appends(nobody, place, writer, "", None, 1, 0, 4, 1 << 20, content), is_placed=False)
    with pytest.raises(RefusedEpochError, match=r"^\[SPARKJET_ANALYSIS\] --token-file: .*none"):
        list(task(iter([pa.record_batch({"c0": [1]})])))


@pytest.mark.parametrize(
    ("writes", "said"),
    [
        (None, r'journal ".*" was removed: output .results. of query q no longer writes it'),
        ("q", r'journal ".*" has version 2 already: another driver of query q has taken over'),
        ("r", r'journal ".*" is written by output .results. of query r now: output .results. of query q writes it no'),
    ],
)
def test_tasks_of_a_driver_that_was_taken_over_write_nothing_beside_its_successor(
    location: GridLocation, place: JournalPlace, writes: str | None, said: str
) -> None:
    written = JournalWriter(location.client, place.name)
    store, own = written.store, Writer("q", "results")
    store.claim(own)
    written.write(1, {0: [1]})
    content = ROWS.serialize().to_pybytes()
    base = store.manifest_at(1)
    appends = Appends(location, place, own, "000001-000000002-0", base, 2, 0, 4, 1 << 20, content)
    if writes != "q":
        store.remove()
    if writes is not None:
        # Another process, which has read nothing of what was there.
        successor = JournalWriter(location.client, place.name, query=writes)
        successor.write(1 if writes == "r" else 2, {0: [2]})
    before = location.client.entries(place.root)
    with pytest.raises(RefusedEpochError, match=said):
        list(JournalTask(appends, is_placed=False)(iter([pa.record_batch({"c0": [1]})])))
    assert location.client.entries(place.root) == before


def test_a_journal_has_one_writer_and_the_second_is_told_who_it_is(spark: SparkSession, made: Made) -> None:
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    written(made(), rows, 1)
    of_another = sj.sinks.TransactionId("another", "results", 0, 0, 0)
    said = r"is written by output 'results' of query 11111111-.*a journal has one writer.*grid journal remove grid://"
    with pytest.raises(RecoveryError, match=said):
        made().published_after(of_another, None)
    with pytest.raises(SinkError, match=said):
        made().prepare(rows, of_another)


def test_a_full_journal_waits_for_its_readers_and_says_who_they_are(
    spark: SparkSession, made: Made, journal: Journal
) -> None:
    rows = spark.range(500).selectExpr("cast(id as string) k", "id n").coalesce(1)
    sink = made(partitions=1, retention=Retention(1, None, 40_000), full_timeout=1_000)
    written(sink, rows, 1)
    journal.register("slow", journal.earliest())
    before = sink._store.used()
    for epoch in range(2, 9):
        used, handle = sink._store.used(), None
        try:
            handle = sink.prepare(rows, transaction(epoch))
        except SinkError as error:
            said = str(error)
            break
        assert handle is not None
        sink.commit(handle, lambda: None)
    assert f"and may retain 40000. Nothing of the epoch is visible. Readers hold it: 'slow' ({500 * epoch} rows" in said
    assert "onFull=trim" in said
    assert before < sink._store.used() == used
    # As soon as the reader goes on, or is given up, so does the writer.
    sink._leases = LeaseBook(chain([0.0, 0.0], count(LEASE + 1)).__next__)
    journal._leases["slow"].leave()
    patient = made(retention=Retention(1, None, 40_000))
    patient._leases = sink._leases
    written(patient, rows, epoch)
    assert journal.earliest()[0] > 0
    journal.release("slow")
    with pytest.raises(SinkError, match=r"would retain \d+ bytes .* The epoch alone is larger"):
        patient.prepare(
            spark.range(9000).selectExpr("cast(id as string) k", "id n").coalesce(1), transaction(epoch + 1)
        )


def test_a_journal_may_let_go_what_readers_need(spark: SparkSession, made: Made, journal: Journal) -> None:
    rows = spark.range(500).selectExpr("cast(id as string) k", "id n").coalesce(1)
    sink = made(partitions=1, retention=Retention(1, None, 40_000, waits=False))
    written(sink, rows, 1)
    journal.register("slow", {0: 0})
    for epoch in range(2, 9):
        written(sink, rows, epoch)
    with pytest.raises(FallenBehindError, match="no longer has what was to be read") as caught:
        journal.check({0: 0})
    assert caught.value.rows == journal.earliest()[0] > 0
    journal.release("slow")


def test_rows_that_are_lost_are_named_at_the_start_and_before_the_decision(
    spark: SparkSession, grid: Grid, made: Made
) -> None:
    sink = made(partitions=1)
    rows = spark.range(4).selectExpr("cast(id as string) k", "id n").coalesce(1)
    handles = []
    for epoch in (1, 3):
        handle = sink.prepare(rows, transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        handles.append(handle)
    version = sink._journal.newest()
    assert version is not None
    for member in grid.members:
        member.entries.remove([version.chunks[0][0].entry.key])
    said = "with 4 rows of its partition 0, offsets 0 to 3, of epochs 1 to 1"
    with pytest.raises(RecoveryError, match=said):
        made(partitions=1).published_after(transaction(3), handles[-1])
    following = sink.prepare(rows, transaction(4))
    assert following is not None
    with pytest.raises(SinkError, match=f"{said}.*grid journal remove.*start the query that writes it"):
        sink.check_alive(following)


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second)


def moment(micros: int | None) -> datetime:
    assert micros is not None
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)


def counted(stream: sj.Stream) -> sj.Stream:
    windows = stream.withWatermark("ts", "0 seconds").groupBy("k", sj.window("ts", "10 seconds"))
    return windows.agg(F.sum("n").alias("n")).select("k", "n").where("n != 2")


def test_readers_are_told_of_the_watermark_of_epochs_without_rows(
    spark: SparkSession, made: Made, journal: Journal, tmp_path: Path
) -> None:
    schema = spark.createDataFrame([], "k string, n long, ts timestamp").schema
    driver = StreamDriver(spark, counted, schema, sinks=[made()], directory=tmp_path)
    driver.process([("a", 1, at(12))])
    first = journal.latest()
    assert (sum(first.ends.values()), moment(first.watermark)) == (0, driver.watermark)
    driver.process([("a", 2, at(32))])
    rows = journal.latest()
    assert (sum(rows.ends.values()), moment(rows.watermark)) == (1, driver.watermark)
    # No row, and it is too soon: the watermark is told later, though nothing more comes.
    driver.process([("b", 2, at(45))])
    assert journal.latest() == rows
    driver.advance("10 milliseconds")
    assert journal.latest() == rows
    driver.advance("2 seconds")
    last = journal.latest()
    assert moment(last.watermark) == driver.watermark
    found = sj.complete_until(journal)
    assert [(each.name.split("/")[1], each.epoch) for each in found.writers] == [(journal.writer.output, last.epoch)]
    assert found.until is not None
    assert found.until.timestamp() * 1_000_000 == last.watermark
    driver.advance("2 seconds")
    assert journal.latest() == last
    driver.stop()
    positions = journal.progress()
    assert [each.watermark for each in positions] == sorted({each.watermark for each in positions if each.watermark})


# What dies between two changes of a commit is in the contract.
# The others of its versions: `test_grid_map.py`.
@pytest.mark.parametrize(
    "phase",
    mostly_crash([sj.EpochPhase.PREPARE, sj.EpochPhase.DECIDE, sj.EpochPhase.COMMIT], [sj.EpochPhase.COMMIT], crash=()),
)
def test_a_driver_that_dies_at_any_step_leaves_each_row_once(
    spark: SparkSession, made: Made, journal: Journal, tmp_path: Path, phase: sj.EpochPhase
) -> None:
    schema = spark.createDataFrame([], SCHEMA).schema
    driver = StreamDriver(spark, lambda rows: rows, schema, sinks=[made(keys=("k",))], directory=tmp_path)
    driver.process([("a", 1), ("b", 1)])
    with driver.crash(phase):
        driver.process([("a", 2), ("c", 2)])
    before = sorted(rows_of(journal))
    assert before in ([("a", 1), ("b", 1)], [("a", 1), ("a", 2), ("b", 1), ("c", 2)])
    driver.restart()
    driver.process([("b", 3)])
    assert sorted(rows_of(journal)) == [("a", 1), ("a", 2), ("b", 1), ("b", 3), ("c", 2)]
    assert [row["_epoch"] for row in all_of(journal) if row["k"] == "b"] in ([1, 2], [1, 3])
    driver.stop()


@pytest.mark.parametrize(("clock", "told"), [(100, False), (101, True), (100 - 3600, True)])
def test_a_clock_that_was_ahead_does_not_silence_the_watermark(clock: int, told: bool) -> None:
    location = SimpleNamespace(client=None)
    sink = GridJournalSink(GridJournalSettings("grid:///j"), location, JournalPlace("j"))  # type: ignore[arg-type]
    sink._newest = msgspec.structs.replace(EMPTY, clock=100_000_000, watermark=5)
    assert sink.tells(clock * 1_000_000, 6) is told
    assert not sink.tells(clock * 1_000_000, 5)
