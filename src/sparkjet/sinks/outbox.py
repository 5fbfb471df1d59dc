"""The outbox: sinks that cannot prepare deliver after the decision, from rows stored with the snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId, Unknown
from sparkjet.snapshots.outbox_entries import OutboxEntries
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import as_directory
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.storage.directory import Directory


class Outbox(ABC):
    """Base class of sinks that store the rows of an epoch before the decision and deliver them after it.

    A delivery is repeated until it succeeds, with the same epoch and the same rows. (Delivering before the decision
    would not guarantee that: a re-run at a later clock may close more windows.) The record lists the files with their
    checksums, so that missing rows are an error rather than an epoch without rows.

    Args:
        complete: Whether an epoch without rows is published too: it means that there are no rows any longer.
    """

    guarantee = Guarantee.AT_LEAST_ONCE
    writer_options: Mapping[str, str] = {}
    """Options of Spark's Parquet writer, for sinks whose rows are better stored differently for the time being."""

    def __init__(self, *, complete: bool = False) -> None:
        self._is_complete = complete
        self._directory: Directory | None = None

    def attach(self, directory: Path | Directory, session: SparkSession) -> None:
        """Called once by the engine before the query starts, with the outbox directory."""
        del session  # for those that read the rows with it
        self._directory = as_directory(directory)

    @abstractmethod
    def deliver(self, entry: Directory, handle: Handle) -> None:
        """Publish the files of an epoch; may be called again with the same ones."""

    def has_arrived(self, handle: Handle) -> bool:
        """Whether the destination itself can confirm that it has the rows; called when the outbox has lost them."""
        del handle
        return False

    def check(self, schema: StructType) -> None:  # noqa: B027 - most have nothing to check
        """See :meth:`Sink.check`."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        entries, entry = self._entries(transaction.sink), str(transaction)
        entries.directory.create()
        found = write(rows, FileWriter(entries.at(entry), options=self.writer_options, read_back=True), SinkError)
        if not found.rows and not self._is_complete:
            entries.remove(entry)
            return None
        return {
            "sink": transaction.sink,
            "box": entry,
            "epoch": transaction.epoch,
            "rows": found.rows,
            "files": entries.seal(entry, [*found.files]),
        }

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._entries(transaction.sink).remove(str(transaction))

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; the rows are removed once they have been published."""
        entries, entry = self._entries(handle["sink"]), handle["box"]
        if not entries.delivered(entry):
            if self._complete(entries, handle):
                self.deliver(entries.at(entry), handle)
                between()
            entries.note_delivered(entry)
        entries.remove(entry)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`: the marks may tell; the destination itself keeps no epochs."""
        del handle  # it belongs to the newest record and says nothing about later epochs
        last = self._entries(newest.sink).last()
        if last is None or last[0] <= newest.epoch:
            return Unknown.UNKNOWN
        epoch, mark = last
        return (
            f"{mark} says that epoch {epoch} was delivered. To go on from epoch {newest.epoch}, remove that file: "
            "later epochs are computed and delivered again under the same numbers, so first remove what they have "
            "delivered, and reset any function that remembers the last epoch."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        del query  # the outbox lies in the query's own directory
        decided = {handle["box"] for handle in keep if "box" in handle}
        assert self._directory is not None  # noqa: S101 - attach() comes first
        for sink in self._directory.names():
            self._entries(sink).remove_orphans(takeover, decided)

    def _complete(self, entries: OutboxEntries, handle: Handle) -> bool:
        """Whether the rows are there to be published; False if they have already been published."""
        path = entries.at(handle["box"])
        damage = entries.damage(handle)
        if damage is None:
            return True
        # Checked again: another driver may have delivered and removed them in the meantime.
        if entries.delivered(handle["box"]) or self.has_arrived(handle):
            return False
        message = (
            f"Epoch {handle['epoch']} was decided, but {damage}, and nothing proves that its {handle['rows']} rows "
            f"arrived. Restore {path}: a backup of the checkpointLocation needs its outbox too. If you know that the "
            f"rows have arrived, create the empty file {entries.mark(handle['box'])} and start again."
        )
        raise LostTransactionError(message)

    def _entries(self, sink: str) -> OutboxEntries:
        assert self._directory is not None  # noqa: S101 - attach() comes first
        return OutboxEntries(self._directory.below(sink))
