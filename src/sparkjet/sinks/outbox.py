"""The outbox: sinks that cannot prepare publish after the decision, from rows kept with the snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.boxes import Boxes, files_of
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.storage.paths import CHECKING, WRITING, make_directories, spark_uri
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class OutboxSink(ABC):
    """Base of sinks for which publishing is a call that may happen more than once.

    The rows of an epoch are stored before the decision and handed over after it, until that succeeds: a call that is
    repeated after a crash has the same epoch and the same rows. (Publishing before the decision would not: a re-run
    at a later clock may close more windows.) The record names the files with their checksums: rows that are gone are
    an error, not an epoch without rows.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._session: SparkSession | None = None

    def attach(self, directory: Path, session: SparkSession) -> None:
        """Called once by the engine before the query starts, with the place for the outbox."""
        self._directory, self._session = directory, session

    @abstractmethod
    def publish(self, rows: DataFrame, epoch: int) -> None:
        """Hand over the rows of an epoch, on the driver; may be called again with the same epoch and rows."""

    def deliver(self, box: Path, handle: Handle) -> None:
        """Hand over the files of an epoch; a sink that does not want a DataFrame of them overrides this.

        Args:
            box: The directory; only what :func:`sparkjet.sinks.boxes.files_of` names is of the epoch.
            handle: What :meth:`prepare` has returned, with the number of ``rows``.
        """
        assert self._session is not None  # noqa: S101 - attach() comes first
        files = [spark_uri(file) for file in files_of(box, handle)]
        self.publish(self._session.read.options(**CHECKING).parquet(*files), handle["epoch"])

    def has_arrived(self, handle: Handle) -> bool:
        """Whether the destination itself knows that it has the rows; asked when they are gone from the outbox."""
        del handle
        return False

    def check(self, schema: StructType) -> None:  # noqa: B027 - most have nothing to check
        """See :meth:`Sink.check`."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        boxes, box = self._boxes(transaction.sink), str(transaction)
        make_directories(boxes.directory)

        def save(observed: DataFrame) -> None:
            writer = observed.write.options(**WRITING).option("maxRecordsPerFile", 0)
            writer.parquet(spark_uri(boxes.path(box)))

        found = write(rows, boxes.path(box), save, SinkError)
        if not found.rows:
            boxes.remove(box)
            return None
        return {
            "sink": transaction.sink,
            "box": box,
            "epoch": transaction.epoch,
            "rows": found.rows,
            "files": boxes.seal(box, found.files),
        }

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._boxes(transaction.sink).remove(str(transaction))

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; the rows are removed once they have been handed over."""
        boxes, box = self._boxes(handle["sink"]), handle["box"]
        if not boxes.delivered(box):
            if self._complete(boxes, handle):
                self.deliver(boxes.path(box), handle)
                between()
            boxes.deliver(box)
        boxes.remove(box)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Remembering.published_after`."""
        del handle  # it is of the newest record, and tells nothing of later ones
        last = self._boxes(newest.sink).last()
        if last is None or last[0] <= newest.epoch:
            return None
        epoch, mark = last
        return (
            f"{mark} says that epoch {epoch} was delivered. To go on from epoch {newest.epoch}, remove that file: "
            "later epochs are computed and delivered again under the same numbers, so first take out what they have "
            "delivered, and let a function that remembers the last epoch forget them."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        del query  # the outbox lies in the query's own directory
        decided = {handle["box"] for handle in keep if "box" in handle}
        assert self._directory is not None  # noqa: S101 - attach() comes first
        for directory in self._directory.glob("*"):
            if directory.is_dir():
                Boxes(directory).remove_strays(takeover, decided)

    def _complete(self, boxes: Boxes, handle: Handle) -> bool:
        """Whether the rows are there to be handed over; False if they have been before.

        Raises:
            LostTransactionError: They are not, and nothing says that they have arrived.
        """
        path = boxes.path(handle["box"])
        if "files" in handle:
            damage = boxes.damage(handle)
        elif not path.is_dir():
            # Of an earlier version, which removed a box without a mark.
            return False
        else:
            damage = None if files_of(path, handle) else f"{path} is empty"
        if damage is None:
            return True
        # Once more: another driver may have delivered and removed them during the look.
        if boxes.delivered(handle["box"]) or self.has_arrived(handle):
            return False
        rows = f"{handle['rows']} rows" if "rows" in handle else "rows"
        message = (
            f"Epoch {handle['epoch']} was decided, but {damage}, and nothing says that its {rows} arrived. Bring "
            f"back {path}: a backup of the home needs its outbox too. If you know that the rows have arrived, make the "
            f"empty file {boxes.mark(handle['box'])} and start again."
        )
        raise LostTransactionError(message)

    def _boxes(self, sink: str) -> Boxes:
        assert self._directory is not None  # noqa: S101 - attach() comes first
        return Boxes(self._directory / sink)
