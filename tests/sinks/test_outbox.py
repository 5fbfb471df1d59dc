"""Sinks that publish after the decision: the same epoch always comes with the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TestMemory(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
        sink = MemorySink("contract", spark)
        sink.attach(tmp_path / "outbox", spark)
        sink.check(spark.createDataFrame([], SCHEMA).schema)
        sink.create()
        return SinkUnderTest(
            sink,
            lambda: [tuple(row) for row in spark.table("contract").collect()],
            lambda: len(list((tmp_path / "outbox").glob("*/*"))),
        )


def test_a_function_that_fails_is_called_again_with_the_same_epoch_and_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[int, list[tuple[str, int]]]] = []

    def store(rows: DataFrame, epoch: int) -> None:
        calls.append((epoch, sorted(tuple(row) for row in rows.collect())))
        if len(calls) == 1:
            message = "the database is away"
            raise ConnectionError(message)

    sink = ForeachBatchSink(store)
    sink.attach(tmp_path / "outbox", spark)
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("b", 2)], SCHEMA), transaction(4))
    assert handle is not None
    with pytest.raises(ConnectionError):
        sink.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    assert calls == [(4, [("a", 1), ("b", 2)])] * 2


def test_the_console_prints_epoch_and_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ConsoleSink(1)
    sink.attach(tmp_path / "outbox", spark)
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("a", 1)], SCHEMA), transaction(2))
    assert handle is not None
    sink.commit(handle, lambda: None)
    printed = capsys.readouterr().out
    assert "Epoch: 2" in printed
    assert "only showing top 1 row" in printed
