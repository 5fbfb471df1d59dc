"""Reading a journal of the grid, in any process: it needs pyarrow and a few small packages, and no PySpark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from sparkjet_grid.errors import AnalysisError, FallenBehindError, MissingEntriesError
from sparkjet_grid.journal_store import JournalStore
from sparkjet_grid.journal_version import EPOCH, OFFSET, PARTITION, JournalVersion, Position
from sparkjet_grid.places import JournalPlace, Writer
from sparkjet_grid.reader_leases import Lease
from sparkjet_grid.version_reader import VersionReader
from sparkjet_grid.version_store import tables_of

_ROWS = 64 << 10
_SHOWN = 5
_MOST = 1 << 63


class Journal(VersionReader[JournalVersion]):
    """A journal of a grid, as readers see it: rows by partition and offset, of epochs that are decided.

    An offset is that of one row for ever, and rows of a partition are read in the order of their offsets. Everything of
    an epoch is visible at once. Thread-safe.

    Args:
        uri: Some members of the grid: ``grid://10.0.0.1:5710,10.0.0.2:5710``; ``grid:///`` for the one that drivers
            start on this machine.
        name: Of the journal.
        token_file: File with the grid's token; by default it is in the environment, as ``SPARKJET_GRID_TOKEN``.
        certificate: PEM file of this side, where members use TLS.
        key: PEM file with its key.
        authorities: PEM file of the authorities that sign the certificates of all.
        patience: Seconds after which a grid that does not answer is given up.
        client: Of the grid, instead of all this.

    Raises:
        AnalysisError: The address or the name is none, or there is no token.
    """

    _place = JournalPlace
    _versions = JournalStore
    _store: JournalStore

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows as :meth:`read` has them: the user's columns, and those of the journal."""
        return read_schema(self._last().schema)

    @property
    def spark_schema(self) -> str:
        """The user's columns in Spark's JSON."""
        return self._last().spark_schema

    @property
    def partitions(self) -> int:
        """How many partitions there are, counted from 0; the same for ever."""
        return self._last().partitions

    @property
    def writer(self) -> Writer:
        """The output and the id of the query that write it."""
        return self._last().writer

    def latest(self) -> Position:
        """The newest epoch that is visible, with the writer's watermark and the end of each partition.

        Raises:
            AnalysisError: There is no such journal, or it has no epoch yet.
        """
        return self._newest().position

    def earliest(self) -> dict[int, int]:
        """The first offset that is retained, of each partition; its end if nothing is."""
        version = self._newest()
        return {partition: version.base(partition) for partition in range(version.partitions)}

    def check(self, offsets: Mapping[int, int]) -> None:
        """Refuse to go on from offsets of which some are retained no more.

        Args:
            offsets: Of some partitions, the offset of the next row that is wanted.

        Raises:
            FallenBehindError: Naming partitions, offsets, epochs and the number of rows that are lost.
            AnalysisError: A partition does not exist, or has not come so far: it is another journal.
        """
        self._check(self._newest(), offsets)

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows in the order of their offsets, with ``_partition``, ``_offset`` and ``_epoch`` after the user's columns.

        Args:
            partition: Of the journal.
            start: Offset of the first row.
            end: The offset after the last row, at most what :meth:`latest` says.

        Raises:
            FallenBehindError: Some rows are retained no more.
            LostRowsError: All replicas of some are lost.
            ReleasedError: The journal was removed meanwhile.
        """
        while start < end:
            version = self._last()
            if partition not in range(version.partitions) or end > version.ends[partition]:
                version = self._newest()
            self._check(version, {partition: start})
            if end > version.ends[partition]:
                message = f"{self._store.place} has partition {partition} up to {version.ends[partition]}, not {end}."
                raise AnalysisError(message)
            try:
                for batch in self._rows(version, partition, start, end):
                    # Where it goes on, if what is next has been merged meanwhile.
                    start += batch.num_rows
                    yield batch
            except MissingEntriesError:
                if not self._is_replaced(version):
                    raise

    def progress(self, after_epoch: int = 0) -> list[Position]:
        """How far the writer was with each epoch after a given one, ascending; the newest is always there.

        A reader that has read each partition up to the ends of an epoch has its watermark, in all partitions: those
        without rows as well. Of epochs with the same ends only the last one may be there, and those of which no row is
        retained may be missing.
        """
        while True:
            version = self._newest()
            chunks = [chunk for chunk in version.progress if chunk.last_epoch > after_epoch]
            try:
                tables = tables_of(self._store.client, [chunk.entry for chunk in chunks])
            except MissingEntriesError:
                if not self._is_replaced(version):
                    raise
                continue
            return [
                Position(row["epoch"], row["watermark"], dict(enumerate(row["ends"])))
                for chunk in chunks
                for row in tables[chunk.entry.name].to_pylist()
                if row["epoch"] > after_epoch
            ]

    def register(self, reader: str, offsets: Mapping[int, int]) -> None:
        """Have the writer keep the rows from some offsets on, for as long as this process runs.

        The registration is renewed every 20 s, and ends a minute after that has stopped. Again with the same name, it
        goes on from other offsets.

        Args:
            reader: Name of the reader, one word without ``/``; another reader needs another one.
            offsets: Of each partition, the offset of the next row that is wanted; of one that is missing nothing is
                kept.

        Raises:
            FallenBehindError: They are retained no more.
        """
        JournalPlace.of(reader, "reader")
        if reader in self._leases:
            self.renew(reader, offsets)
            self.check(offsets)
            return
        before = self._store.client.entries(self._store.place.leases(reader))
        lease = Lease(self._store.client, self._store.place, reader, _encoded(offsets))
        self._leases[reader] = lease
        # Those of a process that is gone would hold more than is needed.
        self._store.client.remove([held.key for held in before])
        try:
            # After the lease was put: what the writer has let go until then is not there. An epoch that it is about to
            # publish may let go a little more, which the first read says.
            self.check(offsets)
        except BaseException:
            self.release(reader)
            raise

    def renew(self, reader: str, offsets: Mapping[int, int]) -> None:
        """Let the rows before some offsets go.

        Raises:
            AnalysisError: It was not registered.
        """
        if reader not in self._leases:
            message = f'reader: "{reader}" is not registered by this object; call register("{reader}", …) first.'
            raise AnalysisError(message)
        self._leases[reader].renew(_encoded(offsets))

    def release(self, reader: str) -> None:
        """End a registration; without one, does nothing."""
        lease = self._leases.pop(reader, None)
        if lease is not None:
            lease.release()

    def close(self) -> None:
        """End registrations and connections."""
        for reader in [*self._leases]:
            self.release(reader)
        super().close()

    def _last(self) -> JournalVersion:
        return self._newest() if self._seen is None else self._seen

    def _newest(self) -> JournalVersion:
        self._seen = super()._newest()
        return self._seen

    def _check(self, version: JournalVersion, offsets: Mapping[int, int]) -> None:
        place = self._store.place
        for partition, offset in offsets.items():
            if partition not in range(version.partitions):
                raise AnalysisError(f"{place} has no partition {partition}: there are {version.partitions}, from 0.")
            if offset < 0:
                raise AnalysisError(f"{place} has no offset {offset} in partition {partition}: they begin with 0.")
            if offset > version.ends[partition] and offset > self._newest().ends[partition]:
                raise AnalysisError(
                    f"{place} has partition {partition} up to {version.ends[partition]}, and {offset} is asked for: it "
                    "is another journal than the one that was read before, as where that was removed."
                )
        first = {each: version.base(each) for each, offset in offsets.items() if offset < version.base(each)}
        if not first:
            return
        asked = {partition: offsets[partition] for partition in first}
        told = [
            f"partition {partition}, offsets {asked[partition]} to {first[partition] - 1}"
            for partition in sorted(first)[:_SHOWN]
        ]
        more = f"; and of {len(first) - _SHOWN} more partitions" if len(first) > _SHOWN else ""
        rows = sum(first[each] - asked[each] for each in first)
        epochs = [version.chunks[each][0].first_epoch for each in first if version.chunks[each]]
        upto = max(epochs, default=version.epoch)
        gone = "1 row is" if rows == 1 else f"{rows} rows are"
        raise FallenBehindError(
            f"{place} no longer has what was to be read: {gone} gone, of epochs up to {upto}: {'; '.join(told)}{more}. "
            "Have the writer retain more (retentionBytes, retentionAge, maxBytes) or wait for its readers "
            "(onFull=wait), or go on without these rows.",
            asked,
            first,
        )

    def _rows(self, version: JournalVersion, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of some offsets as one version has them."""
        names = version.schema.names
        for chunk in version.between(partition, start, end):
            table = tables_of(self._store.client, [chunk.entry])[chunk.entry.name]
            low, high = max(start, chunk.first), min(end, chunk.end)
            offset = low
            rows = table.slice(low - chunk.first, high - low)
            for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS):
                count = batch.num_rows
                columns = [
                    *(batch.column(name) for name in names),
                    pa.repeat(pa.scalar(partition, pa.int32()), count),
                    pa.array(range(offset, offset + count), pa.int64()),
                    batch.column(EPOCH),
                ]
                offset += count
                yield pa.RecordBatch.from_arrays(columns, schema=read_schema(version.schema))


def read_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what is read, of the user's columns."""
    own = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (EPOCH, pa.int64())]
    return pa.schema([*schema, *(pa.field(name, kind, nullable=False) for name, kind in own)])


def _encoded(offsets: Mapping[int, int]) -> bytes:
    # The writer reads them, and would end with an error of its reader's.
    for partition, offset in offsets.items():
        if type(partition) is not int or type(offset) is not int or not 0 <= offset < _MOST:
            raise AnalysisError(
                f"offsets: {partition!r}: {offset!r} is no partition with the offset of its next row: both are int, "
                "from 0."
            )
    return msgspec.msgpack.encode(dict(offsets))
