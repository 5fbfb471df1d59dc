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

    from sparkjet.sinks.protocol import Handle
    from sparkjet.storage.directory import Directory


class OutboxSink(Outbox):
    """Base class of sinks whose publishing is a call that may be repeated.

    The rows of an epoch are stored before the decision and published after it, until that succeeds: a call repeated
    after a crash has the same epoch and the same rows.

    Args:
        complete: Whether an epoch without rows is published too: it means that there are none anymore.
    """

    def __init__(self, *, complete: bool = False) -> None:
        super().__init__(complete=complete)
        self._session: SparkSession | None = None

    def attach(self, directory: Path | Directory, session: SparkSession) -> None:
        """See :meth:`Outbox.attach`."""
        super().attach(directory, session)
        self._session = session

    @abstractmethod
    def publish(self, rows: DataFrame, epoch: int) -> None:
        """Publish the rows of an epoch, on the driver; may be called again with the same epoch and rows."""

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`."""
        self.publish(self._read(entry, handle), handle["epoch"])

    def stored(self, handle: Handle) -> DataFrame:
        """The rows of a prepared epoch, as they will be published."""
        return self._read(self._entries(handle["sink"]).at(handle["box"]), handle)

    def _read(self, entry: Directory, handle: Handle) -> DataFrame:
        assert self._session is not None  # noqa: S101 - attach() comes first
        return read(self._session, entry, files_of(handle))
