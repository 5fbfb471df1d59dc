"""What the comparison sees beside rows: a query that is wrong on purpose, though its rows are right in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.engine.results import Results
from sparkjet.plan import dropped_rows
from sparkjet.stateful.interval_join import IntervalJoin
from sparkjet.time import MIN
from sparkjet.windows import SlidingWindows
from tests.differential.cases import Case, Epoch, Event, Input, Judge, Part, Step
from tests.differential.check import difference
from tests.differential.marks import Mark
from tests.differential.rows import SECOND
from tests.interpreting import interpreted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3600 * SECOND
COUNT = Part("rows0", *['F.count("*")'] * 2, "bigint")
WINDOWS = Step(
    "tumbling",
    '.groupBy(F.window("ts", "10 seconds")).agg({parts})',
    parts=(COUNT,),
    judge=Judge(10 * SECOND, 0, 10 * SECOND, 10 * SECOND),
)
OVER = Step(
    "chained windows",
    '.groupBy(F.window("window", "20 seconds", "20 seconds")).agg({parts})',
    parts=(Part("rows1", *['F.sum("rows0")'] * 2, "bigint"),),
)
JOIN = Step(
    "join inner",
    '.join(b, F.expr("c0 = c0_b AND ts_b BETWEEN ts - INTERVAL 1 SECONDS AND ts + INTERVAL 1 SECONDS"), "inner")',
    judge=Judge(),
)


def _case(branch: tuple[Step, ...], epochs: list[list[int | None]], **more: Any) -> Case:
    """Rows of the given seconds, in one or two streams."""
    inputs = tuple(Input((("c0", "int"),), suffix, Mark(throttle="none")) for suffix in more.pop("suffixes", ("",)))
    rows = [
        tuple(Event(None if each is None else each * SECOND, "x", 1, ("7",)) for each in seconds) for seconds in epochs
    ]
    return Case(0, "append", "UTC", inputs, (branch,), tuple(Epoch((each,) * len(inputs)) for each in rows), **more)


def _difference(spark: SparkSession, case: Case) -> tuple[str, str] | None:
    with interpreted(spark):
        found = difference(spark, case)
    return None if found is None else (found.kind, found.text)


def test_a_query_that_is_right_does_not_differ(spark: SparkSession) -> None:
    assert _difference(spark, _case((WINDOWS, OVER), [[1, 11], [25], [3, None, 45]], late=True, dropped=0)) is None
    assert _difference(spark, _case((), [[1], [25], [45]], suffixes=("", "_b"), meet=JOIN)) is None


def test_windows_that_are_held_back_until_the_end_differ(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Results._watermark

    def behind(self: Results, stage: Any, feed: Any, watermark: int) -> int:
        found = before(self, stage, feed, watermark)
        return found if feed.parent is None or found == MIN else found - HOUR

    monkeypatch.setattr(Results, "_watermark", behind)
    found = _difference(spark, _case((WINDOWS, OVER), [[1, 11], [25], [45]]))
    assert found == ("moments", "result 0 has windows at the end that the watermark had passed before")


@pytest.mark.long
def test_a_join_that_forgets_nothing_differs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = IntervalJoin.horizons
    nothing = (0, 0)
    monkeypatch.setattr(
        IntervalJoin, "horizons", lambda self, marks: before(self, marks) if marks == nothing else (MIN, MIN)
    )
    found = _difference(spark, _case((), [[1], [25], [45]], suffixes=("", "_b"), meet=JOIN))
    assert found is not None
    assert found[0] == "moments"
    assert found[1].endswith("still has 6 rows of state")


@pytest.mark.long
def test_a_merge_that_loses_a_frame_differs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = SlidingWindows._merged

    def fewer(self: SlidingWindows, frames: DataFrame, expired: int | None) -> DataFrame:
        return before(self, frames.where(f"frame <> {20 * SECOND}L"), expired)

    monkeypatch.setattr(SlidingWindows, "_merged", fewer)
    found = _difference(spark, _case((WINDOWS,), [[1, 11], [12], [45]], many=True))
    assert found == ("rows", "result 0\n  epoch 0 only Spark    ('{1970-01-01 00:00:10, 1970-01-01 00:00:20}', '2')")


@pytest.mark.long
def test_a_late_row_that_is_not_delivered_differs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dropped_rows.dropped_rows
    monkeypatch.setattr("sparkjet.engine.arrival.dropped_rows", lambda *given: before(*given).where("ts IS NOT NULL"))
    found = _difference(spark, _case((WINDOWS,), [[1, 11], [25], [3, None, 45]], late=True, dropped=0))
    assert found is not None
    assert found[0] == "rows"
    assert "only Spark    (None, 'x', '1', '7', 'null_timestamp')" in found[1]
