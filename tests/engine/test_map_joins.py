"""Joins with maps of a grid: each epoch reads one version of each, and the same one when it is run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.errors import AnalysisError, SourceError
from sparkjet.testing import StreamDriver
from tests.grid import maps
from tests.grid.grids import Grid, grid_of
from tests.grid.maps import MapWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ts timestamp, k string"
LATER = 61.0
"""Seconds after which a lease that nobody has renewed is none."""


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        yield grid


@pytest.fixture
def writer(grid: Grid, request: pytest.FixtureRequest) -> MapWriter:
    found = MapWriter(grid.client(), request.node.name)
    found.write(1, {"a": 1, "b": 1})
    return found


def read(spark: SparkSession, grid: Grid, writer: MapWriter, **options: object) -> DataFrame:
    sj.register_sources(spark)
    members = ",".join(grid.addresses)
    reader = spark.read.format("sparkjet-grid-map").option("tokenFile", str(grid.access.token_file))
    return reader.options(**options).load(f"grid://{members}/{writer.name}")


def write(writer: MapWriter, epochs: int = 1) -> int:
    """Write epochs of which each has its own number at all keys; returns the last one."""
    for epoch in range(max(writer.expected) + 1, max(writer.expected) + 1 + epochs):
        writer.write(epoch, {"a": epoch, "b": epoch})
    return max(writer.expected)


def joined(stream: sj.Stream, table: DataFrame) -> list[sj.Stream]:
    """The rows, and sums of windows before and after them, of which each row must be of one version."""
    named = stream.withWatermark("ts", "0 seconds").join(table, "k")
    sums = named.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.max("n").alias("high"), F.min("n").alias("low"))
    twice = named.join(table.withColumnRenamed("n", "again"), "k", "left")
    return [twice.select("k", "n", "again"), sums.join(table, "k", "left").select("k", "high", "low", "n")]


PHASES = [phase for phase in EpochPhase if phase is not EpochPhase.COMMITTING]


FEW = [EpochPhase.PREPARE, EpochPhase.DECIDE]


@pytest.mark.crash
@pytest.mark.parametrize("phases", [FEW, pytest.param(PHASES, marks=pytest.mark.long)])
def test_each_epoch_reads_the_newest_version_and_the_same_one_when_it_is_run_again(
    spark: SparkSession, grid: Grid, writer: MapWriter, tmp_path: Path, phases: Sequence[EpochPhase]
) -> None:
    table = read(spark, grid, writer)
    driver = StreamDriver(spark, lambda rows: joined(rows, table), SCHEMA, directory=tmp_path)
    expected: list[tuple[str, int, int]] = []
    windows: list[tuple[str, int, int, int]] = []
    before: int | None = None
    for second, phase in enumerate(phases):
        epoch = write(writer)
        with driver.crash(at=phase):
            driver.process([(f"2026-01-01 12:{second:02}:00", "a")])
        # The version that the epoch has begun with is there only for who holds it.
        write(writer, 3)
        driver.restart()
        driver.process()
        expected.append(("a", epoch, epoch))
        if before is not None:
            windows.append(("a", before, before, epoch))
        before = epoch
        assert [tuple(row) for row in driver.results()] == expected, phase
        assert [tuple(row) for row in driver.results(1)] == windows, phase
    driver.stop()


def test_a_version_that_is_gone_is_named_and_another_one_can_be_chosen(
    spark: SparkSession, grid: Grid, writer: MapWriter, tmp_path: Path
) -> None:
    row = [("2026-01-01 12:00:00", "a")]
    table = read(spark, grid, writer)
    driver = StreamDriver(spark, lambda rows: rows.join(table, "k").select("n"), SCHEMA, directory=tmp_path)
    with driver.crash(at=EpochPhase.PREPARE):
        driver.process(row)
    driver.restart()
    for _ in range(2):
        write(writer, 3)
        writer.now += LATER
    newest = write(writer)
    said = r"epoch 1 of this query has begun with epoch 1 of map .* that epoch is gone, .*option\(\"epoch\", …\)"
    with pytest.raises(SourceError, match=said):
        driver.process()
    chosen = read(spark, grid, writer, epoch=newest)
    again = StreamDriver(spark, lambda rows: rows.join(chosen, "k").select("n"), SCHEMA, directory=tmp_path)
    again.process(row)
    assert [tuple(each) for each in again.results()] == [(newest,)]
    again.stop()


def test_a_map_in_what_spark_itself_runs_is_refused(spark: SparkSession, grid: Grid, writer: MapWriter) -> None:
    table, rows = read(spark, grid, writer), spark.readStream.format("rate").load().selectExpr("'a' AS k", "timestamp")
    with pytest.raises(AnalysisError, match=r"stream: .*map.* Join with it after stream\(…\)"):
        sj.stream(rows.join(table, "k"))
    with pytest.raises(AnalysisError, match=r"withWatermark: .* or a map after withWatermark"):
        sj.stream(rows).join(table, "k").withWatermark("timestamp", "1 second")


def test_a_table_of_each_epoch_may_read_another_map(
    spark: SparkSession, grid: Grid, writer: MapWriter, tmp_path: Path
) -> None:
    other = MapWriter(grid.client(), f"{writer.name} of each epoch")
    other.write(1, {"a": 5})
    table = read(spark, grid, writer)
    renewed = sj.read_every_epoch(lambda: read(spark, grid, other).withColumnRenamed("n", "m"))
    driver = StreamDriver(
        spark, lambda rows: rows.join(table, "k").join(renewed, "k").select("n", "m"), SCHEMA, directory=tmp_path
    )
    driver.process([("2026-01-01 12:00:00", "a")])
    assert [tuple(row) for row in driver.results()] == [(1, 5)]
    driver.stop()


def test_a_map_that_was_recreated_with_other_columns_is_refused(
    spark: SparkSession, grid: Grid, writer: MapWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read(spark, grid, writer)
    driver = StreamDriver(spark, lambda rows: rows.join(table, "k").select("n"), SCHEMA, directory=tmp_path)
    driver.process([("2026-01-01 12:00:00", "a")])
    writer.store.remove()
    monkeypatch.setattr(maps, "_SPARK_SCHEMA", maps._SPARK_SCHEMA.replace("long", "double"))
    other = MapWriter(grid.client(), writer.name, rows=pa.schema([("k", pa.string()), ("n", pa.float64())]))
    # Of another epoch, as names are never used again.
    other.write(2, {"a": 1})
    with pytest.raises(SourceError, match=r"has the columns k string, n double now, and had k string, n bigint"):
        driver.process([("2026-01-01 12:01:00", "a")])
