"""Reads a journal of the grid, in any process: pyarrow and a few small packages are enough, PySpark is not needed."""

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
    """A journal of a grid, as readers see it: rows by partition and offset, from decided epochs.

    An offset always denotes the same row, and rows of a partition are read in the order of their offsets. All rows of
    an epoch become visible at once. Thread-safe.

    Args:
        uri: Some members of the grid: ``grid://10.0.0.1:5710,10.0.0.2:5710``; ``grid:///`` for the one that drivers
            start on this machine.
        name: Of the journal.
        token_file: File with the grid's token; by default it is in the environment, as ``SPARKJET_GRID_TOKEN``.
        certificate: PEM file with this side's certificate, if the grid uses TLS.
        key: PEM file with its key.
        authorities: PEM file with the authorities that sign the certificates of all.
        patience: Seconds after which a grid that does not answer is given up.
        client: A client to use instead, if there is one already.

    Raises:
        AnalysisError: The address or the name is malformed, or there is no token.
    """

    _place = JournalPlace
    _versions = JournalStore
    _store: JournalStore

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that :meth:`read` returns: the user's columns, and those of the journal."""
        return read_schema(self._last().schema)

    @property
    def spark_schema(self) -> str:
        """The schema of the user's columns in Spark's JSON."""
        return self._last().spark_schema

    @property
    def partitions(self) -> int:
        """The number of partitions, which never changes; they are numbered from 0."""
        return self._last().partitions

    @property
    def writer(self) -> Writer:
        """The query and the output that write it."""
        return self._last().writer

    def latest(self) -> Position:
        """The newest epoch that is visible, with the writer's watermark and the end of each partition.

        Raises:
            AnalysisError: There is no such journal, or it has no epoch yet.
        """
        return self._newest().position

    def earliest(self) -> dict[int, int]:
        """The first retained offset of each partition; its end if nothing is retained."""
        version = self._newest()
        return {partition: version.base(partition) for partition in range(version.partitions)}

    def check(self, offsets: Mapping[int, int]) -> None:
        """Raise an error if rows from some offsets on are no longer retained.

        Args:
            offsets: By partition, the offset of the next row to read.

        Raises:
            FallenBehindError: With partitions, offsets, epochs and the number of missed rows.
            AnalysisError: A partition does not exist, or does not reach so far: it is another journal.
        """
        self._check(self._newest(), offsets)

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read rows in the order of offsets; ``_partition``, ``_offset`` and ``_epoch`` follow the user's columns.

        Args:
            partition: Number of the partition.
            start: Offset of the first row.
            end: The offset after the last row, at most what :meth:`latest` says.

        Raises:
            FallenBehindError: Some of the rows are no longer retained.
            LostRowsError: All replicas of some of the rows are lost.
            ReleasedError: The journal has been removed.
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
                    # Where to continue if the next chunk has been merged meanwhile.
                    start += batch.num_rows
                    yield batch
            except MissingEntriesError:
                if not self._is_replaced(version):
                    raise

    def progress(self, after_epoch: int = 0) -> list[Position]:
        """The writer's position after each epoch that follows a given one, ascending; the newest is always included.

        A reader that has read each partition up to the ends of an epoch has reached its watermark in all partitions,
        including those without rows. Of epochs with equal ends perhaps only the last one is included, and epochs of
        which no row is retained may be missing.
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
        """Have the writer retain the rows from some offsets on, for as long as this process runs.

        The registration is renewed every 20 s, and expires a minute after the last renewal. Registering the same name
        again replaces its offsets.

        Args:
            reader: Unique name of the reader, one word without ``/``.
            offsets: By partition, the offset of the next row to read; nothing is retained of partitions left out.

        Raises:
            FallenBehindError: Some of these rows are no longer retained.
        """
        JournalPlace.of(reader, "reader")
        if reader in self._leases:
            self.renew(reader, offsets)
            self.check(offsets)
            return
        before = self._store.client.entries(self._store.place.leases(reader))
        lease = Lease(self._store.client, self._store.place, reader, _encoded(offsets))
        self._leases[reader] = lease
        # Leases of a former process of this reader would retain too much.
        self._store.client.remove([held.key for held in before])
        try:
            # After the lease was put, so that all that the writer had released before is noticed. An epoch that it is
            # about to publish may release a little more, which the first read notices.
            self.check(offsets)
        except BaseException:
            self.release(reader)
            raise

    def renew(self, reader: str, offsets: Mapping[int, int]) -> None:
        """Release the rows before some offsets.

        Raises:
            AnalysisError: The reader is not registered.
        """
        if reader not in self._leases:
            message = f'reader: "{reader}" is not registered by this object; call register("{reader}", …) first.'
            raise AnalysisError(message)
        self._leases[reader].renew(_encoded(offsets))

    def release(self, reader: str) -> None:
        """End a registration; does nothing if there is none."""
        lease = self._leases.pop(reader, None)
        if lease is not None:
            lease.release()

    def close(self) -> None:
        """End all registrations, and close the connections."""
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
        """The rows at some offsets, according to one version."""
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
    """The schema of rows as they are read, made from that of the user's columns."""
    own = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (EPOCH, pa.int64())]
    return pa.schema([*schema, *(pa.field(name, kind, nullable=False) for name, kind in own)])


def _encoded(offsets: Mapping[int, int]) -> bytes:
    # The writer decodes them, and a reader's mistake must not stop it.
    for partition, offset in offsets.items():
        if type(partition) is not int or type(offset) is not int or not 0 <= offset < _MOST:
            raise AnalysisError(
                f"offsets: {partition!r}: {offset!r} is not a partition with the offset of its next row: both are int, "
                "from 0."
            )
    return msgspec.msgpack.encode(dict(offsets))
