"""Replays: a fork has the epochs that the first query has had, and comes to the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.phases import EpochPhase
from sparkjet.engine.rerunning import check_rerun
from sparkjet.errors import AnalysisError, FencedError, RecoveryError, SourceError
from sparkjet.plan.static_tables import MapTable
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.pins import Pins
from sparkjet.snapshots.record import EpochKind, Record
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.interpreted, pytest.mark.crash]

SECOND = 1_000_000


def writer(spark: SparkSession, feed: Feed, place: Path, clock: sj.ManualClock, **settings: Any) -> Any:
    """Windows of several substreams that go idle, with random numbers, late rows and early ones."""
    stream = sj.stream(feed.read(spark)).withWatermark(
        *("ts", settings.get("lag", "5 seconds")), by="p", substreams=["a", "b", "c"], idleTimeout="1 minute"
    )
    windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.sum("v").alias("v"))
    shown = windows.select("*", F.rand().alias("random"), F.current_timestamp().alias("at"))
    into = shown.writeStream.format("files").option("path", place / "out").option("lateRowsPath", place / "late")
    return into.clock(clock)


def records(home: Path) -> dict[int, Record]:
    """The first record of each epoch."""
    store, found = DirectoryStore(home / "snapshots"), dict[int, Record]()
    for slot in store.slots():
        record = Record.decode(store.read(slot), "a record")
        found.setdefault(record.epoch, record)
    return found


def course(home: Path) -> dict[int, Any]:
    """The parts of each epoch that must be the same: clock, batch, watermarks and state."""
    return {
        epoch: (
            *(record.kind, record.clock, None if record.spark is None else record.spark.batch, record.watermarks),
            *((name, stage.closed, stage.late, stage.null_timestamps) for name, stage in record.stages.items()),
        )
        for epoch, record in records(home).items()
    }


def read(place: Path) -> list[str]:
    return sorted(map(str, sj.read_files(place).collect()))


class Life(NamedTuple):
    """A query that has run: its place, its feed, and the epoch that is pinned as "between"."""

    place: Path
    feed: Feed
    between: int


@pytest.fixture(scope="module")
def life(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A query with batches, ticks, polls that change nothing, a substream that is retired, stops, and an end."""
    place = tmp_path_factory.mktemp("life")
    feed, clock, home = Feed(place / "in"), sj.ManualClock(START * SECOND), str(place / "home")
    feed.add(*rows([1, 2, 12], p="a", k="x", v=1), *rows([3], p="b", k="y", v=2))
    query = writer(spark, feed, place, clock).option("checkpointLocation", home).start()
    query.processAllAvailable()
    query.snapshot("before")
    clock.advance(20 * SECOND)
    feed.add(*rows([16, 3, None], p="a", k="x", v=5))
    query.processAllAvailable()
    # Two go idle, and the third does not.
    clock.advance(50 * SECOND)
    query.processAllAvailable()
    feed.add(*rows([31], p="a", k="x", v=5))
    query.processAllAvailable()
    pin = query.snapshot("between")
    query.retireSubstream("b")
    query.stop()
    clock.advance(30 * SECOND)
    feed.add(*rows([45, 1], p="a", k="x", v=7), *rows([46], p="c", k="y", v=1))
    query = writer(spark, feed, place, clock).option("checkpointLocation", home).start()
    query.processAllAvailable()
    clock.advance(61 * SECOND)
    query.processAllAvailable()
    query.stop()
    feed.add(*rows([80], p="c", k="y", v=1))
    end = writer(spark, feed, place, clock).option("closeWindowsAtEnd", True).trigger(availableNow=True)
    end.option("checkpointLocation", home).start().awaitTermination()
    return Life(place, feed, pin.epoch)


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


def dying(at: EpochPhase, epoch: int) -> Callable[[EpochPhase, int], None]:
    def listener(phase: EpochPhase, number: int) -> None:
        if (phase, number) == (at, epoch):
            raise Killed

    return listener


@pytest.mark.crash
def test_a_replay_arrives_where_the_query_is(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    place, feed, between = life
    home, clock = place / "home", sj.ManualClock(START * SECOND)
    wanted = course(home)
    kinds = [record.kind for record in records(home).values()]
    assert {EpochKind.BATCH, EpochKind.TICK, EpochKind.CLOSING} <= {*kinds}
    polled = [epoch for epoch, record in records(home).items() if record.polled is not None]
    assert len(polled) > 3

    fork = sj.fork(home, at="before", to=tmp_path / "fork")
    # Its records stay, to be looked at.
    Pins(DirectoryStore(tmp_path / "fork" / "snapshots")).put("all", 0)
    first = fork.replay(writer(spark, feed, place, clock), until="between")
    assert (first.epochs, first.last) == (between - fork.epoch, between)
    # Undecided, and decided; each goes on.
    for phase in (EpochPhase.PREPARE, EpochPhase.DECIDE):
        with pytest.raises(Killed):
            fork.replay(writer(spark, feed, place, clock).onEpochPhase(dying(phase, between + 2)))
    # The end of the input is in the record, whether or not it is asked for now.
    last = fork.replay(writer(spark, feed, place, clock))
    assert last.last == max(wanted)
    assert fork.replay(writer(spark, feed, place, clock)).epochs == 0
    found = course(tmp_path / "fork")
    assert {epoch: wanted[epoch] for epoch in wanted if epoch > fork.epoch} == {
        epoch: found[epoch] for epoch in found if epoch > fork.epoch
    }
    outputs = Path(fork.outputs)
    assert read(outputs / "results") == read(place / "out")
    assert read(outputs / "late-of-results") == read(place / "late")
    assert first.rows["results"] + last.rows["results"] <= len(read(outputs / "results"))

    # It goes on by itself, and then no record says how.
    feed.add(*rows([300], p="c", k="y", v=1))
    fork.start(writer(spark, feed, place, clock).trigger(availableNow=True)).awaitTermination()
    with pytest.raises(AnalysisError, match="this fork has read its sources by itself"):
        fork.replay(writer(spark, feed, place, clock))


def test_other_code_has_the_same_batches_and_its_own_watermarks(
    spark: SparkSession, life: Life, tmp_path: Path
) -> None:
    place, feed, _ = life
    clock = sj.ManualClock(START * SECOND)
    fork = sj.fork(place / "home", at="before", to=tmp_path / "fork")
    fork.replay(writer(spark, feed, place, clock, lag="1 minute"))
    found, wanted = course(tmp_path / "fork"), course(place / "home")
    assert len(found) > 4
    assert {epoch: each[:3] for epoch, each in found.items() if epoch > fork.epoch} == {
        epoch: wanted[epoch][:3] for epoch in found if epoch > fork.epoch
    }
    assert records(tmp_path / "fork")[max(found)].stages["stage0"].late == {}
    assert records(place / "home")[max(wanted)].stages["stage0"].late == {"a": 1}


def test_what_cannot_be_replayed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed, home = Feed(tmp_path / "in"), tmp_path / "home"

    def rows_of(place: str) -> Any:
        into = sj.stream(feed.read(spark)).select("k", "v").writeStream.format("files").option("path", tmp_path / place)
        return into.trigger(availableNow=True)

    feed.add(*rows([1], k="x", v=1))
    query = rows_of("out").option("checkpointLocation", home).start()
    query.awaitTermination()
    pin = query.snapshot("before")
    for number in range(5):
        feed.add(*rows([10 * number], k="x", v=number))
    rows_of("out").option("checkpointLocation", home).start().awaitTermination()
    fork = sj.fork(home, at="before", to=tmp_path / "fork")
    wrong: Any = True
    for until in (0, 99, wrong):
        with pytest.raises(
            AnalysisError, match=r"until: .* is neither a pin nor the number of an epoch from 1 .* to 6"
        ):
            fork.replay(rows_of("out"), until=until)
    with pytest.raises(AnalysisError, match='there is no pin "after"'):
        fork.replay(rows_of("out"), until="after")
    united = sj.stream(feed.read(spark).union(Feed(tmp_path / "more").read(spark))).select("k", "v")
    into = united.writeStream.format("files").options(path=tmp_path / "out", onChange="apply")
    with pytest.raises(RecoveryError, match=r"reads other sources than the one that has recorded epoch 1: .*/more\)"):
        fork.replay(into.trigger(availableNow=True))
    twice = sj.fork(home, at="before", to=tmp_path / "twice")

    def overtake(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.COMMIT, 2):
            assert twice.replay(rows_of("out"), until=3).epochs == 1

    # The other one has removed what this one reads its sources by.
    with pytest.raises(FencedError, match="Another driver has taken over"):
        twice.replay(rows_of("out").onEpochPhase(overtake), until=3)
    assert read(Path(twice.outputs) / "results") == [f"Row(k='x', v={number})" for number in range(2)]
    gone = tmp_path / "in" / "00003.json"
    content = gone.read_text()
    gone.unlink()
    with pytest.raises(SourceError, match=r"1 files that FileSource\[.*/in\] has read are gone, such as .*00003\.json"):
        fork.replay(rows_of("out"))
    assert max(records(tmp_path / "fork")) == 3
    gone.write_text(content)
    log = home / "snapshots" / "log"
    fifth = next(path for path in sorted(log.iterdir()) if json.loads(path.read_text())["epoch"] == 5)
    fifth.write_text(json.dumps({**json.loads(fifth.read_text()), "replayed": {"dead": [[1, 2]]}}))
    with pytest.raises(
        RecoveryError, match=r"in epoch 5 dead letters were replayed, which no source has\. Replay until 4"
    ):
        fork.replay(rows_of("out"))
    assert read(Path(fork.outputs) / "results") == [f"Row(k='x', v={number})" for number in range(3)]
    store = DirectoryStore(home / "snapshots")
    store.remove_pin(pin.slot, "before")
    store.trim(pin.slot + 1)
    with pytest.raises(RecoveryError, match='are gone from the home of the query, as its pin "before" was removed'):
        fork.replay(rows_of("out"))
    joined: Any = SimpleNamespace(tables=[MapTable(spark.range(1), [])])
    with pytest.raises(AnalysisError, match="joins a map of a grid, whose versions of that time are gone"):
        check_rerun(joined)
