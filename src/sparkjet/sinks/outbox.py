"""The outbox: sinks that cannot prepare publish after the decision, from rows stored with the snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.outbox_entries import OutboxEntries, files_of
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.storage.paths import CHECKING, WRITING, make_directories, spark_uri
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class OutboxSink(ABC):
    """Base class of sinks whose publishing is a call that may be repeated.

    The rows of an epoch are stored before the decision and published after it, until that succeeds: a call that is
    repeated after a crash has the same epoch and the same rows. (Publishing before the decision would not guarantee
    that: a re-run at a later clock may close more windows.) The record lists the files with their checksums, so that
    missing rows are an error rather than an epoch without rows.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._session: SparkSession | None = None

    def attach(self, directory: Path, session: SparkSession) -> None:
        """Called once by the engine before the query starts, with the outbox directory."""
        self._directory, self._session = directory, session

    @abstractmethod
    def publish(self, rows: DataFrame, epoch: int) -> None:
        """Publish the rows of an epoch, on the driver; may be called again with the same epoch and rows."""

    def deliver(self, entry: Path, handle: Handle) -> None:
        """Publish the files of an epoch; overridden by sinks that do not need a DataFrame of them.

        Args:
            entry: The directory; only the files in :func:`sparkjet.sinks.outbox_entries.files_of` belong to the epoch.
            handle: What :meth:`prepare` returned, with the number of ``rows``.
        """
        assert self._session is not None  # noqa: S101 - attach() comes first
        files = [spark_uri(file) for file in files_of(entry, handle)]
        self.publish(self._session.read.options(**CHECKING).parquet(*files), handle["epoch"])

    def has_arrived(self, handle: Handle) -> bool:
        """Whether the destination itself can confirm that it has the rows; called when the outbox has lost them."""
        del handle
        return False

    def check(self, schema: StructType) -> None:  # noqa: B027 - most have nothing to check
        """See :meth:`Sink.check`."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        entries, entry = self._entries(transaction.sink), str(transaction)
        make_directories(entries.directory)

        def save(observed: DataFrame) -> None:
            writer = observed.write.options(**WRITING).option("maxRecordsPerFile", 0)
            writer.parquet(spark_uri(entries.path(entry)))

        found = write(rows, entries.path(entry), save, SinkError)
        if not found.rows:
            entries.remove(entry)
            return None
        return {
            "sink": transaction.sink,
            "box": entry,
            "epoch": transaction.epoch,
            "rows": found.rows,
            "files": entries.seal(entry, found.files),
        }

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._entries(transaction.sink).remove(str(transaction))

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; the rows are removed once they have been published."""
        entries, entry = self._entries(handle["sink"]), handle["box"]
        if not entries.delivered(entry):
            if self._complete(entries, handle):
                self.deliver(entries.path(entry), handle)
                between()
            entries.deliver(entry)
        entries.remove(entry)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Remembering.published_after`."""
        del handle  # it belongs to the newest record and says nothing about later epochs
        last = self._entries(newest.sink).last()
        if last is None or last[0] <= newest.epoch:
            return None
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
        for directory in self._directory.glob("*"):
            if directory.is_dir():
                OutboxEntries(directory).remove_orphans(takeover, decided)

    def _complete(self, entries: OutboxEntries, handle: Handle) -> bool:
        """Whether the rows are there to be published; False if they were published before.

        Raises:
            LostTransactionError: They are missing, and nothing proves that they have arrived.
        """
        path = entries.path(handle["box"])
        if "files" in handle:
            damage = entries.damage(handle)
        elif not path.is_dir():
            # Earlier versions removed an entry without a mark.
            return False
        else:
            damage = None if files_of(path, handle) else f"{path} is empty"
        if damage is None:
            return True
        # Checked again: another driver may have delivered and removed them in the meantime.
        if entries.delivered(handle["box"]) or self.has_arrived(handle):
            return False
        rows = f"{handle['rows']} rows" if "rows" in handle else "rows"
        message = (
            f"Epoch {handle['epoch']} was decided, but {damage}, and nothing proves that its {rows} arrived. Restore "
            f"{path}: a backup of the checkpoint directory needs its outbox too. If you know that the rows have "
            f"arrived, create the empty file {entries.mark(handle['box'])} and start again."
        )
        raise LostTransactionError(message)

    def _entries(self, sink: str) -> OutboxEntries:
        assert self._directory is not None  # noqa: S101 - attach() comes first
        return OutboxEntries(self._directory / sink)
