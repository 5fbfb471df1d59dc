"""The registration of sources: what is there, and what a source says whose extra is not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grimp
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceRegistration, SimpleDataSourceStreamReader

import sparkjet as sj
from sparkjet.connectors import formats, spark_formats
from sparkjet.options import OUTPUT_OPTIONS, QUERY_OPTIONS, Options
from sparkjet.storage.shipping import GRID_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_source_is_registered_under_its_name_and_a_format_named_once() -> None:
    assert {name: source.load().name() for name, source in formats.SOURCES.items()} == {n: n for n in formats.SOURCES}
    lowered = [name.lower() for name in (*formats.SINKS, *formats.SOURCES)]
    assert len(set(lowered)) == len(lowered)


@pytest.mark.parametrize("name", formats.SINKS)
def test_each_option_is_described_in_a_sentence_and_is_not_one_of_every_output(name: str) -> None:
    options = formats.SINKS[name].options
    assert [each.name for each in options if not each.meaning.endswith(".")] == []
    names = [each.name.lower() for each in (*options, *QUERY_OPTIONS, *OUTPUT_OPTIONS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("needed", "reader"),
    [
        (GRID_PACKAGES, "map_store"),
        (formats.SOURCES["sparkjet-grid-journal"].known.packages, "journal_reader"),  # type: ignore[union-attr]
    ],
    ids=["sinks", "journals"],
)
def test_executors_are_asked_for_all_that_the_grid_imports_there(needed: dict[str, str], reader: str) -> None:
    graph = grimp.build_graph("sparkjet_grid", include_external_packages=True, exclude_type_checking_imports=True)
    imported = {each.partition(".")[0] for each in graph.find_upstream_modules(f"sparkjet_grid.{reader}")}
    assert needed.keys() == imported - {"sparkjet_grid"} - sys.stdlib_module_names


def test_files_get_the_options_of_sparks_writer_alone() -> None:
    beside = ("path", "fileFormat", "retention", "checkpointLocation", "lateRowsPath")
    given = Options({"HEADER": "true", "compression": "gzip", **dict.fromkeys(beside, "x")})
    assert given.among(spark_formats.WRITERS) == {"header": "true", "compression": "gzip"}


@pytest.mark.crash
def test_a_source_without_its_extra_says_what_to_install(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "pika" else name)
    sj.register_sources(spark)
    try:
        with pytest.raises(AnalysisException, match=r"this Python has no pika\. Install pika and pyarrow there"):
            spark.readStream.format("sparkjet-rabbitmq").option("queues", "orders").load()
    finally:
        monkeypatch.undo()
        sj.register_sources(spark)
    assert spark.readStream.format("sparkjet-rabbitmq").option("queues", "orders").load().columns[0] == "body"


def test_a_source_that_spark_has_found_by_itself_is_there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = iter(["DATA_SOURCE_ALREADY_EXISTS"] * len(formats.SOURCES) + ["DATA_SOURCE_NOT_FOUND"])

    def register(self: object, source: type[DataSource]) -> None:
        error = AnalysisException(source.name())
        monkeypatch.setattr(error, "getCondition", lambda: condition)
        condition = next(conditions)
        raise error

    monkeypatch.setattr(DataSourceRegistration, "register", register)
    sj.register_sources(spark)
    with pytest.raises(AnalysisException):
        sj.register_sources(spark)


class Counting(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        return iter([(start["next"],)]), {"next": start["next"] + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return ((number,) for number in range(start["next"], end["next"]))


class CountingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "number BIGINT"

    def simpleStreamReader(self, schema: object) -> Counting:
        return Counting()


def test_a_stream_that_starts_leaves_the_map_alone_that_tasks_are_sent_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tasks of another stream from the same source would fail now and then: the map is not to be changed meanwhile."""
    sj.register_sources(spark)
    spark.dataSource.register(CountingSource)
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    variables = manager.lookupDataSource("counting").dataSourceCls().envVars()
    before = set(variables)
    rows = spark.readStream.format("counting").load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination(60)
    finally:
        query.stop()
    # It has started: the values are Spark's now.
    assert variables["SPARK_BUFFER_SIZE"] == "65536"
    assert set(variables) == before
