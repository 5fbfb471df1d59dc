"""A lag from late rows: what more lag would have saved, it saves when the same rows come again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.catalyst.columns import TIME
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.plan.dropped_rows import DROPPED, RowKind, judged, lateness_of
from sparkjet.testing.stream_driver import StreamDriver
from sparkjet.time import MIN, FrameGrid
from sparkjet.tools import recommend

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]

SECOND = 1_000_000
LAG = 3 * SECOND
KINDS = ("tumbling", "sliding", "sessions")


def test_how_late_a_row_is_says_which_lag_it_needs(spark: SparkSession) -> None:
    of, cases = random.Random(7), 40
    for _ in range(3):
        grid = FrameGrid(step := of.choice((1, 7, 8_000_000)), of.randint(0, 6) % step)
        reached = of.randint(-(10**9), 10**9)
        closed = grid.floor_frame(reached)
        times = [closed - of.randint(1, 10 ** of.randint(1, 14)) for _ in range(cases)] + [closed - 1, closed - 1000]
        rows = spark.createDataFrame([(time,) for time in [*times, closed, None, MIN]], f"{TIME} long")
        kinds = [row[DROPPED] for row in judged(rows, closed, reached - closed + 1, step, timed=True).collect()]
        assert kinds[-3:-1] == [None, RowKind.NULL_TIMESTAMP]
        # As late as can be, and nothing overflows.
        assert lateness_of(kinds[-1]) > 10**16
        for time, kind in zip(times, kinds, strict=False):
            lag = reached - grid.higher_frame(time) + 1
            assert grid.floor_frame(reached - lag) <= time < grid.floor_frame(reached - lag + 1)
            least = max(lag, 1000)
            unit = 10 ** (len(str(least)) - 1)
            assert lateness_of(kind) == -(-least // unit) * unit


def query(lag: int, kind: str) -> Callable[[Any], Any]:
    window = {
        "tumbling": sj.window("ts", "8 seconds"),
        "sliding": sj.window("ts", "10 seconds", "4 seconds", "1 second"),
        "sessions": sj.session_window("ts", "4 seconds"),
    }[kind]
    return lambda rows: rows.withWatermark("ts", lag, by="p").groupBy(window).count()


def batches(seed: int) -> list[list[tuple[str, str]]]:
    """Rows of two partitions, some of them up to a minute late."""
    of = random.Random(seed)
    return [
        [
            (f"2026-01-01 12:0{second // 60}:{second % 60:02}.{of.choice((0, 1, 999)):03}", of.choice("ab"))
            for second in (120 + 12 * epoch - of.choice((0, 1, 2, 9, of.randint(0, 60))) for _ in range(9))
        ]
        for epoch in range(6)
    ]


def lost(spark: SparkSession, lag: int, kind: str, seed: int, home: Path | None = None) -> dict[str, int]:
    driver = StreamDriver(spark, query(lag, kind), "ts timestamp, p string", directory=home)
    for number, rows in enumerate(batches(seed)):
        driver.process(rows)
        if number == 3 and home is not None:
            driver.restart()
    counted = driver.late_counts
    driver.stop()
    driver.close()
    return counted


def check(spark: SparkSession, kind: str, seed: int, home: Path, lags: int, *more: int) -> None:
    now = lost(spark, LAG, kind, seed, home)
    found = recommend(home, loss=0)
    assert (found.lost(LAG), found.least, found.together) == (sum(now.values()), LAG, 54)
    assert {name: found.lost(LAG, name) for name in found.rows} == now
    assert found.lag == found.lags[-1] > LAG
    between = found.lags[1:-1]
    chosen = random.Random(seed).sample(between, min(lags, len(between)))
    for lag in [*chosen, *(found.lag + each for each in more)]:
        again = lost(spark, lag, kind, seed)
        assert {name: found.lost(lag, name) for name in found.rows} == {name: again.get(name, 0) for name in found.rows}


@pytest.mark.parametrize("kind", KINDS[1:2])
def test_rows_predicted_to_be_lost_are_lost(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    check(spark, kind, 3, tmp_path, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_rows_predicted_to_be_lost_are_lost_by_all(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    check(spark, kind, seed, tmp_path, 3, 0)


def test_another_lag_starts_counting_again(spark: SparkSession, tmp_path: Path) -> None:
    lost(spark, LAG, "sessions", 1, tmp_path)
    driver = StreamDriver(spark, query(LAG + SECOND, "sessions"), "ts timestamp, p string", directory=tmp_path)
    # Behind what has been emitted, with whatever lag.
    driver.process([("2026-01-01 12:00:01", "a"), ("2026-01-01 12:00:01", "a"), ("2026-01-01 12:05:00", "a")])
    driver.close()
    found = recommend(str(tmp_path), "10 %")
    assert (found.least, found.together, found.lost(found.least)) == (LAG + SECOND, 3, 2)
    assert (found.rows, found.share(found.least, "a")) == ({"a": 3}, 2 / 3)
    with pytest.raises(AnalysisError, match=r"lag = 3 seconds: the query has 4 seconds.*Ask lag_for"):
        found.lost(LAG)


def test_what_has_no_lag_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def two(left: Any, right: Any) -> Any:
        united = left.withWatermark("ts", "1 second").union(right.withWatermark("ts", sj.carried()))
        return united.groupBy(sj.window("ts", "8 seconds")).count()

    StreamDriver(spark, two, ["ts timestamp", "ts timestamp"], directory=tmp_path / "two").process([], [])
    with pytest.raises(AnalysisError, match=r"no lag that all its streams share \(1: 1 second, 2: none\)"):
        recommend(tmp_path / "two", 0)
    options = {"directory": tmp_path / "none", "outputMode": "update"}
    counts = StreamDriver(spark, lambda rows: rows.groupBy("k").count(), "k long", **options)
    counts.process([(1,)])
    with pytest.raises(AnalysisError, match="it judges none of its sources by a watermark"):
        recommend(tmp_path / "none", 0)
    with pytest.raises(RecoveryError, match="contains no record of a query"):
        recommend(tmp_path / "nowhere", 0)
    with pytest.raises(AnalysisError, match="7 is neither a query that start"):
        recommend(7, 0)
