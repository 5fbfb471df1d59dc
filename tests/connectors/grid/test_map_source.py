"""``spark.read.format("sparkjet-grid-map")`` on members on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.grid.map_sink import GridMapSink
from sparkjet.connectors.grid.map_sink_settings import GridMapSettings
from sparkjet.connectors.grid.map_source import GridMapDataSource
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing.sink_contract import transaction
from sparkjet_grid.places import MapPlace
from tests.grid.grids import Grid
from tests.grid.maps import MapWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def options(spark: SparkSession, grid: Grid) -> dict[str, str]:
    """Of a map with three epochs, of which the newest two are visible."""
    members = grid.addresses
    location = GridLocation(members, grid.access, grid.client().state().cluster)
    if not grid.client().slots(".maps"):
        sink = GridMapSink(GridMapSettings("", ("k", "d")), location, MapPlace("orders"))
        sj.register_sources(spark)
        for epoch in (1, 2, 3):
            rows = spark.range(100).select(
                F.col("id").alias("k"),
                F.expr("date_add(DATE '2026-01-01', cast(id % 2 as int))").alias("d"),
                F.lit(epoch).alias("epoch"),
                F.expr("timestamp '2026-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, id)").alias("at"),
            )
            sink.check(rows.schema)
            handle = sink.prepare(rows, transaction(epoch))
            assert handle is not None
            sink.commit(handle, lambda: None)
    return {"path": f"{location}/orders", "tokenFile": str(grid.access.token_file)}


def read(spark: SparkSession, options: dict[str, str], **more: Any) -> DataFrame:
    return spark.read.format("sparkjet-grid-map").options(**options, **more).load()


def test_a_map_is_a_data_frame_of_one_epoch(spark: SparkSession, options: dict[str, str]) -> None:
    rows = read(spark, options)
    assert rows.schema.simpleString() == "struct<k:bigint,d:date,epoch:int,at:timestamp>"
    assert [tuple(row) for row in rows.groupBy("epoch").agg(F.count("*"), F.sum("k"), F.max("at")).collect()] == [
        (3, 100, 4950, spark.sql("SELECT timestamp '2026-01-01 01:39:00'").first()[0])
    ]
    assert read(spark, options, epoch=2).select("epoch").distinct().collect() == [(2,)]


def test_a_map_that_is_loaded_again_is_that_of_the_newest_epoch(
    spark: SparkSession, options: dict[str, str], grid: Grid
) -> None:
    writer = MapWriter(grid.client(), "again")
    again = {**options, "path": options["path"].replace("orders", "again")}
    for epoch in (1, 2):
        writer.write(epoch, {"a": epoch})
        assert [tuple(row) for row in read(spark, again).collect()] == [("a", epoch)]


def test_a_data_frame_may_be_read_more_than_once_whatever_is_asked_for_first(
    spark: SparkSession, options: dict[str, str]
) -> None:
    rows = read(spark, options)
    three = rows.where("k = 3 AND d = DATE '2026-01-02'")
    # Spark would read in all of these what was planned for one of them.
    assert [row.k for row in three.unionAll(rows.where("k = 4 AND d = DATE '2026-01-01'")).collect()] == [3, 4]
    assert (three.count(), rows.count(), rows.crossJoin(three).count()) == (1, 100, 100)
    assert [row.k for row in rows.where("k IN (4, null) OR k = -1").collect()] == [4]


def test_only_keys_that_are_given_are_looked_for(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = '[[3, "2026-01-02"], [4, "2026-01-01"], [3, "2026-01-02"], [3, "2026-01-01"], [1000, "2026-01-01"]]'
    rows = read(spark, options, keys=keys)
    assert sorted((row.k, row.epoch) for row in rows.collect()) == [(3, 3), (4, 3)]
    assert [row.k for row in read(spark, options, keys=keys, epoch=2).where("k < 4 AND epoch = 2").collect()] == [3]
    assert read(spark, options, keys="[]").count() == 0
    source = GridMapDataSource({**options, "keys": keys})
    monkeypatch.setattr("sparkjet.connectors.grid.map_source._TASK_KEYS", 2)
    reader = source.reader(source.schema())
    found = [[row["k"] for batch in reader.read(part) for row in batch.to_pylist()] for part in reader.partitions()]
    assert sorted(map(sorted, found)) == [[], [3, 4]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"keys": "3"}, r"keys: '3' is not a JSON list of keys of this map, which has k \(integer\), d \(date\)"),
        ({"keys": "[3]"}, "keys: .* is not a list of values"),
        ({"keys": '[[3, "x"]]'}, "keys: .*Invalid isoformat"),
        ({"keys": '[["3"]]'}, "keys: .*shorter"),
        ({"path": "grid://127.0.0.1:1"}, "needs load"),
        ({"epoch": "1"}, r"epoch 1 of map .* is not there: visible are 2, 3"),
        ({"epoch": "x"}, "epoch must be a positive whole number"),
        ({"epochs": "1"}, '"epochs" is not an option of format'),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], changed: dict[str, str], said: str) -> None:
    with pytest.raises(sj.SparkjetError, match=said):
        GridMapDataSource({**options, **changed}).schema()
