"""Sinks whose destination forgets: what the engine asks them before the decision, and what it does not ask forever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.engine import IDLE
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import Expiring
from sparkjet.snapshots.record import EpochKind
from sparkjet.testing import CollectingSink
from tests.engine.run import Event, EventDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.sinks.protocol import Handle


class Forgetful(CollectingSink):
    """Reports that a transaction will not live, while ``dying``."""

    dying = False

    def check_alive(self, handle: Handle) -> None:
        """See :meth:`Expiring.check_alive`."""
        if self.dying:
            raise SinkError(f"{handle['transaction']} is too old")


def sums(events: sj.Stream) -> WindowedStream:
    """A query of tumbling windows."""
    stream = events.withWatermark("ts", 0, by="substream", substreams=["a"])
    return stream.groupBy(sj.window("ts", 10), "key").agg(F.sum("value").alias("n"))


def run_of(spark: SparkSession, home: Path) -> EventDriver:
    """Such a query into such a sink."""
    return EventDriver(spark, home, sums, sinks=[Forgetful()])


def test_what_may_not_live_until_its_commit_is_not_decided(spark: SparkSession, tmp_path: Path) -> None:
    run = run_of(spark, tmp_path)
    (sink,) = run.sinks
    assert isinstance(sink, Forgetful)
    assert isinstance(sink, Expiring)
    run.feed([Event("a", "k", 1, 1)])
    sink.dying = True
    with pytest.raises(SinkError, match="too old"):
        run.feed([Event("a", "k", 12, 2)])
    assert run.engine.record.epoch == 1
    sink.dying = False
    run.restart()
    run.feed([])
    assert [row[2] for row in run.results()] == [1]


# In CI, `test_undecided.py` shows it, whatever the sinks are.
@pytest.mark.long
def test_a_query_that_ends_or_idles_records_that_nothing_is_open(spark: SparkSession, tmp_path: Path) -> None:
    run = run_of(spark, tmp_path)
    run.feed([Event("a", "k", 1, 1), Event("a", "k", 12, 2)])
    assert len(run.engine.record.transactions) == 1
    run.engine.settle(last=False)
    assert run.engine.record.kind is EpochKind.BATCH
    run.clock.advance(IDLE + 1)
    run.engine.settle(last=False)
    assert (run.engine.record.kind, run.engine.record.transactions) == (EpochKind.SETTLED, [])
    run.feed([Event("a", "k", 25, 3)])
    assert len(run.engine.record.transactions) == 1
    run.engine.settle(last=True)
    assert run.engine.record.transactions == []
    run.restart()
    assert run.engine.record.transactions == []
    run.feed([Event("a", "k", 31, 4)])
    run.close_windows()
    assert [row[2] for row in run.results()] == [1, 2, 3, 4]
