"""Joins of two streams as whole queries: what each side waits for, what comes after a join, and what is refused."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

import sparkjet as sj
from sparkjet.testing import StreamDriver
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sparkjet.api.stream import Stream

SENT = "letter long, sent timestamp, p string"
ANSWERED = "answered long, at timestamp, q string"
WITHIN = "letter = answered AND at >= sent AND at <= sent + INTERVAL 1 MINUTE"


def at(second: int) -> str:
    return f"2026-01-01 12:{second // 60:02}:{second % 60:02}"


def posted(letter: int, second: int, p: str = "p") -> tuple[int, str, str]:
    return letter, at(second), p


def answer(letter: int, second: int, q: str = "q") -> tuple[int, str, str]:
    return letter, at(second), q


def watermarked(letters: Stream, answers: Stream) -> tuple[Stream, Stream]:
    return letters.withWatermark("sent", "0 seconds", by="p"), answers.withWatermark(
        "at", "0 seconds", by="q", substreams=["q", "other"]
    )


def pairs(driver: StreamDriver) -> list[tuple[Any, ...]]:
    """Letter, second sent and second answered of the results."""
    found = [row.asDict() for row in driver.results()]
    seconds = [[row[name] and row[name].minute * 60 + row[name].second for name in ("sent", "at")] for row in found]
    return sorted(((row["letter"], *each) for row, each in zip(found, seconds, strict=True)), key=repr)


# In CI, `test_join_laws.py` compares with the naive join, and `crash/farmed/test_steps.py` kills drivers that join.
@pytest.mark.long
def test_a_side_that_lags_loses_nothing_and_rows_without_a_partner_come_when_they_are_known(
    spark: SparkSession,
) -> None:
    def query(letters: Stream, answers: Stream) -> Stream:
        left, right = watermarked(letters, answers)
        return left.join(right, F.expr(WITHIN), "leftOuter")

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    driver.process([posted(1, 0), posted(2, 30)], [answer(9, 5)])
    # The letters are an hour ahead: Spark's watermark, one for both sides and by the highest time, would drop the rest.
    driver.process([posted(3, 3000), posted(4, 3001)], [])
    driver.process([], [answer(1, 60), answer(2, 80), answer(2, 91)])
    assert pairs(driver) == [(1, 0, 60), (2, 30, 80)]
    # The other substream of the answers is behind, and is waited for.
    with driver.crash(at=sj.EpochPhase.PREPARE):
        driver.process([], [answer(2, 85, "other"), answer(8, 3200)])
    driver.restart()
    driver.process()
    assert pairs(driver) == [(1, 0, 60), (2, 30, 80), (2, 30, 85)]
    driver.process([], [answer(3, 3061, "other"), answer(4, 3061, "other")])
    assert pairs(driver) == [(1, 0, 60), (2, 30, 80), (2, 30, 85), (3, 3000, None), (4, 3001, 3061)]
    assert driver.late_counts == {}


@pytest.mark.crash
def test_what_comes_after_a_join_sees_both_event_times(spark: SparkSession) -> None:
    def query(letters: Stream, answers: Stream) -> list[Any]:
        left, right = watermarked(letters, answers)
        both = left.alias("a").join(right.alias("b"), F.expr(WITHIN))
        named = both.where("a.letter < 3").select("a.letter", "a.sent", "b.at")
        by_answer = named.groupBy(F.window("at", "1 minute"), "letter").count()
        by_letter = named.groupBy(sj.window("sent", "1 minute")).agg(F.count("*").alias("n"), F.max("at").alias("at"))
        again = both.alias("x").join(
            left.alias("y"), F.expr("x.letter = y.letter AND y.sent > x.at AND y.sent <= x.at + INTERVAL 10 SECONDS")
        )
        return [
            named,
            by_answer,
            by_letter,
            again.select("x.letter", F.col("x.at").alias("at"), "y.sent"),
            both.lateRows,
        ]

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    driver.process([posted(1, 0), posted(1, 50), posted(2, 58), posted(3, 1)], [answer(1, 55), answer(3, 2, "other")])
    driver.process([posted(1, 65), posted(9, 500)], [answer(1, 70), answer(2, 118, "other")])
    # The time of the answers is that of the substream that is behind; of the letters it is not held up by that.
    driver.process([posted(9, 490)], [answer(9, 60, "other"), answer(1, 110)])
    driver.process([], [answer(9, 600), answer(9, 600, "other")])
    driver.process([posted(9, 700)], [])
    named = [(1, 0, 55), (1, 50, 110), (1, 50, 55), (1, 50, 70), (1, 65, 110), (1, 65, 70), (2, 58, 118)]
    assert pairs(driver) == sorted(named, key=repr)
    minutes = {(row.window.start.minute, row.letter): row["count"] for row in driver.results(1)}
    assert minutes == {(0, 1): 2, (1, 1): 4, (1, 2): 1}
    assert {row.window.start.minute: row.n for row in driver.results(2)} == {0: 5, 1: 2}
    assert sorted((row.at.second, row.sent.second, row.letter) for row in driver.results(3)) == [(55, 5, 1), (55, 5, 1)]
    late = {
        (row.letter, row.answered, row["_substream"].partition("/")[2], row["_reason"]) for row in driver.late_rows()
    }
    assert late == {(9, None, "p", "late"), (None, 9, "other", "late")}
    # The watermark of its own side has made a row late, not that of the query.
    judged = {row.letter: row["_watermark"].minute * 60 + row["_watermark"].second for row in driver.late_rows()}
    assert judged == {9: 500, None: 70}


@pytest.mark.crash
def test_a_window_column_keeps_sparks_mark_after_a_join(spark: SparkSession) -> None:
    def query(letters: Stream, answers: Stream) -> Any:
        left, right = watermarked(letters.withColumn("w", F.window("sent", "1 minute")), answers)
        return left.join(right, F.expr(WITHIN)).select("letter", F.window_time("w").alias("until"))

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    driver.process([posted(1, 0)], [])
    driver.restart()
    driver.process([], [answer(1, 30)])
    assert [(row.letter, row.until.second, row.until.microsecond) for row in driver.results()] == [(1, 59, 999_999)]


def test_a_stream_keeps_its_name_when_its_own_rows_are_written_too(spark: SparkSession) -> None:
    def query(letters: Stream, answers: Stream) -> list[Any]:
        left, right = watermarked(letters, answers)
        left = left.alias("letters")
        return [left.join(right.alias("answers"), F.expr(WITHIN)), left.select("letter")]

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    assert [each.prefix for each in driver.plan.inputs] == ["letters/", "answers/"]


BATCH_LEFT = [(1, 0, 5), (1, 10, 3), (2, 0, 1), (None, 4, 1), (3, 7, 2), (1, 0, 5)]
BATCH_RIGHT = [(1, 10, 4), (1, 11, 9), (2, 20, 1), (None, 4, 7), (4, 7, 2), (3, 7, None), (1, 0, 6)]
CONDITIONS: dict[str, Any] = {
    "Columns": lambda: (
        (F.col("a.k") == F.col("b.k"))
        & F.col("b.ts").between(F.col("a.ts"), F.col("a.ts") + F.expr("INTERVAL 10 SECONDS"))
        & (F.col("a.v") < F.col("b.v"))
    ),
    "names": lambda: ["k", "ts"],
    "null-safe": lambda: F.expr(
        "a.k <=> b.k AND abs(b.v) > 0 AND b.ts - a.ts BETWEEN INTERVAL '-5' SECOND AND INTERVAL '0' SECOND"
    ),
}
HOWS = ["inner", "left", "rightouter", "full_outer", "left_semi", "leftanti"]


@pytest.mark.parametrize(
    ("how", "condition"),
    mostly_crash(
        itertools.product(HOWS, CONDITIONS),
        quick={("full_outer", "Columns")},
        crash=set(zip(HOWS, itertools.cycle(CONDITIONS), strict=False)),
    ),
)
def test_where_nothing_is_late_a_join_is_that_of_spark(spark: SparkSession, how: str, condition: str) -> None:
    schema = "k long, s long, v long"
    left, right = (
        spark.createDataFrame(rows, schema).select("k", F.timestamp_seconds("s").alias("ts"), "v")
        for rows in (BATCH_LEFT, BATCH_RIGHT)
    )
    if condition == "names":
        right = right.withColumnRenamed("v", "w").withColumn("k", F.col("k").cast("int"))
    on = CONDITIONS[condition]()
    expected = left.alias("a").join(right.alias("b"), on, how)
    streams = [sj.stream(each).withWatermark("ts", "0 seconds") for each in (left, right)]
    found = streams[0].alias("a").join(streams[1].alias("b"), on, how).toDF()
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(map(tuple, expected.collect()), key=repr)


def test_a_stream_is_joined_with_itself_and_a_clock_without_input_brings_what_has_no_partner(
    spark: SparkSession,
) -> None:
    def query(letters: Stream) -> Stream:
        timed = letters.withWatermark("sent", sj.limiting_lag("0 seconds"), by="p", idleTimeout="1 minute")
        return timed.alias("a").join(
            timed.where("letter > 0").alias("b"),
            F.expr("a.letter = b.letter AND b.sent > a.sent AND b.sent <= a.sent + INTERVAL 10 SECONDS"),
            "left_anti",
        )

    driver = StreamDriver(spark, query, SENT)
    driver.process([posted(1, 0), posted(2, 1), posted(1, 5), posted(-3, 2), posted(-3, 3)])
    driver.process([posted(1, 3, "behind"), posted(2, 100)])
    assert driver.results() == []
    # The substream that is behind is idle, and no longer waited for.
    driver.advance("61 seconds")
    assert sorted((row.letter, row.sent.second) for row in driver.results()) == [(-3, 2), (-3, 3), (1, 5), (2, 1)]


@pytest.mark.parametrize(
    ("bound", "last"),
    [
        ("at >= sent", [2]),
        ("at <= sent", [1]),
        ("true", [1, 2]),
    ],
)
@pytest.mark.long
def test_an_inner_join_without_a_bound_holds_rows_forever(spark: SparkSession, bound: str, last: list[int]) -> None:
    def query(letters: Stream, answers: Stream) -> Stream:
        left, right = watermarked(letters, answers)
        return left.join(right, F.expr(f"letter = answered AND {bound}"))

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    driver.process([posted(2, 0)], [answer(1, 5)])
    for quarter in range(1, 4):
        driver.process([posted(9, 900 * quarter)], [answer(8, 900 * quarter)])
    driver.restart()
    assert driver.results() == []
    driver.process([posted(1, 2701)], [answer(2, 2702)])
    assert sorted(row.letter for row in driver.results()) == last


def test_a_join_without_a_bound_leaves_no_event_time(spark: SparkSession) -> None:
    letters = spark.createDataFrame([], SENT)
    answers = spark.createDataFrame([], ANSWERED)
    left, right = watermarked(sj.stream(letters), sj.stream(answers))
    joined = left.join(right, F.expr("letter = answered AND at >= sent"))
    with pytest.raises(sj.AnalysisError, match="watermark"):
        joined.groupBy(F.session_window("at", "1 minute"))


def totals(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The number of rows of a key so far."""
    state.update(((state.getOption or (0,))[0] + sum(map(len, frames)),))
    yield pd.DataFrame({"letter": [key[0]], "n": [state.get[0]]})


@pytest.mark.crash
def test_the_end_of_the_input_takes_nothing_from_a_join_without_a_bound(spark: SparkSession) -> None:
    """It ends the windows beside the join; what the join holds forever still finds its partners afterwards."""

    def query(letters: Stream, answers: Stream) -> list[Any]:
        left, right = watermarked(letters, answers)
        joined = left.join(right, F.expr("letter = answered AND at >= sent"))
        counted = joined.groupBy("letter").applyInPandasWithState(
            totals, "letter long, n long", "n long", "update", "NoTimeout"
        )
        return [left.groupBy(F.window("sent", "1 minute")).count(), counted]

    driver = StreamDriver(spark, query, [SENT, ANSWERED])
    driver.process([posted(1, 0), posted(2, 61)], [answer(1, 5), answer(1, 6, "other"), answer(2, 4)])
    driver.close_windows()
    assert sorted(row["count"] for row in driver.results()) == [1, 1]
    assert sorted(row.n for row in driver.results(1)) == [2]
    assert driver.watermark is not None
    # No further than to the end of the last window: a later run goes on from there.
    assert driver.watermark.minute == 2
    driver.restart()
    driver.process([posted(3, 130)], [answer(2, 131), answer(1, 132), answer(1, 3)])
    assert sorted((row.letter, row.n) for row in driver.results(1))[1:] == [(1, 3), (2, 1)]
    assert sum(driver.late_counts.values()) == 1


def test_steps_that_need_event_time_after_a_join_without_a_bound_are_refused(spark: SparkSession) -> None:
    left, right = watermarked(*(sj.stream(spark.createDataFrame([], each)) for each in (SENT, ANSWERED)))
    keyed = left.join(right, F.expr("letter = answered AND at >= sent")).groupBy("letter")
    with pytest.raises(sj.AnalysisError, match=r"event time needs withWatermark.*a join bounds it in both directions"):
        keyed.applyInPandasWithState(totals, "letter long, n long", "n long", "update", "EventTimeTimeout")


REFUSED: dict[str, tuple[str, str]] = {
    "no upper bound": ("letter = answered AND at >= sent", "does not say how much later, e.g. at <= sent"),
    "no lower bound": ("letter = answered AND at < sent", "does not say how much earlier .* e.g. at >= sent"),
    "no bound": ("letter = answered", "earlier .* nor how much later"),
    "another column": ("letter = answered AND cast(other AS timestamp) BETWEEN sent AND sent", "both directions"),
    "by OR": (f"letter = answered AND ({WITHIN} OR letter = 1)", "one of those joined by AND"),
    "never": ("letter = answered AND at < sent AND at > sent", "never be true: 'at' would be at least 1 microsecond"),
    "no equality": ("at >= sent AND at <= sent", "no equality .* a constant column on both sides"),
    "unknown column": (f"{WITHIN} AND nothing = 1", "UNRESOLVED_COLUMN.*nothing"),
    "ambiguous column": (f"{WITHIN} AND p = 'a'", "AMBIGUOUS_REFERENCE.*Both streams have such a column"),
}


@pytest.fixture
def two(spark: SparkSession) -> tuple[Stream, Stream]:
    letters = spark.createDataFrame([], "letter long, sent timestamp, p string, other timestamp")
    answers = spark.createDataFrame([], "answered long, at timestamp, p string")
    return sj.stream(letters).withWatermark("sent", 0), sj.stream(answers).withWatermark("at", 0)


@pytest.mark.parametrize("case", REFUSED)
def test_conditions_that_no_state_could_answer_are_refused_with_a_way_out(
    two: tuple[Stream, Stream], case: str
) -> None:
    condition, message = REFUSED[case]
    with pytest.raises(sj.AnalysisError, match=f"(?s)join: .*{message}"):
        two[0].join(two[1], F.expr(condition), "leftOuter")


def test_joins_that_cannot_be_are_refused(two: tuple[Stream, Stream]) -> None:
    left, right = two
    with pytest.raises(sj.AnalysisError, match="how='leftt' is not a join of two streams: did you mean"):
        left.join(right, F.expr(WITHIN), "leftt")
    with pytest.raises(sj.AnalysisError, match="the condition contains a Python function"):
        left.join(right, F.expr(WITHIN) & F.udf(lambda a, b: a == b, "boolean")("other", "at"))
    with pytest.raises(sj.AnalysisError, match="the condition contains a subquery"):
        left.join(right, F.expr(f"{WITHIN} AND EXISTS (SELECT 1 FROM range(3) WHERE id = letter)"))
    with pytest.raises(sj.AnalysisError, match="the other stream has no watermark"):
        left.join(sj.stream(right.toDF()), F.expr(WITHIN))
    with pytest.raises(sj.AnalysisError, match="the left stream has two columns 'p'"):
        left.join(right, F.expr(WITHIN)).join(right.alias("r"), F.expr("letter = r.answered AND sent = r.at"))
    with pytest.raises(sj.AnalysisError, match="has no watermark, which is on 'sent'"):
        left.join(right, F.expr(WITHIN)).groupBy(F.window("other", "1 minute"))
    replaced = left.join(right, F.expr(WITHIN)).withColumn("sent", F.col("other"))
    with pytest.raises(sj.AnalysisError, match="'sent' was replaced after the join"):
        replaced.groupBy(F.window("sent", "1 minute"))
    with pytest.raises(sj.AnalysisError, match="lateRows: no row of a stream is late"):
        _ = left.lateRows


def test_columns_of_a_stream_need_no_side(two: tuple[Stream, Stream]) -> None:
    left, right = two
    renamed = right.withColumnsRenamed({"answered": "letter", "at": "answered_at"})
    joined = left.join(
        renamed,
        (left.letter == renamed.letter) & (renamed.answered_at >= left.sent) & (renamed.answered_at <= left.sent),
    )
    assert joined.columns == ["letter", "sent", "p", "other", "letter", "answered_at", "p"]
