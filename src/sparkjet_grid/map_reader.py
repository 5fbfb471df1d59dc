"""Reads a map of the grid, in any process: pyarrow and a few small packages are enough, PySpark is not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Self

from sparkjet_grid.errors import AnalysisError, MissingEntriesError, ReleasedError, nearest
from sparkjet_grid.finding import Found
from sparkjet_grid.fitting import fitted
from sparkjet_grid.map_keys import texts_of_keys
from sparkjet_grid.map_layers import merged, visible
from sparkjet_grid.map_store import KEYS, MapStore
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held
from sparkjet_grid.places import MapPlace
from sparkjet_grid.reader_leases import LEASE, Lease
from sparkjet_grid.version_reader import VersionReader

T = TypeVar("T")
Row = dict[str, Any]

EPOCH, WATERMARK = b"sparkjet.epoch", b"sparkjet.watermark"
"""Metadata of a scan's schema."""
_ROWS = 64 << 10


class Taken(NamedTuple):
    """A version that is held by a lease, and its manifest."""

    version: MapVersion
    lease: Lease
    manifest: Held


class Map(VersionReader[MapVersion]):
    """A map of a grid, as readers see it: each read is of exactly one epoch.

    A read is of the newest epoch that is visible when it begins, or of the one that :meth:`held` holds. Thread-safe,
    except for :attr:`epoch`, :attr:`watermark` and ``held``, which are for a single reader.

    Args:
        uri: Some members of the grid: ``grid://10.0.0.1:5710,10.0.0.2:5710``; ``grid:///`` for the one that drivers
            start on this machine.
        name: Of the map.
        token_file: File with the grid's token; by default it is in the environment, as ``SPARKJET_GRID_TOKEN``.
        certificate: PEM file with this side's certificate, if the grid uses TLS.
        key: PEM file with its key.
        authorities: PEM file with the authorities that sign the certificates of all.
        patience: Seconds after which a grid that does not answer is given up.
        client: A client to use instead, if there is one already.

    Raises:
        AnalysisError: The address or the name is malformed, or there is no token.
    """

    _place = MapPlace
    _versions = MapStore
    _store: MapStore
    _held: tuple[MapVersion, Lease] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the last read; before the first read, the newest one."""
        return self._last().epoch

    @property
    def watermark(self) -> int | None:
        """The writer's watermark in that epoch, in microseconds since 1970; None if there was none."""
        return self._last().watermark

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._last().keys

    @property
    def kinds(self) -> list[str]:
        """The kinds of their values: integer, text, boolean, date or moment."""
        return self._last().kinds

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._last().schema

    def get(self, key: object) -> Row | None:
        """The row of a key; None if the map has none.

        Args:
            key: A value, or a tuple if the map has several key columns.

        Raises:
            AnalysisError: The key has another type, or there is no such map.
            MissingEntriesError: The part of the map that would have it is lost.
        """
        return self.get_all([key]).get(key)

    def get_all(self, keys: Iterable[object]) -> dict[Any, Row]:
        """The rows of keys, by key as given; keys without a row are left out."""
        try:
            wanted = list(dict.fromkeys(keys))
        except TypeError as error:
            message = f"key: {error}. A key is a value, or a tuple of values where the map has several key columns."
            raise AnalysisError(message) from error
        if self._held is None and len(wanted) > KEYS:
            # They take several calls. Without a lease, newer epochs could make the read start over endlessly.
            version, lease, _ = self.taken()
            with lease, self._still(version, lease):
                return self._found(version, wanted)
        return self._read(lambda version: self._found(version, wanted))

    def scan(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.RecordBatchReader:
        """All rows, as they arrive from members; epoch and watermark are in the metadata of the schema.

        The epoch is held until the reader is exhausted or discarded.

        Args:
            columns: The columns to return, in this order; all by default.
            filter: A condition on rows, such as ``pc.field("n") > 5``; it may use columns that are not returned.

        Raises:
            AnalysisError: There is no such column, or no such map, or the filter does not fit its columns.
        """
        if self._held is not None:
            lease, (version, holding) = None, self._held
        else:
            version, lease, _ = self.taken()
            holding = lease
        try:
            chosen = _chosen(version.schema, columns)
            _check_filter(version.schema, filter)
        except AnalysisError:
            if lease is not None:
                lease.release()
            raise
        told = {EPOCH: str(version.epoch).encode()}
        if version.watermark is not None:
            told[WATERMARK] = str(version.watermark).encode()
        batches = self._scanned(version, holding, lease, chosen.names, filter)
        # Otherwise a reader that is never read from would never release its lease.
        next(batches)
        return pa.RecordBatchReader.from_batches(chosen.with_metadata(told), batches)

    @contextmanager
    def held(self, epoch: int | None = None) -> Iterator[Self]:
        """Make all reads be of one epoch: the newest, or a given one that is still visible.

        Raises:
            ReleasedError: That epoch is not visible, or no more.
        """
        # Nested: an outer epoch is held again afterwards.
        before = self._held
        version, lease, _ = self.taken(epoch)
        self._held = version, lease
        try:
            yield self
        finally:
            self._held = before
            lease.release()

    def version(self, epoch: int | None = None) -> MapVersion:
        """The version of the newest epoch, or of a given one that is still visible.

        Raises:
            ReleasedError: That epoch is not visible, or no more.
        """
        return self._newest() if epoch is None else self._of_epoch(epoch)

    def planned(self, epoch: int | None = None) -> tuple[Held, MapVersion]:
        """The newest version, or that of an epoch, for a read in parts, which have to begin within a minute.

        Raises:
            ReleasedError: That epoch is not visible, or no more.
        """
        version, lease, manifest = self.taken(epoch, shared=True)
        lease.leave()
        return manifest, version

    def taken(self, epoch: int | None = None, *, shared: bool = False) -> Taken:
        """The newest version, or that of an epoch, held until its lease is released; it becomes that of the last read.

        Raises:
            ReleasedError: That epoch is not visible, or no more.
        """
        while True:
            version = self.version(epoch)
            lease = self._lease(version.number, shared=shared)
            try:
                # After the lease was put: the writer removes slots before it looks at leases.
                manifest = self._store.manifest_at(version.number)
            except BaseException:
                # Otherwise it would be renewed for as long as this process runs.
                lease.leave()
                raise
            if manifest is not None:
                self._seen = version
                return Taken(version, lease, manifest)
            lease.release()

    def taken_again(self, manifest: Held, number: int) -> Taken | None:
        """A version that was :meth:`taken` before, perhaps by another process, again; None if it is gone."""
        lease = self._lease(number)
        try:
            version = self.at(manifest)
            self._store.client.check(version.held())
        except MissingEntriesError:
            lease.release()
            return None
        except BaseException:
            lease.leave()
            raise
        return Taken(version, lease, manifest)

    def at(self, manifest: Held) -> MapVersion:
        """The version that a manifest describes.

        Raises:
            MissingEntriesError: It is gone.
        """
        return self._store.decoded(manifest)

    @property
    def cluster(self) -> str:
        """Id of the grid, which gets another one when it is re-formed."""
        return self._store.client.state().cluster

    def part(
        self, manifest: Held, partitions: Sequence[int], keys: Sequence[tuple[object, ...]] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some partitions, or of some keys, of a :meth:`planned` read.

        Raises:
            ReleasedError: The read was planned more than a minute ago, and the epoch is gone.
        """
        try:
            version = self._store.decoded(manifest)
        except MissingEntriesError as error:
            name = self._store.place.name
            message = f'map "{name}": the read began more than {LEASE:.0f} s after it was planned. Load it again.'
            raise ReleasedError(message) from error
        with self._lease(version.number, shared=True) as lease, self._still(version, lease):
            if keys is not None:
                # As Arrow values: Python has no year 10000.
                names = version.schema.names
                tables = [pa.Table.from_batches([each.rows.select(names)]) for each in self._rows(version, keys)]
                for table in tables:
                    yield from fitted(table, version.schema).to_batches()
                return
            wanted = [layer for partition in partitions for layer in version.layers[partition]]
            for table in self._partitions(version, wanted):
                yield from table.combine_chunks().to_batches(max_chunksize=_ROWS)

    def _last(self) -> MapVersion:
        if self._held is not None:
            return self._held[0]
        if self._seen is None:
            self._seen = self._newest()
        return self._seen

    def _read(self, read: Callable[[MapVersion], T]) -> T:
        """Read the held epoch; or else the newest one, again if it is replaced and removed meanwhile."""
        if self._held is not None:
            with self._still(*self._held):
                return read(self._held[0])
        while True:
            self._seen = version = self._newest()
            try:
                return read(version)
            except MissingEntriesError:
                if not self._is_replaced(version):
                    raise

    @contextmanager
    def _still(self, version: MapVersion, lease: Lease | None) -> Iterator[None]:
        """Turn missing entries into an error that says whether they were lost, removed, or are no longer held."""
        try:
            yield
        except MissingEntriesError as error:
            self._store.check_not_removed(version)
            # Lost members take leases and manifests with them, but not slots.
            is_visible = self._store.manifest_at(version.number) is not None
            if lease is not None and not is_visible and not (lease.is_there() and self._store.is_kept(version)):
                raise ReleasedError(
                    f'epoch {version.epoch} of map "{self._store.place.name}" is no longer held: its lease was not '
                    f"renewed for {LEASE:.0f} s, as happens where a process sleeps. Read again, from a newer epoch."
                ) from error
            self._store.check(version)
            raise

    def _lease(self, number: int, *, shared: bool = False) -> Lease:
        return Lease(self._store.client, self._store.place, f"{number:012d}", shared=shared)

    def _of_epoch(self, epoch: int) -> MapVersion:
        found = self._store.of_epoch(epoch)
        if found is None:
            there = [version.epoch for version in map(self._store.at, self._store.numbers()) if version is not None]
            raise ReleasedError(
                f'epoch {epoch} of map "{self._store.place.name}" is not there: visible are '
                f"{', '.join(map(str, there)) or 'none'}. Older ones are there only for readers that hold them."
            )
        return found

    def _found(self, version: MapVersion, keys: Sequence[Any]) -> dict[Any, Row]:
        values: dict[Any, Row] = {}
        names = version.schema.names
        for found in self._rows(version, keys):
            rows = found.rows.select(names).to_pylist()
            values.update(zip([keys[place] for place in found.places], rows, strict=True))
        return values

    def _rows(self, version: MapVersion, keys: Sequence[Any]) -> Iterator[Found]:
        """The rows of keys, with the places of these keys."""
        given = [key if isinstance(key, tuple) else (key,) for key in keys]
        return self._store.rows(version, texts_of_keys(given, version.kinds))

    def _scanned(
        self,
        version: MapVersion,
        holding: Lease | None,
        own: Lease | None,
        columns: Sequence[str],
        wanted: pc.Expression | None,
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield pa.RecordBatch.from_pylist([], pa.schema([]))
            with self._still(version, holding):
                for table in self._partitions(version, version.held()):
                    rows = table if wanted is None else table.filter(wanted)
                    yield from rows.select(columns).combine_chunks().to_batches(max_chunksize=_ROWS)
        finally:
            if own is not None:
                own.release()

    def _partitions(self, version: MapVersion, layers_of: Sequence[Held]) -> Iterator[pa.Table]:
        """The rows of each partition of some layers, as soon as all layers of the partition have arrived."""
        arrived: dict[int, dict[str, pa.Table]] = {}
        for entry in self._store.client.get(layers_of):
            layers: tuple[Held, ...] = version.layers[entry.key.partition]
            there = arrived.setdefault(entry.key.partition, {})
            there[entry.key.name] = pa.Table.from_batches(entry.batches, entry.schema)
            if len(there) == len(layers):
                tables = [there[layer.name] for layer in layers]
                del arrived[entry.key.partition]
                # A single layer has each key once.
                one = tables[0] if len(tables) == 1 else merged(tables, version.keys, version.clock, is_oldest=True)
                yield visible(one, version.clock)


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    names = schema.names if columns is None else columns
    for name in names:
        if name not in schema.names:
            raise AnalysisError(f"columns: the map has no {name!r}; {nearest(name, schema.names)}")
    return pa.schema([schema.field(name) for name in names])


def _check_filter(schema: pa.Schema, wanted: pc.Expression | None) -> None:
    """Refuse a filter before any row is read; otherwise Arrow's error would be raised in the middle of the batches."""
    if wanted is None:
        return
    try:
        schema.empty_table().filter(wanted)
    except (pa.ArrowException, TypeError) as error:
        raise AnalysisError(f"filter: {wanted} does not fit the columns {', '.join(schema.names)}: {error}") from error
