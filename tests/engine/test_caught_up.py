"""Whether a substream has been read to its end, from offsets as sources report them and from a real source."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import sparkjet as sj
from sparkjet.engine.caught_up import announced, caught_up
from sparkjet.plan.inputs import Input, WatermarkSettings
from sparkjet.time import limiting_lag
from tests.feed import START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

SECOND = 1_000_000


def an_input(prefix: str = "", sources: int = 1) -> Input:
    return Input(prefix, WatermarkSettings("ts", limiting_lag(0)), sources)


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        (5, 5, True),
        (5, 6, False),
        (None, 6, None),
        (5, None, None),
        ({"t": {"0": 1, "1": 1}}, {"t": {"0": 1, "1": 9}}, True),
        ({"t": {"0": 1, "1": 9}}, {"t": {"0": 2, "1": 9}}, False),
        ({"t": {"1": 9}}, {"t": {"0": 2, "1": 9}}, False),
        ({"a": {"0": 1}, "b": {"0": 1}}, {"a": {"0": 1}, "b": {"0": 2}}, False),
        ({"0": 1, "10": 1}, {"0": 1, "10": 2}, True),
        ({"x": 1}, {"x": 2}, False),
    ],
)
def test_offsets_of_one_source(end: Any, latest: Any, expected: bool | None) -> None:
    assert caught_up([an_input()], [source(end, latest)], ["0"]) == {"0": expected}


def test_each_input_is_judged_by_its_own_sources() -> None:
    inputs = [an_input("1/"), an_input("2/", sources=2)]
    sources = [source(1, 2), source(1, 1), source(1, None)]
    assert caught_up(inputs, sources, ["1/a", "2/a"]) == {"1/a": False, "2/a": None}
    assert caught_up(inputs, sources[:2], ["1/a", "2/a"]) == {"1/a": None, "2/a": None}


def test_only_partitions_of_a_source_are_announced_and_each_to_its_input() -> None:
    def partitioned(prefix: str, *by: str) -> Input:
        return Input(prefix, WatermarkSettings("ts", limiting_lag(0), by=by, partitions=True), 1)

    inputs = [partitioned("1/", "topic", "partition"), an_input("2/"), partitioned("3/", "partition")]
    offsets = ['{"a": {"0": 0, "10": 4}}', '{"logOffset": 3}', '{"b": {"0": 0}}']
    assert list(announced(inputs, offsets)) == ["1/a/0", "1/a/10", "3/0"]
    # A source that has not been asked yet has no offset.
    assert list(announced(inputs, ["-", "-", offsets[2]])) == ["3/0"]
    # One source of two inputs is one in the batch.
    twice = [partitioned("1/", "topic", "partition"), partitioned("2/", "topic", "partition")]
    assert list(announced(twice, ['{"b": {"0": 0}}'])) == ["1/b/0", "2/b/0"]
    assert not list(announced([*twice, an_input("3/")], offsets[:2]))


def shelf_source() -> type[DataSource]:  # noqa: C901 - two small classes, not one long function
    """A source of two partitions that holds rows back; made in a function so that workers get it by value."""

    class ShelfReader(DataSourceStreamReader):
        def __init__(self, directory: str) -> None:
            self.directory = directory

        def _shelf(self) -> dict[str, Any]:
            shelf: dict[str, Any] = json.loads((pathlib.Path(self.directory) / "shelf.json").read_text())
            return shelf

        def initialOffset(self) -> dict[str, Any]:
            return {"shelf": {"0": 0, "1": 0}}

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            return {"shelf": self._shelf()["given"]}

        def reportLatestOffset(self) -> dict[str, Any]:
            return {"shelf": {name: len(times) for name, times in self._shelf()["times"].items()}}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            times = self._shelf()["times"]
            return [
                InputPartition([int(name), times[name][start["shelf"][name] : end["shelf"][name]]]) for name in times
            ]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            number, times = partition.value
            for time in times:
                yield number, dt.datetime.fromtimestamp(1_700_000_000 + time, dt.timezone.utc)

    class Shelf(DataSource):
        @classmethod
        def name(cls) -> str:
            return "shelf"

        def schema(self) -> str:
            return "p int, ts timestamp"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return ShelfReader(self.options["directory"])

    return Shelf


@pytest.mark.crash
@pytest.mark.interpreted
def test_only_a_substream_that_has_been_read_to_its_end_goes_idle(spark: SparkSession, tmp_path: Path) -> None:
    def shelve(times: dict[str, list[int]], given: dict[str, int]) -> None:
        fresh = tmp_path / "fresh.json"
        fresh.write_text(json.dumps({"times": times, "given": given}))
        fresh.rename(tmp_path / "shelf.json")

    shelve({"0": [1, 25], "1": [2, 9]}, {"0": 2, "1": 1})
    spark.dataSource.register(shelf_source())
    clock = sj.ManualClock((START + 1000) * SECOND)
    table = spark.readStream.format("shelf").option("directory", str(tmp_path)).load()
    stream = sj.stream(table).withWatermark("ts", "0 seconds", by="p", substreams=["0", "1"], idleTimeout="1 minute")
    result = stream.groupBy(sj.window("ts", "10 seconds")).count()
    query = result.writeStream.format("memory").queryName("shelved").clock(clock).start()
    try:
        query.processAllAvailable()
        clock.advance(60 * SECOND)
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        # Substream 0 is at its end and now idle; substream 1 holds its window, however long it is silent.
        assert not spark.table("shelved").collect()
        shelve({"0": [1, 25], "1": [2, 9]}, {"0": 2, "1": 2})
        query.processAllAvailable()
        assert not spark.table("shelved").collect()
        clock.advance(60 * SECOND)
        query.processAllAvailable()
        assert [row["count"] for row in spark.table("shelved").collect()] == [3]
        progress = query.lastProgress
        assert progress is not None
        assert progress["substreams"]["1"]["caughtUp"] is True
        assert progress["substreams"]["1"]["idle"]
    finally:
        query.stop()
