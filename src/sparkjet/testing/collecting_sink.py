"""The collecting sink: the output of a driven query, by epoch, in the driver's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkjet.errors import LostTransactionError
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType


@dataclass
class CollectingSink:
    """A sink that keeps rows by transaction until they are committed, and by epoch from then on.

    It also stands for the destination, so it survives the restarts of a :class:`StreamDriver`. It does not undo a
    failed epoch at once: what a crash leaves prepared is there for the next start to roll back.
    """

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    committed: dict[int, list[Row]] = field(default_factory=dict)
    """The rows that readers see, by epoch."""
    prepared: dict[str, list[Row]] = field(default_factory=dict)
    """Rows of transactions neither committed nor rolled back, by the transaction's name."""
    runs: dict[int, str] = field(default_factory=dict)
    """The run that prepared the committed rows, by epoch."""
    query: str = ""
    """Identity of the last query that has prepared something."""

    def check(self, schema: StructType) -> None:
        """See :meth:`sparkjet.sinks.Sink.check`: rows of every schema fit."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`sparkjet.sinks.Sink.prepare`."""
        found = rows.collect()
        if not found:
            return None
        self.query = transaction.query
        self.prepared[str(transaction)] = found
        return {"transaction": str(transaction), "epoch": transaction.epoch, **origin(transaction)}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`sparkjet.sinks.Sink.commit`."""
        name, epoch = handle["transaction"], handle["epoch"]
        if self.committed:
            newest = epoch if epoch in self.committed else max(self.committed)
            check_run(handle, newest, self.runs.get(newest), "CollectingSink")
        if name not in self.prepared:
            if epoch in self.committed:
                return
            raise LostTransactionError(f"CollectingSink: nothing is prepared under {name}.")
        between()
        self.committed[epoch] = self.prepared.pop(name)
        self.runs[epoch] = handle["run"]

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`sparkjet.sinks.Sink.published_after`."""
        del handle
        last = max(self.committed, default=0)
        if last <= newest.epoch or newest.query != self.query:
            return None
        return f"the collecting sink has epoch {last}. Give the driver the home that it had then, or a new sink."

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:  # noqa: ARG002 - the protocol's
        """See :meth:`sparkjet.sinks.Sink.abort_orphans`."""
        decided = {handle["transaction"] for handle in keep}
        orphans = [name for name in self.prepared if name not in decided and int(name.split("-")[0]) < takeover]
        for name in orphans:
            del self.prepared[name]

    def rows(self) -> list[Row]:
        """All committed rows, in the order of epochs."""
        return [row for epoch in sorted(self.committed) for row in self.committed[epoch]]
