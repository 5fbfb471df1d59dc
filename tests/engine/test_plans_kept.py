"""A running query plans nothing anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.catalyst import kept_plans
from tests.feed import Feed
from tests.parameters import mostly_crash

pytestmark = pytest.mark.spark

BATCHES = 16
SETTLED = 10
"""Batches after which every shape of the state has been met: segments are merged by then."""


QUERIES: dict[str, Callable[[Any], Any]] = {
    "deduct": lambda rows: rows.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "j").agg(F.sum("v").alias("v")),
    "stacks": lambda rows: rows.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "j").agg(F.max("v").alias("v")),
    "recombine": lambda rows: rows.groupBy(sj.window("ts", "10 seconds"), "j").agg(F.sum("v").alias("v")),
    "sessions": lambda rows: rows.groupBy(F.session_window("ts", "12 seconds"), "j").agg(F.sum("v").alias("v")),
    "duplicates": lambda rows: rows.dropDuplicates(["j", "ts"]),
    "rolling": lambda rows: rows.groupBy("j").agg(F.sum("v").alias("v")),
}


@pytest.mark.parametrize("name", mostly_crash(QUERIES, quick={"stacks", "sessions", "rolling"}, crash=()))
def test_later_epochs_use_the_plans_of_the_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    feed = Feed(tmp_path / "feed")
    for batch in range(BATCHES):
        feed.add(*({"t": 60 * batch + second, "j": second % 3, "v": 1} for second in range(0, 60, 5)))
    planned: list[tuple[int, Any]] = []
    reached = 0
    plan = kept_plans._plan

    def counted(*arguments: Any) -> Any:
        kept = plan(*arguments)
        planned.append((reached, kept))
        return kept

    def follow(phase: sj.EpochPhase, epoch: int) -> None:
        nonlocal reached
        reached = epoch

    monkeypatch.setattr(kept_plans, "_plan", counted)
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    writer = QUERIES[name](stream).writeStream.onEpochPhase(follow)
    if name == "rolling":
        writer = writer.format("noop").outputMode("update")
    else:
        writer = writer.format("files").option("path", tmp_path / "out")
    query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
    query.awaitTermination()
    # Arrival, totals and the windows' own.
    assert len(planned) >= 3
    assert all(kept is not None for _, kept in planned)
    assert max(epoch for epoch, _ in planned) < SETTLED
