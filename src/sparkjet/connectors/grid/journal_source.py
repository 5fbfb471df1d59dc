"""The data source ``sparkjet-grid-journal``: a journal of a grid as a stream, with its writer's watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from sparkjet.connectors.grid.journal_epochs import JournalEpochs
from sparkjet.connectors.grid.journal_source_settings import NAME, JournalSettings, open_journal
from sparkjet.connectors.grid.unregistered import JOURNAL_OFFSET, UNREGISTERED
from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.options import Options
from sparkjet.query_log import logger
from sparkjet.sources.alignment import KEY, Aligner, Held
from sparkjet.sources.backlog import limited
from sparkjet.sources.carrying import CarryingOffset
from sparkjet.workers import QuickReader
from sparkjet_grid.errors import FallenBehindError
from sparkjet_grid.journal_version import EPOCH, OFFSET, PARTITION

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.connectors.grid.location import Location
    from sparkjet_grid.journal_reader import Journal
    from sparkjet_grid.journal_version import Position


METADATA = (
    StructField(PARTITION, IntegerType(), nullable=False),
    StructField(OFFSET, LongType(), nullable=False),
    StructField(EPOCH, LongType(), nullable=False),
)
"""The columns of ``includeMetadata``."""


class JournalOffset(CarryingOffset, frozen=True):
    """The end of a batch.

    Attributes:
        writer: Id of the query that writes the journal: from another one, the same offsets are different rows.
        reader: The name under which the journal keeps rows for the query; empty until it has one, and
            ``UNREGISTERED`` for a fork, which never has.
        lost: The number of rows in each partition that were gone before they were read, since the query's first start.
        alignment: What ``maxWatermarkDrift`` has decided; None without it.
    """

    writer: str = ""
    reader: str = ""
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    alignment: dict[str, Any] | None = None

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return {int(each): offset for each, offset in self.offsets.items()}

    def to_spark(self) -> dict[str, Any]:
        """The form in which Spark gets it."""
        found = msgspec.structs.asdict(self)
        # As before there was such an option: another text would make a batch.
        return found if self.alignment is not None else {name: found[name] for name in found if name != KEY}

    @staticmethod
    def of(offset: dict[str, Any]) -> JournalOffset:
        """The offset that Spark gives back."""
        return msgspec.convert(offset, known(JournalOffset))


@dataclass(frozen=True)
class Range:
    """The rows of a partition from ``start`` (inclusive) to ``end`` (exclusive), and the query that wrote them."""

    partition: int
    start: int
    end: int
    writer: str


class GridJournalDataSource(DataSource):
    """A journal of a grid; see docs/guide/journal.md."""

    place = ""
    """The directory of :mod:`sparkjet.sources.alignment`; set where the source is registered."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return NAME

    @cached_property
    def settings(self) -> JournalSettings:
        """The parsed options; they are checked here, when the user calls ``load()``."""
        return JournalSettings.of(Options(dict(self.options)))

    def schema(self) -> StructType:
        """The columns of the rows, and those of the journal if requested."""
        with open_journal(self.settings.location) as journal:
            own = StructType.fromJson(msgspec.json.decode(journal.spark_schema))
        return StructType([*own, *METADATA]) if self.settings.metadata else own

    def streamReader(self, schema: StructType) -> JournalStreamReader:
        """A reader of the journal."""
        return JournalStreamReader(self.settings, schema.names, self.place)


class JournalStreamReader(QuickReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a Python process on the driver, and reads their ranges in the executors.

    From the first batch on, the journal keeps for this reader the rows that are in no finished batch. Its name is in
    the offsets, so the next run of the query uses the same one. For a fork, it keeps nothing.

    Args:
        settings: The options.
        names: The columns known to Spark.
        place: The directory in which the engine says how far event time has come.
    """

    def __init__(self, settings: JournalSettings, names: Sequence[str], place: str = "") -> None:
        self._settings, self._names = settings, list(names)
        self._aligner = None if settings.max_drift is None else Aligner(settings.max_drift, place, NAME)
        self._placed: dict[int, int] = {}
        self._target: Position | None = None
        self._reader = ""
        self._kept: dict[int, int] = {}

    @cached_property
    def _journal(self) -> Journal:
        return open_journal(self._settings.location)

    @cached_property
    def _epochs(self) -> JournalEpochs:
        return JournalEpochs(self._journal)

    def initialOffset(self) -> dict[str, Any]:
        """The offset at which a query without a record starts.

        Without watermarks: Spark stores where its first batch ends, but not where it starts, and asks again if that
        batch is run again.
        """
        ends = self._epochs.newest().ends
        starts = self._settings.starts(self._journal.earliest(), ends)
        if self._settings.moving:
            self._placed = {each: start for each, start in starts.items() if start == ends[each]}
        return self._offset(starts).to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxOffsetsPerTrigger``."""
        rows = self._settings.max_offsets
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the currently newest epoch."""
        self._target = self._epochs.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, and how far event time has come there."""
        begun = JournalOffset.of(start)
        asked = begun.positions
        first = self._keep(begun)
        newest = self._target or self._epochs.newest()
        ends = {each: max(end, first[each]) for each, end in newest.ends.items()}
        # Their rows would be lost if the first batch were run again: it would start at a later end.
        ends |= {each: place for each, place in self._placed.items() if asked[each] == place}
        self._placed = {}
        rows, held = limit.max_rows if isinstance(limit, ReadMaxRows) else None, Held()
        if self._aligner is not None:
            backlog = {str(each): end - first[each] for each, end in ends.items() if end > first[each]}
            given, held = self._aligner.shared(start, backlog, rows)
            ends = {each: first[each] + given.get(str(each), 0) for each in ends}
        elif rows is not None:
            ends = limited(first, ends, rows)
        watermarks = self._epochs.watermarks(ends, None if self._target is None else self._target.epoch)
        lost = {each: begun.lost.get(str(each), 0) + first[each] - asked[each] for each in first}
        end = self._offset(ends, watermarks, begun.reader, lost)
        if self._aligner is not None:
            end = msgspec.structs.replace(end, alignment=begun.alignment)
        # A name alone is no reason for a batch, nor is who waits.
        if end == begun:
            return begun.to_spark()
        named = msgspec.structs.replace(end, reader=self._reader or begun.reader).to_spark()
        return named if self._aligner is None else Aligner.described(start, named, held)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The end of every partition."""
        return self._offset(self._epochs.newest().ends).to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for every partition with new rows, except rows that were lost when the batch was planned."""
        begun, until = JournalOffset.of(start), JournalOffset.of(end)
        if not self._reader:
            # A batch that is run again: its rows must stay until it is committed.
            self._keep(msgspec.structs.replace(begun, reader=begun.reader or until.reader))
        ranges = []
        for partition, first in begun.positions.items():
            gone = until.lost.get(str(partition), 0) - begun.lost.get(str(partition), 0)
            ranges.append(Range(partition, first + gone, until.positions[partition], begun.writer))
        return [InputPartition(each) for each in ranges if each.start < each.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task: the rows of its range."""
        wanted: Range = partition.value
        journal, start = _opened(self._settings.location, wanted.writer), wanted.start
        while start < wanted.end:
            try:
                for batch in journal.read(wanted.partition, start, wanted.end):
                    self._check_written(journal, wanted.writer)
                    start += batch.num_rows
                    yield batch.select(self._names)
            except FallenBehindError as error:
                self._check_written(journal, wanted.writer)
                self._lost(error)
                start = error.first[wanted.partition]

    def commit(self, end: dict[str, Any]) -> None:
        """Release the rows before a batch's end: the query's record has them, as epochs do not overlap."""
        done = JournalOffset.of(end)
        if done.reader == UNREGISTERED:
            return
        if not self._reader:
            self._keep(done)
        elif done.positions != self._kept:
            self._journal.renew(self._reader, done.positions)
            self._kept = done.positions

    def _keep(self, offset: JournalOffset) -> dict[int, int]:
        """Have rows kept from an offset on, and return where they begin: further on if some are lost."""
        first = offset.positions
        self._check_writer(offset)
        while True:
            try:
                if offset.reader == UNREGISTERED or (self._reader and first == self._kept):
                    self._journal.check(first)
                else:
                    # Also between batches: Spark commits one when it has planned the next, and a writer that waits for
                    # room would never give it a reason to.
                    reader = self._reader or self._settings.reader or offset.reader or f"reader-{uuid4().hex[:12]}"
                    self._journal.register(reader, first)
                    self._reader = reader
            except FallenBehindError as error:
                self._check_writer(offset)
                self._lost(error)
                first |= error.first
            else:
                # Again, for the version just looked at: there may be a different journal since the last one.
                self._check_writer(offset)
                self._kept = dict(first)
                return first

    def _check_writer(self, offset: JournalOffset) -> None:
        self._check_written(self._journal, offset.writer)

    def _check_written(self, journal: Journal, by: str) -> None:
        writer = journal.writer.query
        if writer != by:
            message = (
                f"{NAME}: {self._settings.location.name} is written by query {writer}, and was by {by} when "
                "this query read it: it was removed and begun again, and its offsets are those of other rows. Start "
                "from scratch with another checkpointLocation."
            )
            raise SourceError(message)

    def _offset(
        self,
        offsets: dict[int, int],
        watermarks: dict[int, int | None] | None = None,
        reader: str = "",
        lost: dict[int, int] | None = None,
    ) -> JournalOffset:
        """An offset in its canonical form: Spark compares text."""
        return JournalOffset(
            JOURNAL_OFFSET,
            {str(each): offset for each, offset in sorted(offsets.items())},
            {str(each): watermark for each, watermark in sorted((watermarks or {}).items())},
            self._journal.writer.query,
            reader,
            {str(each): rows for each, rows in sorted((lost or {}).items()) if rows},
        )

    def _lost(self, error: FallenBehindError) -> None:
        if self._settings.fail_on_data_loss:
            message = (
                f"{NAME}: {error} Nothing was skipped. To go on without these rows, which are counted then: "
                'option("failOnDataLoss", "false").'
            )
            raise SourceError(message) from error
        logger.warning("%s: %s Going on without %d rows", NAME, error, error.rows)


@cache
def _opened(location: Location, writer: str) -> Journal:
    """The journal, shared by all tasks of a Python worker.

    One per writer: otherwise what is remembered of a removed journal would be used for its successor, and rows that
    were in the first would be taken for gone.
    """
    del writer
    return open_journal(location)
