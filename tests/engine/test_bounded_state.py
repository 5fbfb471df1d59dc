"""State is bounded while the watermark, or the clock, moves on, and gone at the end: in memory and in the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from sparkjet.snapshots import DirectoryStore
from tests.engine.run import Event, EventDriver
from tests.persisted import persisted
from tests.stateful.functions.visits import visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from sparkjet.api.stream import Stream

SECOND = 1_000_000
EPOCHS = 300
STEP = 10
"""Seconds of event time, and of the clock, from one epoch to the next."""
KEYS = 7
"""Of the rolling aggregate, whose state is bounded by nothing else."""


def times(epoch: int) -> list[int]:
    """When an epoch has its rows, in seconds."""
    return [STEP * epoch, STEP * epoch + 3, STEP * epoch + 6]


def of_new_keys(epoch: int) -> list[Event]:
    """Rows of keys that no other epoch has."""
    return [Event("all", f"{epoch}-{time}", time * SECOND) for time in times(epoch)]


def of_few_keys(epoch: int) -> list[Event]:
    """Rows of keys that come again and again."""
    return [Event("all", f"{time % KEYS}", time * SECOND) for time in times(epoch)]


def marked(stream: Stream, lag: str = "20 seconds") -> Stream:
    return stream.withWatermark("ts", lag)


def joined(left: Stream, right: Stream) -> Stream:
    within = "l.key = r.key AND r.ts BETWEEN l.ts - INTERVAL 5 SECONDS AND l.ts + INTERVAL 15 SECONDS"
    return marked(left).alias("l").join(marked(right).alias("r"), F.expr(within), "fullOuter")


def joined_windows(left: Stream, right: Stream) -> Any:
    sides = [
        marked(each).groupBy(F.window("ts", "30 seconds", "10 seconds"), "key").agg(F.sum("value").alias(name))
        for each, name in ((left, "x"), (right, "y"))
    ]
    return sides[0].join(sides[1], ["window", "key"], "outer")


class Recent(StatefulProcessor):
    """Remembers a key for half a minute of processing time."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long", 30_000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.seen.update((sum(1 for _ in rows),))
        yield Row(k=key[0])


@dataclass(frozen=True)
class Case:
    """A query, what it is fed with, and how much state it may have.

    Attributes:
        query: The query.
        rows: The rows of an epoch, for each input.
        most: Number of rows in its state, of whatever version.
        left: Number of keys at the end of the input.
        output: The same as ``StreamDriver`` has it.
    """

    query: Callable[..., Any]
    rows: Callable[[int], list[Event]]
    most: int
    inputs: int = 1
    left: int = 0
    output: str = "append"


CASES = {
    # Three rows an epoch, the lag of two epochs, and the epoch itself.
    "duplicates by time": Case(lambda s: marked(s).dropDuplicates(["key", "ts"]), of_new_keys, most=12),
    # The delay on top; and five segments that were merged into one are forgotten together.
    "duplicates within": Case(lambda s: marked(s).dropDuplicatesWithinWatermark(["key"]), of_new_keys, most=33),
    "interval join": Case(joined, of_few_keys, most=60, inputs=2),
    "window join": Case(joined_windows, of_few_keys, most=60, inputs=2),
    "rolling": Case(
        lambda s: marked(s).groupBy("key").agg(F.sum("value").alias("n"), F.max("ts").alias("last")),
        of_few_keys,
        most=4 * KEYS,
        left=KEYS,
        output="update",
    ),
    "timers": Case(lambda s: visits(marked(s), "transformWithState"), of_new_keys, most=60),
    "TTL": Case(
        lambda s: marked(s).groupBy("key").transformWithState(Recent(), "k string", "update", "ProcessingTime"),
        of_new_keys,
        most=60,
    ),
}
SEGMENTS = 12
"""Of one side of a stage: a few levels of a log-structured store, or the epochs that a join's bound covers."""


def check(spark: SparkSession, case: Case, epochs: int, home: Path) -> None:
    before = persisted(spark)
    run = EventDriver(spark, home, case.query, inputs=case.inputs, output_mode=case.output)
    found: list[dict[str, int]] = []
    for epoch in range(epochs):
        run.clock.advance(STEP * SECOND)
        run.feed(*[case.rows(epoch)] * case.inputs)
        found.append(measured(run, home) | {"persisted": len(persisted(spark) - before)})
        assert found[-1]["rows"] <= case.most, (epoch, found[-1])
        assert found[-1]["segments"] <= SEGMENTS * case.inputs, (epoch, found[-1])
    split = 2 * epochs // 3
    early, late = (
        {name: max(each[name] for each in part) for name in found[0]} for part in (found[:split], found[split:])
    )
    print(epochs, early, late)  # noqa: T201 - figures for the closing note
    assert all(late[name] <= early[name] for name in early), (early, late)
    assert run.late_counts == {}
    run.advance(10 * STEP * SECOND)
    run.close_windows()
    if case.left:
        (stage,) = run.engine.state.stages.values()
        everything = stage.operator.early()
        assert everything is not None
        assert everything.count() == case.left
    else:
        assert measured(run, home)["rows"] == measured(run, home)["state files"] == 0
        assert persisted(spark) <= before


def measured(run: EventDriver, home: Path) -> dict[str, int]:
    """The sizes that must not grow."""
    segments = [segment for stage in run.engine.state.stages.values() for segment in stage.operator.segments]
    store = run.store
    assert isinstance(store, DirectoryStore)
    # Nothing is left behind: what the newest record does not name is gone.
    assert set(store.names()) == run.engine.record.names()
    files = [path for path in (home / "snapshots").rglob("*") if path.is_file()]
    return {
        "segments": len(segments),
        "rows": sum(segment.statistics.rows for segment in segments),
        "names": len(store.names()),
        "state files": sum("state" in path.relative_to(home / "snapshots").parts[:1] for path in files),
        "files": len(files),
    }


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_the_state_is_bounded_and_gone_at_the_end(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """In CI, `test_growth.py` looks at windows over two dozen epochs, and laws say what operators hold at the end."""
    check(spark, CASES[name], EPOCHS, tmp_path)
