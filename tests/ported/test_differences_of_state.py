"""Differences of a ported query with state, row by row of the table in docs/guide/porting.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

import sparkjet as sj
from tests.ported.both import Both
from tests.ported.differences import SCHEMA, at, in_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Both:
    return Both(spark, tmp_path, SCHEMA)


def five_seconds_later(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """A row for each key that has been silent for so long, in event time."""
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]]})
        return
    last = max(int(frame["ts"].max().timestamp() * 1000) for frame in frames)
    state.update((last,))
    state.setTimeoutTimestamp(last + 5_000)


@pytest.mark.long
def test_a_timer_fires_in_the_batch_that_moves_the_watermark(both: Both) -> None:
    def silent(df: Any) -> Any:
        keyed = df.withWatermark("ts", "1 second").groupBy("k")
        return keyed.applyInPandasWithState(five_seconds_later, "k string", "last long", "append", "EventTimeTimeout")

    source = both.arrive([at(1)], [at(30, "b")], [at(31, "b")], [at(32, "b")]).source()
    assert in_batches(silent(source)) == [(2, [("a",)])]
    assert in_batches(silent(sj.stream(source))) == [(1, [("a",)])]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["complete", "update"])
def test_an_aggregate_without_keys_emits_nothing_where_no_row_counts(both: Both, mode: str) -> None:
    def of_b(df: Any) -> Any:
        return df.where("k = 'b'").groupBy().agg(F.count("v").alias("n"), F.min("v").alias("least"))

    source = both.arrive([at(1)], [at(2, "b")], [at(3)]).source()
    theirs, ours = ([rows for _, rows in in_batches(of_b(each), mode)] for each in (source, sj.stream(source)))
    assert theirs == [[(0, None)], [(1, 1)], [(1, 1)]]
    assert ours == [[(1, 1)]]


JOINED = "k = other AND at BETWEEN ts AND ts + INTERVAL 10 SECONDS"


@pytest.fixture
def answers(spark: SparkSession, tmp_path: Path) -> Both:
    """The right side of a join."""
    (tmp_path / "answers").mkdir()
    return Both(spark, tmp_path / "answers", "at timestamp, other string")


def answered(left: Any, right: Any, on: str = JOINED, how: str = "inner") -> Any:
    sides = left.withWatermark("ts", "1 second"), right.withWatermark("at", "1 second")
    # Not both times: Spark's foreachBatch takes one at most.
    return sides[0].join(sides[1], F.expr(on), how).select("k", "ts", F.col("at").isNull().alias("alone"))


def answer(second: int, other: str = "a") -> dict[str, Any]:
    return {"at": at(second)["ts"], "other": other}


@pytest.mark.long
def test_a_row_without_a_partner_comes_by_the_watermark_of_the_other_side(
    spark: SparkSession, tmp_path: Path, answers: Both
) -> None:
    (tmp_path / "asked").mkdir()
    left = Both(spark, tmp_path / "asked", SCHEMA).arrive([at(1), at(2, "b")], [at(3, "c")], [at(4, "c")])
    # The answers are far ahead of what is asked.
    answers.arrive([answer(5, "b")], [answer(60, "z")], [answer(61, "z")])

    def alone(rows: Any) -> list[tuple[int, list[str]]]:
        found = [(number, sorted(row.k for row in batch if row.alone)) for number, batch in in_batches(rows)]
        return [(number, keys) for number, keys in found if keys]

    theirs = answered(left.source(), answers.source(), how="leftOuter")
    ours = answered(sj.stream(left.source()), sj.stream(answers.source()), how="leftOuter")
    # Spark's one watermark is that of the side that is behind.
    assert alone(theirs) == []
    assert alone(ours) == [(1, ["a", "c"]), (2, ["c"])]


@pytest.mark.long
def test_after_a_join_without_a_bound_there_is_no_event_time(both: Both, answers: Both) -> None:
    both.arrive([at(1)], [at(50)], [at(51)], [at(52)])
    answers.arrive([answer(2)], [answer(60)], [answer(61)], [answer(62)])

    def tens(left: Any, right: Any) -> Any:
        return answered(left, right, "k = other").groupBy(F.window("ts", "10 seconds")).count()

    theirs = [row for _, rows in in_batches(tens(both.source(), answers.source())) for row in rows]
    # One of the pairs comes when its window has closed.
    assert [(str(row.window.start)[14:], row["count"]) for row in theirs] == [("00:00", 3)]
    ours = tens(sj.stream(both.source()), sj.stream(answers.source()))
    with pytest.raises(sj.AnalysisError, match=r'Use outputMode\("update"\)'):
        in_batches(ours)
    (*_, (_, rows)) = in_batches(ours, "complete")
    assert sorted((str(row.window.start)[14:], row["count"]) for row in rows) == [("00:00", 4), ("00:50", 12)]


REFUSED_BY_SPARK = "join between two streaming DataFrames/Datasets is not supported in {} output mode"


@pytest.mark.parametrize(
    ("how", "mode"),
    # docs/guide/joining-streams.md runs an inner one.
    [
        *(pytest.param(how, "complete", marks=pytest.mark.long) for how in ("inner", "leftOuter")),
        ("leftOuter", "update"),
    ],
)
def test_aggregates_after_a_join_take_every_mode(both: Both, answers: Both, how: str, mode: str) -> None:
    both.arrive([at(1)], [at(3)])
    answers.arrive([answer(2)], [answer(4)])

    def counts(left: Any, right: Any) -> Any:
        return answered(left, right, how=how).groupBy("k").count()

    with pytest.raises(AnalysisException, match=REFUSED_BY_SPARK.format(mode.capitalize())):
        in_batches(counts(both.source(), answers.source()), mode)
    (*_, (_, rows)) = in_batches(counts(sj.stream(both.source()), sj.stream(answers.source())), mode)
    assert [tuple(row) for row in rows] == [("a", 3)]


def test_functions_with_state_in_update_mode_after_an_outer_join(both: Both, answers: Both) -> None:
    both.arrive([at(1)], [at(30)])
    answers.arrive([answer(2)], [answer(31)])

    def count(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update(((state.getOption or (0,))[0] + sum(map(len, frames)),))
        yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})

    def counts(left: Any, right: Any) -> Any:
        keyed = answered(left, right, how="leftOuter").groupBy("k")
        return keyed.applyInPandasWithState(count, "k string, n long", "n long", "update", "NoTimeout")

    with pytest.raises(AnalysisException, match=REFUSED_BY_SPARK.format("Update")):
        in_batches(counts(both.source(), answers.source()), "update")
    found = in_batches(counts(sj.stream(both.source()), sj.stream(answers.source())), "update")
    assert [row.n for _, rows in found for row in rows] == [1, 2]


@pytest.mark.long
def test_a_key_is_forgotten_in_the_batch_that_moves_the_watermark(both: Both) -> None:
    def first(df: Any) -> Any:
        return df.withWatermark("ts", "5 seconds").dropDuplicatesWithinWatermark(["k"]).select("k", "v")

    source = both.arrive([at(0, v=1)], [at(30, "b", v=2)], [at(31, v=3)], [at(32, v=4)]).source()
    # Spark forgets it after the rows of the next batch.
    assert [row.v for _, rows in in_batches(first(source)) for row in rows] == [1, 2, 4]
    assert [row.v for _, rows in in_batches(first(sj.stream(source))) for row in rows] == [1, 2, 3]
