"""Tables that a sparkjet query writes, as histories: their commits say which rows of the stream they have."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from sparkjet.errors import AnalysisError, nearest
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.read_files import read_epochs
from sparkjet.sources.carrying import CarryingOffset, leaves
from sparkjet.storage.schemes import directory_at
from sparkjet.tools.completeness import told_by_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOLD = "sparkjet"
"""Key of the description in the summary of an Iceberg snapshot."""


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

    @abstractmethod
    def newest(self) -> Committed:
        """The table as it is now.

        Raises:
            AnalysisError: No query has written there, or not a single one.
        """

    @abstractmethod
    def at(self, version: str) -> DataFrame:
        """The rows of a version."""

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
                f"history: no commit of {self.place} says up to which offsets its query has read. It is none of "
                "sparkjet's, or of an earlier version: let the query write once more with this one, or cut by a time."
            )
            raise AnalysisError(message)
        return Committed(version, offsets)


class WrittenFiles(Written):
    """A directory of ``format("files")``; a version is an epoch."""

    def newest(self) -> Committed:
        """See :meth:`Written.newest`."""
        told, last = [], 0
        for manifest in Manifest.all_of(directory_at(self.place, "history", lambda: self.session)):
            own = {"query": manifest.query, "output": manifest.sink}
            entries = manifest.entries()
            told += [{**(entry.progress or {}), **own} for entry in reversed(entries)]
            last = max([last, *(entry.epoch for entry in entries)])
        return self._of(str(last), told)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        return read_epochs(self.session, directory_at(self.place, "history", lambda: self.session), until=int(version))


class WrittenDelta(Written):
    """A Delta table, read by its Spark connector; a version is one of its log."""

    def newest(self) -> Committed:
        """See :meth:`Written.newest`."""
        history = _rows(self.session.sql(f"DESCRIBE HISTORY {self._name}"))
        told, others = told_by_delta(history)
        return self._of(str(max(each["version"] for each in history)), told, others)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        return _as_of(self.session, self._name, version)

    @property
    def _name(self) -> str:
        return f"delta.`{self.place}`" if "/" in self.place else self.place


class WrittenIceberg(Written):
    """An Iceberg table, read by its Spark connector; a version is a snapshot."""

    def newest(self) -> Committed:
        """See :meth:`Written.newest`."""
        snapshots = {each["snapshot_id"]: each for each in _rows(self.session.table(f"{self.place}.snapshots"))}
        named = _rows(self.session.table(f"{self.place}.refs").where(F.col("name") == "main"))
        current = version = named[0]["snapshot_id"] if named else None
        told, others = [], []
        while current in snapshots:
            each = snapshots[current]
            summary = each["summary"] or {}
            if _TOLD in summary:
                told.append(json.loads(summary[_TOLD]))
            elif each["operation"] != "replace":
                others.append(f"{each['operation']} by {summary.get('engine-name', 'an unknown engine')}")
            current = each["parent_id"]
        return self._of(str(version), told, others)

    def at(self, version: str) -> DataFrame:
        """See :meth:`Written.at`."""
        return _as_of(self.session, self.place, version)


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


def last_offsets(committed: Committed, columns: Sequence[str], begins: Mapping[str, int]) -> dict[str, int]:
    """The last offset of each substream in a table, according to its commit.

    Args:
        committed: The version.
        columns: The columns that name a substream, such as topic and partition.
        begins: Where the stream begins, by substream.

    Raises:
        AnalysisError: The offsets are not of the substreams that these columns name, or not of this stream.

    >>> last_offsets(Committed("7", {"0": '{"clicks": {"0": 17, "1": 0}}'}), ["partition"], {"0/": 0, "1/": 0})
    {'0/': 16, '1/': -1}
    """
    if len(committed.offsets) > 1:
        message = f"history: its query reads {len(committed.offsets)} sources, and which rows are of which is not told"
        raise AnalysisError(message)
    (text,) = committed.offsets.values()
    offset = json.loads(text)
    carrying = CarryingOffset.found_in(offset)
    found: dict[str, int] = {}
    for path, value in leaves(offset if carrying is None else carrying.offsets).items():
        name = "".join(f"{part}/" for part in path.split("/")[-len(columns) :])
        # Two topics whose partitions have the same names; or files, which have no offsets by substream.
        if name in found or name not in begins or type(value) is not int:
            known = ", ".join(sorted(each.rstrip("/") for each in begins)) or "none that it tells"
            message = (
                f"history: its query has read {path!r} up to {value!r}, and the substreams of the stream by "
                f"{', '.join(columns)} are {known}. Give the stream that the table was written from, and in cut the "
                "columns that name a substream."
            )
            raise AnalysisError(message)
        found[name] = value - 1
    return found
