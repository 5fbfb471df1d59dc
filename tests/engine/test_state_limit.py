"""Tests of the bound on state: no row is counted twice or lost, and no restart changes what is closed early."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.state_limit import StateLimit
from sparkjet.errors import StateLimitError
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Row, SparkSession

SCHEMA = "ts timestamp, name string, n int"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
WINDOWS = {
    "tumbling": sj.window("ts", "10 seconds"),
    "sliding": sj.window("ts", "20 seconds", "10 seconds"),
    "session": sj.session_window("ts", "5 seconds"),
}


def _at(second: int) -> datetime:
    return BEGIN + timedelta(seconds=second)


def _query(window: str, *further: Any) -> Callable[[Any], list[Any]]:
    def query(rows: Any) -> list[Any]:
        grouped = rows.withWatermark("ts", "1 minute").groupBy(WINDOWS[window], "name")
        counts = grouped.agg(F.count("*").alias("rows"), F.sum("n").alias("n"), *further)
        return [counts, counts.lateRows]

    return query


def _ran(spark: SparkSession, window: str, batches: Sequence[Sequence[Any]], *, restarts: bool = False, **options: Any):
    """The rows of the results and the late ones, by epoch, of a query that may be started again after each epoch."""
    driver = StreamDriver(spark, _query(window), SCHEMA, **options)
    try:
        for batch in batches:
            driver.process(batch)
            if restarts:
                driver.restart()
        driver.close_windows()
        return [Counter(map(_plain, driver.results(number))) for number in (0, 1)]
    finally:
        driver.close()


def _plain(row: Row) -> tuple[Any, ...]:
    return tuple(str(each) for each in row)


BATCHES = [
    [(_at(second), name, second) for second in seconds for name in ("a", "b")]
    for seconds in ((1, 11, 21), (2, 31), (12, 41, 42), (3, 22, 51))
]


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_closed_early_and_each_row_is_in_a_result_or_late(spark: SparkSession, window: str) -> None:
    unbounded = _ran(spark, window, BATCHES)
    assert _ran(spark, window, BATCHES, maxStateEntries=1000, maxStateBytes="1g", onStateLimit="shed") == unbounded
    options = {"maxStateEntries": 4, "onStateLimit": "shed", "isShed": True}
    results, late = _ran(spark, window, BATCHES, **options)
    print(results, late)
    # Windows, each once.
    assert len({row[:2] for row in results}) == results.total()
    assert late
    assert {row[-1] for row in late} == {"shed"}
    assert {row[-1] for row in results} == {"True", "False"}
    if window != "sliding":
        rows = sum(int(row[2]) * count for row, count in results.items()) + late.total()
        assert rows == sum(map(len, BATCHES))
    assert _ran(spark, window, BATCHES, restarts=True, **options) == [results, late]
