"""A running query replans nothing."""

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
from tests.parameters import mostly_long

pytestmark = pytest.mark.spark

BATCHES = 13
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


TOGETHER = {"together": ("stacks", "sessions", "rolling"), **{name: (name,) for name in QUERIES}}


# In CI, `test_growth.py` counts the kept plans.
@pytest.mark.parametrize("names", mostly_long(TOGETHER, []))
def test_later_epochs_use_the_plans_of_the_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
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
    writers = []
    for name in names:
        writer = QUERIES[name](stream).writeStream.format("noop")
        writers.append(writer.outputMode("update") if name == "rolling" else writer)
    writers[0].onEpochPhase(follow).trigger(availableNow=True)
    query = sj.start(*writers, checkpointLocation=str(tmp_path / "home"))
    query.awaitTermination()
    # Arrival, totals and the windows' own.
    assert len(planned) >= 3 * len(names)
    assert all(kept is not None for _, kept in planned)
    assert max(epoch for epoch, _ in planned) < SETTLED
