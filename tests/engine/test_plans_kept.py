"""A running query plans nothing anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.catalyst import kept_plans
from tests.feed import Feed

pytestmark = pytest.mark.spark

BATCHES = 16
SETTLED = 10
"""Batches after which every shape of the state has been met: segments are merged by then."""


@pytest.mark.parametrize(
    ("window", "aggregate"),
    [
        (("30 seconds", "10 seconds"), lambda: F.sum("v")),
        (("30 seconds", "10 seconds"), lambda: F.max("v")),
        (("10 seconds",), lambda: F.sum("v")),
    ],
    ids=["deduct", "stacks", "recombine"],
)
def test_later_epochs_use_the_plans_of_the_first(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window: tuple[str, ...],
    aggregate: Callable[[], Column],
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
    results = stream.groupBy(sj.window("ts", *window), "j").agg(aggregate().alias("v"))
    writer = results.writeStream.format("files").option("path", tmp_path / "out").onEpochPhase(follow)
    query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
    query.awaitTermination()
    # Arrival, totals and the windows' own.
    assert len(planned) >= 3
    assert all(kept is not None for _, kept in planned)
    assert max(epoch for epoch, _ in planned) < SETTLED
