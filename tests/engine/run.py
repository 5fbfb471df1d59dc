"""The real engine, store and record behind static batches, without Spark's streaming around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.catalyst.columns import SUBSTREAM, TIME
from sparkjet.engine.committer import Committer
from sparkjet.engine.context import EngineContext, configure
from sparkjet.engine.recovery import recover
from sparkjet.plan.plan import Output, plan_of
from sparkjet.sinks.protocol import Guarantee
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.api.grouped import LateStream, WindowedStream
    from sparkjet.engine.engine import Engine
    from sparkjet.engine.phases import EpochPhase
    from sparkjet.plan.plan import Plan
    from sparkjet.sinks.protocol import Handle, TransactionId

PARTITIONS = 2
SCHEMA = "key string, value long, time long, substream string"


@dataclass(frozen=True)
class Event:
    """A row of an input: the full name of its substream, its key, time in microseconds and value."""

    substream: str
    key: str | None
    time: int
    value: int = 1


@dataclass
class Collected:
    """A sink that keeps what was committed, by epoch."""

    committed: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    prepared: dict[str, tuple[int, list[tuple[Any, ...]]]] = field(default_factory=dict)

    def check(self, schema: StructType) -> None:
        """Everything fits."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Keep the rows by the transaction's name."""
        found = [tuple(row) for row in rows.collect()]
        if not found:
            return None
        self.prepared[str(transaction)] = (transaction.epoch, found)
        return {"transaction": str(transaction)}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Show the rows."""
        between()
        epoch, rows = self.prepared[handle["transaction"]]
        self.committed[epoch] = rows

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Nothing can see them."""


def source(spark: SparkSession) -> DataFrame:
    """A streaming DataFrame with the columns of the batches; it is never started."""
    empty = spark.readStream.format("rate").load()
    return empty.select(
        F.lit("").alias("key"), F.col("value"), F.col("timestamp").alias("ts"), F.lit("").alias("substream")
    )


class EngineRun:
    """Feeds batches to the engine of a query, with or without a restart between them.

    Args:
        spark: The session.
        home: Directory of the store and of what stands for Spark's checkpoint.
        results: What the query computes; each gets a :class:`Collected` sink.
        listener: As in ``writeStream.onEpochPhase``.
        guarantee: The query's.
        overlap: Whether an epoch ends beside the partial aggregation of the next one.
    """

    sink_class: type[Collected] = Collected
    store_class: type[DirectoryStore] = DirectoryStore

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        results: Sequence[WindowedStream | LateStream],
        listener: Callable[[EpochPhase, int], None] = lambda step, epoch: None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        *,
        overlap: bool = False,
    ) -> None:
        self._spark = spark
        self._home = home
        self._guarantee = guarantee
        self._overlap = overlap
        self.clock = sj.ManualClock()
        self.sinks = [self.sink_class() for _ in results]
        outputs = []
        for number, (result, sink) in enumerate(zip(results, self.sinks, strict=True)):
            writer = result.writeStream
            outputs.append(
                Output(
                    f"out{number}",
                    writer.aggregation,
                    writer.rows,
                    writer._steps.source,
                    writer._finished,
                    sink,
                    "test",
                )
            )
        self.plan: Plan = plan_of(outputs)
        self._listener = listener
        self.engine: Engine
        self.restart()

    def restart(self) -> None:
        """Throw the engine away and recover another one from the store."""
        if hasattr(self, "engine"):
            for aggregation in self.engine.state.aggregations.values():
                aggregation.operator.restore([], None)
                aggregation.operator.release()
        self.store = self.store_class(self._home / "snapshots")
        self.store.open("checkpointLocation")
        configure(self._spark, PARTITIONS)
        parts = EngineContext(
            plan=self.plan,
            guarantee=self._guarantee,
            partitions=PARTITIONS,
            overlap=self._overlap,
            session=self._spark,
            store=self.store,
            log=RecordLog(self.store),
            committer=Committer({output.name: output.sink for output in self.plan.outputs}),
            clock=self.clock,
            listener=self._listener,
        )
        self.engine, self.checkpoint = recover(parts, self._home / "spark")

    def feed(self, events: Sequence[Event]) -> None:
        """Run a batch as one epoch; a batch that no record has is the next one again, as Spark replays it."""
        batch = self.engine.next_batch
        directory = self.checkpoint.directory
        for log, number in (("offsets", batch), ("commits", batch - 1)):
            if number >= 0:
                (directory / log).mkdir(exist_ok=True)
                (directory / log / str(number)).write_text(f"v1\n{{}}\n{number}")
        rows = [(event.key, event.value, event.time, event.substream) for event in events]
        table = self._spark.createDataFrame(rows, SCHEMA)
        hidden = {TIME: F.col("time"), SUBSTREAM: F.col("substream"), "ts": F.timestamp_micros("time")}
        self.engine.run_batch(table.withColumns(hidden).select(*self.plan.source.columns), batch)

    def rows(self, sink: int = 0) -> list[tuple[Any, ...]]:
        """Everything that a sink has committed, in the order of the epochs."""
        self.engine.join()
        return [row for epoch in sorted(self.sinks[sink].committed) for row in self.sinks[sink].committed[epoch]]

    @property
    def watermark(self) -> int:
        """The query's watermark."""
        return self.engine.state.tracker.watermark
