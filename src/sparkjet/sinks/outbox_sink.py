"""Sinks over the outbox that publish the rows of an epoch in a single call."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.sinks.outbox import Outbox
from sparkjet.snapshots.outbox_entries import files_of
from sparkjet.storage.file_reader import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle, TransactionId
    from sparkjet.storage.directory import Directory


class OutboxSink(Outbox):
    """Base class of sinks whose publishing is a call that may be repeated.

    The rows of an epoch are stored before the decision and published after it, until that succeeds: a call repeated
    after a crash has the same epoch and the same rows, and :attr:`repeated` is true.

    Args:
        complete: Whether an epoch without rows is published too: it means that there are no rows any longer.
    """

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__(complete=complete)
        self._session: SparkSession | None = None
        self._new: set[str] = set()
        self._repeated = True

    @property
    def repeated(self) -> bool:
        """Whether :meth:`publish` may have been called with these rows before, as ``foreachBatch`` is told."""
        return self._repeated

    def attach(self, directory: Path | Directory, session: SparkSession) -> None:
        """See :meth:`Outbox.attach`."""
        super().attach(directory, session)
        self._session = session
        # Another driver may have published what is already there.
        self._new.clear()

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        handle = super().prepare(rows, transaction)
        if handle is not None:
            self._new.add(handle["box"])
        return handle

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._new.discard(str(transaction))
        super().abort(transaction)

    @abstractmethod
    def publish(self, rows: DataFrame, epoch: int) -> None:
        """Publish the rows of an epoch, on the driver; may be called again with the same epoch and rows.

        :attr:`repeated` says whether an earlier call may have published them, in part or in full.
        """

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`."""
        self._repeated = handle["box"] not in self._new
        # Before the call: if that raises, the next one is a repetition.
        self._new.discard(handle["box"])
        self.publish(self._read(entry, handle), handle["epoch"])

    def stored(self, handle: Handle) -> DataFrame:
        """The rows of a prepared epoch, as they will be published."""
        return self._read(self._entries(handle["sink"]).at(handle["box"]), handle)

    def _read(self, entry: Directory, handle: Handle) -> DataFrame:
        assert self._session is not None  # noqa: S101 - attach() comes first
        return read(self._session, entry, files_of(handle))
