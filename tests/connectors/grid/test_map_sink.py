"""The map sink on members on loopback: the contract of sinks, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.grid.columns import key_text
from sparkjet.connectors.grid.map_sink import GridMapSink
from sparkjet.connectors.grid.map_sink_settings import GridMapSettings
from sparkjet.connectors.grid.map_task import MapTask, MapTaskError
from sparkjet.errors import AnalysisError, LostTransactionError, RecoveryError, RefusedRowsError, SinkError
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing import StreamDriver
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, crash_at, transaction
from sparkjet.time.frames import MAX
from sparkjet_grid.access import Access
from sparkjet_grid.files import write_files
from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import HASH
from sparkjet_grid.map_reader import Map
from sparkjet_grid.map_store import MapStore
from sparkjet_grid.places import MapPlace, Writer
from tests.grid.grids import Grid, grid_of
from tests.grid.maps import ROWS, MapWriter
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Made = Callable[..., GridMapSink]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> MapPlace:
    return MapPlace(request.node.name)


@pytest.fixture
def made(spark: SparkSession, location: GridLocation, place: MapPlace) -> Made:
    def make(schema: str = SCHEMA, keys: tuple[str, ...] = ("k",), **settings: Any) -> GridMapSink:
        sink = GridMapSink(GridMapSettings(f"{location}/{place.name}", keys, **settings), location, place)
        sink.check(spark.createDataFrame([], schema).schema)
        return sink

    return make


@pytest.fixture
def reader(location: GridLocation, place: MapPlace) -> Map:
    return Map(str(location), place.name, client=location.client)


def rows_of(reader: Map) -> list[tuple[Any, ...]]:
    try:
        return [tuple(row.values()) for row in reader.scan().read_all().to_pylist()]
    except AnalysisError:
        return []


class TestGridMapSink(SinkContract):
    """In CI, without what `TestGridJournalSink` does by the same versions, and tests below by their own."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_a_driver_that_was_itself_taken_over_rolls_back_nothing_of_its_successor",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, made: Made, reader: Map) -> SinkUnderTest:
        sink = made()
        store = sink._store

        def left() -> int:
            manifests = {held.name for held in map(store.manifest_at, store.numbers()) if held is not None}
            return len({held.name for held in store._manifests()} - manifests)

        return SinkUnderTest(
            sink, lambda: rows_of(reader), left, lambda rows: rows.withColumn("k", F.lit(None).cast("string"))
        )


def written(sink: GridMapSink, rows: DataFrame, epoch: int) -> None:
    handle = sink.prepare(rows, transaction(epoch))
    assert handle is not None
    sink.check_alive(handle)
    sink.commit(handle, lambda: None)


def test_rows_replace_those_of_their_key_and_deletions_remove_them(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    schema = "k string, n long, gone boolean"
    sink = made(schema, deleted="gone")
    written(sink, spark.createDataFrame([("a", 1, False), ("b", 2, None), ("c", 3, False)], schema), 1)
    written(sink, spark.createDataFrame([("a", 10, False), ("b", None, True), ("x", 0, True)], schema), 2)
    assert sorted(rows_of(reader)) == [("a", 10), ("c", 3)]
    assert reader.schema.names == ["k", "n"]


def test_of_rows_of_one_key_in_one_epoch_the_greatest_counts(spark: SparkSession, made: Made, reader: Map) -> None:
    rows = [("a", n) for n in (3, 7, 5)] + [("b", None), ("b", -1)]
    written(made(), spark.createDataFrame(rows, SCHEMA).repartition(3), 1)
    assert sorted(rows_of(reader)) == [("a", 7), ("b", -1)]


def test_values_of_every_type_come_back(spark: SparkSession, made: Made, reader: Map) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    rows = spark.range(3).select(
        F.col("id").alias("k"),
        F.lit(at).alias("at"),
        F.lit(1.5).alias("d"),
        F.expr("cast(1.20 as decimal(10, 2))").alias("dec"),
        F.array(F.lit("x"), F.lit(None)).alias("list"),
        F.create_map(F.lit("a"), F.lit(1)).alias("map"),
        F.struct(F.lit(True).alias("yes"), F.lit(at).alias("at")).alias("struct"),
        F.lit(b"\x00\xff").alias("bytes"),
        F.expr("timestamp_ntz '2026-01-01 00:00:00'").alias("local"),
        F.lit(None).cast("string").alias("none"),
        F.expr("if(id = 2, null, named_struct('n', id))").alias("maybe"),
    )
    sink = made()
    # With its fields that are never null, though the struct around one is.
    sink.check(rows.schema)
    written(sink, rows, 1)
    assert (reader.get(1) or {})["maybe"] == {"n": 1}
    [row] = [each for each in reader.scan().read_all().to_pylist() if each["k"] == 2]
    assert reader.get(2) == row
    assert row["at"] == row["struct"]["at"] == at
    assert (row["d"], str(row["dec"]), row["list"], row["map"]) == (1.5, "1.20", ["x", None], [("a", 1)])
    assert (row["bytes"], row["local"], row["none"], row["maybe"]) == (b"\x00\xff", datetime(2026, 1, 1), None, None)


KEYS = "i int, s string, b boolean, d date, t timestamp"


def test_a_key_has_the_same_text_in_spark_and_in_python(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'a', true, DATE '2026-01-01', TIMESTAMP '2026-01-01 00:00:00.000001'), "
        "(-5, 'ä𝄞:', false, DATE '1900-12-31', TIMESTAMP '1899-01-01 23:00:00'), "
        "(0, '', false, DATE '1970-01-01', TIMESTAMP '1970-01-01 00:00:00') AS v(i, s, b, d, t)"
    )
    text = key_text(rows.schema, rows.columns)
    kinds = ["integer", "text", "boolean", "date", "moment"]
    for row in rows.select("*", text.alias("text"), F.crc32(text.cast("binary")).alias("hash")).collect():
        *key, found, hash_ = row
        key[4] = key[4].astimezone(timezone.utc)
        assert found == text_of(key, kinds)
        assert hash_ == hash_of(found)


@pytest.mark.parametrize(
    ("schema", "settings", "said"),
    [
        ("k double, n long", {}, r"keys: 'k' is double, and a key of a map is an integer, .*cast\(\"string\"\)"),
        ("k struct<start:timestamp>, n long", {}, "keys: 'k' is struct.*window.start"),
        ("k string collate utf8_lcase, n long", {}, "keys: 'k' is string collate UTF8_LCASE: texts that"),
        (SCHEMA, {"keys": ("kk",)}, "keys: no column 'kk' in the result; did you mean \"k\""),
        (SCHEMA, {"deleted": "n"}, "deleted: 'n' is bigint, and says with true that a key is gone"),
        (SCHEMA, {"deleted": "k"}, "deleted: no column 'k' beside the keys"),
    ],
)
def test_what_cannot_be_a_map_is_refused_before_the_start(
    made: Made, schema: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(AnalysisError, match=said):
        made(schema, **settings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": "k"}, r"keys: 'k' comes from .*uuid.*, which gives another value each time"),
        ({}, r'needs option\("keys", "a, b"\)'),
        (
            {"keys": "n", "maxBytes": "much"},
            'maxBytes must be a number of bytes, such as 1048576, 512m or 4g, not "much"',
        ),
        ({"keys": "n", "timeToLive": "soon"}, "timeToLive"),
        ({"keys": "n", "expireInterval": "5s"}, 'expireInterval: no row ever expires. Say with option\\("timeToLive"'),
        ({"keys": "n", "key": "n"}, '"key" is not an option of format\\("grid-map"\\); did you mean "keys"'),
    ],
)
def test_wrong_options_are_refused_before_the_start(
    spark: SparkSession, location: GridLocation, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    spark.conf.set("spark.sparkjet.grid.tokenFile", str(location.access.token_file))
    rows = sj.stream(spark.readStream.format("rate").load()).selectExpr("uuid() AS k", "value AS n")
    writer = rows.writeStream.format("grid-map").options(**options).option("checkpointLocation", str(tmp_path / "home"))
    try:
        with pytest.raises(AnalysisError, match=said):
            writer.start(f"{location}/refused")
    finally:
        spark.conf.unset("spark.sparkjet.grid.tokenFile")
    with pytest.raises(AnalysisError, match=r'needs a grid and a name of the map: start\("grid://'):
        rows.writeStream.format("grid-map").option("keys", "n").start()


def test_two_columns_of_one_name_are_refused_before_the_start(
    spark: SparkSession, location: GridLocation, tmp_path: Path
) -> None:
    spark.conf.set("spark.sparkjet.grid.tokenFile", str(location.access.token_file))
    rows = sj.stream(spark.readStream.format("rate").load()).selectExpr(
        "value AS n", "timestamp AS at", "timestamp AS AT"
    )
    writer = (
        rows.writeStream.format("grid-map").option("keys", "n").option("checkpointLocation", str(tmp_path / "home"))
    )
    try:
        with pytest.raises(AnalysisError, match="names of two columns of the result, 'at' and 'AT', differ"):
            writer.start(f"{location}/refused")
    finally:
        spark.conf.unset("spark.sparkjet.grid.tokenFile")


def test_an_executor_without_token_says_so_in_one_line(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string())])
    access = Access(token_file=str(tmp_path / "none"))
    content = schema.serialize().to_pybytes()
    location = GridLocation(("127.0.0.1:1",), access)
    task = MapTask(location, MapPlace("m"), Writer("q", "results"), "", None, ("k",), content, 0)
    with pytest.raises(MapTaskError, match=r"--token-file: .*none"):
        list(task(iter([of_a_task(c3="a")])))


def of_a_task(**columns: object) -> pa.RecordBatch:
    """One row as tasks get it."""
    row = {"c0": 1, "c1": False, "c2": None, **columns, "partition": 0}
    batch = pa.RecordBatch.from_pylist([row])
    return batch.set_column(2, "c2", pa.nulls(1, pa.int64()))


def test_tasks_of_a_driver_that_was_taken_over_write_nothing_beside_its_successor(
    location: GridLocation, place: MapPlace
) -> None:
    written, own = MapWriter(location.client, place.name), Writer("q", "results")
    written.store.claim(own)
    written.write(1, {"a": 1})
    base = written.store.manifest_at(1)
    task = MapTask(location, place, own, "000001-000000002-0", base, ("k",), ROWS.serialize().to_pybytes(), 0)
    written.write(2, {"a": 2})
    before = location.client.entries(place.root)
    with pytest.raises(MapTaskError, match=r'map ".*" has version 2 already: another driver of query q has taken ov'):
        list(task(iter([of_a_task(c3="a", c4=3)])))
    assert location.client.entries(place.root) == before


def test_the_longest_time_to_live_is_forever(spark: SparkSession, made: Made, reader: Map) -> None:
    written(made(time_to_live=MAX), spark.createDataFrame([("a", 1)], SCHEMA), 1)
    assert rows_of(reader) == [("a", 1)]


def test_a_row_without_key_is_refused_before_the_decision(spark: SparkSession, made: Made, reader: Map) -> None:
    with pytest.raises(RefusedRowsError, match=r"has the key {'k': None}: without a value it cannot be found"):
        made().prepare(spark.createDataFrame([("a", 1), (None, 2)], SCHEMA), transaction(1))
    assert rows_of(reader) == []


def test_a_row_without_key_is_named_whatever_else_is_in_it() -> None:
    year_10000 = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    columns = {
        HASH: pa.array([None], pa.int64()),
        "k": pa.array([None], pa.string()),
        "n": pa.array([3]),
        "at": year_10000,
    }
    keys = ("k", "n", "at")
    task = MapTask(GridLocation((), Access()), MapPlace("m"), Writer("q", "results"), "", None, keys, b"", 0)
    assert "has the key {'k': None, 'n': 3, 'at': '…'}: without" in task._null_key(pa.table(columns))


def test_a_map_has_one_writer_and_the_second_is_told_who_it_is(spark: SparkSession, made: Made) -> None:
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    written(made(), rows, 1)
    of_another = sj.sinks.TransactionId("another", "results", 0, 0, 0)
    said = r"is written by output 'results' of query 11111111-.*grid map remove grid://"
    with pytest.raises(RecoveryError, match=said):
        made().published_after(of_another, None)
    with pytest.raises(SinkError, match=said):
        made().prepare(rows, of_another)


def test_a_map_with_other_columns_is_refused_before_the_start(spark: SparkSession, made: Made) -> None:
    written(made(), spark.createDataFrame([("a", 1)], SCHEMA), 1)
    with pytest.raises(AnalysisError, match="has the keys k and the columns k string, n bigint, but these rows"):
        made("k string, n int")
    with pytest.raises(AnalysisError, match="these rows have the keys n and"):
        made(keys=("n",))


def test_what_may_be_null_within_a_value_may_change(spark: SparkSession, made: Made, reader: Map) -> None:
    never = spark.sql("SELECT 'a' AS k, array(named_struct('n', 1)) AS v")
    perhaps = spark.sql("SELECT 'b' AS k, array(if(rand() > 2, null, named_struct('n', if(rand() > 2, 1, null)))) AS v")
    assert never.schema["v"].dataType != perhaps.schema["v"].dataType
    sink = made()
    sink.check(never.schema)
    written(sink, never, 1)
    sink.check(perhaps.schema)
    written(sink, perhaps, 2)
    assert (reader.get("a"), reader.get("b")) == ({"k": "a", "v": [{"n": 1}]}, {"k": "b", "v": [{"n": None}]})


def test_what_would_take_more_than_the_bound_is_refused_and_nothing_stays(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    sink = made(max_bytes=40_000)
    written(sink, spark.createDataFrame([("a", 1)], SCHEMA), 1)
    many = spark.range(5000).selectExpr("cast(id as string) k", "id n")
    before = sink._store.used()
    with pytest.raises(SinkError, match=r"maxBytes: map .* would take \d+ bytes with epoch 2, and may take 40000"):
        sink.prepare(many, transaction(2))
    assert sink._store.used() == before
    written(sink, spark.createDataFrame([("b", 2)], SCHEMA), 2)
    assert sorted(rows_of(reader)) == [("a", 1), ("b", 2)]


def test_versions_that_readers_hold_count_against_the_bound(spark: SparkSession, made: Made, reader: Map) -> None:
    sink = made()
    rows = spark.range(2000).selectExpr("cast(id as string) k", "id n")
    written(sink, rows, 1)
    # Two epochs that are visible, and the next one.
    bounded = made(max_bytes=sink._store.used() * 7 // 2)
    with reader.held():
        written(bounded, rows, 2)
        written(bounded, rows, 3)
        with pytest.raises(SinkError, match=r"maxBytes: .*readers hold"):
            bounded.prepare(rows, transaction(4))
    written(bounded, rows, 4)
    written(bounded, rows, 5)


def test_a_map_that_was_lost_is_named_at_the_start_and_built_again_from_the_source(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    sink = made()
    handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    following = sink.prepare(spark.createDataFrame([("b", 1)], SCHEMA), transaction(2))
    assert following is not None
    sink._store.remove()
    with pytest.raises(RecoveryError, match="is not there, and this query has published epoch 1 into it"):
        made().published_after(transaction(1), handle)
    with pytest.raises(LostTransactionError, match=r"Epoch 2 was decided, but map .* has no version 1"):
        sink.commit(following, lambda: None)
    # What the error says: another query, from the beginning.
    sink._store.remove()
    again = made()
    for epoch, key in enumerate("ab", 1):
        handle = again.prepare(
            spark.createDataFrame([(key, 1)], SCHEMA), replace(transaction(epoch), query="built again")
        )
        assert handle is not None
        again.commit(handle, lambda: None)
    assert sorted(rows_of(reader)) == [("a", 1), ("b", 1)]
    assert reader.epoch == 2


def test_a_map_that_was_removed_between_two_epochs_is_not_begun_again_without_its_rows(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    sink, other = made(), made()
    handle = sink.prepare(rows, transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    other.published_after(transaction(1), handle)
    reader.remove()
    for each in (sink, other):
        with pytest.raises(SinkError, match=r"was removed, or its grid was lost, while this query was writing it\."):
            each.prepare(rows, transaction(2))
    assert sink._store.writer() is None


@pytest.mark.parametrize("epochs", [1, 2])
def test_what_was_decided_for_one_map_is_published_there_whatever_the_path_names_now(
    spark: SparkSession, made: Made, location: GridLocation, reader: Map, epochs: int
) -> None:
    sink = made()
    for epoch in range(1, epochs):
        written(sink, spark.createDataFrame([("b", epoch)], SCHEMA), epoch)
    handle = sink.prepare(spark.createDataFrame([("a", epochs)], SCHEMA), transaction(epochs))
    assert handle is not None
    other = GridMapSink(GridMapSettings("", ("k",)), location, MapPlace("another"))
    other.commit(handle, lambda: None)
    other.commit(handle, lambda: None)
    assert reader.get("a") == {"k": "a", "n": epochs}
    assert other._store.numbers() == []
    assert other.published_after(transaction(epochs), handle) is None


def test_layers_that_were_lost_are_named_before_the_decision_and_at_the_start(
    spark: SparkSession, made: Made, grid: Grid, reader: Map
) -> None:
    sink = made()
    written(sink, spark.createDataFrame([(f"k{n}", n) for n in range(40)], SCHEMA), 7)
    version = sink._store.newest()
    assert version is not None
    handle = sink.prepare(spark.createDataFrame([("k1", 1)], SCHEMA), transaction(8))
    assert handle is not None
    untouched = next(held for held in version.held() if held.partition != version.partition("2:k1"))
    for member in grid.members:
        member.entries.remove([untouched.key])
    said = f"has lost partitions {untouched.partition} of the grid, with rows of epochs up to 7"
    with pytest.raises(SinkError, match=said):
        sink.check_alive(handle)
    with pytest.raises(RecoveryError, match=said):
        made().published_after(transaction(7), {"map": sink._place.name, "number": 1, "epoch": 7})
    with pytest.raises(LostTransactionError, match=said):
        sink.commit(handle, lambda: None)
    # As the message says: another query builds it from the beginning of its source.
    sink._store.remove()
    by = replace(transaction(1), query="another")
    again = made().prepare(spark.createDataFrame([(f"k{n}", n) for n in range(40)], SCHEMA), by)
    assert again is not None
    made().commit(again, lambda: None)
    assert sorted(rows_of(reader)) == sorted((f"k{n}", n) for n in range(40))


def test_columns_may_have_any_names(spark: SparkSession, made: Made, reader: Map) -> None:
    names = ["a.b", "k", "`", "A.b c", "partition"]
    rows = spark.createDataFrame([(1, "x", 2, 3, 4)], "`a.b` int, k string, ```` int, `A.b c` int, partition int")
    written(made("`a.b` int, k string, ```` int, `A.b c` int, partition int", ("a.b", "k")), rows, 1)
    assert reader.get((1, "x")) == dict(zip(names, [1, "x", 2, 3, 4], strict=True))


def test_a_driven_query_dates_its_epochs_and_rows_expire_by_its_clock(
    spark: SparkSession, made: Made, reader: Map, tmp_path: Path
) -> None:
    sink = made("k string, n long", time_to_live=60 * 1_000_000)

    def query(stream: sj.Stream) -> sj.Stream:
        counted = stream.withWatermark("ts", "0 seconds").groupBy("k", sj.window("ts", "10 seconds"))
        return counted.agg(F.sum("n").alias("n")).select("k", "n")

    schema = spark.createDataFrame([], "k string, n long, ts timestamp").schema
    with pytest.raises(AnalysisError, match="the grid has no map"):
        sj.complete_until(reader)
    driver = StreamDriver(spark, query, schema, sinks=[sink], directory=tmp_path)
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    driver.process([("a", 1, at), ("a", 2, at), ("b", 5, at.replace(second=12))])
    assert rows_of(reader) == [("a", 3)]
    first = reader.watermark
    assert first is not None
    driver.clock.advance(59 * 1_000_000)
    driver.process([("c", 1, at.replace(second=25))])
    assert sorted(rows_of(reader)) == [("a", 3), ("b", 5)]
    assert reader.watermark is not None
    assert reader.watermark > first
    assert sj.complete_until(reader).until == at.replace(second=20)
    driver.clock.advance(1_000_000)
    driver.process([("d", 1, at.replace(second=45))])
    assert sorted(rows_of(reader)) == [("b", 5), ("c", 1)]
    driver.stop()


def expiring(spark: SparkSession, made: Made, directory: Path) -> StreamDriver:
    """A query whose rows last for a minute, and are looked for every ten seconds."""
    second = 1_000_000
    sink = made("k string, n long", time_to_live=60 * second, expire_interval=10 * second)
    schema = spark.createDataFrame([], "k string, n long").schema
    return StreamDriver(spark, lambda stream: stream.select("k", "n"), schema, sinks=[sink], directory=directory)


def test_rows_expire_though_none_arrive_and_no_epoch_is_run_before(
    spark: SparkSession, made: Made, reader: Map, tmp_path: Path
) -> None:
    driver, second = expiring(spark, made, tmp_path), 1_000_000
    assert driver.plan.uses_clock
    driver.process([("a", 1)])
    driver.clock.advance(20 * second)
    driver.process([("b", 2)])
    for _ in range(3):
        driver.advance("13 seconds")
    assert (driver.engine.record.epoch, sorted(rows_of(reader))) == (2, [("a", 1), ("b", 2)])
    driver.advance("1 second")
    assert (reader.get("a"), rows_of(reader), driver.engine.record.epoch) == (None, [("b", 2)], 3)
    # Which row is the next to expire is not known.
    driver.advance("9 seconds")
    assert driver.engine.record.epoch == 3
    with driver.crash(at=sj.EpochPhase.DECIDE):
        driver.advance("11 seconds")
    driver.restart()
    assert (rows_of(reader), driver.engine.record.epoch) == ([], 4)
    driver.advance("1 hour")
    assert driver.engine.record.epoch == 4
    [sink] = driver.sinks
    assert isinstance(sink, GridMapSink)
    version = sink._store.newest()
    assert version is not None
    assert version.layers == {}
    driver.process([("a", 3)])
    assert rows_of(reader) == [("a", 3)]
    driver.stop()


def test_rows_last_no_longer_where_the_clock_was_ahead_and_is_set_back(
    spark: SparkSession, made: Made, reader: Map, tmp_path: Path
) -> None:
    driver, second = expiring(spark, made, tmp_path), 1_000_000
    driver.process([("a", 1)])
    year = 365 * 86_400 * second
    driver.clock.advance(year)
    driver.process([("b", 2)])
    driver.clock.advance(10 * second - year)
    driver.process([("c", 3)])
    # What has expired is not there again.
    assert sorted(rows_of(reader)) == [("b", 2), ("c", 3)]
    driver.clock.advance(30 * second)
    driver.process([("d", 4)])
    assert sorted(rows_of(reader)) == [("b", 2), ("c", 3), ("d", 4)]
    driver.advance("31 seconds")
    assert rows_of(reader) == [("d", 4)]
    driver.stop()


def test_rows_expire_in_a_lull_after_the_clock_was_set_back(
    spark: SparkSession, made: Made, reader: Map, tmp_path: Path
) -> None:
    driver, second = expiring(spark, made, tmp_path), 1_000_000
    driver.process([("a", 1)])
    driver.clock.advance(-3600 * second)
    driver.advance("1 second")
    assert rows_of(reader) == [("a", 1)]
    driver.advance("61 seconds")
    assert rows_of(reader) == []
    driver.stop()


def test_rows_from_before_a_time_to_live_stay_when_all_others_have_expired(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    second = 1_000_000
    written(made(), spark.createDataFrame([("a", 1)], SCHEMA), 1)
    sink = made(time_to_live=second)
    began = sink._store.newest().clock  # type: ignore[union-attr]
    for epoch, rows in ((2, [("b", 2)]), (3, [])):
        at = replace(transaction(epoch), clock=began + 20 * epoch * second)
        # Also for a run that has the option no more.
        assert (made().uses_clock, sink.uses_clock) == (epoch == 3, True)
        handle = sink.prepare(spark.createDataFrame(rows, SCHEMA), at)
        assert handle is not None
        sink.commit(handle, lambda: None)
    assert rows_of(reader) == [("a", 1)]
    assert not made().uses_clock


def test_what_attempts_of_tasks_have_left_goes_with_the_epoch(spark: SparkSession, made: Made) -> None:
    sink = made()
    store, rows = sink._store, spark.createDataFrame([(f"k{n}", n) for n in range(20)], SCHEMA)
    for epoch in (1, 2, 3):
        handle = sink.prepare(rows, transaction(epoch))
        assert handle is not None
        # As one that failed, and one that goes on beside its successor.
        name = f"{store.place.layers(str(transaction(epoch)))}7-left"
        write_files(store.client, {name: b"left"})
        sink.commit(handle, lambda: None)
        assert [held.name for held in store.client.entries(name)] == []
    of_next = f"{store.place.layers(str(transaction(4)))}7-left"
    write_files(store.client, {of_next: b"not decided"})
    store.clean(sink._leases)
    assert [held.name for held in store.client.entries(of_next)] == [of_next]


def test_a_commit_that_was_cut_short_is_finished_with_its_cleaning_left_to_the_next(
    spark: SparkSession, made: Made, reader: Map
) -> None:
    sink = made()
    for epoch in range(1, 6):
        handle = sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch))
        assert handle is not None
        with pytest.raises(Exception, match=r"^$"):
            sink.commit(handle, crash_at(1))
        sink.commit(handle, lambda: None)
    assert rows_of(reader) == [("a", 5)]
    written(sink, spark.createDataFrame([("a", 6)], SCHEMA), 6)
    assert len(sink._store._manifests()) == 2


# What dies between two changes of a commit is in the contract.
@pytest.mark.parametrize(
    "phase",
    mostly_crash(
        [each for each in sj.EpochPhase if each not in {sj.EpochPhase.BEGIN, sj.EpochPhase.COMMITTING}],
        # Before, nothing has been decided; after the commit, what is left is the cleaning of a later one.
        quick={sj.EpochPhase.PREPARE, sj.EpochPhase.DECIDE},
        crash=(),
    ),
)
def test_a_driver_that_dies_at_any_step_leaves_one_epoch_or_the_next(
    spark: SparkSession, made: Made, reader: Map, tmp_path: Path, phase: sj.EpochPhase
) -> None:
    schema = spark.createDataFrame([], SCHEMA).schema
    driver = StreamDriver(spark, lambda rows: rows, schema, sinks=[made()], directory=tmp_path)
    driver.process([("a", 1), ("b", 1)])
    with driver.crash(phase):
        driver.process([("a", 2), ("c", 2)])
    before = sorted(rows_of(reader))
    assert before in ([("a", 1), ("b", 1)], [("a", 2), ("b", 1), ("c", 2)])
    driver.restart()
    driver.process([("b", 3)])
    assert sorted(rows_of(reader)) == [("a", 2), ("b", 3), ("c", 2)]
    driver.stop()
    store = MapStore(reader._store.client, reader._store.place)
    visible = [version for version in map(store.at, store.numbers()) if version is not None]
    assert {held.name for held in store.client.entries(store.place.layers())} == {
        held.name for version in visible for held in version.held()
    }


# In CI, `grid/test_killed_maps.py` kills the processes of members under a map.
@pytest.mark.long
def test_a_member_that_dies_between_any_two_steps_takes_nothing_with_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(300).selectExpr("concat('k', id) k", "id n")
    with grid_of(tmp_path) as grid:
        members = grid.addresses
        location = GridLocation(members, grid.access, grid.client().state().cluster)
        sink = GridMapSink(GridMapSettings("grid://", ("k",)), location, MapPlace("m"))
        sink.check(rows.schema)
        written(sink, rows, 1)
        reader = Map("", "m", client=location.client)

        def replaced() -> None:
            grid.kill(grid.members[-1])
            grid.start(f"host-{len(grid.controls)}")

        handle = sink.prepare(rows.selectExpr("k", "n + 1000 n"), transaction(2))
        assert handle is not None
        replaced()
        assert sum(n for _, n in rows_of(reader)) == 300 * 299 // 2
        grid.settle()
        sink.check_alive(handle)
        replaced()
        sink.commit(handle, replaced)
        grid.settle()
        assert sorted(n for _, n in rows_of(reader)) == list(range(1000, 1300))
        written(sink, rows.where("n < 5"), 3)
        assert sorted(n for _, n in rows_of(reader)) == [*range(5), *range(1005, 1300)]
