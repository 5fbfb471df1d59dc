"""Watermarks that travel: from an output's epochs to who reads them, through offsets, windows and crashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.caught_up import announced, carried, caught_up, heard_in
from sparkjet.engine.phases import EpochPhase
from sparkjet.errors import StorageError
from sparkjet.plan.inputs import Input, WatermarkSettings, tracker_of
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId
from sparkjet.testing.stream_driver import StreamDriver
from sparkjet.time import MAX, MIN, Heard, WriterProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SECOND = 1_000_000


def an_offset(offsets: str, watermarks: str) -> str:
    return f'{{"source": "grid-journal", "offsets": {offsets}, "watermarks": {watermarks}, "reader": "r"}}'


def an_input(prefix: str = "", *by: str, sources: int = 1, partitions: bool = True) -> Input:
    return Input(prefix, WatermarkSettings("ts", sj.carried(), by=by, partitions=partitions), sources)


def found(inputs: Sequence[Input], offsets: Sequence[str], *known: str) -> dict[str, int | None]:
    tracker = tracker_of(inputs, [None])
    for name in known:
        tracker.add(name, 0)
    return dict(carried(inputs, offsets, tracker))


def test_each_partition_has_its_own_and_everything_else_the_least() -> None:
    offset = an_offset('{"0": 5, "1": 7}', '{"0": 30, "1": 20}')
    assert found([an_input("", "p")], [offset]) == {"0": 30, "1": 20}
    # A sensor called "0" is no partition: its rows can be in all of them.
    assert found([an_input("", "sensor", partitions=False)], [offset], "0", "x") == {"0": 20, "x": 20}
    nested = an_offset('{"t": {"0": 5, "1": 7}}', '{"t": {"0": 30}}')
    assert found([an_input("", "topic", "partition")], [nested]) == {"t/0": 30, "t/1": MIN}


def test_what_has_not_begun_is_waited_for_and_what_has_none_is_not() -> None:
    several = an_input("", "sensor", partitions=False, sources=2)
    one, other = an_offset('{"0": 5}', '{"0": 30}'), an_offset('{"0": 5, "1": 1}', '{"0": 40}')
    assert found([several], [one, other], "a") == {"a": MIN}
    without = an_offset('{"0": 5, "1": 1}', '{"0": 40, "1": null}')
    assert found([several], [one, without], "a") == {"a": None}
    # Another source of the same stream carries none; of one that no batch has read nothing is known.
    assert found([several], [one, '{"logOffset": 3}'], "a") == {"a": None}
    assert found([several], [one, "-"], "a") == {}
    assert found([several], ['{"logOffset": 3}', "7"], "a") == {}
    # A table of which nobody has told anything may be written by somebody who is behind.
    assert found([several], [one, an_offset("{}", "{}")], "a") == {"a": None}


def test_each_input_has_that_of_its_sources() -> None:
    inputs = [an_input("1/", "p"), an_input("2/", "sensor", partitions=False)]
    offsets = [an_offset('{"0": 5}', '{"0": 30}'), an_offset('{"0": 5}', '{"0": 20}')]
    assert found(inputs, offsets, "2/a", "1/0") == {"1/0": 30, "2/a": 20}
    # One source that both read is one in the batch.
    assert found(inputs, offsets[:1], "2/a", "1/0") == {"1/0": 30, "2/a": 30}


@dataclass
class Hears:
    """Hears of a table what a test says, and notes what it was given."""

    found: Heard | None
    before: list[Heard | None] = field(default_factory=list)

    def heard(self, offset: Any, before: Heard | None) -> Heard | None:
        assert offset == {"reservoirVersion": 4}
        self.before.append(before)
        return self.found


def test_what_is_heard_counts_as_if_the_offset_had_it() -> None:
    heard = Heard(table="t", version=3, writers={"q/results": 30, "r/results": 20, "r/more": MIN})
    hears, offsets = Hears(heard), ['{"reservoirVersion": 4}', an_offset('{"0": 5}', '{"0": 40}')]
    texts, kept = heard_in([hears, None], offsets, ["first", "second"], {"first": heard}, {})
    assert (kept, texts[1], hears.before) == ({"first": heard}, offsets[1], [heard])
    several = an_input("", "sensor", partitions=False, sources=2)
    assert found([several], texts, "a") == {"a": MIN}
    for without, least in ((["r"], 30), (["r/more"], 20), (["r", "q/results"], 40), (["q"], MIN)):
        policy = sj.carried(without=without)
        named = Input("", WatermarkSettings("ts", policy, by=("sensor",)), 2)
        assert found([named], texts, "a") == {"a": least}
    # Others tell nothing; and in the middle of the first rows nobody counts.
    with_others = Hears(Heard(table="t", version=3, writers={"q/results": 30}, others=["WRITE by x/y"]))
    texts, _ = heard_in([with_others], offsets[:1], [], {}, {})
    assert found([an_input("", "sensor", partitions=False)], texts, "a") == {"a": None}
    one = Input("", WatermarkSettings("ts", sj.carried(without=["WRITE by x/y"]), by=("sensor",)), 1)
    assert found([one], texts, "a") == {"a": 30}
    texts, kept = heard_in([Hears(None)], offsets[:1], [], {}, {})
    assert (found([one], texts, "a"), kept) == ({"a": MIN}, {})
    # A source that no batch has read, and one that two inputs read.
    assert heard_in([hears, None], ["-", offsets[1]], [], {}, {}) == (["-", offsets[1]], {})
    assert heard_in([hears, hears], offsets[:1], [], {}, {})[1] == {"0": heard}
    # One of them may have another policy, and not ask.
    assert heard_in([None, hears], offsets[:1], [], {}, {})[1] == {"0": heard}
    assert heard_in([], offsets, [], {}, {}) == (offsets, {})
    # A replay does not look again: logs are cleaned.
    assert heard_in([Hears(None)], offsets[:1], [], {}, {"0": heard})[1] == {"0": heard}
    with pytest.raises(sj.AnalysisError, match=r"carried: without='q' is not a list of names"):
        sj.carried(without="q")


@dataclass
class Following(Hears):
    """Hears a later watermark in each batch."""

    others: list[str] = field(default_factory=list)

    def heard(self, offset: Any, before: Heard | None) -> Heard | None:
        self.before.append(before)
        seen = len(self.before)
        return Heard(table="t", version=seen, writers={"q/results": micros(10 * seen)}, others=self.others)


def test_what_was_heard_is_in_the_record(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    following = Following(None)
    monkeypatch.setattr("sparkjet.plan.plan.hearings", lambda _: (following,))
    driver = StreamDriver(
        spark,
        lambda rows: rows.withWatermark("ts", sj.carried()).groupBy(sj.window("ts", "10 seconds")).count(),
        "ts timestamp",
    )
    driver.process([(at(1),)])
    with driver.crash(EpochPhase.PREPARE):
        driver.process([(at(12),)])
    # The batch is run again.
    driver.restart()
    driver.process([(at(55),)])
    first = Heard(table="t", version=1, writers={"q/results": micros(10)})
    # Nothing of what was not decided.
    assert following.before[:3] == [None, first, first]
    assert [row["count"] for row in driver.results()] == [1, 1]
    assert "carried() waits" not in caplog.text
    # From here on somebody writes of whose rows nobody knows how late they may be.
    following.others = ["WRITE by x/y"]
    for second in (70, 80):
        driver.process([(at(second),)])
    assert caplog.text.count("carried() waits, maybe forever: a writer of the rows of the stream reports no") == 1


def test_only_positions_name_partitions_and_say_what_is_read() -> None:
    offset = an_offset('{"0": 5, "1": 7}', '{"0": 30}')
    assert list(announced([an_input("", "p")], [offset])) == ["0", "1"]
    # A watermark that has moved is nothing that could be read.
    end = {"source": "grid-journal", "offsets": {"0": 5, "1": 7}, "watermarks": {"0": 30}}
    later = {**end, "offsets": {"0": 5, "1": 9}, "watermarks": {"0": 35, "1": 35}}
    source = {"endOffset": end, "latestOffset": later}
    assert caught_up([an_input("", "p")], [source], ["0", "1", "x"]) == {"0": True, "1": False, "x": False}


@dataclass
class TellingSink:
    """A sink that keeps what each epoch tells, with the number of its rows; None of an epoch that only tells."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    told: dict[int, tuple[WriterProgress, int | None]] = field(default_factory=dict)
    committed: dict[int, tuple[WriterProgress, int | None]] = field(default_factory=dict)

    def check(self, schema: StructType) -> None:
        """Every schema fits."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        return self._tell(transaction, rows.count())

    def tells(self, clock: int, watermark: int | None) -> bool:
        newest = max((each.watermark for each, _ in self.told.values() if each.watermark is not None), default=MIN - 1)
        return watermark is not None and watermark > newest

    def tell(self, transaction: TransactionId) -> Handle:
        return self._tell(transaction, None) or {}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        between()
        self.committed[handle["epoch"]] = self.told[handle["epoch"]]

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        return None

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Nothing is left behind."""

    def _tell(self, transaction: TransactionId, rows: int | None) -> Handle | None:
        assert transaction.progress is not None
        if rows == 0 and not self.tells(0, transaction.progress.watermark):
            return None
        self.told[transaction.epoch] = transaction.progress, rows
        return {"epoch": transaction.epoch}


def at(second: int) -> str:
    return f"2026-01-01 12:{second // 60:02}:{second % 60:02}"


def micros(second: int) -> int:
    return (1_767_268_800 + second) * SECOND


def test_a_sink_that_carries_is_told_of_every_move(spark: SparkSession) -> None:
    def query(rows: sj.Stream) -> object:
        counts = rows.withWatermark("ts", "5 seconds").groupBy(sj.window("ts", "10 seconds"), "k").count()
        return [counts.where("k <> 'none'"), counts.lateRows]

    results, late = TellingSink(), TellingSink()
    driver = StreamDriver(spark, query, "ts timestamp, k string", sinks=[results, late])
    driver.process([(at(1), "a")])
    driver.process([(at(16), "none")])
    driver.process([(at(27), "none")])
    driver.process([(at(28), "none"), (at(3), "a")])
    told = {epoch: (each.watermark, rows, each.epoch) for epoch, (each, rows) in results.committed.items()}
    # The first has no results, and that of the third is filtered away. The fourth moves nothing.
    assert told == {1: (micros(-10), 0, 1), 2: (micros(10), 1, 2), 3: (micros(20), 0, 3)}
    assert results.committed[2][0].offsets == {"0": "[2]"}
    # Of rows that are late a watermark says nothing.
    assert {epoch: (each.watermark, rows) for epoch, (each, rows) in late.committed.items()} == {4: (None, 1)}


class GoneAtTheEnd(TellingSink):
    """Tells at the end of a run only, when its destination has gone."""

    def tells(self, clock: int, watermark: int | None) -> bool:
        return clock == MAX and super().tells(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        raise StorageError("no member of the grid answers")


def test_a_query_that_is_stopped_does_not_fail_as_nobody_can_be_told_more(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    def query(rows: sj.Stream) -> object:
        return rows.withWatermark("ts", 0).groupBy(sj.window("ts", "10 seconds")).count().where("count > 9")

    sink = GoneAtTheEnd()
    driver = StreamDriver(spark, query, "ts timestamp", sinks=[sink])
    driver.process([(at(15),)])
    with caplog.at_level("WARNING"):
        driver.stop()
    assert "the next run tells it: [SPARKJET_STORAGE] no member of the grid answers" in caplog.text
    driver.restart()
    driver.process([(at(25),)])
    assert not sink.committed


def test_a_join_is_further_behind(spark: SparkSession) -> None:
    def query(left: sj.Stream, right: sj.Stream) -> object:
        one, other = left.withWatermark("ts", 0).alias("l"), right.withWatermark("at", 0).alias("r")
        return one.join(other, F.expr("l.k = r.k AND r.at BETWEEN l.ts AND l.ts + INTERVAL 1 MINUTE"))

    sink = TellingSink()
    driver = StreamDriver(spark, query, ["ts timestamp, k string", "at timestamp, k string"], sinks=[sink])
    driver.process([(at(100), "a")], [(at(100), "a")])
    assert [each.watermark for each, _ in sink.committed.values()] == [micros(40)]


# In CI, `connectors/grid/test_chained_queries.py` restarts a query between what the writer says.
@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.long)])
def test_windows_close_where_the_writer_says_also_without_rows(spark: SparkSession, *, restarts: bool) -> None:
    def query(rows: sj.Stream) -> object:
        counts = rows.withWatermark("ts", sj.carried()).groupBy(sj.window("ts", "10 seconds")).count()
        return [counts, counts.lateRows]

    driver = StreamDriver(spark, query, "ts timestamp")
    batches: list[tuple[list[tuple[str]], int, list[int]]] = [
        ([(at(1),), (at(25),)], 0, []),
        ([(at(2),)], 9, []),
        ([], 20, [2]),
        ([(at(19),), (at(21),)], 20, [2]),
        ([], 30, [2, 2]),
    ]
    for rows, second, counts in batches:
        driver.process(rows, carried=at(second))
        if restarts:
            driver.restart()
        assert [row["count"] for row in driver.results()] == counts
    assert [row["ts"].second for row in driver.late_rows()] == [19]
