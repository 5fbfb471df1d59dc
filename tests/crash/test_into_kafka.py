"""Queries into Kafka: several drivers at once, and commits that fail for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.feed import Feed, rows
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash

PATIENCE = 300
Listener = Callable[[EpochPhase, int], None]


class Query:
    """A query of four epochs into a topic, with one home."""

    def __init__(self, spark: SparkSession, server: KafkaServer, root: Path) -> None:
        self._spark, self._server, self._root = spark, server, root
        self.commit = "staged"
        self.topic = server.topic()
        self._feed = Feed(root / "in")
        for number in range(4):
            self._feed.add(*rows([number], v=number))

    def run(self, listener: Listener = lambda phase, epoch: None) -> None:
        """Run it to the end of its input."""
        records = sj.stream(self._feed.read(self._spark)).select(F.col("v").cast("string").alias("value"))
        given = {f"kafka.{name}": value for name, value in self._server.client().items()} | {"kafka.log_level": "0"}
        writer = records.writeStream.format("kafka").options(topic=self.topic, commit=self.commit, **given)
        writer = (
            writer.onEpochPhase(listener).option("checkpointLocation", self._root / "home").trigger(availableNow=True)
        )
        writer.start().awaitTermination()

    def check(self) -> None:
        """Each row once and in order; nothing hidden."""
        assert [message.value() for message in committed(self._server, self.topic)] == [b"0", b"1", b"2", b"3"]


@pytest.fixture
def query(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Query:
    return Query(spark, kafka, tmp_path)


@pytest.mark.parametrize("commit", ["staged", pytest.param("prepared", marks=pytest.mark.long)])
def test_of_drivers_that_start_at_once_one_survives_and_each_row_is_there_once(query: Query, commit: str) -> None:
    query.commit = commit
    together, outcomes = threading.Barrier(3), list[str]()

    def start() -> None:
        together.wait()
        try:
            query.run()
        except sj.FencedError:
            outcomes.append("fenced")
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    # Who starts when another one has finished finds nothing to do.
    assert len(outcomes) == len(threads)
    assert {"done"} <= {*outcomes} <= {"done", "fenced"}
    query.check()


@pytest.mark.parametrize("in_time", [True, pytest.param(False, marks=pytest.mark.long)], ids=["in time", "too late"])
def test_a_commit_that_brokers_refuse_is_made_up_for_before_anything_else_is_published(
    query: Query, kafka: KafkaServer, *, in_time: bool
) -> None:
    def refuse(phase: EpochPhase, epoch: int) -> None:
        # Rows without keys.
        if (phase, epoch) == (EpochPhase.DECIDE, 2):
            kafka.configure(query.topic, cleanup_policy="compact")
        if (phase, epoch) == (EpochPhase.COMMIT, 2) and in_time:
            kafka.configure(query.topic, cleanup_policy="delete")

    if in_time:
        query.run(refuse)
    else:
        with pytest.raises(sj.UnsettledError, match=r"set the topic's cleanup.policy to delete"):
            query.run(refuse)
        kafka.configure(query.topic, cleanup_policy="delete")
        query.run()
    query.check()
