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
from sparkjet.state.partitions import Held, entry_size
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, name string, n int"
AGES = "3000000 days"
"""A lag by which a row of the year 9999 closes nothing, as if another partition held the watermark."""
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


def _query(kind: str, lag: str = "1 minute") -> Callable[[Any], list[Any]]:
    def query(rows: Any) -> list[Any]:
        grouped = rows.withWatermark("ts", lag).groupBy(_window(kind), "name")
        counts = grouped.agg(F.count("*").alias("rows"), F.max("n").alias("n"))
        return [counts, counts.lateRows]

    return query


def _ran(
    spark: SparkSession,
    kind: str,
    batches: Sequence[Sequence[Any]],
    *,
    restarts: bool = False,
    lag: str = "1 minute",
    **options: Any,
) -> list[Counter[tuple[str, ...]]]:
    """The rows of the results and the late ones of a query that may be started again after each epoch."""
    driver = StreamDriver(spark, _query(kind, lag), SCHEMA, **options)
    try:
        for batch in batches:
            driver.process(batch)
            most = options.get("maxStateEntries")
            assert most is None or driver.engine.state.stages["stage0"].entries <= most
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


def test_a_row_of_a_wrong_clock_does_not_close_the_years_before_it(spark: SparkSession) -> None:
    far = [(datetime(9999, 12, 31, tzinfo=timezone.utc), "c", 0)]
    options = {**SHED, "maxStateEntries": 3}
    results, late = _ran(spark, "tumbling", [_batch(1) + far, _batch(11), _batch(21)], lag=AGES, **options)
    # Of later windows no row is late, and what fits is not closed early.
    assert late.total() == 0
    assert sorted((row[1], row[-1]) for row in results if row[1] != "c") == [
        ("a", "False"), ("a", "True"), ("a", "True"), ("b", "False"), ("b", "True"), ("b", "True")
    ]  # fmt: skip


def test_no_more_is_closed_early_than_must_go(spark: SparkSession) -> None:
    driver = StreamDriver(
        spark, _query("tumbling", AGES), SCHEMA, maxStateEntries=2000, onStateLimit="shed", isShed=True
    )
    # 2,004 windows in a day, and one at each of two ends that are years away.
    years = timedelta(days=3650)
    driver.process(
        [
            *((BEGIN + timedelta(seconds=10 * number), "a", number) for number in range(2004)),
            *((BEGIN + years * sign, "b", sign) for sign in (-1, 1)),
        ]
    )
    # A hundredth of them may be one step.
    assert 2000 - 20 <= driver.engine.state.stages["stage0"].entries <= 2000
    assert {row["name"] for row in driver.results()} == {"a", "b"}
    driver.close()


def test_a_window_that_was_sent_already_is_sent_again_as_one_that_was_closed_early(spark: SparkSession) -> None:
    driver = StreamDriver(
        spark, _query("tumbling"), SCHEMA, maxStateEntries=2, onStateLimit="shed", isShed=True,
        outputMode="update",
    )  # fmt: skip
    driver.process(_batch(1))
    driver.process(_batch(11))
    found = sorted((row["n"], row["name"], row["is_shed"]) for row in driver.results())
    open_ones = [(1, "a", False), (1, "b", False), (11, "a", False), (11, "b", False)]
    assert found == sorted([*open_ones, (1, "a", True), (1, "b", True)])
    driver.close()


def test_an_error_names_keys_that_python_cannot_hold_and_not_all_of_long_ones(spark: SparkSession) -> None:
    def query(rows: Any) -> Any:
        keys = F.expr("make_date(10000 + n, 1, 1)").alias("day"), F.repeat("name", F.lit(1000)).alias("long")
        return rows.withWatermark("ts", "1 minute").groupBy(_window("tumbling"), *keys).count()

    driver = StreamDriver(spark, query, SCHEMA, maxStateEntries=1)
    with pytest.raises(StateLimitError) as raised:
        driver.process([(BEGIN, "a", 0), (BEGIN, None, 0), (BEGIN + timedelta(seconds=11), "a", 0)])
    told = str(raised.value)
    assert f"(day='+10000-01-01', long='{60 * 'a'}…'): 2; (day='+10000-01-01', long=None): 1" in told
    driver.close()


def test_an_entry_is_as_large_as_the_segments_that_executors_have_reported() -> None:
    whole, half, none = Held(300, 100, 2, 2), Held(1000, 0, 1, 2), Held(0, 0, 0, 2)
    # What has just come is not told yet: it is not taken for nothing.
    assert entry_size([(4, whole), (1000, none)]) == 100
    assert entry_size([(4, whole), (1000, half), (1000, none)]) == 100
    assert entry_size([(10, half), (1000, none)]) == 200
    assert entry_size([(10, none)]) == entry_size([]) == 0


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_bytes_are_kept_within_and_no_row_is_lost(spark: SparkSession, kind: str) -> None:
    batches = [
        [(BEGIN + timedelta(seconds=7 * each), f"{each}" * 50, each) for each in range(20 * number, 20 * number + 40)]
        for number in range(3)
    ]
    for restarts in (False, True):
        results, late = _ran(
            spark, kind, batches, restarts=restarts, maxStateBytes="1500", onStateLimit="shed", isShed=True
        )
        _check(kind, results, late, 120)
        assert {row[-1] for row in results} >= {"True"}
