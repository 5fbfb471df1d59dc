"""The map sink: rows by their keys in the memory of a grid, of which readers see one whole epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.clock import Clock, SystemClock
from sparkjet.errors import (
    AnalysisError,
    CopiedHomeError,
    LostTransactionError,
    RecoveryError,
    SinkError,
    StorageError,
    nearest,
)
from sparkjet.grid.cluster_state import may_start
from sparkjet.grid.errors import LostRowsError, MissingEntriesError
from sparkjet.grid.map_layers import TECHNICAL
from sparkjet.grid.map_store import MapStore
from sparkjet.grid.map_version import MapVersion
from sparkjet.grid.map_writing import following
from sparkjet.grid.messages import Held
from sparkjet.grid.places import MapPlace
from sparkjet.grid.reader_leases import LeaseBook
from sparkjet.grid.version_store import Writer
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.grid_map_task import MapTask, RefusedRowError, written_by
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks
from sparkjet.spark_line import SPATIAL, arrow_schema
from sparkjet.storage.shipping import ship
from sparkjet.time.frames import MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.sinks.grid_map_settings import GridMapSettings
    from sparkjet.storage.grid_location import GridLocation

PACKAGES = {name: name.replace("_", "-") for name in ("msgspec", "pyarrow", "tenacity", "typing_extensions", "xxhash")}
"""Packages that the executors need, by the name that is imported."""
_TEXTS: dict[type[T.DataType], Callable[[Column], Column]] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), lambda key: key.cast("string")),
    T.StringType: lambda key: key,
    T.BooleanType: lambda key: key.cast("string"),
    T.DateType: lambda key: F.unix_date(key).cast("string"),
    T.TimestampType: lambda key: F.unix_micros(key).cast("string"),
}
"""The text of a key by its type, as :mod:`sparkjet.grid.map_keys` has it."""


class GridMapSink:
    """Writes the rows of each epoch into a map, exactly once: the newest row of each key is there, or none.

    Executors write what has changed into the grid before the decision; the commit puts one slot, by which all of it is
    visible at once.

    Args:
        settings: The parsed options.
        location: The grid.
        place: Where the map is in it.
        clock: Dates epochs where nobody says by which clock they are.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(
        self, settings: GridMapSettings, location: GridLocation, place: MapPlace, clock: Clock | None = None
    ) -> None:
        self._settings, self._location, self._place = settings, location, place
        self._store = MapStore(location.client, place)
        self._clock = clock or SystemClock()
        self._leases = LeaseBook(time.monotonic)
        self._schema = T.StructType()
        self._published = 0
        """Number of the newest version that is known to have been visible."""

    @property
    def keys(self) -> tuple[str, ...]:
        """See :attr:`Keyed.keys`."""
        return self._settings.keys

    @property
    def packages(self) -> Mapping[str, str]:
        """See :attr:`NeedsPackages.packages`."""
        return PACKAGES

    def check(self, schema: T.StructType) -> None:
        """See :meth:`Sink.check`."""
        self._schema = _stored(schema, self._settings)
        try:
            state, newest = self._store.client.state(), self._store.newest()
        except StorageError as error:
            message = f'path: map "{self._settings.path}" cannot be used: {error}'
            raise AnalysisError(message) from error
        if not may_start(state):
            message = (
                f'path: "{self._settings.path}" has {state.present} members left of {state.largest}: the others may go '
                "on elsewhere, or hold what is missing here. Start members until there are more than half."
            )
            raise AnalysisError(message)
        if newest is not None:
            self._check_shape(newest)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`.

        Raises:
            SinkError: A row has no key, the map has another writer or was removed, or it would take more than
                ``maxBytes``.
        """
        base = self._store.newest()
        self._check_not_removed(base)
        self._check_writer(base, transaction)
        clock = self._clock.now() if transaction.clock is None else transaction.clock
        # Rows that have expired must not be there again.
        clock = max(clock, base.clock) if base is not None else clock
        count = len(self._store.client.state().rows)
        manifest = None if base is None else self._store.manifest_at(base.number)
        schema = arrow_schema(self._schema).serialize().to_pybytes()
        task = MapTask(self._location, self._place, str(transaction), manifest, self.keys, schema, clock)
        ship(rows.sparkSession)
        found = run_tasks(self._sorted(rows, count, clock), task, [], RefusedRowError, PACKAGES)
        if not found:
            return None
        version = MapVersion(
            number=base.number + 1 if base is not None else 1,
            epoch=transaction.epoch,
            clock=clock,
            watermark=transaction.watermark,
            query=transaction.query,
            output=transaction.sink,
            run=transaction.run,
            keys=self.keys,
            arrow_schema=schema,
            spark_schema=self._schema.json(),
            partitions=count,
            layers=following(base, [written_by(each["id"]) for each in found]),
        )
        self._check_size(transaction)
        return {
            "map": self._place.name,
            "query": transaction.query,
            "sink": transaction.sink,
            "epoch": transaction.epoch,
            "number": version.number,
            "manifest": msgspec.to_builtins(self._store.write(version, str(transaction))),
            "rows": sum(each["rows"] for each in found),
            **origin(transaction),
        }

    def check_alive(self, handle: Handle) -> None:
        """See :meth:`Expiring.check_alive`: members may have been lost since.

        Raises:
            SinkError: With them all replicas of something that the epoch names were.
        """
        try:
            self._store.check(self._store.decoded(_manifest(handle)))
        except StorageError as error:
            raise SinkError(str(error)) from error

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`.

        Raises:
            LostTransactionError: The version is lost, or the map was removed.
        """
        store = self._store_of(handle)
        self._publish(store, handle, between)
        if store is self._store:
            self._published = max(self._published, handle["number"])

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`.

        Raises:
            RecoveryError: The map has another writer, or has lost what this query has published.
        """
        version = self._store.newest()
        writer = self._store.writer()
        if writer not in {None, Writer(newest.query, newest.sink)}:
            raise RecoveryError(self._other_writer(writer))
        if handle is not None and handle["map"] == self._place.name:
            self._check_there(version, handle)
        self._published = version.number if version is not None else 0
        if version is None or version.epoch <= newest.epoch:
            return None
        return (
            f'map "{self._place.name}" has epoch {version.epoch}. Restore the newest copy of the home, with which '
            "nothing is lost or repeated. Or go on from this one with another map (path): epochs from "
            f"{newest.epoch + 1} on are computed again and written there. Or remove the map "
            "(python -m sparkjet grid map remove), and start from scratch with another checkpointLocation."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        writer = self._store.writer()
        if writer is not None and writer.query == query:
            decided = [_manifest(handle) for handle in keep if handle["map"] == self._place.name]
            self._store.undo(lambda name: int(name.partition("-")[0]) < takeover, decided)
            self._store.clean(self._leases)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._store.undo(lambda name: name == str(transaction))

    def _sorted(self, rows: DataFrame, partitions: int, clock: int) -> DataFrame:
        """Rows of layers by partition and hash; of those of one key the one with the greatest other columns first.

        Columns are called by their places: PySpark takes a dot in the name of one for a part of a struct.
        """
        settings, fields = self._settings, self._schema.fields
        hash_ = F.crc32(_key_text(self._schema, self.keys).cast("binary"))
        gone = F.lit(False) if settings.deleted is None else F.coalesce(F.col(quoted(settings.deleted)), F.lit(False))
        lasts = settings.time_to_live
        expires = F.lit(None if lasts is None else min(clock + lasts, MAX)).cast("long")
        columns = [hash_, gone, expires, *(F.col(quoted(each.name)) for each in fields)]
        shaped = rows.select(*(column.alias(f"c{place}") for place, column in enumerate(columns)))
        partition = F.pmod(F.col("c0"), F.lit(partitions)).cast("int").alias("partition")
        places = {each.name: F.col(f"c{place}") for place, each in enumerate(fields, len(TECHNICAL))}
        others = [places[each.name].desc() for each in fields if _is_ordered(each.dataType)]
        # A deletion counts more than a row of the same epoch: nobody can say which was first.
        order = [F.col("partition"), F.col("c0"), *map(places.__getitem__, self.keys), F.col("c1").desc(), *others]
        tasks = min(partitions, rows.sparkSession.sparkContext.defaultParallelism)
        return shaped.select("*", partition).repartition(tasks, "partition").sortWithinPartitions(*order)

    def _store_of(self, handle: Handle) -> MapStore:
        """Where a transaction was prepared: ``path`` may have named another map of this grid then."""
        here = self._place.name == handle["map"]
        return self._store if here else MapStore(self._store.client, MapPlace(handle["map"]))

    def _publish(self, store: MapStore, handle: Handle, between: Callable[[], None]) -> None:
        number, manifest = handle["number"], _manifest(handle)
        while not self._is_published(store, handle):
            numbers = store.numbers()
            if number > 1 and (not numbers or numbers[-1] < number - 1):
                message = (
                    f'Epoch {handle["epoch"]} was decided, but map "{handle["map"]}" has no version {number - 1} '
                    f"that it goes on from: the map was removed, or its grid was lost. {self._way_out()}"
                )
                raise LostTransactionError(message)
            try:
                # Who else has put it is found out next.
                is_ours = store.publish(manifest)
            except LostRowsError as error:
                raise LostTransactionError(f"Epoch {handle['epoch']} was decided, but {error}") from error
            if is_ours:
                between()
                store.clean(self._leases)
                return

    def _check_shape(self, newest: MapVersion) -> None:
        there = T.StructType.fromJson(msgspec.json.decode(newest.spark_schema))
        if newest.keys != self.keys or there != self._schema:
            message = (
                f'path: map "{self._place.name}" has the keys {", ".join(newest.keys)} and the columns '
                f"{_described(there)}, and these rows have the keys {', '.join(self.keys)} and the columns "
                f"{_described(self._schema)}. Write into another map, or remove this one first: "
                "python -m sparkjet grid map remove."
            )
            raise AnalysisError(message)

    def _check_not_removed(self, base: MapVersion | None) -> None:
        # Otherwise the epoch would begin another map, without the rows of those before.
        if (base.number if base is not None else 0) < self._published:
            message = (
                f"{self._named} was removed, or its grid was lost, while this query was writing it. {self._way_out()}"
            )
            raise SinkError(message)

    def _check_writer(self, base: MapVersion | None, transaction: TransactionId) -> None:
        own = Writer(transaction.query, transaction.sink)
        writer = self._store.claim(own)
        if writer != own:
            raise SinkError(self._other_writer(writer))
        if base is not None:
            check_run({"epoch": transaction.epoch, **origin(transaction)}, base.epoch, base.run, self._named)

    def _other_writer(self, writer: Writer | None) -> str:
        whose = f"output {writer.output!r} of query {writer.query}" if writer is not None else "another query"
        return (
            f"{self._named} is written by {whose}, and a map has one writer. Write into another map; or, if that query "
            f"is gone for good, remove the map first: python -m sparkjet grid map remove {self._settings.path}"
        )

    def _check_size(self, transaction: TransactionId) -> None:
        limit = self._settings.max_bytes
        if limit is None or self._store.used() <= limit:
            return
        # Readers may have let go of epochs since the last commit.
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

    def _check_there(self, version: MapVersion | None, handle: Handle) -> None:
        number = version.number if version is not None else 0
        # The newest that was decided may not have been published yet.
        if number < handle["number"] and (number < handle["number"] - 1 or not self._is_written(handle)):
            has = "is not there" if version is None else f"has epoch {version.epoch} only"
            message = (
                f"{self._named} {has}, and this query has published epoch {handle['epoch']} into it: it was removed, "
                f"or its grid was lost. {self._way_out()}"
            )
            raise RecoveryError(message)
        if version is not None:
            try:
                self._store.check(version)
            except LostRowsError as error:
                raise RecoveryError(str(error)) from error

    def _is_written(self, handle: Handle) -> bool:
        try:
            self._store.decoded(_manifest(handle))
        except MissingEntriesError:
            return False
        return True

    def _is_published(self, store: MapStore, handle: Handle) -> bool:
        """Whether the version is visible, or was.

        Raises:
            CopiedHomeError: Another one is.
        """
        number, manifest = handle["number"], _manifest(handle)
        named = f'map "{handle["map"]}" of {self._location}'
        there = store.manifest_at(number)
        if there is not None and there.name == manifest.name:
            return True
        newest = store.newest()
        if newest is None or newest.number < number:
            return False
        check_run(handle, newest.epoch, newest.run, named)
        if there is not None:
            message = (
                f"{named} has another epoch {newest.epoch} of this query in the place of epoch "
                f"{handle['epoch']}: another copy of this home has published it. End one of the two queries."
            )
            raise CopiedHomeError(message)
        return True

    def _way_out(self) -> str:
        return (
            "Start the query from the beginning of its source, with another checkpointLocation: that builds the map "
            "again."
        )

    @property
    def _named(self) -> str:
        return f'map "{self._place.name}" of {self._location}'


def _manifest(handle: Handle) -> Held:
    return msgspec.convert(handle["manifest"], Held)


def _key_text(schema: T.StructType, keys: Sequence[str]) -> Column:
    """The text of a key, null where a part of it is."""
    parts: list[Column] = []
    for name in keys:
        text = _TEXTS[type(schema[name].dataType)](F.col(quoted(name)))
        parts += [F.length(text).cast("string"), F.lit(":"), text]
    return F.concat(*parts)


def _stored(schema: T.StructType, settings: GridMapSettings) -> T.StructType:
    """The columns that a map keeps of some rows.

    Raises:
        AnalysisError: A key or the column of deletions is missing, or has a type that it cannot have.
    """
    names = schema.fieldNames()
    for name in settings.keys:
        if name not in names:
            message = f"keys: no column {name!r} in the result; {nearest(name, names)}"
            raise AnalysisError(message)
        kind = schema[name].dataType
        if type(kind) not in _TEXTS:
            message = (
                f"keys: {name!r} is {kind.simpleString()}, and a key of a map is an integer, a string, a boolean, a "
                "date or a timestamp: a value of another type has no one text. Select a part of it (window.start), or "
                'cast it to one of these (cast("string")).'
            )
            raise AnalysisError(message)
        if "collate" in kind.simpleString():
            message = (
                f"keys: {name!r} is {kind.simpleString()}: texts that are equal by a collation may differ, and one key "
                "would have several rows. Compute a key from it that does not differ, as lower(…) is, and cast it: "
                'cast("string").'
            )
            raise AnalysisError(message)
    if settings.deleted is not None:
        if settings.deleted not in names or settings.deleted in settings.keys:
            message = f"deleted: no column {settings.deleted!r} beside the keys; {nearest(settings.deleted, names)}"
            raise AnalysisError(message)
        kind = schema[settings.deleted].dataType
        if not isinstance(kind, T.BooleanType):
            message = f"deleted: {settings.deleted!r} is {kind.simpleString()}, and says with true that a key is gone."
            raise AnalysisError(message)
    kept = [T.StructField(each.name, each.dataType) for each in schema.fields if each.name != settings.deleted]
    taken = [name for name in names if name in TECHNICAL]
    if taken:
        message = f"start: a map has a column {taken[0]!r} of its own. Give yours another name."
        raise AnalysisError(message)
    try:
        arrow_schema(T.StructType(kept))
    except Exception as error:
        message = f'start: format("grid-map") keeps rows in Arrow, which has no type for one of the columns: {error}'
        raise AnalysisError(message) from error
    return T.StructType(kept)


def _is_ordered(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_is_ordered(each.dataType) for each in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _is_ordered(kind.elementType)
    return not isinstance(kind, (T.MapType, T.VariantType, T.CalendarIntervalType, *SPATIAL))


def _described(schema: T.StructType) -> str:
    return ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema.fields)


def grid_map_sink(settings: GridMapSettings, session: Any, clock: Clock) -> GridMapSink:
    """The sink of some options.

    Raises:
        AnalysisError: The grid cannot be reached, or the name is none.
    """
    from sparkjet.storage.grid_location import grid_location  # noqa: PLC0415 - on use only

    location, name = grid_location(settings.path, "path", session)
    return GridMapSink(settings, location, MapPlace.of(name, "path"), clock)
