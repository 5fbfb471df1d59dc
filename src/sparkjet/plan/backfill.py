"""Backfills: a table whose rows come before those of a stream, as one input, and the seam between the two."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, LongType, MapType, StringType, TimestampType

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.logical_plans import analyzed, attributes, children, same_name, streaming_nodes
from sparkjet.catalyst.moments import Moment
from sparkjet.catalyst.physical_plans import as_frame, exchanged_nodes, no_rows
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.known_types import known
from sparkjet.plan.written import Committed, Written, last_offsets, partitions, substream_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

ROWS = 1_000_000
"""Approximate number of rows in a bucket, unless its length is given."""
MOST_BUCKETS = 100_000
_OF_A_MAP = 8
"""Number of substreams per map, in which Spark searches entry by entry."""


class Seam(msgspec.Struct, frozen=True):
    """Where history ends and the stream begins, and the epochs in which history is read; the same in every run.

    Attributes:
        offsets: The last offset of history in each substream; None if the seam is a time.
        time: The first event time of the stream, in microseconds; None if the seam is given by offsets.
        bounds: Event times at which a bucket of history ends and the next begins, in microseconds; ascending.
        cut: The columns of the substream and of the offset; empty if the cut is by time, None if not recorded.
        event_time: The column of the event time; None if not recorded.
        version: Version of the table, if its commits give the offsets; otherwise empty.
    """

    offsets: dict[str, int] | None
    time: int | None
    bounds: list[int]
    cut: list[str] | None = None
    event_time: str | None = None
    version: str = ""

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return len(self.bounds) + 1

    def encode(self) -> bytes:
        """The seam as JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(content: bytes, where: str) -> Seam:
        """The seam that a record names.

        Raises:
            RecoveryError: It cannot be read.
        """
        try:
            return _SEAM.decode(content)
        except msgspec.MsgspecError as error:
            message = f"backfill: {where} is not a seam: {error}. Restore the file, or start from scratch."
            raise RecoveryError(message) from error


_SEAM = msgspec.json.Decoder(known(Seam))


@dataclass(frozen=True, eq=False)
class Backfill:
    """The arguments of :func:`sparkjet.backfill`.

    Attributes:
        table: The table: a DataFrame with the columns of the stream, or one whose commits give the offsets, of which a
            start determines the version that is read.
        columns: The columns of the stream, with their types.
        event_time: The column of its event time.
        substream: The columns that identify the substream of a row, if the cut is by offsets.
        offset: The column of a row's offset in its substream; None if the cut is by time.
        cut: The event time at which the stream begins, in microseconds; None if the cut is by offsets.
        bucket: Length of a bucket in microseconds; None for buckets of about :data:`ROWS` rows.
        absent: The columns of ``substream`` and ``offset`` that the table does not have.
    """

    table: DataFrame | Written
    columns: Mapping[str, DataType]
    event_time: str
    substream: tuple[str, ...] = ()
    offset: str | None = None
    cut: int | None = None
    bucket: int | None = None
    absent: Sequence[str] = ()

    @property
    def history(self) -> DataFrame:
        """The rows of the table, of which the version is known."""
        assert not isinstance(self.table, Written)  # noqa: S101 - at() comes first
        return self.table

    def at(self, version: str) -> Backfill:
        """The same backfill, with a table whose commits give the offsets as it was at a version.

        Columns of ``substream`` and ``offset`` that such a table does not have are null in its rows.

        Raises:
            AnalysisError: Another column is missing, or has another type.
            RecoveryError: The version is there no more.
        """
        if not isinstance(self.table, Written):
            return self
        rows = self.table.at(version)
        absent = [name for name in self._names if not attributes(rows, name)]
        rows = rows.withColumns({name: F.lit(None).cast(self.columns[name]) for name in absent})
        check_columns(rows, self.columns)
        return replace(self, table=rows, absent=absent)

    def seam_of_commits(self, committed: Committed, begins: Mapping[str, int]) -> Seam:
        """The seam of a new query over a table, at this version, whose commits give the offsets.

        Raises:
            AnalysisError: The commits do not give the offsets.
        """
        offsets = last_offsets(committed, {name: self.columns[name] for name in self.substream}, begins)
        time = F.unix_micros(self._time)
        first, last, count = self.history.agg(F.min(time), F.max(time), F.count(F.lit(1))).collect()[0]
        bounds = [] if first is None else self._bounds(first, last, count)
        return Seam(offsets, None, bounds, self._names, self.event_time, committed.version)

    def seam(self) -> Seam:
        """The seam of a new query, found by one job over history.

        Raises:
            AnalysisError: History has no event time, or an offset is null.
        """
        history, time = self._all, F.unix_micros(self._time)
        extent = [F.min(time), F.max(time), F.count(F.lit(1))]
        if self.offset is None:
            found = [(None, None, 0, *history.agg(*extent).collect()[0])]
        else:
            offset = F.col(quoted(self.offset))
            lacking = F.count_if(offset.isNull() | self._key.isNull())
            rows = history.groupBy(self._key.alias("of")).agg(F.max(offset).alias("last"), lacking, *extent)
            found = [tuple(row) for row in rows.collect()]
            if sum(row[2] for row in found):
                message = (
                    f"cut: {sum(row[2] for row in found)} rows of the history have no offset in {self.offset!r}, or no "
                    f"substream in {', '.join(self.substream)}: it is unknown whether the stream has them. Fill "
                    "them in, leave these rows out, or cut by a time."
                )
                raise AnalysisError(message)
        times = [(row[3], row[4]) for row in found if row[3] is not None]
        offsets = None if self.offset is None else {row[0]: row[1] for row in found}
        count = sum(row[5] for row in found)
        if count and not times:
            raise AnalysisError(f"eventTime: no row of the history has one in {self.event_time!r}.")
        first, last = (min(t[0] for t in times), max(t[1] for t in times)) if times else (0, 0)
        return Seam(offsets, self.cut, self._bounds(first, last, count), self._names, self.event_time)

    def check(self, seam: Seam, *, is_read: bool) -> None:
        """Refuse to continue at a seam that was found by other columns, which have other values, or in another way.

        Raises:
            RecoveryError: The seam was found by other columns, or by commits, and the history is none that has any.
        """
        by_commits = isinstance(self.table, Written)
        if not is_read and by_commits != bool(seam.version):
            # Rows of a version are not told by a filter, and those of other tables not without one.
            given, begun = ("sj.written(…)", "a DataFrame") if by_commits else ("a DataFrame", "sj.written(…)")
            message = (
                f"backfill: history is {given}, and it was {begun} when the query began: rows would be doubled or "
                f"lost. Give it {begun} as before, or start from scratch with another checkpointLocation."
            )
            raise RecoveryError(message)
        found = [(seam.cut, self._names, "cut")]
        if seam.cut is None:
            found = [(["offsets"] * (seam.offsets is not None), ["offsets"] * (self.offset is not None), "cut")]
        if seam.event_time is not None and not (is_read and self.offset is not None):
            found.append(([seam.event_time], [self.event_time], "eventTime"))
        for before, now, argument in found:
            if before != now:
                names = [", ".join(each or ()) or "a time" for each in (before, now)]
                message = (
                    f"backfill: {argument} is by {names[1]}, and where the history ends was found by {names[0]} when "
                    f"the query began: rows would be doubled or lost. Give it {argument} as before, or start from "
                    "scratch with another checkpointLocation."
                )
                raise RecoveryError(message)

    def _bounds(self, first: int, last: int, count: int) -> list[int]:
        if self.bucket is None:
            buckets = min(-(-count // ROWS), MOST_BUCKETS, last - first + 1) or 1
            if buckets == 1:
                return []
            # By rank: with buckets of equal length, a single row of 1970 would leave all others to the last bucket.
            ranks = [number / buckets for number in range(1, buckets)]
            times = F.percentile_approx(F.unix_micros(self._time), ranks, max(10_000, 20 * buckets))
            return sorted({*self._all.agg(times).collect()[0][0]} - {first})
        bounds = range(first - first % self.bucket + self.bucket, last + 1, self.bucket)
        if len(bounds) >= MOST_BUCKETS:
            message = (
                f"bucket: the history would be read in {len(bounds) + 1} epochs, and {MOST_BUCKETS} are the most. Give "
                "a longer one, or leave it out."
            )
            raise AnalysisError(message)
        return list(bounds)

    def live(self, rows: DataFrame, seam: Seam) -> DataFrame:
        """The rows of the stream that history does not have."""
        return rows.where(~F.coalesce(self._before(seam), F.lit(False)))

    def of_bucket(self, seam: Seam, number: int) -> DataFrame:
        """The rows of history in a bucket, counted from 0; those without an event time are in the first."""
        time, bounds = self._time, seam.bounds
        # The column itself, compared with a literal, before all other conditions: a table can skip what it knows to be
        # outside.
        rows = self.history
        if number == 0 and bounds:
            rows = rows.where((time < _time_of(bounds[0])) | time.isNull())
        elif number > 0:
            rows = rows.where(time >= _time_of(bounds[number - 1]))
            rows = rows.where(time < _time_of(bounds[number])) if number < len(bounds) else rows
        # A version of a table has only the rows that its commits describe.
        return rows if seam.version else rows.where(self._before(seam))

    def _before(self, seam: Seam) -> Column:
        """Whether history has a row; null if the row does not tell."""
        if seam.offsets is None or self.offset is None:
            assert seam.time is not None  # noqa: S101 - as one of both says where the seam is
            return self._time < _time_of(seam.time)
        if not seam.offsets:
            return F.lit(False)
        return F.col(quoted(self.offset)) <= _looked_up(seam.offsets, self._key)

    @property
    def _all(self) -> DataFrame:
        """The rows of history, when the seam is not known yet."""
        return self.history if self.cut is None else self.history.where(self._time < _time_of(self.cut))

    @property
    def _names(self) -> list[str]:
        return [] if self.offset is None else [*self.substream, self.offset]

    @property
    def _time(self) -> Column:
        return F.col(quoted(self.event_time))

    @property
    def _key(self) -> Column:
        """The substream of a row, as the parts of its name between slashes; null if one of them is null."""
        parts = []
        for name in self.substream:
            column = F.col(quoted(name))
            # The text of a timestamp differs between time zones, and occurs twice when clocks go back.
            kind = self.columns[name]
            text = F.unix_micros(column).cast("string") if isinstance(kind, TimestampType) else column.cast("string")
            if isinstance(kind, BinaryType):
                # Bytes that are no text become the same one on their way to Python.
                text = F.hex(column)
            # "a/b" and "c" must differ from "a" and "b/c".
            for letter in ("\\", "/"):
                text = F.replace(text, F.lit(letter), F.lit(f"\\{letter}"))
            parts += [text, F.lit("/")]
        return F.concat(*parts) if parts else F.lit("")


def check_columns(history: DataFrame, columns: Mapping[str, DataType]) -> None:
    """Refuse a table that does not have the columns of the stream.

    Raises:
        AnalysisError: A column is missing, or has another type.
    """
    for name, kind in columns.items():
        named = [field.dataType for field in history.schema if same_name(history, field.name, name)]
        if len(named) != 1:
            message = (
                f"backfill: the history has {'several columns' if named else 'no column'} {name!r}, which the stream "
                "has. Select the same columns of both."
            )
            raise AnalysisError(message)
        found = named[0].simpleString()
        if found != kind.simpleString():
            message = (
                f"backfill: the column {name!r} is of type {found} in the history, and {kind.simpleString()} in the "
                "stream. Cast it in one of them."
            )
            raise AnalysisError(message)


def _time_of(micros: int) -> Column:
    return F.timestamp_micros(F.lit(micros))


def _looked_up(offsets: Mapping[str, int], key: Column) -> Column:
    """The last offset of a substream, null for a substream that history does not have.

    Spark searches a map from its first entry, for each row; so there are many maps, each with the keys of one checksum.
    They are one literal, as planning an expression for each entry would take minutes for some ten thousand entries.
    """
    maps: list[dict[str, int]] = [{} for _ in range(-(-len(offsets) // _OF_A_MAP))]
    for name, last in offsets.items():
        maps[zlib.crc32(name.encode()) % len(maps)][name] = last
    kind = ArrayType(MapType(StringType(), LongType()))
    literal = F.from_json(F.lit(json.dumps(maps)), kind, {"mode": "FAILFAST"})
    number = (F.crc32(key.cast("binary")) % F.lit(len(maps))).cast("int")
    return F.try_element_at(F.get(literal, number), key)


def gaps(offsets: Mapping[str, int], first: Iterable[str]) -> list[tuple[str, int, int]]:
    """The substreams with rows in neither input, with the last offset of history and the first of the stream.

    Args:
        offsets: The last offset of history, by substream.
        first: Where the stream begins, as reported by its sources: offsets by topic and partition, or by partition.
            Other sources report nothing.

    >>> gaps({"a/0/": 9, "a/1/": 9, "a/2/": 9}, ['{"a": {"0": 10, "1": 12, "2": 0}}'])
    [('a/1', 9, 12)]
    >>> gaps({"0/": 9}, ['{"0": 11}']), gaps({"0/": 9}, ['{"files": []}', "7"])
    ([('0', 9, 11)], [])
    >>> gaps({"0/": 9}, ['{"source": "grid-journal", "offsets": {"0": 11}, "watermarks": {}}'])
    [('0', 9, 11)]
    """
    begins = begins_of(first)
    pairs = ((name, last, begins.get(name, last)) for name, last in sorted(offsets.items()))
    return [(name.rstrip("/"), last, at) for name, last, at in pairs if at > last + 1]


def begins_of(first: Iterable[str]) -> dict[str, int]:
    """The first offset of each substream of a stream, as far as its sources report it."""
    begins: dict[str, int] = {}
    for text in first:
        found = {parts: at for parts, at in partitions(text).items() if parts and type(at) is int}
        begins |= {substream_name(parts): at for parts, at in found.items()}
        if len({parts[:-1] for parts in found}) == 1:
            # The substream may leave out the topic, if there is only one.
            begins |= {substream_name(parts[-1:]): at for parts, at in found.items()}
    return begins


_BACKFILLS: WeakKeyDictionary[DataFrame, Backfill] = WeakKeyDictionary()
"""Backfills by the DataFrame of the stream: DataFrames derived from it keep it alive, and have it in their plans."""


def noted(live: DataFrame, backfill: Backfill) -> DataFrame:
    """The rows of a stream; only queries of these rows, and no others of that stream, begin with the backfill."""
    # The condition is true, and gives a plan that no other DataFrame has.
    marked = live.where(F.lit(f"backfill {uuid.uuid4()}").isNotNull())
    _BACKFILLS[marked] = backfill
    return marked


@dataclass(frozen=True, eq=False)
class Backfilled:
    """A backfill in the rows of a query.

    Attributes:
        backfill: The backfill.
        rows: The DataFrame that Spark would run without it.
        stream: The rows of the stream in that DataFrame.
    """

    backfill: Backfill
    rows: DataFrame
    stream: DataFrame

    def live(self, seam: Seam) -> DataFrame:
        """The DataFrame that Spark runs: without the rows that history has."""
        return exchanged_nodes(self.rows, [(analyzed(self.stream), self.backfill.live(self.stream, seam))])

    def of_bucket(self, seam: Seam, number: int, epoch: str, now: int) -> DataFrame:
        """A batch of the rows of a bucket; other sources have no rows in it.

        Args:
            seam: The seam.
            number: Number of the bucket, from 0.
            epoch: Name of the epoch, which seeds random numbers.
            now: Its processing time, in microseconds.
        """
        stream = self.stream
        found = self.backfill.of_bucket(seam, number)
        rows = IdentifiedColumns([F.col(quoted(name)) for name in stream.columns], stream).select(found)
        plan = analyzed(stream)
        inside = [*streaming_nodes(plan)]
        session = stream.sparkSession
        nothing = [(leaf, as_frame(session, no_rows(session, leaf.output()))) for leaf in self._others(inside)]
        return Moment(epoch, now).of(exchanged_nodes(self.rows, [(plan, rows), *nothing]), "sources")

    def _others(self, inside: Sequence[Any]) -> list[Any]:
        """The streaming sources other than the stream."""
        leaves = [node for node in streaming_nodes(analyzed(self.rows)) if not children(node)]
        return [leaf for leaf in leaves if not any(leaf.equals(node) for node in inside)]


def backfilled(rows: DataFrame) -> Backfilled | None:
    """The backfill in some streaming rows.

    Raises:
        AnalysisError: There are several.
    """
    known = [(analyzed(stream), stream, each) for stream, each in list(_BACKFILLS.items())]
    # Only if there is one: otherwise each start, and each union, would search its plan.
    nodes = [*streaming_nodes(analyzed(rows))] if known else []
    found = [Backfilled(each, rows, stream) for plan, stream, each in known if any(map(plan.equals, nodes))]
    if len(found) > 1:
        message = (
            "backfill: the query reads two streams with a history. Give one of them its history by a union: "
            "sj.backfill(history, live) of both."
        )
        raise AnalysisError(message)
    return found[0] if found else None
