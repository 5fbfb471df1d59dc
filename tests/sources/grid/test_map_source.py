"""``spark.read.format("sparkjet-grid-map")`` on members on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, In

import sparkjet as sj
from sparkjet.grid.places import MapPlace
from sparkjet.sinks.grid_map import GridMapSink
from sparkjet.sinks.grid_map_settings import GridMapSettings
from sparkjet.sources.grid.map_source import GridMapDataSource, MapSourceReader
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing.sink_contract import transaction
from tests.grid.grids import Grid, grid_of
from tests.grid.maps import MapWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        yield grid


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


def test_keys_are_looked_for_and_nothing_else_is_read(spark: SparkSession, options: dict[str, str]) -> None:
    assert [row.k for row in read(spark, options).where("k IN (4, null) AND d = DATE '2026-01-01'").collect()] == [4]
    rows = read(spark, options).where("k IN (3, 5, 1000) AND d = DATE '2026-01-02' AND epoch = 3")
    assert sorted(row.k for row in rows.collect()) == [3, 5]
    assert read(spark, options).where("k = 3 AND d = DATE '2026-01-01'").collect() == []


def test_conditions_on_all_keys_are_taken(options: dict[str, str]) -> None:
    source = GridMapDataSource(options)
    reader = source.reader(source.schema())
    assert isinstance(reader, MapSourceReader)
    filters = [In(("k",), (3, 5)), EqualTo(("d",), date(2026, 1, 2))]
    assert list(reader.pushFilters(list(filters))) == filters
    [part] = reader.partitions()
    assert sorted(row["k"] for batch in reader.read(part) for row in batch.to_pylist()) == [3, 5]
    nulls = source.reader(source.schema())
    assert isinstance(nulls, MapSourceReader)
    nulls.pushFilters([In(("k",), (4, None)), EqualTo(("d",), date(2026, 1, 1))])
    assert [row["k"] for part in nulls.partitions() for batch in nulls.read(part) for row in batch.to_pylist()] == [4]
    partly = source.reader(source.schema())
    assert isinstance(partly, MapSourceReader)
    partly.pushFilters([EqualTo(("k",), 3)])
    assert sum(batch.num_rows for part in partly.partitions() for batch in partly.read(part)) == 100


def test_for_more_keys_than_are_looked_for_the_map_is_read(options: dict[str, str]) -> None:
    source = GridMapDataSource(options)
    reader = source.reader(source.schema())
    assert isinstance(reader, MapSourceReader)
    days = tuple(date(2026, 1, 1) + timedelta(days) for days in range(100_000))
    # Of the pairs of both there are ten billion.
    reader.pushFilters([In(("k",), tuple(range(100_000))), In(("d",), days)])
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 100


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"path": "grid://127.0.0.1:1"}, "needs load"),
        ({"epoch": "1"}, r"epoch 1 of map .* is not there: visible are 2, 3"),
        ({"epoch": "x"}, "epoch must be a positive whole number"),
        ({"epochs": "1"}, '"epochs" is not an option of format'),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], changed: dict[str, str], said: str) -> None:
    with pytest.raises(sj.SparkjetError, match=said):
        GridMapDataSource({**options, **changed}).schema()
