"""Batches that Spark hands over before its ``start`` has returned the query (api/test_stopping.py: the last ones)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.api import launch
from sparkjet.engine.plain_logs import plain_logs
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.engine.phases import PhaseListener

PATIENCE = 60.0
"""Seconds after which a test fails that would hang otherwise."""


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A setting that is needed before the query is started is passed to Spark's query."""
    reached = threading.Event()

    @contextmanager
    def slowly(session: SparkSession) -> Iterator[None]:
        with plain_logs(session):
            yield
            assert reached.wait(PATIENCE)

    monkeypatch.setattr(launch, "plain_logs", slowly)
    return reached


def start(spark: SparkSession, home: Path, listener: PhaseListener) -> sj.StreamingQuery:
    feed = Feed(home / "in")
    feed.add(*rows([1, 2], v=1))
    feed.add(*rows([60], v=1))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    writer = (
        stream.groupBy(sj.window("ts", "10 seconds")).count().writeStream.format("files").option("path", home / "out")
    )
    return writer.option("checkpointLocation", home / "ck").trigger(availableNow=True).onEpochPhase(listener).start()


def test_a_batch_may_run_before_sparks_query_is_there(
    spark: SparkSession, tmp_path: Path, reached: threading.Event
) -> None:
    def listener(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.CLEAN:
            reached.set()

    query = start(spark, tmp_path, listener)
    query.awaitTermination()
    assert [row["count"] for row in sj.read_files(str(tmp_path / "out")).collect()] == [2]
    assert [each["epoch"]["number"] for each in query.recentProgress] == [1, 2]


def test_a_batch_may_fail_before_sparks_query_is_there(
    spark: SparkSession, tmp_path: Path, reached: threading.Event
) -> None:
    def listener(phase: EpochPhase, epoch: int) -> None:
        reached.set()
        raise OSError("as early as can be")

    query = start(spark, tmp_path, listener)
    with pytest.raises(OSError, match="as early as can be"):
        query.awaitTermination()
    assert not query.isActive
