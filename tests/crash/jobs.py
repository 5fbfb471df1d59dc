"""Jobs: the queries that are crashed, each with the rules for its output."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights_query import LAG
from tests.crash.clocks import SteppedClock
from tests.crash.feeds import SCHEMA, SECOND
from tests.crash.homes import checkpoints_of, snapshots_of, store
from tests.crash.joins import JoinRules
from tests.crash.keyed import KeyedRules
from tests.crash.measures import mean, of, rank
from tests.crash.outputs import (
    into_artemis,
    into_delta,
    into_files,
    into_iceberg,
    into_jdbc,
    into_map,
    into_rabbitmq,
    into_table,
    into_topic,
    into_upserted,
    with_home,
)
from tests.crash.plain import DEAD, REST, DivertedRules, MessageRules, PlainRules
from tests.crash.queries import joined, keyed, right_of
from tests.crash.replay import RESULTS, Compute, Rules
from tests.crash.visits import BUSY, VisitRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet import Stream, StreamingQuery
    from sparkjet.aggregates.operation import Aggregate
    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.writer import StreamWriter
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.storage.directory import Directory
    from sparkjet.windows import Window


@dataclass(frozen=True)
class Place:
    """The directories of one query; several may read one feed."""

    root: Path
    feed: Path

    @property
    def home(self) -> Path:
        """Where its home is, or how it is named where all are in a grid."""
        return self.root / "home"

    @property
    def snapshots(self) -> Directory:
        """The records and the state of its home."""
        return snapshots_of(self.home)

    @property
    def checkpoints(self) -> Path:
        """Spark's checkpoints of its home, by run."""
        return checkpoints_of(self.home)

    @property
    def out(self) -> Path:
        return self.root / RESULTS

    @property
    def late(self) -> Path:
        return self.root / "late"

    @property
    def history(self) -> Path:
        return self.root / "history"

    @property
    def clock(self) -> Path:
        """File with the offset of the query's clock; beside the feed, as the test must always be able to write it."""
        return self.feed.with_name(f"{self.feed.name}.clock")


@dataclass(frozen=True)
class Job:
    """A query over a feed; ``build`` creates its outputs without the trigger, in a process with a session.

    With ``overlap``, each epoch ends during the partial aggregation of the next one.
    """

    name: str
    rules: Rules
    build: Callable[[SparkSession, Place, Rules], list[StreamWriter]]
    overlap: bool = False

    def with_window(self, size: int, step: int) -> Job:
        """The same query with another window, in seconds."""
        return replace(self, rules=replace(self.rules, size=size * SECOND, step=step * SECOND))

    def writers(
        self, spark: SparkSession, place: Place, *, until_end: bool = True, close: bool = True
    ) -> list[StreamWriter]:
        """Its outputs with the trigger: to the end of the input, closing windows or not, or continuously."""
        writers = self.build(spark, place, self.rules)
        if (grid := store()) is not None:
            writers[0].option("snapshotStore", grid)
        writers[0].option("overlapEpochs", self.overlap)
        if place.clock.exists():
            writers[0].clock(SteppedClock(place.clock))
        if until_end:
            writers[0].option("closeWindowsAtEnd", close and self.rules.staged).trigger(availableNow=True)
        else:
            writers[0].trigger(processingTime="100 milliseconds")
        return writers

    def writer(self, spark: SparkSession, place: Place, *, until_end: bool = True) -> StreamWriter:
        """The output of a query that has one."""
        (writer,) = self.writers(spark, place, until_end=until_end)
        return writer

    def start(
        self, spark: SparkSession, place: Place, listener: PhaseListener, *, until_end: bool = True
    ) -> StreamingQuery:
        """Start it with a listener for its phases."""
        import sparkjet as sj

        writers = self.writers(spark, place, until_end=until_end)
        writers[0].onEpochPhase(listener)
        return sj.start(*writers)

    def run(self, spark: SparkSession, place: Place, *, close: bool = True) -> None:
        """Run it in this process until the end of its input."""
        import sparkjet as sj

        sj.start(*self.writers(spark, place, close=close)).awaitTermination()


def skewed_events(spark: SparkSession, place: Place) -> DataFrame:
    """The rows of a feed in files, each of which is a batch."""
    from pyspark.sql import functions as F

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file:{place.feed}")
    return source.withColumn("ts", F.timestamp_micros("ts"))


def skewed_stream(spark: SparkSession, place: Place, rules: Rules, **watermark: str) -> Stream:
    """A feed of :func:`tests.crash.feeds.write_skewed`; ``watermark`` are more arguments of ``withWatermark``."""
    import sparkjet as sj

    events = sj.stream(skewed_events(spark, place))
    return events.withWatermark("ts", f"{rules.lag} microseconds", by="sub", substreams=rules.listed, **watermark)


def sj_window(rules: Rules) -> Window:
    """The window of a query."""
    import sparkjet as sj

    return sj.window("ts", f"{rules.size} microseconds", f"{rules.step} microseconds")


def topic_stream(spark: SparkSession, place: Place, rules: Rules) -> Stream:
    """A feed of :class:`tests.crash.topics.Topic`, whose partitions are the substreams."""
    from pyspark.sql import functions as F

    import sparkjet as sj

    sj.register_sources(spark)
    options = json.loads((place.root / "source.json").read_text())
    messages = spark.readStream.format("sparkjet-kafka").options(**options).load()
    event = F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")
    events = messages.select(event, "topic", "partition").select("event.*", "topic", "partition")
    timed = sj.stream(events.withColumn("ts", F.timestamp_micros("ts")))
    return timed.withWatermark("ts", f"{rules.lag} microseconds")


def skewed_query(
    spark: SparkSession, place: Place, rules: Rules, aggregates: Sequence[Aggregate]
) -> list[StreamWriter]:
    """A query of one window over the feed in files."""
    timed = skewed_stream(spark, place, rules)
    results = timed.groupBy(sj_window(rules), *rules.keys).agg(*aggregates)
    return [with_home(into_files(results, place), place)]


def _summed(stream: Stream, rules: Rules) -> WindowedStream:
    """Its windows, by the deduct strategy."""
    from pyspark.sql import functions as F

    aggregates = [F.count("*").alias("rows"), F.sum("n").alias("total"), F.avg("n").alias("mean")]
    return stream.groupBy(sj_window(rules), *rules.keys).agg(*aggregates)


def _beside(
    spark: SparkSession,
    place: Place,
    rules: Rules,
    others: Sequence[Callable[..., StreamWriter]] = (),
    read: Callable[..., Stream] = skewed_stream,
) -> list[StreamWriter]:
    """The same results into files and, beside them, into other outputs."""
    results = _summed(read(spark, place, rules), rules)
    return [with_home(into_files(results, place), place), *(into(results, place, rules) for into in others)]


_AS_OUTBOX = partial(into_table, prepared="never")
# The clock is set by hours, and must not change the result.
_TIMED = partial(skewed_stream, idleTimeout="3 days")


def _through(spark: SparkSession, place: Place, rules: Rules) -> list[StreamWriter]:
    """From a topic into another one and a table."""
    results = _summed(topic_stream(spark, place, rules), rules)
    return [with_home(into_topic(results, place, rules), place), into_table(results, place, rules)]


def _visits(spark: SparkSession, place: Place, rules: Rules) -> list[StreamWriter]:
    """Sessions, windows over them, and the late rows: three outputs of one pass."""
    from pyspark.sql import functions as F

    import sparkjet as sj

    assert isinstance(rules, VisitRules)
    timed = skewed_stream(spark, place, rules)
    sessions = timed.groupBy(sj.session_window("ts", rules.gap), *rules.keys).agg(
        F.count("*").alias("rows"), F.max("d").alias("high"), F.sum("n").alias("total")
    )
    busy = sessions.groupBy(sj.window("session_window", rules.size), *rules.keys).agg(
        F.count("*").alias("sessions"), F.max("rows").alias("longest")
    )
    writer = with_home(into_files(sessions, place), place)
    return [writer, busy.writeStream.format("files").option("path", place.root / BUSY)]


def _plain(
    spark: SparkSession, place: Place, rules: Rules, others: Sequence[Callable[..., StreamWriter]] = ()
) -> list[StreamWriter]:
    """Without windows, though there is a watermark: two outputs in files and, beside them, into other ones."""
    from pyspark.sql import functions as F

    stream = skewed_stream(spark, place, rules)
    kept = stream.where("n > 0").select("id", "sub", "key", (F.col("n") * 2).alias("twice"))
    rest = stream.where("n <= 0").select("id", "n").writeStream.format("files").option("path", place.root / REST)
    writer = into_files(kept, place).option("checkpointLocation", place.home)
    return [writer, rest, *(into(kept, place, rules) for into in others)]


MENDED = "mended"
"""A file in the directory of a query whose fault is mended from its next start on; the end of such a job's name."""


def _diverted(spark: SparkSession, place: Place, rules: Rules) -> list[StreamWriter]:
    """With dead letters, of rows that fail and of an expectation."""
    from pyspark.sql import functions as F

    stream = skewed_stream(spark, place, rules).divert(errors=True)
    if not (place.root / MENDED).exists():
        raised = F.expr("IF(n % 7 = 0, raise_error('seven'), true)")
        stream = stream.where(raised).expect("no fifth", "id % 5 <> 0", action="divert")
    rows = stream.select("id", "sub", "key", (F.col("n") * 2).alias("twice"))
    options = {"checkpointLocation": place.home, "deadLettersPath": place.root / DEAD}
    return [into_files(rows, place).options(**options)]


def _keyed(spark: SparkSession, place: Place, rules: Rules, *, tables: bool = False) -> list[StreamWriter]:
    assert isinstance(rules, KeyedRules)
    return keyed(skewed_stream(spark, place, rules), place, rules, tables=tables)


def _joined(spark: SparkSession, place: Place, rules: Rules, *, tables: bool = False) -> list[StreamWriter]:
    assert isinstance(rules, JoinRules)
    left = skewed_stream(spark, place, rules).alias("left")
    return joined(left, right_of(skewed_events(spark, place), rules), place, rules, tables=tables)


def _received(
    spark: SparkSession, place: Place, rules: Rules, others: Sequence[Callable[..., StreamWriter]] = ()
) -> list[StreamWriter]:
    """From queues, row by row, into files and, beside them, into other outputs."""
    from pyspark.sql import functions as F

    import sparkjet as sj

    sj.register_sources(spark)
    options = json.loads((place.root / "source.json").read_text())
    messages = spark.readStream.format("sparkjet-rabbitmq").options(**options).load()
    stream = sj.stream(messages.select("message_id", "queue", F.col("body").cast("string").alias("body")))
    writer = into_files(stream, place).option("checkpointLocation", place.home)
    return [writer, *(into(stream, place, rules) for into in others)]


def _stacks(spark: SparkSession, place: Place, rules: Rules) -> list[StreamWriter]:
    from pyspark.sql import functions as F

    return skewed_query(
        spark, place, rules, [F.max("d").alias("high"), F.avg("d").alias("mean"), F.count("*").alias("rows")]
    )


def _flights(spark: SparkSession, place: Place, rules: Rules) -> list[StreamWriter]:
    from examples.flights_query import build

    return [build(spark, place.feed, place.out, place.home, place.late).option("statePartitions", 2)]


_SKEWED = ("id", "sub", "key", "ts", "n", "d")
_SUMS: dict[str, Compute] = {"rows": len, "total": of(sum, "n"), "mean": mean("n")}
_EXTREMES: dict[str, Compute] = {"high": of(max, "d"), "mean": mean("d"), "rows": len}
_DELAYS: dict[str, Compute] = {
    "departures": len,
    "mean_delay": mean("delay"),
    "worst_delay": of(max, "delay"),
    "p95_delay": rank(0.95, "delay"),
}
_MINUTE = 60 * SECOND
_SUMMED = Rules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", ("a", "b", "c"), ("key",), _SKEWED, _SUMS)
_READ = replace(_SUMMED, by="partition", listed=())
"""Each partition is a substream; a topic's partitions are known before their first row."""

_KEYED = KeyedRules(0, SECOND // 1_000, 15 * SECOND, "ts", "sub", ("a", "b", "c"), (), _SKEWED, {})
"""The watermark moves by milliseconds, as users' functions see it."""
_JOINED = JoinRules(
    size=20 * SECOND,
    step=SECOND // 10,
    lag=15 * SECOND,
    time="ts",
    by="sub",
    listed=("a", "b", "c"),
    keys=(),
    columns=_SKEWED,
    aggregates={},
    behind=25 * SECOND,
    slide=10 * SECOND,
    lower=-5 * SECOND,
    upper=10 * SECOND,
)
"""The watermark moves by a hundredth of the join's bound, in a round number."""
_ALL = PlainRules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", ("a", "b", "c"), ("key",), _SKEWED, {})
_DIVERTED = DivertedRules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", ("a", "b", "c"), ("key",), _SKEWED, {})
_MESSAGES = MessageRules(0, 0, 0, "", "queue", (), (), ("message_id", "queue", "body"), {})

AHEAD = "-ahead"
"""Suffix of a job's name: the same job with overlapping epochs, whose output must be the same."""

_ALONE = {
    job.name: job
    for job in (
        # The deduct strategy, with all three substreams known from the start.
        Job("sums", _SUMMED, _beside),
        # The same results also in PostgreSQL, by prepared transactions and by publishing after the decision.
        Job("prepared", _SUMMED, partial(_beside, others=[into_table])),
        Job("outbox", _SUMMED, partial(_beside, others=[_AS_OUTBOX])),
        # The same results also in a Kafka topic.
        Job("topic", _SUMMED, partial(_beside, others=[into_topic])),
        # The same results also in a Delta table.
        Job("delta", _SUMMED, partial(_beside, others=[into_delta])),
        # The same results also in an Iceberg table.
        Job("iceberg", _SUMMED, partial(_beside, others=[into_iceberg])),
        # The same results also in a table that is reached through Java.
        Job("jdbc", _SUMMED, partial(_beside, others=[into_jdbc])),
        # The same results also in a map of the grid.
        Job("map", _SUMMED, partial(_beside, others=[into_map])),
        # The same results also in a queue.
        Job("queue", _SUMMED, partial(_beside, others=[into_artemis])),
        # Those in files, a table and a topic at once, with a clock that is set.
        Job("everywhere", _SUMMED, partial(_beside, others=[into_table, into_topic], read=_TIMED)),
        Job("everywhere-outbox", _SUMMED, partial(_beside, others=[_AS_OUTBOX, into_topic], read=_TIMED)),
        # The same from a topic, into files; and into a topic and a table at once.
        Job("source", _READ, partial(_beside, read=topic_stream)),
        Job("through", _READ, _through),
        # The two-stacks strategy, with substreams that are discovered on the way.
        Job(
            "stacks",
            Rules(_MINUTE, _MINUTE // 3, _MINUTE // 2, "ts", "sub", (), ("key",), _SKEWED, _EXTREMES),
            _stacks,
        ),
        # Sessions, and windows over them.
        Job(
            "visits",
            VisitRules(
                size=5 * _MINUTE,
                step=_MINUTE // 600,
                lag=_MINUTE // 2,
                time="ts",
                by="sub",
                listed=("a", "b", "c"),
                keys=("key",),
                columns=_SKEWED,
                aggregates={"rows": len, "high": of(max, "d"), "total": of(sum, "n")},
                gap=_MINUTE // 6,
            ),
            _visits,
        ),
        # State by key: first rows, rolling sums and users' functions; joins of two streams, of windows, with a table.
        Job("state", _KEYED, _keyed),
        Job("state-tables", _KEYED, partial(_keyed, tables=True)),
        Job("joins", _JOINED, _joined),
        Job("joins-tables", _JOINED, partial(_joined, tables=True)),
        # Without windows: into two directories of files, and also into PostgreSQL or Kafka.
        Job("rows", _ALL, _plain),
        Job("rows-table", _ALL, partial(_plain, others=[into_table])),
        Job("rows-topic", _ALL, partial(_plain, others=[into_topic])),
        Job("rows-delta", _ALL, partial(_plain, others=[into_delta])),
        Job("rows-iceberg", _ALL, partial(_plain, others=[into_iceberg])),
        # The same rows into tables in which they replace each other.
        Job("upserts-delta", _ALL, partial(_plain, others=[partial(into_upserted, name="delta")])),
        Job("upserts-iceberg", _ALL, partial(_plain, others=[partial(into_upserted, name="iceberg")])),
        Job("rows-jdbc", _ALL, partial(_plain, others=[into_jdbc])),
        # With dead letters.
        Job("diverted", _DIVERTED, _diverted),
        Job(f"diverted-{MENDED}", _DIVERTED, _diverted),
        # From queues of RabbitMQ, into files, PostgreSQL and another queue.
        Job("queues", _MESSAGES, _received),
        Job("queues-table", _MESSAGES, partial(_received, others=[into_table])),
        Job("queues-queue", _MESSAGES, partial(_received, others=[into_rabbitmq])),
        # The main job itself, on a smaller feed.
        Job(
            "flights",
            Rules(
                60 * _MINUTE,
                10 * _MINUTE,
                LAG // timedelta(microseconds=1),
                "scheduled",
                "origin",
                ("EWR", "JFK", "LGA"),
                ("origin", "carrier"),
                ("id", "origin", "carrier", "flight", "dest", "scheduled", "delay"),
                _DELAYS,
            ),
            _flights,
        ),
    )
}

JOBS = _ALONE | {
    name + AHEAD: replace(job, name=name + AHEAD, overlap=True) for name, job in _ALONE.items() if job.rules.staged
}
