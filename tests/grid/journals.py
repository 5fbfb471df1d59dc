"""Journals written without Spark: what the sink's tasks and its driver do, for tests of readers and members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.journal_store import Appending, JournalStore
from sparkjet_grid.journal_version import JournalVersion, Retention, following
from sparkjet_grid.messages import Held
from sparkjet_grid.places import JournalPlace, Writer
from sparkjet_grid.reader_leases import LeaseBook

ROWS = pa.schema([("n", pa.int64())])
PARTITIONS = 4


@dataclass
class JournalWriter:
    """The writer of a journal with one column ``n``.

    Attributes:
        client: Of the grid.
        name: Of the journal.
        now: What its leases are measured by.
        retention: What it keeps.
        expected: The rows of each partition, with their epochs.
        watermark: That of each epoch.
        query: Who writes it.
    """

    client: GridClient
    name: str
    now: float = 0.0
    retention: Retention = field(default_factory=Retention)
    expected: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    watermark: Callable[[int], int | None] = lambda epoch: epoch * 1000
    query: str = "q"

    def __post_init__(self) -> None:
        self.store = JournalStore(self.client, JournalPlace(self.name))
        self.book = LeaseBook(lambda: self.now)

    def prepare(self, epoch: int, rows: Mapping[int, Sequence[int]], *, clock: int = 0) -> Held:
        """Write an epoch, which nobody sees; returns its manifest."""
        base = self.store.newest()
        # Names end with the run, so that those of two writers differ.
        transaction = f"000001-{epoch:09d}-0-{self.query}"
        appending = Appending(self.client, self.store.place, transaction, base, epoch, clock)
        appended = appending.append(
            {each: pa.table({"n": pa.array(of_one, pa.int64())}) for each, of_one in rows.items()}
        )
        template = JournalVersion(
            number=base.number + 1 if base is not None else 1,
            epoch=epoch,
            clock=clock,
            watermark=self.watermark(epoch),
            query=self.query,
            output="results",
            run="",
            keys=(),
            arrow_schema=ROWS.serialize().to_pybytes(),
            spark_schema="",
            ends=base.ends if base is not None else (0,) * PARTITIONS,
            chunks=base.chunks if base is not None else ((),) * PARTITIONS,
            progress=base.progress if base is not None else (),
        )
        version = appending.with_progress(following(template, appended))
        return self.store.write(self.retention.kept(version, lambda: self.store.readers(self.book)), transaction)

    def publish(self, manifest: Held) -> None:
        """Make it visible, and remove what is old."""
        assert self.store.claim(Writer(self.query, "results")).query == self.query
        assert self.store.publish(manifest)
        self.store.clean(self.book)

    def write(self, epoch: int, rows: Mapping[int, Sequence[int]], **settings: int) -> None:
        """Both, and remember what a reader is to see."""
        self.publish(self.prepare(epoch, rows, **settings))
        for partition, of_one in rows.items():
            self.expected[partition] += [(n, epoch) for n in of_one]


def read(journal: Journal, partition: int, start: int, end: int) -> list[tuple[int, int, int]]:
    """Number, offset and epoch of some rows."""
    rows = [row for batch in journal.read(partition, start, end) for row in batch.to_pylist()]
    assert all(row["_partition"] == partition for row in rows)
    return [(row["n"], row["_offset"], row["_epoch"]) for row in rows]
