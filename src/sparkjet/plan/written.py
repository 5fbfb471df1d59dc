"""Tables that a sparkjet query writes, as histories: their commits say which rows of the stream they have."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from sparkjet.catalyst.columns import quoted
from sparkjet.connectors.iceberg.heard import TOLD
from sparkjet.errors import AnalysisError, RecoveryError, nearest
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.read_files import read_epochs
from sparkjet.sources.carrying import CarryingOffset
from sparkjet.storage.schemes import directory_at
from sparkjet.tools.completeness import Snapshot, rolled_back, told_by_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from sparkjet.storage.directory import Directory

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")
_FAILURES = (PySparkException, Py4JJavaError)


class Committed(NamedTuple):
    """A version of a table: how to read it again, and where its writer's batch has ended in its sources, as JSON."""

    version: str
    offsets: Mapping[str, str]


@dataclass(frozen=True)
class Written(ABC):
    """A table that one sparkjet query writes, row by row, from the stream that follows it.

    Attributes:
        session: The session that reads it.
        place: Its directory or its name.
    """

    session: SparkSession
    place: str

    def newest(self) -> Committed:
        """The table as it is now.

        Raises:
            AnalysisError: There is no table, no query has written there, or not a single one.
        """
        try:
            return self._newest()
        except _FAILURES as error:
            message = f"history: {self.place} cannot be looked up as a table of this format: {str(error).strip()}"
            raise AnalysisError(message) from error

    @abstractmethod
    def _newest(self) -> Committed: ...

    @abstractmethod
    def at(self, version: str) -> DataFrame:
        """The rows of a version, whatever was written since.

        Raises:
            RecoveryError: It can no longer be read, or the table was recreated.
        """

    def _gone(self, version: str, why: object) -> RecoveryError:
        return RecoveryError(
            f"history: version {version} of {self.place}, with which the query has begun, can no longer be read: "
            f"{why}. Restore the table, or start from scratch with another checkpointLocation."
        )

    def _of(self, version: str, told: Iterable[Mapping[str, Any]], others: Iterable[str] = ()) -> Committed:
        """The version, with what its commits say, newest first."""
        found = [dict(each) for each in told]
        writers = sorted({*others, *(f"{each['query']}/{each['output']}" for each in found)})
        if len(writers) > 1:
            message = (
                f"history: {self.place} has rows of several writers ({', '.join(writers)}), so its commits do not say "
                "which rows of the stream it has. Read it with spark.read, and cut by columns of offsets or by a time."
            )
            raise AnalysisError(message)
        offsets = next((each["offsets"] for each in found if each.get("offsets")), None)
        if offsets is None:
            message = (
                f"history: no commit of {self.place} says up to which offsets its query has read, as those of "
                "sparkjet's sinks do. Cut by a time."
            )
            raise AnalysisError(message)
        return Committed(version, offsets)


class WrittenFiles(Written):
    """A directory of ``format("files")``; a version is an epoch of an output, and the last one that had expired."""

    def _newest(self) -> Committed:
        told, version = [], ""
        for manifest in self._manifests():
            own = {"query": manifest.query, "output": manifest.sink}
            entries = manifest.entries()
            told += [{**(entry.progress or {}), **own} for entry in reversed(entries)]
            version = ":".join(
                (manifest.query, manifest.sink, str(manifest.floor), str(max([0, *(e.epoch for e in entries)])))
            )
        return self._of(version, told)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        query, output, floor, epoch = version.rsplit(":", 3)
        own = [each for each in self._manifests() if (each.query, each.sink) == (query, output)]
        if not own:
            raise self._gone(version, f"{query}/{output} has written nothing there")
        # An expiry of epoch 0 says that none has expired.
        if own[0].floor > max(0, int(floor)):
            raise self._gone(version, f"the option retention has removed its epochs up to {own[0].floor}")
        return read_epochs(self.session, self._directory, of=(query, output), until=int(epoch))

    def _manifests(self) -> list[Manifest]:
        return Manifest.all_of(self._directory)

    @property
    def _directory(self) -> Directory:
        return directory_at(self.place, "history", lambda: self.session)


class WrittenDelta(Written):
    """A Delta table, read by its Spark connector; a version is one of its log, with the table's id."""

    def _newest(self) -> Committed:
        history = _rows(self.session.sql(f"DESCRIBE HISTORY {self._name}"))
        told, others = told_by_delta(history)
        return self._of(f"{self._id}:{max(each['version'] for each in history)}", told, others)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        of, _, number = version.rpartition(":")
        try:
            found = self._id
            rows = _as_of(self.session, self._name, number)
        except _FAILURES as error:
            raise self._gone(version, error) from error
        # Versions are numbered from 0 in each table.
        if found != of:
            raise self._gone(version, f"the table was recreated, and its id is {found}")
        return rows

    @property
    def _id(self) -> str:
        return str(_rows(self.session.sql(f"DESCRIBE DETAIL {self._name}"))[0]["id"])

    @property
    def _name(self) -> str:
        if "/" not in self.place or self.place.startswith("`"):
            return self.place
        # Spark has no working directory to find one in.
        path = self.place if _SCHEME.match(self.place) else str(Path(self.place).absolute())
        return f"delta.{quoted(path)}"


class WrittenIceberg(Written):
    """An Iceberg table, read by its Spark connector; a version is a snapshot."""

    def _newest(self) -> Committed:
        snapshots = {each["snapshot_id"]: each for each in _rows(self.session.table(f"{self.place}.snapshots"))}
        named = _rows(self.session.table(f"{self.place}.refs").where(F.col("name") == "main"))
        current = version = named[0]["snapshot_id"] if named else None
        told, others = [], []
        known = [
            Snapshot(number, each["parent_id"], each["committed_at"], _told(each)) for number, each in snapshots.items()
        ]
        lost = rolled_back(known, version)
        while current in snapshots:
            each = snapshots[current]
            summary, ours = each["summary"] or {}, _told(each)
            if ours is not None:
                told.append(ours)
            elif each["operation"] != "replace":
                others.append(f"{each['operation']} by {summary.get('engine-name', 'an unknown engine')}")
            current = each["parent_id"]
        missing = sorted(each["epoch"] for each in lost if told and each["epoch"] < told[0]["epoch"])
        if missing:
            message = (
                f"history: {self.place} was rolled back, and its query has gone on: the rows of epoch {missing[0]} are "
                "missing, which its offsets count. Read it with spark.read, and cut by columns of offsets or by a time."
            )
            raise AnalysisError(message)
        return self._of(str(version), told, others)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        try:
            return _as_of(self.session, self.place, version)
        except _FAILURES as error:
            raise self._gone(version, error) from error


def _told(snapshot: Mapping[str, Any]) -> dict[str, Any] | None:
    text = (snapshot["summary"] or {}).get(TOLD)
    return None if text is None else dict(json.loads(text))


_FORMATS: Mapping[str, type[Written]] = {"files": WrittenFiles, "delta": WrittenDelta, "iceberg": WrittenIceberg}


def written_in(session: SparkSession, kind: str, place: str) -> Written:
    """A table by its format.

    Raises:
        AnalysisError: There is no such format.
    """
    if kind not in _FORMATS:
        message = f"written: there is no format {kind!r} whose commits say what they hold; {nearest(kind, _FORMATS)}"
        raise AnalysisError(message)
    return _FORMATS[kind](session, place)


def _as_of(session: SparkSession, table: str, version: str) -> DataFrame:
    return session.sql(f"SELECT * FROM {table} VERSION AS OF {int(version)}")  # noqa: S608 - as the user names it


def _rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in found.collect()]


def partitions(offset: str) -> dict[tuple[str, ...], Any]:
    """The positions of a source by the parts of its partitions' names, of an offset as Spark's log has it.

    >>> partitions('{"clicks": {"0": 17}}')
    {('clicks', '0'): 17}
    >>> partitions('{"source": "grid-journal", "offsets": {"0": 17}, "watermarks": {"0": 3}}'), partitions("7")
    ({('0',): 17}, {(): 7})
    """
    found = json.loads(offset)
    carrying = CarryingOffset.found_in(found)
    positions: dict[tuple[str, ...], Any] = {}

    def take(value: Any, *parts: str) -> None:
        if not isinstance(value, dict):
            positions[parts] = value
            return
        for part, each in value.items():
            take(each, *parts, part)

    take(found if carrying is None else carrying.offsets)
    return positions


def substream_name(parts: Iterable[str]) -> str:
    """The name of a substream, as a seam has it: "a/b" and "c" differ from "a" and "b/c".

    >>> substream_name(["clicks", "0"])
    'clicks/0/'
    """
    return "".join(part.replace("\\", "\\\\").replace("/", "\\/") + "/" for part in parts)


def last_offsets(committed: Committed, columns: Mapping[str, DataType], begins: Mapping[str, int]) -> dict[str, int]:
    """The last offset of each substream in a table, according to its commit.

    Args:
        committed: The version.
        columns: The columns that name a substream, such as topic and partition, with their types.
        begins: Where the stream begins, by substream.

    Raises:
        AnalysisError: The offsets are not of the substreams that these columns name, or not of this stream.

    >>> from pyspark.sql.types import IntegerType
    >>> columns = {"partition": IntegerType()}
    >>> last_offsets(Committed("7", {"0": '{"clicks": {"0": 17, "1": 0}}'}), columns, {"0/": 0, "1/": 0})
    {'0/': 16, '1/': -1}
    """
    if len(committed.offsets) > 1:
        message = f"history: its query reads {len(committed.offsets)} sources, and which rows are from which is unknown"
        raise AnalysisError(message)
    (text,) = committed.offsets.values()
    found: dict[str, int] = {}
    for path, value in partitions(text).items():
        parts = path[-len(columns) :]
        name = substream_name(parts)
        # Names that no row of the stream has would let all of history come again: fewer parts than columns, or those
        # of a topic for a number.
        fits = len(parts) == len(columns) and all(map(_can_be, columns.values(), parts))
        # Two topics whose partitions have the same names; or files, which have no offsets by substream.
        if not fits or name in found or name not in begins or type(value) is not int:
            known = ", ".join(sorted(each.rstrip("/") for each in begins)) or "none that it tells"
            message = (
                f"history: its query has read {'/'.join(path)!r} up to {value!r}, and the substreams of the stream by "
                f"{', '.join(columns)} are {known}. Give the stream that the table was written from, and in cut the "
                "columns that name a substream, in the order of its name."
            )
            raise AnalysisError(message)
        found[name] = value - 1
    return found


def _can_be(kind: DataType, part: str) -> bool:
    """Whether a column has that text: other types have other spellings, such as 0.0 or false."""
    return isinstance(kind, StringType) or (isinstance(kind, IntegralType) and part.removeprefix("-").isdecimal())
