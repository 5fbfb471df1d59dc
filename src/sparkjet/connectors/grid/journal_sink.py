"""The journal sink: rows by partition and offset in the memory of a grid, for queries that follow them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import tenacity
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.clock import Clock
from sparkjet.connectors.grid.columns import check_columns, check_keys, described, kept_as, key_text
from sparkjet.connectors.grid.journal_sink_settings import PARTITIONS, GridJournalSettings
from sparkjet.connectors.grid.journal_task import Appends, JournalTask, RefusedEpochError, appended_by
from sparkjet.connectors.grid.versions import GridVersionsSink
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.executors import cores
from sparkjet.query_log import logger
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks
from sparkjet.spark_line import arrow_schema
from sparkjet.storage.shipping import GRID_PACKAGES, ship
from sparkjet_grid.journal_store import Appending, JournalStore
from sparkjet_grid.journal_version import TECHNICAL, FullError, JournalVersion, following
from sparkjet_grid.places import JournalPlace, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.storage.grid_location import GridLocation


_LOOKS = 0.2
"""Seconds between two checks of the readers."""


class GridJournalSink(GridVersionsSink[JournalVersion]):
    """Appends the rows of each epoch to a journal, exactly once; readers follow by partition and offset.

    Executors write chunks into the grid before the decision; the commit puts one slot, which makes the whole epoch
    visible at once, with the watermark of the query.

    Args:
        settings: The parsed options.
        location: The grid.
        place: Where the journal is in it.
        clock: Dates epochs for which no other clock is given.
    """

    def __init__(
        self,
        settings: GridJournalSettings,
        location: GridLocation,
        place: JournalPlace,
        clock: Clock | None = None,
    ) -> None:
        self._journal = JournalStore(location.client, place)
        super().__init__(self._journal, location, settings.path, clock)
        self._settings = settings
        self._schema = T.StructType()

    @property
    def packages(self) -> Mapping[str, str]:
        """See :attr:`NeedsPackages.packages`."""
        return GRID_PACKAGES

    @property
    def name(self) -> str:
        """Name of the journal."""
        return self._place.name

    @property
    def reached(self) -> int | None:
        """The newest epoch known to have been visible; None if there is none."""
        return None if self._newest is None else self._newest.epoch

    def check(self, schema: T.StructType) -> None:
        """See :meth:`Sink.check`."""
        check_keys(schema, self._settings.keys, "journal")
        check_columns(schema, TECHNICAL, "journal")
        newest = self._check_grid()
        self._schema = kept_as(schema)
        if newest is not None:
            self._check_shape(newest)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        base, version = self.begun(transaction)
        task = JournalTask(self.appends(base, version, transaction), bool(self._settings.keys))
        ship(rows.sparkSession)
        found = run_tasks(self._placed(rows, version.partitions), task, [], RefusedEpochError, GRID_PACKAGES)
        if not found:
            return None
        appended = appended_by([each["id"] for each in found])
        return self.written(base, following(version, appended), transaction, sum(each["rows"] for each in found))

    def begun(self, transaction: TransactionId) -> tuple[JournalVersion | None, JournalVersion]:
        """The newest version, and the next one, which has nothing new yet."""
        base, clock = self._begin(transaction)
        return base, self._following(base, clock, transaction)

    def appends(self, base: JournalVersion | None, version: JournalVersion, transaction: TransactionId) -> Appends:
        """The information for tasks that append to a version."""
        return Appends(
            self._location,
            self._place,
            Writer(transaction.query, transaction.sink),
            str(transaction),
            None if base is None else self._store.manifest_of(base),
            version.epoch,
            version.clock,
            version.partitions,
            self._settings.retention.mergeable(version.partitions),
            version.arrow_schema,
        )

    def written(
        self, base: JournalVersion | None, version: JournalVersion, transaction: TransactionId, rows: int
    ) -> Handle:
        """Write a version with everything that tasks have appended, without what is no longer retained."""
        client = self._store.client
        appending = Appending(client, self._place, str(transaction), base, version.epoch, version.clock)
        return self._handle(self._kept(appending.with_progress(version), transaction), transaction, rows)

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: whether the watermark is new, and the last was told a while ago."""
        if watermark is None:
            return False
        newest = self._newest
        if newest is None:
            return True
        is_another = newest.watermark is None or watermark > newest.watermark
        # Otherwise a clock that was ahead and is right again would tell nothing until it has come as far.
        is_early = 0 <= clock + newest.ahead - newest.clock < self._settings.progress_interval
        return is_another and not is_early

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`."""
        return self.written(*self.begun(transaction), transaction, 0)

    def _following(self, base: JournalVersion | None, clock: int, transaction: TransactionId) -> JournalVersion:
        """The next version, without anything new."""
        partitions = self._settings.partitions or PARTITIONS
        return JournalVersion(
            number=base.number + 1 if base is not None else 1,
            epoch=transaction.epoch,
            clock=clock,
            watermark=transaction.reached,
            query=transaction.query,
            output=transaction.sink,
            run=transaction.run,
            keys=self._settings.keys,
            arrow_schema=arrow_schema(self._schema).serialize().to_pybytes(),
            spark_schema=self._schema.json(),
            ends=base.ends if base is not None else (0,) * partitions,
            chunks=base.chunks if base is not None else ((),) * partitions,
            progress=base.progress if base is not None else (),
            ahead=self._ahead(base, self._now(transaction)),
        )

    def _kept(self, version: JournalVersion, transaction: TransactionId) -> JournalVersion:
        """The version without what is no longer retained; waits for readers."""
        retention, store = self._settings.retention, self._journal
        waiting = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, FullError) and bool(error.readers)),
            wait=tenacity.wait_fixed(_LOOKS),
            stop=tenacity.stop_after_delay(self._settings.full_timeout / 1_000_000),
            before_sleep=self._log_waiting,
            reraise=True,
        )
        try:
            return waiting(lambda: retention.kept(version, lambda: store.readers(self._leases)))
        except FullError as full:
            self.abort(transaction)
            raise SinkError(self._full(full, transaction)) from full

    def _log_waiting(self, state: tenacity.RetryCallState) -> None:
        full = state.outcome.exception() if state.outcome is not None else None
        if state.attempt_number == 1 and isinstance(full, FullError):
            logger.warning("%s is full, and waits for its readers %s", self._named, ", ".join(sorted(full.readers)))

    def _full(self, full: FullError, transaction: TransactionId) -> str:
        told = (
            f"maxBytes: {self._named} would retain {full.size} bytes with epoch {transaction.epoch}, and may retain "
            f"{self._settings.retention.limit}. Nothing of the epoch is visible."
        )
        if not full.readers:
            return f"{told} The epoch alone is larger: give it more, or smaller epochs (maxFilesPerTrigger, …)."
        readers = ", ".join(f"{name!r} ({lag} rows behind)" for name, lag in sorted(full.readers.items()))
        return (
            f"{told} Readers hold it: {readers}. It has waited for them for "
            f"{self._settings.full_timeout / 1_000_000:g} s (fullTimeout). Give it more, end readers that are not "
            "needed, or have it let go what they need (onFull=trim)."
        )

    def _placed(self, rows: DataFrame, partitions: int) -> DataFrame:
        """Rows with at most as many tasks as there are partitions; each partition is written by one of them.

        Columns are addressed by position: PySpark takes a dot in a name for a part of a struct.
        """
        fields, keys = self._schema.fields, self._settings.keys
        shaped = [F.col(quoted(each.name)).alias(f"c{place}") for place, each in enumerate(fields)]
        if not keys:
            return rows.select(*shaped).coalesce(partitions)
        # A key without a value is one as well.
        hash_ = F.coalesce(F.crc32(key_text(self._schema, keys).cast("binary")), F.lit(0))
        partition = F.pmod(hash_, F.lit(partitions)).cast("int").alias("partition")
        tasks = min(partitions, cores(rows.sparkSession))
        placed = rows.select(*shaped, partition).repartition(tasks, "partition")
        return placed.sortWithinPartitions("partition")

    def _check_shape(self, newest: JournalVersion) -> None:
        there = T.StructType.fromJson(msgspec.json.decode(newest.spark_schema))
        if there != self._schema:
            message = (
                f"path: {self._place} has the columns {described(there)}, but these rows have the columns "
                f"{described(self._schema)}. Write into another journal, or remove this one first: "
                "python -m sparkjet grid journal remove."
            )
            raise AnalysisError(message)
        if newest.keys != self._settings.keys:
            had = f'keys="{", ".join(newest.keys)}"' if newest.keys else "no keys"
            message = f"keys: {self._place} was begun with {had}: rows of one key would be in two partitions."
            raise AnalysisError(message)
        if self._settings.partitions not in {None, newest.partitions}:
            message = (
                f"numPartitions: {self._place} has {newest.partitions}, and keeps them: readers know offsets by "
                "partition. Leave the option out, or write into another journal."
            )
            raise AnalysisError(message)


def grid_journal_sink(settings: GridJournalSettings, session: Any, clock: Clock) -> GridJournalSink:
    """The sink for some options."""
    from sparkjet.storage.grid_location import grid_location  # noqa: PLC0415 - on use only

    location, name = grid_location(settings.path, "path", session)
    return GridJournalSink(settings, location, JournalPlace.of(name, "path"), clock)
