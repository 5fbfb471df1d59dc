"""Switches: an old query publishes the windows up to a time and a new one those after it, each of them once."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.cli import main
from sparkjet.engine.refilling import Refill
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import Border
from sparkjet.snapshots.record_log import RecordLog, newest_record
from sparkjet.storage.posix_directory import as_directory
from sparkjet.testing import CollectingSink, StreamDriver
from tests.feed import SCHEMA as FED
from tests.feed import START, Feed
from tests.feed import rows as fed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.spark, pytest.mark.interpreted, pytest.mark.crash]

SCHEMA = "ts timestamp, k string, v long"
_BASE = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
Row = tuple[datetime | None, str, int]


def at(second: int) -> datetime:
    return _BASE + timedelta(seconds=second)


def row(second: int | None, k: str = "a", v: int = 1) -> Row:
    return (None if second is None else at(second), k, v)


def tens(stream: Any, *, function: Callable[[Any], Any] = sj.window, lag: str = "0 seconds") -> Any:
    return stream.withWatermark("ts", lag).groupBy(function("ts", "10 seconds"), "k")


def sums(stream: Any) -> Any:
    return tens(stream, lag="12 seconds").agg(F.sum("v").alias("v"))


def peaks(stream: Any) -> Any:
    """Longer windows, of another aggregate, that end where those of :func:`sums` do."""
    windows = stream.withWatermark("ts", "15 seconds").groupBy(sj.window("ts", "20 seconds", "10 seconds"), "k")
    return windows.agg(F.max("v").alias("v"))


def chained(stream: Any) -> Any:
    """Windows over windows, of which both are written."""
    first = tens(stream, lag="12 seconds").agg(F.sum("v").alias("v"))
    return [first, first.groupBy(sj.window("window", "20 seconds"), "k").agg(F.sum("v").alias("v"))]


def some(often: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return [*often, *(pytest.param(*each, marks=pytest.mark.long) for each in others if each not in often)]


class Pair:
    """Two queries over the same rows, each in epochs of its own, the new one waiting for the old one."""

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        old: Any = sums,
        new: Any = peaks,
        listener: Any = None,
        **options: Any,
    ) -> None:
        self.place, self._spark = place, spark
        self.old = StreamDriver(spark, old, SCHEMA, directory=place / "old", onEpochPhase=listener, **options)
        self.new = self.driver(new, "new", **options)

    def driver(self, query: Any, name: str, **options: Any) -> StreamDriver:
        before = self.place / "old"
        return StreamDriver(self._spark, query, SCHEMA, directory=self.place / name, publishAfter=before, **options)

    def process(self, *rows: Row) -> None:
        for each in (self.old, self.new):
            each.process(rows)

    def switch(self, second: int | None = None) -> int:
        done = sj.switch(self.place / "old", self.place / "new", None if second is None else at(second))
        return int((done.at - _BASE).total_seconds())

    def close(self) -> None:
        for each in (self.old, self.new):
            each.close()


def told(rows: Sequence[Any]) -> list[str]:
    return sorted(map(str, map(tuple, rows)))


def windows(rows: DataFrame, function: Callable[[Any], Any], *lengths: str) -> DataFrame:
    return rows.groupBy(F.window("ts", *lengths), "k").agg(function("v").alias("v"))


def check(spark: SparkSession, pair: Pair, rows: Sequence[Row], end: int) -> None:
    """The old query's windows up to the cut, and the new one's after it, are those of a batch."""
    batch = spark.createDataFrame(rows, SCHEMA)
    before = windows(batch, F.sum, "10 seconds").where(F.col("window.end") <= F.lit(at(end)))
    after = windows(batch, F.max, "20 seconds", "10 seconds").where(F.col("window.end") > F.lit(at(end)))
    assert told(pair.old.results()) == told(before.collect()) != []
    assert told(pair.new.results()) == told(after.collect()) != []


@pytest.mark.parametrize(
    ("seed", "overlap"),
    some([(2, False)], [(seed, bool(seed % 2)) for seed in range(1, 40)]),
)
def test_each_window_comes_once_by_the_old_rule_up_to_the_cut_and_by_the_new_one_after_it(
    spark: SparkSession, tmp_path: Path, seed: int, overlap: bool
) -> None:
    """Both are restored after each epoch, or with overlapping epochs go on; who is ahead is random."""
    chance = random.Random(seed)
    rows = [row(i + chance.randint(-5, 5), chance.choice("ab"), chance.randint(1, 99)) for i in range(10, 70)]
    left = {name: list(rows) for name in ("old", "new")}
    pair, end, seen = Pair(spark, tmp_path, overlapEpochs=overlap), None, 0
    switched_at = chance.randint(30, 60)
    while any(left.values()):
        name = chance.choice([each for each in left if left[each]])
        count = chance.randint(10, 30)
        driver, batch = getattr(pair, name), left[name][:count]
        del left[name][:count]
        driver.process(batch)
        if not overlap:
            driver.restart()
        if name == "old":
            seen += len(batch)
        if end is None and seen >= switched_at:
            end = pair.switch(chance.choice([None, seen // 10 * 10 + 10, seen // 10 * 10 + 20]))
    assert end is not None
    # Closes what is open.
    pair.process(row(900, "late"))
    pair.old.restart()
    check(spark, pair, rows, end)
    assert pair.old.engine.is_over
    pair.close()


@pytest.mark.crash
@pytest.mark.parametrize("overlap", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_epoch_that_comes_second_is_run_again(spark: SparkSession, tmp_path: Path, overlap: bool) -> None:
    """The switch is decided while the old query has prepared windows that are the new one's from now on."""
    done: list[int] = []

    def listener(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.PREPARE, 2) and not done:
            done.append(pair.switch())

    pair = Pair(spark, tmp_path, listener=listener, overlapEpochs=overlap)
    rows = [row(1), row(4, v=7), row(12), row(27, v=3), row(33, v=9), row(58), row(61, v=2)]
    pair.process(*rows[:4])
    pair.process(*rows[4:])
    pair.process(row(900, "late"))
    assert done == [10]
    check(spark, pair, rows, 10)
    # It has not been taken over: the run is the same.
    assert pair.old.engine.record.takeover == 0
    pair.close()


@pytest.mark.crash
@pytest.mark.parametrize(
    ("who", "phase"),
    some(
        [("new", EpochPhase.SAVE)],
        # An epoch that publishes nothing has no moment between two commits: tests/crash/test_switch.py is killed there.
        [(who, phase) for who in ("old", "new") for phase in EpochPhase if phase is not EpochPhase.COMMITTING],
    ),
)
def test_a_crash_after_the_switch_leaves_no_gap_and_nothing_twice(
    spark: SparkSession, tmp_path: Path, who: str, phase: EpochPhase
) -> None:
    rows = [row(1), row(4, v=7), row(12), row(27, v=3), row(33, v=9), row(58), row(61, v=2)]
    pair = Pair(spark, tmp_path)
    pair.process(*rows[:4])
    assert pair.switch(30) == 30
    # The border is known some epochs before it is reached.
    for batch in (rows[4:5], rows[5:], [row(900, "late")]):
        driver = getattr(pair, who)
        with driver.crash(at=phase):
            driver.process(batch)
        driver.restart()
        # What a crash has left is read again.
        driver.process([])
        getattr(pair, "new" if who == "old" else "old").process(batch)
    check(spark, pair, rows, 30)
    pair.close()


def test_late_rows_belong_to_the_query_of_their_window(spark: SparkSession, tmp_path: Path) -> None:
    def with_late(stream: Any) -> Any:
        windows = tens(stream).agg(F.sum("v").alias("v"))
        return [windows, windows.lateRows]

    def late(driver: StreamDriver) -> list[int | None]:
        return [None if each.ts is None else each.ts.second for each in driver.late_rows()]

    pair = Pair(spark, tmp_path, with_late, with_late)
    pair.process(row(1), row(12))
    pair.process(row(3), row(None), row(13))
    assert (late(pair.old), late(pair.new)) == ([3, None], [])
    assert pair.switch(20) == 20
    # Of both sides: in time, then late.
    pair.process(row(15), row(24), row(31))
    pair.process(row(14), row(26), row(33))
    assert late(pair.old) == [3, None, 14]
    assert late(pair.new) == [26]
    found = [[(each.window.end.second, each.v) for each in driver.results()] for driver in (pair.old, pair.new)]
    assert found == [[(10, 1), (20, 3)], [(30, 1)]]
    # There may be more of them.
    assert not pair.old.engine.is_over
    pair.process(row(None))
    assert (late(pair.old)[-1], late(pair.new)[-1]) == (None, None)
    pair.close()


def test_windows_over_windows_are_cut_where_all_end(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, chained, chained)
    rows = [row(1), row(12), row(27), row(45), row(53), row(66), row(79), row(93)]
    pair.old.process(rows[:5])
    pair.new.process(rows)
    # The tens are published up to 40; 40 is also an end of the twenties.
    assert pair.switch() == 40
    pair.old.process(rows[5:])
    pair.process(row(900, "late"))
    for output, length in enumerate((10, 20)):
        old, new = (
            [int(each.window.end.timestamp() - _BASE.timestamp()) for each in driver.results(output)]
            for driver in (pair.old, pair.new)
        )
        ends = sorted({(int((each[0] - _BASE).total_seconds()) // length + 1) * length for each in rows if each[0]})
        assert sorted(old) == [end for end in ends if end <= 40]
        assert sorted(new) == [end for end in ends if end > 40]
    pair.close()


def test_a_switch_stays_as_it_was_decided(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(spark, tmp_path)
    other = pair.driver(peaks, "other")
    with pytest.raises(AnalysisError, match="has closed no window yet"):
        pair.switch()
    pair.process(row(1), row(35))
    naive: Any = datetime(2026, 1, 1, 12)
    for wrong in (naive, "12:00"):
        with pytest.raises(AnalysisError, match=r"at=.* is not a datetime with a time zone"):
            sj.switch(tmp_path / "old", tmp_path / "new", wrong)
    with pytest.raises(
        AnalysisError, match=r"no window .* ends at .*12:00:25 .* are .*12:00:20 UTC and .*12:00:30 UTC"
    ):
        pair.switch(25)
    with pytest.raises(AnalysisError, match=r"up to .*12:00:20 UTC are published already. .* is .*12:00:20 UTC"):
        pair.switch(10)
    with pytest.raises(AnalysisError, match=r'not been started to go on after .* option\("publishAfter"'):
        sj.switch(tmp_path / "new", tmp_path / "old")
    third = StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "third", publishAfter=tmp_path / "new")
    with pytest.raises(AnalysisError, match="publishes nothing itself, as it waits for query"):
        sj.switch(tmp_path / "new", tmp_path / "third")
    homes = [str(tmp_path / "old"), str(tmp_path / "new")]
    assert main(["switch", *homes, "--at", "12 o'clock"]) == 1
    assert 'at: "12 o\'clock" is not a time' in capsys.readouterr().err
    for options, first, before in (
        (["--dry-run"], "it would be decided", "windows"),
        ([], "decided", "windows up to 2026-01-01 12:00:40 UTC"),
    ):
        assert main(["switch", *homes, "--at", "2026-01-01T12:00:40Z", *options]) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0].startswith(f"{first}: windows that end up to 2026-01-01T12:00:40+00:00 are the old query's")
        assert f"publishes {before}; windows up to 2026-01-01 12:00:20 UTC are closed, watermark 2026" in told[1]
        assert "publishes nothing yet, as it goes on after query" in told[2]
    assert pair.switch(40) == pair.switch() == pair.switch(40) == 40
    with pytest.raises(AnalysisError, match=r"at=.*12:00:50 UTC, but it was decided already: .*12:00:40 UTC"):
        pair.switch(50)
    with pytest.raises(AnalysisError, match=r"was switched to query .* already"):
        sj.switch(tmp_path / "old", tmp_path / "other")
    with pytest.raises(RecoveryError, match=r"goes on after the query of .* and not this one"):
        other.process([row(1)])
    for each in (other, third, pair):
        each.close()


def test_a_new_query_is_held_until_then_whoever_starts_it(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path)
    rows = [row(1), row(12), row(35), row(50), row(77)]
    pair.process(*rows[:3])
    pair.new.close()
    with pytest.raises(RecoveryError, match=r"publishes nothing until it is switched to .* Set the option again"):
        StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "new")
    other = StreamDriver(spark, sums, SCHEMA, directory=tmp_path / "other")
    other.close()
    with pytest.raises(RecoveryError, match="this one waits for query"):
        StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "new", publishAfter=tmp_path / "other")
    with pytest.raises(RecoveryError, match="this query has published windows"):
        StreamDriver(spark, sums, SCHEMA, directory=tmp_path / "old", publishAfter=tmp_path / "new")
    unread = StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "unread")
    unread.close()
    with pytest.raises(RecoveryError, match=r"/unread\" is the home of this query"):
        StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "unread", publishAfter=tmp_path / "unread")
    with pytest.raises(AnalysisError, match="contains no record of a query"):
        StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "more", publishAfter=tmp_path / "none")
    pair.new.restart()
    with pytest.raises(AnalysisError, match="the other query says up to where windows close"):
        # They would be gone, and were never published.
        pair.new.close_windows()
    pair.new.process(rows[3:4])
    # A fork of it publishes nowhere, and waits for nobody.
    pair.new.engine.pin("held")
    sj.fork(tmp_path / "new", at="held", to=tmp_path / "fork")
    homes = (as_directory(tmp_path / name) for name in ("new", "fork"))
    assert [newest_record(home, "test")[1].after is None for home in homes] == [False, True]
    with pytest.raises(AnalysisError, match=r"refillFrom: .* has closed windows that it held open"):
        Refill.of(as_directory(tmp_path / "fork"), "fork").upgrade(pair.new.plan, pair.new.engine.record, ())
    assert pair.new.results() == []
    # The old one is dead: what it has published is known.
    pair.old.close()
    assert pair.switch() == 20
    # Nothing more arrives, and what was held is published.
    pair.new.stop()
    assert pair.new.engine.record.after.at is not None
    sinks: list[Any] = [*pair.new.sinks]
    # From now on it needs the old home no more, but windows that end together with the cut until it has passed.
    pair.new = StreamDriver(spark, peaks, SCHEMA, directory=tmp_path / "new", sinks=sinks)
    pair.new.process([row(77), row(900, "late")])
    expected = windows(spark.createDataFrame(rows, SCHEMA), F.max, "20 seconds", "10 seconds")
    assert told(pair.new.results()) == told(expected.where(F.col("window.end") > F.lit(at(20))).collect())
    pair.close()


def test_windows_that_change_while_the_switch_is_decided_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The new query is down, and its record does not have the border yet: the old one's has."""

    def longer(stream: Any) -> Any:
        return stream.withWatermark("ts", "15 seconds").groupBy(sj.window("ts", "20 seconds"), "k").agg(F.max("v"))

    pair = Pair(spark, tmp_path)
    pair.process(row(1), row(35))
    pair.new.close()
    refused = pytest.raises(AnalysisError, match=r"no window of the output .* ends at .*12:00:30 UTC")
    again = pair.driver(longer, "new", onChange="apply")
    # By somebody who has read the record before this start.
    slot, record = newest_record(as_directory(tmp_path / "old"), "test")
    border = Border(again.engine.record.query, int(at(30).timestamp()) * 1_000_000)
    log = RecordLog(DirectoryStore(tmp_path / "old" / "snapshots"))
    log.append(slot + 1, msgspec.structs.replace(record, until=border))
    with refused:
        again.process([row(36)])
    again.close()
    with refused:
        pair.driver(longer, "new", onChange="apply")
    # Nor does another query wait for windows that are those of the first one.
    with pytest.raises(RecoveryError, match=r"goes on after the query of .* and not this one"):
        pair.driver(peaks, "other")
    assert not (tmp_path / "other" / "snapshots" / "log" / "000000000000.json").exists()
    pair.close()


def test_a_border_stays_when_the_old_home_is_set_back(spark: SparkSession, tmp_path: Path) -> None:
    """The home of the old query is lost, and restored from a copy from before the switch."""
    pair = Pair(spark, tmp_path)
    pair.process(row(1), row(25))
    shutil.copytree(tmp_path / "old", tmp_path / "copy")
    assert pair.switch(30) == 30
    pair.new.process([row(48)])
    assert pair.new.engine.record.after.at is not None
    pair.old.close()
    shutil.rmtree(tmp_path / "old")
    shutil.copytree(tmp_path / "copy", tmp_path / "old")
    with pytest.raises(AnalysisError, match=r"at=.*12:00:40 UTC, but it was decided already: .*12:00:30 UTC"):
        pair.switch(40)
    assert pair.switch() == 30
    # A home of before the switch whose query has gone on.
    shutil.rmtree(tmp_path / "old")
    shutil.copytree(tmp_path / "copy", tmp_path / "old")
    again = StreamDriver(spark, sums, SCHEMA, sinks=pair.old.sinks, directory=tmp_path / "old")
    again.process([row(70)])
    with pytest.raises(AnalysisError, match=r"publishes those after .*12:00:30 UTC, and .* up to .*12:00:50 UTC"):
        pair.switch()
    again.close()
    pair.close()


UNCUT: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "sessions": (lambda stream: tens(stream, function=sj.session_window).count(), "of sessions", "append"),
    "windows over sessions": (
        lambda stream: (
            tens(stream, function=sj.session_window).count().groupBy(sj.window("session_window", "20 seconds")).count()
        ),
        "of windows over sessions",
        "append",
    ),
    "keys": (lambda stream: stream.groupBy("k").count(), "of rows without a window", "update"),
    "rows": (lambda stream: stream.where("v > 0"), "of rows without a window", "append"),
    "first of each": (
        lambda stream: stream.withWatermark("ts", "1 second").dropDuplicates(["k"]),
        "of rows without a window",
        "append",
    ),
    "early rows": (lambda stream: tens(stream).count(), "of windows that are still open", "update"),
}


@pytest.mark.parametrize("kind", UNCUT)
def test_what_no_end_of_a_window_cuts_is_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    query, why, mode = UNCUT[kind]
    old = StreamDriver(spark, query, SCHEMA, directory=tmp_path / "old", outputMode=mode)
    refused = pytest.raises(AnalysisError, match=f'\\[SPARKJET_ANALYSIS\\] switch: the output "out0".* is {why}')
    with refused:
        StreamDriver(spark, query, SCHEMA, directory=tmp_path / "new", outputMode=mode, publishAfter=tmp_path / "old")
    assert not (tmp_path / "new" / "snapshots" / "log" / "000000000000.json").exists()
    new = StreamDriver(spark, sums, SCHEMA, directory=tmp_path / "new", publishAfter=tmp_path / "old")
    with refused:
        sj.switch(tmp_path / "old", tmp_path / "new")
    for each in (old, new):
        each.close()


def test_windows_that_never_end_together_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def shifted(stream: Any) -> Any:
        return stream.withWatermark("ts", 0).groupBy(sj.window("ts", "10 seconds", None, "5 seconds"), "k").count()

    pair = Pair(spark, tmp_path, sums, shifted)
    with pytest.raises(AnalysisError, match="no window of the old query ends with one of the new query"):
        pair.switch()
    pair.close()


def test_running_queries_switch_by_themselves(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*fed([1, 12, 35], k="a", v=1))
    sinks = {name: CollectingSink() for name in ("old", "new")}

    def started(name: str, **options: Any) -> Any:
        stream = sj.stream(feed.read(spark)).withWatermark("ts", 0)
        counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
        writer = counts.writeStream.format(sinks[name]).options(**options)
        return writer.option("checkpointLocation", tmp_path / name).start()

    def other(rows: DataFrame) -> Any:
        counts = tens(sj.stream(rows)).count().writeStream.format(CollectingSink())
        return counts.options(publishAfter=tmp_path / "old", checkpointLocation=tmp_path / "other").start()

    old = started("old")
    old.processAllAvailable()
    taking = spark.readStream.schema(FED).option("cleanSource", "delete").json(str(feed.directory))
    with pytest.raises(AnalysisError, match=r"publishAfter: json .*/in is also read by .*/old"):
        other(taking)
    sj.register_sources(spark)
    topic = spark.readStream.format("sparkjet-kafka").options(**{"subscribe": "t", "kafka.bootstrap.servers": "h:1"})
    with pytest.raises(
        AnalysisError, match=r"sparkjet-kafka t would begin with the rows that come .*\(startingOffsets,"
    ):
        other(topic.load().selectExpr("timestamp AS ts", "topic AS k"))
    new = started("new", publishAfter=tmp_path / "old")
    new.processAllAvailable()
    done = sj.switch(tmp_path / "old", tmp_path / "new")
    assert (done.old, done.new) == (old.id, new.id)
    # It has nothing left to publish.
    old.awaitTermination()
    feed.add(*fed([47, 58], k="a", v=1))
    new.processAllAvailable()
    new.stop()
    ends = {name: [each.window.end.timestamp() - START for each in sink.rows()] for name, sink in sinks.items()}
    assert ends == {"old": [10, 20], "new": [40, 50]}
