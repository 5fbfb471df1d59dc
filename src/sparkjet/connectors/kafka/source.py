"""The data source ``sparkjet-kafka``, as run by Spark."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

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

from sparkjet.connectors.kafka.options import PACKAGES, SOURCE_NAME
from sparkjet.connectors.kafka.positions import Positions, TopicPartition, positions_in, to_offset
from sparkjet.connectors.kafka.starting import LATEST
from sparkjet.errors import AnalysisError, lacking
from sparkjet.sources.alignment import Aligner
from sparkjet.sources.backlog import limited
from sparkjet.workers import QuickReader

try:
    from sparkjet.connectors.kafka.admin import Cluster
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
    from sparkjet.connectors.kafka.end_offsets import EndOffsets
    from sparkjet.connectors.kafka.formats.layout import Layout
    from sparkjet.connectors.kafka.reading import Range
    from sparkjet.connectors.kafka.records import record_batches
except ImportError as error:
    # In one of Spark's workers, which plans batches on the driver's machine, and whose errors arrive as text: a driver
    # that lacks a package does not get here, as it then registers nothing.
    _python = f'format("sparkjet-kafka"): {sys.executable} on {platform.node()}'
    raise AnalysisError(lacking(_python, [error.name or "it"], PACKAGES, "Python")) from error

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.connectors.kafka.formats.layout import Decoders
    from sparkjet.connectors.kafka.writer_markers import ProgressTopics

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
# Not as DDL text, which is parsed by the JVM, and Python workers have none.
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
_Offset = dict[str, Any]


class KafkaDataSource(DataSource):
    """Kafka topics, with the columns and options of Spark's own source; see docs/guide/kafka-source.md."""

    place = ""
    """The directory of :mod:`sparkjet.sources.alignment`; set where the source is registered."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return SOURCE_NAME

    @cached_property
    def settings(self) -> KafkaSourceSettings:
        """The parsed options; they are checked here, when the user calls ``load()``."""
        return KafkaSourceSettings.of(dict(self.options))

    @cached_property
    def layout(self) -> Layout:
        """The columns of keys and values; fixed here, as Spark keeps this object for the queries of what is loaded."""
        return Layout.of(self.settings.formats)

    def schema(self) -> StructType | str:
        """The columns of Spark's Kafka source, with keys and values as their formats say."""
        return self.layout.columns(self._plain)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """A reader of the topics."""
        columns = self.schema()
        # With columns as DDL it is Spark that has read them, unless there are others.
        same = isinstance(columns, str) or schema.simpleString() == columns.simpleString()
        if not same or schema.fieldNames()[: len(self._plain)] != self._plain.fieldNames():
            message = f'format("{SOURCE_NAME}") has a fixed schema: leave schema(…) out and select from its columns.'
            raise AnalysisError(message)
        decoders = None
        if self.settings.formats.parts:
            decoders = self.layout.decoders(schema)
            decoders.check()
        return KafkaStreamReader(self.settings, self.place, decoders)

    @property
    def _plain(self) -> StructType:
        if not self.settings.headers:
            return COLUMNS
        return StructType([*COLUMNS, StructField("headers", ArrayType(_HEADER))])


class KafkaStreamReader(QuickReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a Python process of the driver, and reads their ranges in the executors.

    An offset holds the next offset of each partition: ``{"topic": {"0": 17}}``. It includes every partition that is
    read, with or without rows. With ``progressTopic`` it also has the watermark of each: see
    :class:`~sparkjet.sources.carrying.CarryingOffset`. With ``maxWatermarkDrift`` it also has the partitions that were
    held back in the batch: see :mod:`sparkjet.sources.alignment`.

    Args:
        settings: The parsed options.
        place: The directory in which the engine says how far event time has come.
        decoders: What decodes keys and values, with formats.
    """

    def __init__(self, settings: KafkaSourceSettings, place: str = "", decoders: Decoders | None = None) -> None:
        self._settings, self._decoders = settings, decoders
        self._aligner = None if settings.max_drift is None else Aligner(settings.max_drift, place, SOURCE_NAME)
        self._moving: dict[TopicPartition, int] = {}

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._settings)

    @cached_property
    def _end_offsets(self) -> EndOffsets:
        return EndOffsets(self._cluster, self._settings)

    @cached_property
    def _progress(self) -> ProgressTopics | None:
        settings = self._settings
        if not settings.progress_topics:
            return None
        # Only where batches are planned: it needs msgspec, which executors may not have.
        from sparkjet.connectors.kafka.writer_markers import ProgressTopics  # noqa: PLC0415 - see above

        return ProgressTopics(settings.progress_topics, self._cluster, settings.client, settings.patience)

    def initialOffset(self) -> _Offset:
        """Where a query without a record starts.

        Spark stores where its first batch ends, but not where it starts: this is called again if the batch is rerun.
        So partitions that start at their end, which moves, have no rows in the first batch.
        """
        topics = self._cluster.topics()
        self._settings.subscription.check(topics)
        partitions = self._settings.subscription.chosen(topics)
        wanted = self._settings.starting.wanted(partitions)
        if self._settings.starting.by_time:
            return self._offset(self._first_at(wanted))
        found = self._cluster.resolved(wanted, committed=self._settings.committed)
        # Only the user's own offsets: an end that is queried twice moves in between if the topic is being written to.
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
        return self._offset(found)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxOffsetsPerTrigger``."""
        rows = self._settings.max_offsets
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the current ends, and no partitions created later."""
        self._end_offsets.stop_here()
        if self._progress is not None:
            self._progress.stop_here()

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """Where the next batch ends.

        It includes a new or recreated partition at its first offset, and its rows from the next batch on: so a batch's
        offsets determine where its rows begin, and a batch that is rerun has the same rows.
        """
        starts = positions_in(start)
        # Rows of these would be lost if the first batch were rerun: it would start at a later end.
        placed = {each: first for each, first in self._moving.items() if starts.get(each) == first}
        self._moving = {}
        ends, news = self._end_offsets.ends(starts)
        placed = {**news, **placed}
        ends = {each: end for each, end in ends.items() if each not in placed}
        rows, held = limit.max_rows if isinstance(limit, ReadMaxRows) else None, None
        if self._aligner is not None:
            backlog = {_path(each): end - starts[each] for each, end in ends.items() if end > starts[each]}
            given, held = self._aligner.shared(start, backlog, rows)
            ends = {each: min(end, starts[each] + given.get(_path(each), 0)) for each, end in ends.items()}
        elif rows is not None:
            ends = limited(starts, ends, rows)
        until = {**ends, **placed}
        end = self._offset(until, {} if self._progress is None else self._progress.watermarks(until))
        return end if held is None else Aligner.described(start, end, held)

    def reportLatestOffset(self) -> _Offset:
        """The end of every partition, beyond open transactions.

        A partition with an open transaction has not been read to its end: its rows arrive with the commit, and must
        not be late then.
        """
        return self._offset(self._end_offsets.reported())

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """A task for every partition with new records; a partition missing in ``start`` begins at its ``end``."""
        starts = positions_in(start)
        ranges = [Range(*each, starts.get(each, last), last) for each, last in positions_in(end).items()]
        return [InputPartition(each) for each in ranges if each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task's range."""
        return record_batches(partition.value, self._settings, self._decoders)

    def _offset(self, positions: Positions, watermarks: Mapping[TopicPartition, int | None] | None = None) -> _Offset:
        """An offset in the form that Spark gets; Spark compares text."""
        offset = to_offset(positions)
        if self._progress is not None:
            return {"source": SOURCE_NAME, "offsets": offset, "watermarks": to_offset(watermarks or {})}
        if self._aligner is None:
            return offset
        # None: nobody says what the watermark of the writers is, and no policy must wait for it.
        return {"source": SOURCE_NAME, "offsets": offset, "watermarks": to_offset(dict.fromkeys(positions))}

    def _first_at(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after a time in each partition."""
        starting = self._settings.starting
        ends = self._cluster.ends(times, committed=self._settings.committed)
        first = {}
        for each, offset in self._cluster.offsets_at(times).items():
            if offset is None and not starting.latest_if_none:
                message = (
                    f"option: {starting.option}: {each[0]}-{each[1]} has no record at or after {times[each]}. "
                    'To start at its end: startingOffsetsByTimestampStrategy="latest".'
                )
                raise AnalysisError(message)
            if offset is None:
                self._moving[each] = ends[each]
            first[each] = ends[each] if offset is None else offset
        return first


def _path(partition: TopicPartition) -> str:
    """The path of a partition in an offset, as in :func:`~sparkjet.sources.carrying.leaves`."""
    return f"{partition[0]}/{partition[1]}"
