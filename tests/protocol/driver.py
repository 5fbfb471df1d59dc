"""A driver without Spark: the real record log, outputs and PostgreSQL transactions, with rows from a plain list.

It processes numbered inputs, one per epoch, as a query does, and stops at any named point of its protocol until it is
released; the test kills or pauses it there. Each input is one row, which must be published exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from sparkjet.connectors.postgres.copying import CopyError
from sparkjet.connectors.postgres.target import Target
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle
from sparkjet.engine.committer import Committer, Retry
from sparkjet.errors import SparkjetError
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId, Unknown
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import EpochKind, Record
from sparkjet.snapshots.record_log import RecordLog
from tests.protocol.rows import batch
from tests.snapshots.records import NO_WATERMARKS

if TYPE_CHECKING:
    pass

TARGET = Target("public", "out", ("n", "task"))
POINTS = (
    "before write",
    "written",
    "prepared",
    "manifest",
    "decided",
    "first committed",
    "committed",
    "settled",
)
"""Where a driver can be stopped, in the order of an epoch."""
PATIENT = Retry(attempts=2, patient_attempts=200, first_wait=0.05, longest_wait=0.1)
GIVES_UP = Retry(attempts=1, patient_attempts=1, first_wait=0.01, longest_wait=0.01)


@dataclass(frozen=True)
class Orders:
    """A driver's tasks.

    Attributes:
        home: Its directory.
        dsn: Its database.
        way: ``prepared`` or ``outbox``.
        epochs: Inputs to process; input n is the rows 10n … 10n+9 of epoch n, in every driver.
        tasks: Tasks of an epoch, each of which prepares its own transaction.
        stop_at: The point of ``stop_in`` to stop at.
        stop_in: The epoch.
        repeats_tasks: Whether every task of epoch ``stop_in`` runs twice, as after the loss of an executor.
        late_task: Whether the loser of a speculated task prepares after the manifest was fixed.
        patience: How long commits are retried.
        empty: Epochs without rows.
        broken_task: Whether the last task of ``stop_in`` fails after the others have prepared.
        query: Its id; of its own, as a broker that tests share lists the transactions of a query.
    """

    home: Path
    dsn: str
    way: str = "prepared"
    epochs: int = 4
    tasks: int = 2
    stop_at: str | None = None
    stop_in: int = 2
    repeats_tasks: bool = False
    late_task: bool = False
    broken_task: bool = False
    patience: Retry = PATIENT
    empty: tuple[int, ...] = ()
    query: str = field(default_factory=lambda: str(uuid4()))


@dataclass
class PlainSink:
    """The sink's protocol with rows from a list: what the Spark sink does, without Spark."""

    orders: Orders
    reached: Callable[[str, int], None]
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)

    def __post_init__(self) -> None:
        self.transactions = PostgresTransactions(self.orders.dsn)

    def prepare(self, numbers: Any, transaction: TransactionId) -> Handle | None:
        """Write and prepare the rows, by as many tasks as ordered."""
        epoch = transaction.epoch
        if self.orders.way == "outbox":
            self.reached("before write", epoch)
            path = self._entry(str(transaction))
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{n}\n" for n in numbers))
            self.reached("written", epoch)
            self.reached("prepared", epoch)
            self.reached("manifest", epoch)
            return {**outbox_handle(transaction, TARGET), "box": str(transaction)} if numbers else None
        if not numbers:
            return None
        again = self.orders.repeats_tasks and epoch == self.orders.stop_in
        writer = self.transactions.writer(TARGET, transaction)
        slots = []
        for task in range(self.orders.tasks):
            mine = [(n, task) for n in numbers if n % self.orders.tasks == task]
            rows = batch(*mine) if mine else []
            if self.orders.broken_task and epoch == self.orders.stop_in and task == self.orders.tasks - 1:
                rows = batch(("not a number", 0))
            for attempt in range(1 + again):
                self.reached("before write", epoch)
                written = writer.write(f"{task}-{attempt}", rows, lambda: self.reached("written", epoch))
                self.reached("prepared", epoch)
            slots += [written] if written else []
        handle = self.transactions.fix(TARGET, transaction, slots)
        if self.orders.late_task and epoch == self.orders.stop_in:
            writer.write("0-late", batch((-1, -1)))
        self.reached("manifest", epoch)
        return handle

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Publish the rows."""
        if handle["way"] == "prepared":
            self.transactions.commit(handle, between)
        else:
            rows = [(int(n), 0) for n in self._entry(handle["box"]).read_text().split()]
            self.transactions.publish(handle, batch(*rows), between)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Unknown:
        """The driver does not ask."""
        return Unknown.UNKNOWN

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Only in the database: the outbox entries are files of this test."""
        self.transactions.abort_orphans(query, takeover, keep)

    def check(self, schema: Any) -> None:
        """The test has created the table."""

    def _entry(self, name: str) -> Path:
        return self.orders.home / "outbox" / name


class PlainDriver:
    """Runs epochs as :class:`sparkjet.engine.epoch.Engine` does, recovery included."""

    def __init__(self, orders: Orders, pipe: Connection) -> None:
        self._orders = orders
        self._pipe = pipe
        self._stop: tuple[str | None, int] | None = (orders.stop_at, orders.stop_in)
        store = DirectoryStore(orders.home / "snapshots")
        store.open("checkpointLocation")
        self._log = RecordLog(store)
        self._outputs = Committer({"results": self._sink()}, orders.patience)

    def _sink(self) -> Any:
        return PlainSink(self._orders, self._reached)

    def run(self) -> None:
        """Recover, then run the epochs that no record names."""
        self._slot, self._record = self._take_over()
        self._outputs.decided(list(self._record.transactions))
        self._outputs.settle(attempts=self._orders.patience.patient_attempts)
        self._outputs.abort_orphans(self._record)
        for epoch in range(self._record.epoch + 1, self._orders.epochs + 1):
            self._epoch(epoch)
        self._outputs.settle()

    def _epoch(self, epoch: int) -> None:
        orders, record, outputs = self._orders, self._record, self._outputs
        outputs.attempt()
        numbers = [] if epoch in orders.empty else list(range(10 * epoch, 10 * epoch + 10))
        transaction = self._transaction(epoch)
        prepared = outputs.prepare("results", numbers, transaction) if numbers else []  # type: ignore[arg-type]
        decision = msgspec.structs.replace(
            record, kind=EpochKind.BATCH, epoch=epoch, transactions=[*outputs.unsettled, *prepared]
        )
        self._log.append(self._slot + 1, decision)
        self._slot, self._record = self._slot + 1, decision
        self._reached("decided", epoch)
        outputs.decided(prepared)
        outputs.attempt(lambda: self._reached("first committed", epoch))
        self._reached("committed", epoch)
        outputs.attempt()
        self._reached("settled", epoch)

    def _transaction(self, epoch: int) -> TransactionId:
        return TransactionId(self._record.query, "results", self._record.takeover, epoch, 0)

    def _take_over(self) -> tuple[int, Record]:
        newest = self._log.newest()
        if newest is None:
            slot, record = 0, Record(
                kind=EpochKind.TAKEOVER, query=self._orders.query, takeover=0, run="0", epoch=0,
                fingerprint={}, clock=0, watermarks=NO_WATERMARKS, stages={}, early_at={}, spark=None,
                transactions=[],
            )  # fmt: skip
        else:
            slot, before = newest[0] + 1, newest[1]
            record = msgspec.structs.replace(
                before, kind=EpochKind.TAKEOVER, takeover=before.takeover + 1, run=str(before.takeover + 1)
            )
        self._log.append(slot, record)
        return slot, record

    def _reached(self, point: str, epoch: int) -> None:
        if (point, epoch) == self._stop:
            self._pipe.send(("reached", point))
            self._stop = self._pipe.recv()


def main(orders: Orders, pipe: Connection) -> None:
    """The body of a driver's process; reports how it ended."""
    try:
        PlainDriver(orders, pipe).run()
    except (SparkjetError, CopyError) as error:
        pipe.send(("ended", type(error).__name__, str(error)))
    else:
        pipe.send(("ended", None, ""))
