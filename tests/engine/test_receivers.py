"""Queues in the engine, with directories as queues: what is acknowledged when, and what a restart drops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.engine.receivers import Receivers
from sparkjet.errors import AnalysisError, SourceError
from sparkjet.snapshots import DirectoryStore
from sparkjet.sources.acknowledging.offset import QueueOffset
from sparkjet.sources.acknowledging.reader import ReaderSettings, Running
from sparkjet.storage.posix_directory import PosixDirectory
from tests.parameters import mostly_crash
from tests.sources.acknowledging.directory_queue import DirectoryQueueSource
from tests.sources.acknowledging.queues import SCHEMA, Broker, BrokerSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKEN = "the listener was told to fail"


class Queues:
    """Two directories, and a query that writes what comes from them into files."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self.root = spark, root
        self.directories = [root / "orders", root / "returns"]
        for each in self.directories:
            each.mkdir()
        spark.dataSource.register(DirectoryQueueSource)

    def send(self, *ids: str, to: int = 0) -> None:
        for each in ids:
            (self.directories[to] / each).write_text(f"body of {each}")

    @property
    def left(self) -> list[str]:
        """The messages that are not acknowledged."""
        return sorted(file.name for each in self.directories for file in each.iterdir())

    @property
    def written(self) -> list[str]:
        """The rows that the query has published."""
        rows = sj.read_files(str(self.root / "out")).collect()
        assert all(row["body"] == f"body of {row['id']}" for row in rows)
        return sorted(row["id"] for row in rows)

    def stream(self, **options: Any) -> DataFrame:
        paths = ",".join(map(str, self.directories))
        return self._spark.readStream.format("directories").option("paths", paths).options(**options).load()

    def run(self, listener: Callable[[EpochPhase, int], None] = lambda *_: None, most: int = 2, **options: Any) -> None:
        """Read what there is, and end."""
        stream = sj.stream(self.stream(maxMessagesPerTrigger=most))
        writer = stream.writeStream.format("files").option("path", str(self.root / "out"))
        writer = writer.options(checkpointLocation=str(self.root / "home"), **options).onEpochPhase(listener)
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def queues(spark: SparkSession, tmp_path: Path) -> Queues:
    return Queues(spark, tmp_path)


def failing(at: EpochPhase, epoch: int) -> Callable[[EpochPhase, int], None]:
    def listen(phase: EpochPhase, number: int) -> None:
        if (phase, number) == (at, epoch):
            raise RuntimeError(BROKEN)

    return listen


def test_messages_are_acknowledged_when_their_epoch_is_decided_and_not_before(queues: Queues) -> None:
    queues.send("m1", "m2", "m3")
    queues.send("m4", to=1)
    left: dict[tuple[EpochPhase, int], list[str]] = {}
    queues.run(lambda phase, epoch: left.update({(phase, epoch): queues.left}))
    assert queues.written == ["m1", "m2", "m3", "m4"]
    assert queues.left == []
    # The first epoch of a run has no rows.
    assert left[EpochPhase.DECIDE, 2] == ["m1", "m2", "m3", "m4"]
    assert left[EpochPhase.CLEAN, 2] == left[EpochPhase.DECIDE, 3] == ["m3", "m4"]
    assert left[EpochPhase.CLEAN, 3] == []


STEPS = (EpochPhase.ADVANCE, EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.CLEAN)
"""With a broker, `crash/farmed/test_queues.py` kills drivers before, at and after the decision."""


# In CI, drivers of queues die at each step in `crash/farmed/test_queues.py`.
@pytest.mark.parametrize("step", mostly_crash(STEPS, (), lambda step: step.value, crash=()))
def test_a_run_that_fails_loses_and_repeats_nothing(queues: Queues, step: EpochPhase) -> None:
    queues.send("m1", "m2", "m3", "m4", "m5")
    with pytest.raises(RuntimeError, match=BROKEN):
        queues.run(failing(step, 3))
    queues.send("m6")
    queues.run()
    assert queues.written == ["m1", "m2", "m3", "m4", "m5", "m6"]
    assert queues.left == []
    # The newest record was written before its messages were acknowledged.
    assert len(list((queues.root / "home" / "snapshots" / "blobs").iterdir())) == 1


@pytest.mark.crash
def test_with_at_least_once_a_crash_repeats_what_was_not_acknowledged(queues: Queues) -> None:
    queues.send("m1", "m2", "m3")
    with pytest.raises(RuntimeError, match=BROKEN):
        queues.run(failing(EpochPhase.COMMIT, 2), processingGuarantee="at-least-once")
    queues.run(processingGuarantee="at-least-once")
    assert queues.written == ["m1", "m1", "m2", "m2", "m3"]
    assert queues.left == []
    assert list((queues.root / "home" / "snapshots" / "blobs").iterdir()) == []


def test_overlapping_epochs_are_refused_for_a_source_that_is_not_known(queues: Queues) -> None:
    timed = sj.stream(queues.stream().withColumn("ts", F.current_timestamp())).withWatermark(
        "ts", "1 second", by="queue"
    )
    counts = timed.groupBy(sj.window("ts", "1 minute")).count()
    with pytest.raises(AnalysisError, match=r"overlapEpochs: .* and directories may delete it"):
        counts.writeStream.format("console").option("overlapEpochs", True).start()


@pytest.fixture
def receivers(tmp_path: Path) -> Receivers:
    store = DirectoryStore(PosixDirectory(tmp_path))
    store.open("directory")
    return Receivers(store, identified=True)


def offset(path: Path | str, position: int) -> str:
    return json.dumps(QueueOffset({"orders": position}, str(path)).to_spark())


def test_a_receiver_that_is_gone_fails_the_epoch_but_not_a_decided_one(
    receivers: Receivers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SourceError, match="does not answer at"):
        receivers.meet({"0": offset(tmp_path / "nobody", 1)}, {})
    broker = Broker("orders")
    broker.send("orders", "m1")
    running = Running(BrokerSource(broker), SCHEMA, ReaderSettings(), {})
    try:
        offsets = {"0": "-", "1": offset(running.path, 0), "2": '{"logOffset": 3}'}
        assert receivers.meet(offsets, {}) == {"1": 0}
        while not running.receiver.wait(0, 1):
            continue
    finally:
        running.stop()
    with pytest.raises(SourceError, match="does not answer at"):
        receivers.save({"1": 1}, "000000-000000001-0")
    receivers.acknowledge({"1": 1})
    assert "messages up to 1 are decided, but were not acknowledged" in caplog.text
    receivers.stop()
    receivers.stop()


def test_ids_go_into_a_blob_and_from_there_to_the_next_receiver(receivers: Receivers) -> None:
    broker = Broker("orders")
    broker.send("orders", "m1", "m2")
    names: dict[str, str] = {}
    for start, attempt in ((0, "000000-000000001-0"), (2, "000001-000000002-0")):
        running = Running(BrokerSource(broker), SCHEMA, ReaderSettings(), {"orders": start})
        receivers.meet({"0": offset(running.path, start)}, names)
        # The second one drops all that the first one has read, and was not acknowledged.
        while running.receiver.end({"orders": start}, None)["orders"] < 2 or sum(broker.ready().values()):
            running.receiver.wait(start, 1)
        assert sum(running.receiver.end({"orders": start}, None).values()) == 2
        names = receivers.save({"0": 2}, attempt)
        assert names == {"0": f"{attempt}-queues0"}
        receivers.stop()
