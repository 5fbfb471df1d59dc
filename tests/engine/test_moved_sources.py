"""Sources that come, go and change places: rows of each exactly once, and windows wait for those that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.comparing import compared
from sparkjet.engine.moved_sources import KnownSource, matched
from sparkjet.engine.phases import EpochPhase
from sparkjet.snapshots.record import History
from sparkjet.testing import StreamDriver
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]


def known(*texts: str) -> list[KnownSource]:
    """Of each text the prefix and the path: ``web/=/a`` is a stream called web."""
    pairs = [text.partition("=") for text in texts]
    return [KnownSource(prefix, "", path and f"json {path}") for prefix, _, path in pairs]


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        # One more, one fewer, another place; whatever number unions give them.
        (["=/a"], ["1/=/a", "2/=/b"], [0, None]),
        (["1/=/a", "2/=/b"], ["=/b"], [1]),
        (["a/=/a", "b/=/b"], ["1/b/=/b", "1/a/=/a", "c/=/c"], [1, 0, None]),
        # One goes and another one comes.
        (["a/=/a", "b/=/b"], ["a/=/a", "c/=/c"], [0, None]),
        # Another name, another path; a record of an earlier version.
        (["a/=/a", "b/=/b"], ["x/=/a", "b/=/y"], [0, 1]),
        (["1/=/a", "2/=/b"], ["1/=/a", "2/=/y"], [0, 1]),
        (["a/", "b/"], ["b/=/b", "a/=/a"], [1, 0]),
        (["1/", "2/"], ["1/=/a", "2/=/b"], [0, 1]),
        # Which of them it is cannot be told.
        (["1/", "2/"], ["1/=/a", "2/=/b", "3/=/c"], None),
        (["1/=/a", "2/=/b"], ["=/c"], None),
        (["a/=/a", "b/=/b"], ["a/=/b", "b/=/a"], None),
        (["a/=/a", "b/=/b"], ["a/=/b"], None),
        (["1/=/a", "2/=/a"], ["1/=/a", "2/=/a", "3/=/a"], None),
    ],
)
def test_sources_are_recognized_by_their_names_and_by_what_they_read(
    before: Sequence[str], now: Sequence[str], found: list[int | None] | None
) -> None:
    assert matched(known(*before), known(*now)) == found


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


class Union:
    """A query over feeds, each a stream with a name, or all without names or watermarks."""

    def __init__(self, spark: SparkSession, place: Path, *, stateless: bool = False) -> None:
        self._spark, self._place, self._stateless = spark, place, stateless

    def writer(self, names: Sequence[str], **options: Any) -> Any:
        frames = [Feed(self._place / name).read(self._spark) for name in names]
        if self._stateless:
            result: Any = sj.stream(reduce(DataFrame.union, frames))
        else:
            streams = [sj.stream(frame).alias(name) for name, frame in zip(names, frames, strict=True)]
            united = reduce(sj.Stream.union, [each.withWatermark("ts", "0 seconds") for each in streams])
            result = united.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))
        writer = result.writeStream.format("files").option("path", self._place / "out").trigger(availableNow=True)
        return writer.options(checkpointLocation=self._place / "ck", onChange="apply", **options)

    def run(self, names: Sequence[str], *, dies: EpochPhase | None = None, **options: Any) -> list[str]:
        """A run over what there is; what it says of the change."""

        def listener(phase: EpochPhase, _: int) -> None:
            if phase is dies:
                raise Killed

        query = self.writer(names, **options).onEpochPhase(listener).start()
        if dies is not None:
            with pytest.raises(Killed):
                query.awaitTermination()
            return []
        query.awaitTermination()
        return list(query.lastProgress["changes"]) if query.lastProgress else []

    def found(self) -> list[tuple[Any, ...]]:
        columns = ["id", "k"] if self._stateless else ["window.start", "k", "n"]
        frame = sj.read_files(str(self._place / "out"))
        if not self._stateless:
            frame = frame.groupBy(F.unix_timestamp("window.start").alias("w"), "k").agg(F.sum("n").alias("n"))
            columns = ["w", "k", "n"]
        return sorted(map(tuple, frame.select(*columns).collect()))


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("phase", [EpochPhase.PREPARE, pytest.param(EpochPhase.DECIDE, marks=pytest.mark.long)])
def test_rows_of_each_source_exactly_once_over_the_change(
    spark: SparkSession, tmp_path: Path, phase: EpochPhase
) -> None:
    """One comes in the first place, then one goes; the driver dies before or after the first decision."""
    union, feeds = Union(spark, tmp_path, stateless=True), {name: Feed(tmp_path / name) for name in "abc"}

    def more() -> None:
        for name, feed in feeds.items():
            feed.add(*rows([1], k=name))

    more()
    union.run("ab")
    more()
    union.run("cba", dies=phase)
    if phase is EpochPhase.PREPARE:
        # Nothing is decided: it can be taken back.
        assert union.run("ab") == []
    more()
    union.run("cba")
    more()
    union.run("cb", dies=phase)
    report = union.run("cb")
    said = "/a): read → none: retired (its offsets are dropped: added again, it is read from where its options say)"
    # After the decision there is only the new one.
    assert [line.endswith(said) for line in report] == ([True] if phase is EpochPhase.PREPARE else [])
    assert union.found() == sorted([*((n, "a") for n in range(3)), *((n, k) for n in range(4) for k in "bc")])


@pytest.mark.spark
def test_windows_wait_for_the_streams_that_there_are(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that is gone holds none, one that has come holds them; state goes on."""
    union, feeds = Union(spark, tmp_path), {name: Feed(tmp_path / name) for name in "abc"}
    feeds["a"].add(*rows([1, 2, 25], k="x"))
    feeds["b"].add(*rows([3, 12], k="x"))
    union.run(["a", "b"])
    at = 1_700_000_000
    assert union.found() == [(at, "x", 3)]
    # With a row of either there would be no epoch to look at.
    feeds["a"].add(*rows([26], k="x"))
    feeds["c"].add(*rows([5, 14, 21], k="x"))
    with pytest.raises(sj.ChangedQueryError, match=r"source b/ \(json .*/b\): read → none: retired \(no window waits"):
        union.writer(["a", "c"]).option("onChange", "refuse").start()
    union.run(["a", "c"], dies=EpochPhase.PREPARE)
    union.run(["a", "c"], dies=EpochPhase.DECIDE)
    union.run(["a", "c"])
    # The row of c at 5 is late.
    assert union.found() == [(at, "x", 3), (at + 10, "x", 2)]
    feeds["c"].add(*rows([40], k="x"))
    feeds["a"].add(*rows([41], k="x"))
    union.run(["c", "a"])
    assert union.found() == [(at, "x", 3), (at + 10, "x", 2), (at + 20, "x", 3)]


def windows(*names: str) -> Callable[..., Any]:
    """Windows of a union of streams with these names, joined with those of one that is called z, if it is there."""

    def query(*streams: Any) -> Any:
        named = [each.alias(name).withWatermark("ts", "0 seconds") for name, each in zip(names, streams, strict=True)]
        joined = named[:-1] if names[-1] == "z" else named
        united = reduce(sj.Stream.union, joined).groupBy(sj.window("ts", "10 seconds"), "k")
        if joined is named:
            return united.count()
        other = named[-1].groupBy(sj.window("ts", "10 seconds"), "k").agg(F.max("k").alias("other"))
        return united.agg(F.count("*").alias("n")).join(other, ["window", "k"])

    return query


@pytest.mark.spark
def test_what_joins_streams_or_has_a_history_keeps_its_sources(spark: SparkSession, tmp_path: Path) -> None:
    schema, row = "ts timestamp, k string", ("2026-01-01 12:00:01", "x")
    for names in (["a", "z"], ["a", "b"]):
        driver = StreamDriver(spark, windows(*names), [schema] * 2, directory=tmp_path / names[1])
        driver.process([row], [row])
        driver.close()
        record = driver.engine.record
    with pytest.raises(
        sj.ChangedQueryError, match=r"source 1/b/ \(rate\): none → new: refused \(the query joins streams"
    ):
        StreamDriver(spark, windows("a", "b", "z"), [schema] * 3, directory=tmp_path / "z", onChange="apply")
    added = StreamDriver(spark, windows("a", "b", "c"), [schema] * 3)
    begun = msgspec.structs.replace(record, history=History(1, 1, "seam"))
    for each, said in ((record, "(rate): none → new: read"), (begun, "refused (the query has begun with a history")):
        [line] = [str(change) for change in compared(added.plan, each).changes if change.what.startswith("source ")]
        assert said in line
    added.close()
