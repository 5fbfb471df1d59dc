"""The data source ``sparkjet-kafka`` that Spark runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkjet.errors import AnalysisError, SourceError
from sparkjet.sources.kafka.cluster import Cluster
from sparkjet.sources.kafka.positions import TopicPartition, from_offset, limited, to_offset
from sparkjet.sources.kafka.reading import Range
from sparkjet.sources.kafka.records import record_batches
from sparkjet.sources.kafka.settings import NAME, KafkaSourceSettings
from sparkjet.sources.kafka.starting import LATEST

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("sparkjet")

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
# Built by hand: text is parsed by the JVM, which the workers do not have.
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of Spark's Kafka source."""
_Offset = dict[str, dict[str, int]]
_SECOND_LOOK = 1.0


class KafkaDataSource(DataSource):
    """Topics of Kafka, with the columns and the options of Spark's own source; see docs/guide/kafka-source.md."""

    @classmethod
    def name(cls) -> str:
        """What ``readStream.format(…)`` calls it."""
        return NAME

    @cached_property
    def settings(self) -> KafkaSourceSettings:
        """What the options say; they are checked here, when the user calls ``load()``."""
        return KafkaSourceSettings.of(dict(self.options))

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source."""
        if not self.settings.headers:
            return COLUMNS
        return StructType([*COLUMNS, StructField("headers", ArrayType(_HEADER))])

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """A reader of the topics."""
        if schema.simpleString() != self.schema().simpleString():
            message = f'format("{NAME}") has columns of its own: leave schema(…) out and select from them.'
            raise AnalysisError(message)
        return KafkaStreamReader(self.settings)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process of the driver's, and reads their ranges in the executors.

    An offset is Kafka's next offset in each partition: ``{"topic": {"0": 17}}``. Every partition that is read is in
    it, with rows or without.
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self._target: dict[TopicPartition, int] | None = None
        self._moving: dict[TopicPartition, int] = {}

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    @property
    def _committed(self) -> bool:
        return self._settings.client["isolation.level"] == "read_committed"

    def initialOffset(self) -> _Offset:
        """Where a query begins that has no record yet.

        Spark writes down where its first batch ends, but not where it begins: that is asked here once more if the batch
        has to be run again. So of partitions that begin at their end, which moves, the first batch has no rows.
        """
        topics = self._cluster.topics()
        self._settings.subscription.check(topics)
        partitions = self._settings.subscription.chosen(topics)
        wanted = self._settings.starting.wanted(partitions)
        if self._settings.starting.by_time:
            return to_offset(self._first_at(wanted))
        found = self._cluster.resolved(wanted, committed=self._committed)
        # Only what the user said: an end that is asked for twice has moved on in between if somebody writes.
        given = {each: offset for each, offset in wanted.items() if offset >= 0}
        begins, ends = self._cluster.begins(given), self._cluster.ends(given, committed=False)
        for each, offset in given.items():
            if not begins[each] <= offset <= ends[each]:
                message = (
                    f"option: startingOffsets has {offset} for {each[0]}-{each[1]}, "
                    f"which has {begins[each]} to {ends[each]}."
                )
                raise AnalysisError(message)
        self._moving = {each: found[each] for each, offset in wanted.items() if offset == LATEST}
        return to_offset(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxOffsetsPerTrigger``."""
        rows = self._settings.max_offsets
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to here, and no partition that comes later."""
        self._target = self._cluster.ends(self._partitions(), committed=self._committed)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """Where the next batch ends; new partitions and topics are in it, from their beginning.

        Raises:
            SourceError: What was read has gone (see ``failOnDataLoss``).
        """
        starts = from_offset(start)
        ends = self._ends(starts)
        # Their rows would be lost if the first batch were run again: its beginning would be a later end.
        ends.update({each: first for each, first in self._moving.items() if starts.get(each) == first})
        self._moving = {}
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return to_offset(ends)

    def reportLatestOffset(self) -> _Offset:
        """The end of every partition, behind transactions that are still open too.

        A partition in which one is open has not been read to its end: its rows come when it is committed, and are not
        to be late then.
        """
        return to_offset(self._cluster.ends(self._partitions(), committed=False))

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """A task for every partition that has something new."""
        starts = from_offset(start)
        ranges = [Range(*each, starts.get(each, 0), last) for each, last in from_offset(end).items()]
        return [InputPartition(each) for each in ranges if each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task's range."""
        return record_batches(partition.value, self._settings)

    def _first_at(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time in each partition."""
        starting = self._settings.starting
        ends = self._cluster.ends(times, committed=self._committed)
        first = {}
        for each, offset in self._cluster.at(times).items():
            if offset is None and not starting.latest_if_none:
                message = (
                    f"option: {starting.option}: nothing in {each[0]}-{each[1]} is as young as {times[each]}. "
                    'To begin at its end: startingOffsetsByTimestampStrategy="latest".'
                )
                raise AnalysisError(message)
            if offset is None:
                self._moving[each] = ends[each]
            first[each] = ends[each] if offset is None else offset
        return first

    def _partitions(self) -> list[TopicPartition]:
        return self._settings.subscription.chosen(self._cluster.topics())

    def _ends(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far each partition can be read, not below its start."""
        found = self._partitions()
        gone = sorted(starts.keys() - set(found))
        if gone:
            # A cluster that has just started may not list all it has.
            threading.Event().wait(_SECOND_LOOK)
            found = self._partitions()
            gone = sorted(starts.keys() - set(found))
        if gone:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in gone)
            self._lost(f"{names} {'is' if len(gone) == 1 else 'are'} not in the cluster any more, or not subscribed to")
        ends = self._cluster.ends(found, committed=self._committed)
        if self._target is not None:
            # What came after the query's start is another run's.
            ends = {
                each: min(end, self._target.get(each, starts.get(each, 0)))
                for each, end in ends.items()
                if each in starts or each in self._target
            }
        behind = [each for each, end in ends.items() if end < starts.get(each, 0)]
        if behind:
            self._check_behind(behind, starts)
        return {each: max(end, starts.get(each, 0)) for each, end in ends.items()}

    def _check_behind(self, behind: list[TopicPartition], starts: dict[TopicPartition, int]) -> None:
        """Tell a transaction that is open, before which a read_committed reader ends, from records that are gone."""
        for (topic, partition), last in self._cluster.ends(behind, committed=False).items():
            start = starts[topic, partition]
            if last < start:
                self._lost(f"{topic}-{partition} ends at {last}, but was read up to {start} (was it created anew?)")

    def _lost(self, what: str) -> None:
        if self._settings.fail_on_data_loss:
            raise SourceError(
                f"sparkjet-kafka: {what}. Nothing was skipped. To go on with what there is: "
                'option("failOnDataLoss", "false").'
            )
        logger.warning("sparkjet-kafka: %s; going on without it", what)
