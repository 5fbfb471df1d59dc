"""The map sink: rows by key in the memory of a grid, of which readers see one whole epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.clock import Clock
from sparkjet.connectors.grid.columns import check_columns, check_keys, described, kept_as, key_text
from sparkjet.connectors.grid.journal_sink import GridJournalSink
from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings
from sparkjet.connectors.grid.map_task import MapTask, MapTaskError, RefusedRowError, written_by
from sparkjet.connectors.grid.versions import GridVersionsSink
from sparkjet.errors import (
    AnalysisError,
    SinkError,
    nearest,
)
from sparkjet.executors import cores
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks
from sparkjet.spark_line import SPATIAL, arrow_schema
from sparkjet.storage.shipping import GRID_PACKAGES, ship
from sparkjet.time.frames import MAX
from sparkjet_grid.map_layers import TECHNICAL
from sparkjet_grid.map_store import MapStore, Written, following
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.places import JournalPlace, MapPlace, Writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.connectors.grid.map_sink_settings import GridMapSettings
    from sparkjet.storage.grid_location import GridLocation


class GridMapSink(GridVersionsSink[MapVersion]):
    """Writes the rows of each epoch into a map, exactly once: of each key the newest row is there, or none.

    Executors write what has changed into the grid before the decision; the commit puts one slot, which makes all of it
    visible at once.

    Args:
        settings: The parsed options.
        location: The grid.
        place: Where the map is in it.
        clock: Dates epochs for which no other clock is given.
    """

    def __init__(
        self, settings: GridMapSettings, location: GridLocation, place: MapPlace, clock: Clock | None = None
    ) -> None:
        super().__init__(MapStore(location.client, place), location, settings.path, clock)
        self._settings = settings
        self._schema = T.StructType()
        self._has_expiring = False

    @property
    def keys(self) -> tuple[str, ...]:
        """See :attr:`Keyed.keys`."""
        return self._settings.keys

    @property
    def uses_clock(self) -> bool:
        """See :attr:`Clocked.uses_clock`."""
        # Rows of an earlier run go by the clock too, whatever the option is now.
        return self._settings.time_to_live is not None or self._has_expiring

    def is_due(self, now: int) -> bool:
        """See :meth:`Clocked.is_due`: rows may have expired that readers still see."""
        return self._newest is not None and self._is_due(now + self._ahead(self._newest, now))

    def _is_due(self, clock: int) -> bool:
        """The same at a time by the versions' clock."""
        newest = self._newest
        if newest is None or newest.expiry is None:
            return False
        return newest.expiry[0] <= clock and clock - newest.clock >= self._settings.expire_interval

    @property
    def packages(self) -> Mapping[str, str]:
        """See :attr:`NeedsPackages.packages`."""
        return GRID_PACKAGES

    def check(self, schema: T.StructType) -> None:
        """See :meth:`Sink.check`."""
        stored = _stored(schema, self._settings)
        newest = self._check_grid()
        self._schema = kept_as(stored)
        if newest is not None:
            self._check_shape(newest)
            self._has_expiring = newest.expiry is not None

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        base, clock = self._begin(transaction)
        task = self._task(base, transaction, clock)
        ship(rows.sparkSession)
        placed = self._sorted(rows, len(self._store.client.state().rows), self._expires(clock))
        found = run_tasks(placed, task, [], MapTaskError, GRID_PACKAGES, of_rows=RefusedRowError)
        if not found and not self._is_due(clock):
            return None
        before = None if base is None else base.expiry_at(clock)
        expiry = widened(before, self._expires(clock) if found else None)
        version = self._version(base, [written_by(each["id"]) for each in found], expiry, transaction, clock)
        self._check_size(transaction)
        return self._handle(version, transaction, sum(each["rows"] for each in found))

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`: changes are visible after the rows, so readers of a change find its row."""
        super().commit(handle, between)
        if handle.get("changes") is not None:
            # Even if the map now has no journal, or a different one: what was decided is published.
            self._journal_of(handle["changes"]).commit(handle["changes"], between)

    def _journal_of(self, changes: Handle) -> GridJournalSink:
        """The sink that commits prepared changes."""
        place = JournalPlace(changes["journal"])
        return GridJournalSink(GridJournalSettings(place.name), self._location, place, self._clock)

    def _expires(self, clock: int) -> int | None:
        """The time at which rows of an epoch expire."""
        lasts = self._settings.time_to_live
        return None if lasts is None else min(clock + lasts, MAX)

    def _task(self, base: MapVersion | None, transaction: TransactionId, clock: int) -> MapTask:
        return MapTask(
            self._location,
            self._place,
            Writer(transaction.query, transaction.sink),
            str(transaction),
            None if base is None else self._store.manifest_of(base),
            self.keys,
            arrow_schema(self._schema).serialize().to_pybytes(),
            clock,
        )

    def _version(
        self,
        base: MapVersion | None,
        written: Sequence[Written],
        expiry: tuple[int, int] | None,
        transaction: TransactionId,
        clock: int,
    ) -> MapVersion:
        """The version with what tasks have written."""
        endless = (base is not None and base.endless) or (bool(written) and self._settings.time_to_live is None)
        # If all rows have expired, their memory is freed.
        layers = following(base, written) if endless or expiry is not None else {}
        return MapVersion(
            number=base.number + 1 if base is not None else 1,
            epoch=transaction.epoch,
            clock=clock,
            watermark=transaction.told,
            query=transaction.query,
            output=transaction.sink,
            run=transaction.run,
            keys=self.keys,
            arrow_schema=arrow_schema(self._schema).serialize().to_pybytes(),
            spark_schema=self._schema.json(),
            partitions=len(self._store.client.state().rows),
            layers=layers,
            expiry=expiry,
            endless=endless,
            ahead=self._ahead(base, self._now(transaction)),
        )

    def _sorted(self, rows: DataFrame, partitions: int, expires: int | None) -> DataFrame:
        """Rows of layers by partition and hash; of those with one key, that with the greatest other columns first."""
        placed, order = self._placed(rows, partitions, expires), self._order()
        tasks = min(partitions, cores(rows.sparkSession))
        return placed.repartition(tasks, "partition").sortWithinPartitions(*order)

    def _placed(self, rows: DataFrame, partitions: int, expires: int | None) -> DataFrame:
        """Rows of layers, each with its partition.

        Columns are addressed by position: PySpark takes a dot in a name for a part of a struct.
        """
        settings, fields = self._settings, self._schema.fields
        hash_ = F.crc32(key_text(self._schema, self.keys).cast("binary"))
        gone = F.lit(False) if settings.deleted is None else F.coalesce(F.col(quoted(settings.deleted)), F.lit(False))
        columns = [hash_, gone, F.lit(expires).cast("long"), *(F.col(quoted(each.name)) for each in fields)]
        shaped = rows.select(*(column.alias(f"c{place}") for place, column in enumerate(columns)))
        partition = F.pmod(F.col("c0"), F.lit(partitions)).cast("int").alias("partition")
        return shaped.select("*", partition)

    def _order(self) -> list[Column]:
        fields = self._schema.fields
        places = {each.name: F.col(f"c{place}") for place, each in enumerate(fields, len(TECHNICAL))}
        others = [places[each.name].desc() for each in fields if _is_ordered(each.dataType)]
        # A deletion outweighs a row of the same epoch: nobody can tell which came first.
        return [F.col("partition"), F.col("c0"), *map(places.__getitem__, self.keys), F.col("c1").desc(), *others]

    def _check_shape(self, newest: MapVersion) -> None:
        there = T.StructType.fromJson(msgspec.json.decode(newest.spark_schema))
        if newest.keys != self.keys or there != self._schema:
            message = (
                f'path: map "{self._place.name}" has the keys {", ".join(newest.keys)} and the columns '
                f"{described(there)}, but these rows have the keys {', '.join(self.keys)} and the columns "
                f"{described(self._schema)}. Write into another map, or remove this one first: "
                "python -m sparkjet grid map remove."
            )
            raise AnalysisError(message)

    def _check_size(self, transaction: TransactionId) -> None:
        limit = self._settings.max_bytes
        if limit is None or self._store.used() <= limit:
            return
        # Readers may have released epochs since the last commit.
        self._store.clean(self._leases)
        used = self._store.used()
        if used > limit:
            self.abort(transaction)
            message = (
                f"maxBytes: {self._named} would take {used} bytes with epoch {transaction.epoch}, and may take {limit}."
                " That counts what older epochs need that are still visible, or that readers hold. Nothing of the epoch"
                " is visible. Give it more, let rows go (deleted, timeToLive), or end readers that hold an epoch."
            )
            raise SinkError(message)


def widened(expiry: tuple[int, int] | None, expires: int | None) -> tuple[int, int] | None:
    """The first and the last expiry of rows, including one more; None if no row expires.

    >>> widened((3, 7), 9), widened(None, 9), widened((3, 7), None)
    ((3, 9), (9, 9), (3, 7))
    """
    if expires is None or expiry is None:
        return expiry if expires is None else (expires, expires)
    return min(expires, expiry[0]), max(expires, expiry[1])


def _stored(schema: T.StructType, settings: GridMapSettings) -> T.StructType:
    """The columns that a map keeps of some rows."""
    names = schema.fieldNames()
    check_keys(schema, settings.keys, "map")
    if settings.deleted is not None:
        if settings.deleted not in names or settings.deleted in settings.keys:
            message = f"deleted: no column {settings.deleted!r} beside the keys; {nearest(settings.deleted, names)}"
            raise AnalysisError(message)
        kind = schema[settings.deleted].dataType
        if not isinstance(kind, T.BooleanType):
            message = f"deleted: {settings.deleted!r} is {kind.simpleString()}, and says with true that a key is gone."
            raise AnalysisError(message)
    kept = [T.StructField(each.name, each.dataType) for each in schema.fields if each.name != settings.deleted]
    stored = T.StructType(kept)
    check_columns(stored, TECHNICAL, "map")
    return stored


def _is_ordered(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_ordered(each.dataType) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_ordered(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType, T.CalendarIntervalType, *SPATIAL))
