"""Directories in a grid: a query's home in replicated memory, without any file system."""

from __future__ import annotations

import errno
import io
import json
import threading
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparkjet.storage.arrow_types import counted, nullable, with_counts, without_counts
from sparkjet.storage.grid_location import GridLocation, check_whole
from sparkjet.storage.shipping import GRID_PACKAGES, ship
from sparkjet.workers import QuickTask
from sparkjet_grid.files import read_files, write_files
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.status import described

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession


_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Key under which Spark keeps its own types in a Parquet file."""
_TASK_BYTES = 64 << 20
"""Bytes of files per task, unless a single file has more."""


def write_rows(rows: DataFrame, location: GridLocation, directory: str) -> list[tuple[Held, int]]:
    """Write one file per partition with rows; returns how each is held, and its number of rows.

    Each task attempt writes under its own name; files that no successful one has named go with their directory.
    """
    ship(rows.sparkSession)
    task = QuickTask(partial(_written, location, directory, rows.schema.json()))
    found = with_counts(rows).mapInArrow(task, "held binary, count long").collect()
    return [(msgspec.msgpack.decode(row["held"], type=known(Held)), row["count"]) for row in found]


def read_rows(session: SparkSession, location: GridLocation, files: Sequence[Held]) -> DataFrame:
    """The rows of files that :func:`write_rows` has written."""
    tasks = [msgspec.msgpack.encode(group) for group in _grouped(files)]
    [first] = read_files(location.client, files[:1]).values()
    ship(session)
    schema = StructType.fromJson(json.loads(parquet.read_schema(pa.BufferReader(first)).metadata[_SCHEMA]))
    numbers = session.range(0, len(tasks), 1, len(tasks))
    filled = frozenset(field.name for field in schema if not field.nullable)
    task = QuickTask(partial(_read, location, tasks, filled))
    return without_counts(numbers.mapInArrow(task, counted(schema)), schema)


def _written(
    location: GridLocation, directory: str, schema: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a task: writes its rows as one file."""
    sink, writer, count = pa.BufferOutputStream(), None, 0
    for batch in batches:
        if batch.num_rows:
            count += batch.num_rows
            # Arrow has fewer types than Spark.
            kinds = nullable(batch.schema).with_metadata({_SCHEMA: schema})
            writer = writer or parquet.ParquetWriter(sink, kinds, compression="lz4")
            writer.write_table(pa.Table.from_batches([batch]).cast(kinds))
    if writer is None:
        return
    writer.close()
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - in a task there is one
    name = f"{directory}/part-{context.partitionId():05d}-{uuid.uuid4().hex}.parquet"
    [held] = write_files(location.client, {name: sink.getvalue()})
    yield pa.record_batch({"held": pa.array([msgspec.msgpack.encode(held)], pa.binary()), "count": pa.array([count])})


def _read(
    location: GridLocation, tasks: Sequence[bytes], filled: AbstractSet[str], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs in a task: reads the rows of its files, and says again which columns have no nulls."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            files = msgspec.msgpack.decode(tasks[number], type=known(list[Held]))
            contents = read_files(location.client, files)
            for held in files:
                for rows in parquet.ParquetFile(pa.BufferReader(contents[held.name])).iter_batches():
                    # Under some settings Spark compares them with what it was told, nulls included.
                    fields = [field.with_nullable(field.name not in filled) for field in rows.schema]
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields))


def _grouped(files: Sequence[Held]) -> Iterator[list[Held]]:
    """Files in order, in groups for tasks."""
    group: list[Held] = []
    for held in files:
        if group and sum(each.rows for each in group) + held.rows > _TASK_BYTES:
            yield group
            group = []
        group.append(held)
    yield group


_PUT = ".put"
"""Directory of the contents of files that were put: each is an entry, named in the slot of its file."""


class Unverified:
    """Files of a home written since the last slot, to be verified on all replicas before the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, Held] = {}

    def add(self, files: Iterable[Held]) -> None:
        """Note files that this process or its tasks have written."""
        with self._lock:
            self._files.update((each.name, each) for each in files)

    def drop(self, names: Iterable[str]) -> None:
        """Forget files that were verified or removed, and all below them."""
        gone = set(names)
        with self._lock:
            for each in list(self._files):
                # Its own name, and those of all directories that contain it.
                if not gone.isdisjoint(accumulate(each.split("/"), "{}/{}".format)):
                    del self._files[each]

    def listed(self) -> list[Held]:
        """The files."""
        with self._lock:
            return list(self._files.values())


class GridDirectory:
    """A :class:`~sparkjet.storage.directory.Directory` in a grid.

    Files are entries of its data plane, under their full names. A file that is *put* is decided by a slot of the
    control plane. Before a slot is written, every replica is asked for everything that this process has written since
    the last one: whatever a record names is on as many members as it should be.

    Args:
        location: The grid.
        name: The directory's full name.
        unverified: The unverified files of the home that the directory belongs to.
    """

    def __init__(self, location: GridLocation, name: str, unverified: Unverified | None = None) -> None:
        self.location = location
        self._name = name
        self.unverified = unverified or Unverified()

    def __str__(self) -> str:
        return self.uri()

    def __repr__(self) -> str:
        return f"GridDirectory({self.uri()!r})"

    @property
    def path(self) -> Path | None:
        """See :meth:`Directory.path`."""
        return None

    def uri(self, name: str = "") -> str:
        """See :meth:`Directory.uri`; for messages, as Spark's readers and writers do not accept it."""
        return f"{self.location}/{self.full(name)}"

    def resolved(self) -> str:
        """See :meth:`Directory.resolved`: by the grid's id, as other members may be named."""
        return f"grid://{self.location.client.state().cluster}/{self._name}"

    def full(self, name: str = "") -> str:
        """The full name of a file or directory in this one."""
        return f"{self._name}/{name}" if name else self._name

    def below(self, name: str) -> GridDirectory:
        """See :meth:`Directory.below`."""
        return GridDirectory(self.location, self.full(name), self.unverified)

    def check(self, option: str, *, create: bool = True) -> None:
        """See :meth:`Directory.check`: a grid's slots have one winner, but enough of the grid must be there."""
        del create  # there are no directories
        way_out = ", or go on from a copy in a new grid: python -m sparkjet snapshots copy"
        check_whole(self.location.client, option, self, way_out)

    def standing(self) -> dict[str, Any]:
        """The state of the grid: its members, and what they hold."""
        return described(self.location.client.status())

    def create(self) -> None:
        """See :meth:`Directory.create`: there is nothing to create."""

    def put(self, name: str, content: bytes) -> bool:
        """See :meth:`Directory.put`."""
        client, path = self.location.client, self.full(name)
        parent, _, last = path.rpartition("/")
        [held] = write_files(client, {f"{parent}/{_PUT}/{last}.{uuid.uuid4().hex}": content})
        others = self.unverified.listed()
        if not client.put_slot(path, msgspec.msgpack.encode(held), [*others, held]):
            client.remove([held.key])
            return False
        self.unverified.drop(each.name for each in others)
        return True

    def write(self, name: str, content: bytes) -> None:
        """See :meth:`Directory.write`."""
        self.unverified.add(write_files(self.location.client, {self.full(name): content}))

    def read(self, name: str) -> bytes:
        """See :meth:`Directory.read`."""
        held = self._held(name)
        return read_files(self.location.client, [held])[held.name]

    def open(self, name: str) -> BinaryIO:
        """See :meth:`Directory.open`: a copy in memory."""
        return io.BytesIO(self.read(name))

    def checksum(self, name: str) -> int:
        """See :meth:`Directory.checksum`."""
        return zlib.crc32(self.read(name))

    def exists(self, name: str = "") -> bool:
        """See :meth:`Directory.exists`: a directory without files is missing."""
        path = self.full(name)
        return bool(self._slot(path) or self._written(name) or self.location.client.slots(path))

    def names(self) -> list[str]:
        """See :meth:`Directory.names`."""
        firsts = (each.partition("/")[0] for each in self._relative([*self._written(), *self._slots()]))
        return sorted({each for each in firsts if each != _PUT})

    def files(self) -> dict[str, int]:
        """See :meth:`Directory.files`."""
        slots = {each: self._slot(each) for each in self._slots()}
        sizes = {name: held.rows for name, held in self._written().items() if f"/{_PUT}/" not in name}
        sizes.update((name, held.rows) for name, held in slots.items() if held is not None)
        return {name.removeprefix(f"{self._name}/"): size for name, size in sizes.items()}

    def rename(self, source: str, target: str) -> None:
        """See :meth:`Directory.rename`: a copy, which a later call after a crash finds done."""
        content = self.read(source)
        self.write(target, content)
        self.remove_files([source])

    def sync(self, names: Iterable[str], *, contents: bool = True) -> None:
        """See :meth:`Directory.sync`: what was written is on all replicas."""

    def remove(self, name: str = "") -> None:
        """See :meth:`Directory.remove`."""
        path = self.full(name)
        self._remove([path, *self.location.client.slots(path)])
        self.location.client.remove(prefix=f"{path}/")

    def remove_files(self, names: Iterable[str]) -> None:
        """See :meth:`Directory.remove_files`."""
        self._remove([self.full(name) for name in names])

    def sweep(self) -> None:
        """See :meth:`Directory.sweep`: removes contents whose slot another file has won."""
        client = self.location.client
        for held in client.entries(f"{self._name}/{_PUT}/"):
            name = held.name.removeprefix(f"{self._name}/{_PUT}/").rpartition(".")[0]
            winner = self._slot(self.full(name))
            # Without a winner, a driver may be about to put it.
            if winner is not None and winner.name != held.name:
                client.remove([held.key])

    @property
    def identity(self) -> str:
        """See :meth:`Losable.identity`: without the members, as others may be named after the loss of all."""
        return self._name

    @property
    def packages(self) -> Mapping[str, str]:
        """See :meth:`HoldsRows.packages`."""
        return GRID_PACKAGES

    def write_rows(self, rows: DataFrame) -> dict[str, tuple[int, int]]:
        """See :meth:`HoldsRows.write_rows`."""
        files = write_rows(rows, self.location, self.full())
        self.unverified.add([held for held, _ in files])
        # The rows of a file in the grid are its bytes.
        return {name: (count, held.rows) for held, count in files for name in self._relative([held.name])}

    def read_rows(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        """See :meth:`HoldsRows.read_rows`."""
        there = self._written()
        for name in names:
            if self.full(name) not in there:
                raise FileNotFoundError(errno.ENOENT, "no such file", self.uri(name))
        return read_rows(session, self.location, [there[self.full(name)] for name in names])

    def _remove(self, paths: Sequence[str]) -> None:
        """Remove files by their full names, put or written."""
        client = self.location.client
        decided, contents = [], []
        for path in paths:
            slot = self._slot(path)
            if slot is not None:
                decided.append(path)
                contents.append(slot.key)
        # First: whoever finds a slot must find its content.
        client.remove_slots(decided)
        client.remove([*contents, *map(client.key, paths)])
        self.unverified.drop(paths)

    def _held(self, name: str) -> Held:
        path = self.full(name)
        held = self._slot(path) or self._written(name).get(path)
        if held is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", self.uri(name))
        return held

    def _slot(self, path: str) -> Held | None:
        token = self.location.client.slot(path)
        return None if token is None else msgspec.msgpack.decode(token, type=known(Held))

    def _slots(self) -> list[str]:
        return self.location.client.slots(self._name)

    def _written(self, name: str = "") -> dict[str, Held]:
        path = self.full(name)
        found = self.location.client.entries(path)
        return {each.name: each for each in found if each.name == path or each.name.startswith(f"{path}/")}

    def _relative(self, names: Iterable[str]) -> Iterable[str]:
        return (each.removeprefix(f"{self._name}/") for each in names if each != self._name)
