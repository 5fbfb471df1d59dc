"""Tests of the bound on state: no row is counted twice or lost, and no restart changes what is closed early."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.state_limit import StateLimit
from sparkjet.errors import AnalysisError, StateLimitError
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, name string, n int"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
COUNTED = {"tumbling": 1, "sliding": 2, "session": 1, "cut session": 1}
"""How often a row is counted."""
SHED: dict[str, Any] = {"maxStateEntries": 4, "onStateLimit": "shed", "isShed": True}


def _window(kind: str) -> Any:
    if kind == "tumbling":
        return sj.window("ts", "10 seconds")
    if kind == "sliding":
        return sj.window("ts", "20 seconds", "10 seconds")
    return sj.session_window("ts", "5 seconds", maxDuration="8 seconds" if kind == "cut session" else None)


def _query(kind: str) -> Callable[[Any], list[Any]]:
    def query(rows: Any) -> list[Any]:
        grouped = rows.withWatermark("ts", "1 minute").groupBy(_window(kind), "name")
        counts = grouped.agg(F.count("*").alias("rows"), F.max("n").alias("n"))
        return [counts, counts.lateRows]

    return query


def _ran(
    spark: SparkSession, kind: str, batches: Sequence[Sequence[Any]], *, restarts: bool = False, **options: Any
) -> list[Counter[tuple[str, ...]]]:
    """The rows of the results and the late ones of a query that may be started again after each epoch."""
    driver = StreamDriver(spark, _query(kind), SCHEMA, **options)
    try:
        for batch in batches:
            driver.process(batch)
            if restarts:
                driver.restart()
        driver.close_windows()
        return [Counter(tuple(map(str, row)) for row in driver.results(number)) for number in (0, 1)]
    finally:
        driver.close()


def _batch(*seconds: int) -> list[tuple[datetime, str, int]]:
    return [(BEGIN + timedelta(seconds=second), name, second) for second in seconds for name in ("a", "b")]


def _check(kind: str, results: Counter[tuple[str, ...]], late: Counter[tuple[str, ...]], rows: int) -> None:
    """Each window has one result, and each row is in all of its windows' results or among the late ones."""
    assert len({row[:2] for row in results}) == results.total()
    counted = sum(int(row[2]) * count for row, count in results.items())
    assert counted % COUNTED[kind] == 0
    assert counted // COUNTED[kind] + late.total() == rows


BATCHES = [_batch(1, 11, 21), _batch(2, 31), _batch(12, 41, 42)]


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_windows_are_closed_early_the_same_ones_after_restarts(spark: SparkSession, kind: str) -> None:
    results, late = _ran(spark, kind, BATCHES, **SHED)
    _check(kind, results, late, sum(map(len, BATCHES)))
    assert {row[-1] for row in late} == {"shed"}
    assert {row[-1] for row in results} == {"True", "False"}
    assert _ran(spark, kind, BATCHES, restarts=True, **SHED) == [results, late]


@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("seed", range(4))
def test_a_bound_loses_and_doubles_nothing_in_random_input(spark: SparkSession, kind: str, seed: int) -> None:
    chosen = random.Random(seed)
    batches = [
        _batch(*(chosen.randrange(20 * number, 20 * number + 120) for _ in range(chosen.randrange(1, 9))))
        for number in range(6)
    ]
    unbounded = _ran(spark, kind, batches)
    high = {"maxStateEntries": 1000, "maxStateBytes": "1g", "onStateLimit": "shed"}
    assert _ran(spark, kind, batches, **high) == unbounded
    options = {**SHED, "maxStateEntries": chosen.randrange(1, 12)}
    results, late = _ran(spark, kind, batches, **options)
    _check(kind, results, late, sum(map(len, batches)))
    assert _ran(spark, kind, batches, restarts=True, statePartitions=1, **options) == [results, late]


def test_a_query_ends_at_its_limit_and_goes_on_with_a_higher_one(
    spark: SparkSession, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    driver = StreamDriver(spark, _query("tumbling"), SCHEMA, directory=tmp_path, maxStateEntries=5)
    driver.process(_batch(1))
    driver.process(_batch(2, 11))
    driver.process([])
    warnings = [each.getMessage() for each in caplog.records if "more than 80 %" in each.getMessage()]
    assert len(warnings) == 0
    with pytest.raises(StateLimitError) as raised:
        driver.process([*_batch(31), *_batch(21)[:1]])
    told = str(raised.value)
    assert told.startswith("[SPARKJET_STATE_LIMIT] maxStateEntries: stage0, windows by name, would hold 7 entries")
    assert "(name='a'): 4; (name='b'): 3" in told
    assert "held by 'all'" in told
    assert 'option("onStateLimit", "shed")' in told
    driver.close()

    again = StreamDriver(spark, _query("tumbling"), SCHEMA, directory=tmp_path, maxStateEntries=8)
    again.process([*_batch(31), *_batch(21)[:1]])
    again.process(_batch(32))
    warnings = [each.getMessage() for each in caplog.records if "more than 80 %" in each.getMessage()]
    assert len(warnings) == 1
    report = EpochProgress().report(again.engine.record, again.engine.state).operators["stage0"]
    assert report.entries == 7
    assert report.of_limit == 7 / 8
    assert report.memory_bytes
    assert report.stored_bytes == sum(file.stat().st_size for file in tmp_path.rglob("state/*/*.parquet"))
    again.close_windows()
    assert sum(row["rows"] for row in again.results()) == 2 + 4 + 3 + 2
    again.close()


def _refused(spark: SparkSession, name: str) -> Callable[[Any], Any]:
    del spark

    def query(rows: Any) -> Any:
        timed = rows.withWatermark("ts", "1 minute")
        counts = timed.groupBy(_window("tumbling"), "name").count()
        return {
            "dropDuplicates": lambda: timed.dropDuplicates(["name"]),
            "another operator": lambda: counts.groupBy(sj.window("window", "1 minute")).agg(F.sum("count")),
        }[name]()

    return query


@pytest.mark.parametrize("name", ["dropDuplicates", "another operator"])
def test_shedding_is_refused_where_no_rule_is_honest(spark: SparkSession, name: str) -> None:
    with pytest.raises(AnalysisError, match=name):
        StreamDriver(spark, _refused(spark, name), SCHEMA, maxStateEntries=4, onStateLimit="shed")


def test_options_that_do_not_go_together_are_refused(spark: SparkSession) -> None:
    with pytest.raises(AnalysisError, match="needs a limit"):
        StreamDriver(spark, _query("tumbling"), SCHEMA, onStateLimit="shed")
    with pytest.raises(AnalysisError, match="isShed marks"):
        StreamDriver(spark, _query("tumbling"), SCHEMA, maxStateEntries=4, isShed=True)
    driver = StreamDriver(spark, _query("tumbling"), SCHEMA)
    with pytest.raises(AnalysisError, match="publishAfter"):
        StateLimit(4, sheds=True).check(driver.plan, switches=True)
    driver.close()
