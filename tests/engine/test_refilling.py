"""Refilling: a changed query goes on with what a fork has replayed, as if it had been like that from the pin on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.phases import EpochPhase
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.interpreted]

OLD: tuple[Sequence[str], Sequence[str]] = ["k"], ["sum(v) AS v"]
NEW: tuple[Sequence[str], Sequence[str]] = ["k", "j"], ["max(v + 1) AS most", "sum(v) AS v"]
"""A key more, an aggregate more: neither can be made of the saved state."""


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


class Life:
    """A query that is pinned before its first epoch, and changed while a window is open."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.feed = spark, place, Feed(place / "in")

    def writer(self, query: tuple[Sequence[str], Sequence[str]], dies: EpochPhase | None = None, **options: Any) -> Any:
        def listener(phase: EpochPhase, _: int) -> None:
            if phase is dies:
                raise Killed

        keys, columns = query
        aggregates: list[Column] = [F.expr(each) for each in columns]
        stream = sj.stream(self.feed.read(self.spark)).withWatermark("ts", "0 seconds")
        results = stream.groupBy(sj.window("ts", "20 seconds"), *keys).agg(*aggregates)
        shown = results.withColumn("at", F.unix_timestamp("window.start") - START).drop("window")
        writer = shown.writeStream.format("files").options(path=self.place / "out", **options)
        return writer.onEpochPhase(listener).trigger(availableNow=True)

    def run(self, query: tuple[Sequence[str], Sequence[str]], **options: Any) -> Any:
        started = self.writer(query, checkpointLocation=self.place / "home", **options).start()
        started.awaitTermination()
        return started

    def found(self) -> list[tuple[Any, ...]]:
        frame = sj.read_files(self.place / "out", "at long, k string, j int, v long, most long")
        return sorted(map(tuple, frame.collect()), key=repr)


def test_what_cannot_be_made_of_the_state_is_refilled_by_replay(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(spark, tmp_path)
    life.run(OLD).snapshot("empty")
    life.feed.add(*rows([1, 2, 25], k="x", j=1, v=1))
    life.feed.add(*rows([26], k="x", j=2, v=5), *rows([27], k="y", j=1, v=7))
    life.run(OLD)
    fork = sj.fork(tmp_path / "home", at="empty", to=tmp_path / "fork")
    fork.replay(life.writer(NEW), until=1)
    home, named = {"checkpointLocation": tmp_path / "home"}, {"refillFrom": fork.home, "onChange": "apply"}
    with pytest.raises(sj.AnalysisError, match=r"refillFrom: .*/fork\" has come to epoch 1, and the query to 2\. Stop"):
        life.writer(NEW, **home, **named).start()
    fork.replay(life.writer(NEW))
    with pytest.raises(sj.AnalysisError, match=r"has replayed another query than this one:\n  stage0: aggregate min"):
        life.writer((NEW[0], ["min(v) AS v"]), **home, **named).start()
    with pytest.raises(sj.ChangedQueryError, match="key j: none → int: refilled by replay") as asked:
        life.writer(NEW, **home, refillFrom=fork.home).start()
    life.feed.add(*rows([30], k="x", j=1, v=3), *rows([31], k="z", j=1, v=2))
    with pytest.raises(Killed):
        life.run(NEW, **named, dies=EpochPhase.PREPARE)
    # Nothing is decided: it can be taken back, and the fork has come as far as before.
    assert asked.value.digest is not None
    with pytest.raises(Killed):
        life.run(NEW, refillFrom=fork.home, onChange=f"approve:{asked.value.digest}", dies=EpochPhase.CLEAN)
    # Of the state that was replaced nothing is left.
    newest = RecordLog(DirectoryStore(tmp_path / "home" / "snapshots")).newest()
    assert newest is not None
    assert {path.name for path in (tmp_path / "home" / "snapshots" / "state").iterdir()} <= newest[1].names()
    # Now it is done, and the options no longer mean anything.
    shutil.rmtree(tmp_path / "fork")
    life.feed.add(*rows([45], k="x", j=1, v=9))
    life.run(NEW, **named)
    assert life.found() == [
        (0, "x", None, 2, None),
        (20, "x", 1, 4, 4),
        (20, "x", 2, 5, 6),
        (20, "y", 1, 7, 8),
        (20, "z", 1, 2, 3),
    ]
