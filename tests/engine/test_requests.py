"""Requests of a whole query to S3 in an epoch: home, record, state, results, and Spark's own; they stay bounded."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet import EpochPhase
from tests.feed import Feed, rows
from tests.servers.s3_proxy import S3Proxy
from tests.storage.hadoop_target import through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.s3 import S3Server

logger = logging.getLogger("tests.engine")

BUDGET = {
    # A blob; and two files that Spark's tasks write, at once: the delta of the state and the results.
    EpochPhase.SAVE: 1 + 2 * 5,
    EpochPhase.DECIDE: 2,
    EpochPhase.COMMIT: 3 + 3,
    # Are there pins, and a delta that has expired.
    EpochPhase.CLEAN: 1 + 1,
}
"""Stated in docs/design/020-directories.md, with one file of state and one of results. What is asked between two
phases is counted for the later one, and saving is beside preparing."""
WITH_MERGES = 20
"""More in the mean of many epochs: segments of the state and of the manifest are merged, old records trimmed."""


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("epochs", [24, 300])
def test_the_requests_of_an_epoch_are_bounded(
    s3_spark: SparkSession, s3: S3Server, tmp_path: Path, epochs: int
) -> None:
    feed = Feed(tmp_path / "in")
    for number in range(epochs):
        feed.add(*rows([10 * number, 10 * number + 3], k="a", v=1))
    # Spark's tasks keep what was opened for a bucket, with or without the proxy.
    place = f"s3a://{s3.bucket()}"
    asked: list[Counter[EpochPhase]] = []
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):

        def told(phase: EpochPhase, epoch: int) -> None:
            if phase is EpochPhase.BEGIN:
                proxy.requests.clear()
                # What is asked between two epochs is the look for a successor, by the second.
                asked.append(Counter())
            group = phase if phase in BUDGET else _LATER[phase]
            asked[epoch - 1][group] += len(proxy.requests)
            proxy.requests.clear()

        stream = sj.stream(feed.read(s3_spark)).withWatermark("ts", "5 seconds")
        counted = stream.groupBy(sj.window("ts", "30 seconds", "10 seconds"), "k").count()
        writer = counted.writeStream.format("files").option("path", f"{place}/out")
        writer = writer.option("checkpointLocation", f"{place}/home").option("statePartitions", 1)
        query = writer.trigger(availableNow=True).onEpochPhase(told).start()
        query.awaitTermination()
    assert len(asked) == epochs
    steady = asked[8:]
    medians = {phase: sorted(each[phase] for each in steady)[len(steady) // 2] for phase in BUDGET}
    totals = [sum(each.values()) for each in steady]
    mean, highest = sum(totals) / len(totals), max(totals)
    logger.info("%d epochs: %s in the median, %.1f in the mean, at most %d", epochs, medians, mean, highest)
    assert all(medians[phase] <= limit for phase, limit in BUDGET.items()), medians
    assert mean <= sum(BUDGET.values()) + WITH_MERGES
    # It does not grow.
    half = len(totals) // 2
    assert sum(totals[half:]) <= 1.1 * sum(totals[: len(totals) - half])


_LATER = {
    EpochPhase.BEGIN: EpochPhase.SAVE,
    EpochPhase.AGGREGATE: EpochPhase.SAVE,
    EpochPhase.ADVANCE: EpochPhase.SAVE,
    EpochPhase.PREPARE: EpochPhase.SAVE,
    EpochPhase.COMMITTING: EpochPhase.COMMIT,
}
