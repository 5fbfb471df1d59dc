"""Backfills: a query that begins with a table and continues with a stream."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.types import AtomicType, IntegralType, TimestampType

from sparkjet.api.stream import Stream, stream
from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.logical_plans import analyzed, attributes, children, listed, name_in_source, passed_nodes
from sparkjet.catalyst.plan_analysis import check_source
from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan.backfill import Backfill, check_columns, noted
from sparkjet.plan.written import Written, written_in
from sparkjet.time import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.time.durations import Duration

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def written(format: str, place: str | Path) -> Written:
    """A table that a sparkjet query has written from the stream, row by row, as the history of a backfill.

    Its commits say up to which offsets the query has read: the table needs no offset columns, and the backfill reads
    the version that it finds at its first start, whatever is written later. The query may drop and change rows, but
    each row must come from a single row of the stream; and no other writer may write there.

    Args:
        format: ``files``; or ``delta`` or ``iceberg``, which are read by their Spark connectors.
        place: The directory, or the table's name.

    Raises:
        AnalysisError: There is no such format.
    """
    # A name without a slash may be a table's.
    return written_in(SparkSession.active(), format, str(place.absolute() if isinstance(place, Path) else place))


def backfill(
    history: DataFrame | Written,
    live: DataFrame,
    cut: Sequence[str] | dt.datetime,
    eventTime: str,
    *,
    bucket: Duration | None = None,
) -> Stream:
    """Start a query that reads a table, and then a stream from where the table ends: each row exactly once.

    History is read in the order of event time, bucket by bucket, each as an epoch with its record: a query that is
    killed continues with the next bucket. A substream is the same in history and in the stream, so the watermark
    continues across the seam, and no row of history is late. The first start determines where the table ends, and the
    query keeps this: rows that are added to the table later are read from the stream.

    Runs on the driver and only describes the query; call it in each run of the program, with the same arguments.

    Args:
        history: A batch DataFrame, such as a Delta, Iceberg or Parquet table, with the columns of the stream by name.
            Its rows up to the cut must not change until they are read. Or :func:`written`: a table whose commits give
            the offsets; columns of ``cut`` that it does not have are null in its rows. It is looked at when the query
            starts.
        live: A streaming DataFrame that begins at or before the end of the table, such as Kafka from ``earliest``. Rows
            that the table has are dropped from it.
        cut: Columns that both have: those that name a row's substream and, last, its offset there, as in ``("topic",
            "partition", "offset")``. The stream begins after the last offset of each substream. Or an event time as an
            aware ``datetime``: earlier rows are read from history, all others from the stream.
        eventTime: The timestamp column by which history is ordered.
        bucket: Event time of a bucket, which must fit into an epoch; by default, buckets have about a million rows.

    Raises:
        AnalysisError: A DataFrame is not of the right kind, a column is missing or has another type, or ``cut`` is
            neither. When the query starts: the stream begins after the cut, with the substream and the number of
            missing rows, as far as offsets tell; or history has rows without an offset, or its commits do not tell any.

    >>> import datetime as dt, tempfile
    >>> import sparkjet as sj
    >>> place = tempfile.mkdtemp()
    >>> rows = spark.sql("SELECT timestamp_seconds(id) AS ts, id FROM range(100)")
    >>> rows.where("id < 60").write.parquet(f"{place}/table")
    >>> rows.where("id >= 40").write.parquet(f"{place}/new")
    >>> history = spark.read.parquet(f"{place}/table")
    >>> live = spark.readStream.schema("ts timestamp, id long").parquet(f"{place}/new")
    >>> cut = dt.datetime(1970, 1, 1, 0, 0, 50, tzinfo=dt.timezone.utc)
    >>> counts = sj.backfill(history, live, cut, "ts").withWatermark("ts", "5 seconds").groupBy(
    ...     sj.window("ts", "30 seconds")).count()
    >>> writer = counts.writeStream.format("files").option("path", f"{place}/out").trigger(availableNow=True)
    >>> writer.option("checkpointLocation", f"{place}/home").start().awaitTermination()
    >>> [row["count"] for row in sj.read_files(f"{place}/out").orderBy("window").collect()]
    [30, 30, 30]
    """
    check_source(live)
    if not live.isStreaming:
        message = "backfill: live is a batch DataFrame. Give it a stream of spark.readStream, and the table as history."
        raise AnalysisError(message)
    given: Any = history
    if not isinstance(history, Written) and getattr(given, "isStreaming", True):
        message = "backfill: history is not a batch DataFrame. Give it a table of spark.read, and the stream as live."
        raise AnalysisError(message)
    event_time = _column("eventTime", live, eventTime, TimestampType)
    length = None if bucket is None else parse_duration(bucket, "bucket", minimum=1)
    described = _described(history, live, cut, event_time, length)
    if isinstance(history, Written):
        if described.offset is None:
            message = "cut: the history's commits record offsets. Name the columns in which the stream has them."
            raise AnalysisError(message)
        _check_names(live, (*described.substream, described.offset))
    else:
        check_columns(history, described.columns)
    return stream(noted(live, described))


def _described(
    history: DataFrame | Written, live: DataFrame, cut: Any, event_time: str, bucket: int | None
) -> Backfill:
    columns = {field.name: field.dataType for field in live.schema}
    if isinstance(cut, dt.datetime):
        if cut.tzinfo is None:
            raise AnalysisError(f"cut: {cut!r} has no time zone. Give an aware datetime, such as cut.astimezone().")
        time = (cut - _EPOCH) // dt.timedelta(microseconds=1)
        return Backfill(history, columns, event_time, cut=time, bucket=bucket)
    if not isinstance(cut, list | tuple) or not cut or not all(isinstance(name, str) for name in cut):
        message = (
            f'cut: {cut!r} is neither an aware datetime nor names of columns, as in ("topic", "partition", "offset"): '
            "those that name a substream, and last the offset."
        )
        raise AnalysisError(message)
    substream = tuple(_column("cut", live, name, AtomicType) for name in cut[:-1])
    offset = _column("cut", live, cut[-1], IntegralType)
    return Backfill(history, columns, event_time, substream, offset, bucket=bucket)


def _check_names(live: DataFrame, names: Sequence[str]) -> None:
    """Refuse columns that are not those by which the commits of a table name substreams and offsets.

    Rows of other names would match no commit, so that all of history would come from the stream once more.
    """
    nodes = [*passed_nodes(analyzed(live))]
    if any(children(node) and node.nodeName() not in _PASSING for node in nodes):
        return
    own = {str(each.name()) for node in nodes if not children(node) for each in listed(node.output())}
    found = tuple(name_in_source(live, name) for name in names)
    for wanted in _IN_SOURCES:
        if own.issuperset(wanted) and found not in {wanted, wanted[-2:]}:
            message = (
                f"cut: of this source, commits tell offsets by {', '.join(wanted)}, and {', '.join(names)} are "
                f"{', '.join(each or 'computed' for each in found)} there. Name the columns that have these values."
            )
            raise AnalysisError(message)


_PASSING = {"Project", "Filter", "SubqueryAlias"}
"""Nodes through which a column keeps its values."""
_IN_SOURCES = (("topic", "partition", "offset"), ("_partition", "_offset"))
"""Columns of the substream and the offset of Kafka's sources, and of the journal's."""
_WANTED: dict[type, str] = {
    TimestampType: "a timestamp",
    IntegralType: "an integer",
    AtomicType: "a text, number or time",
}
"""The required types of columns."""


def _column(argument: str, rows: DataFrame, name: str, kind: type) -> str:
    """The name of a column, as the rows have it."""
    given: object = name
    named = attributes(rows, name) if isinstance(given, str) else []
    if len(named) != 1:
        raise AnalysisError(f"{argument}: there is no column {name!r}; {nearest(str(name), rows.columns)}")
    found = rows.select(quoted(name)).schema[0].dataType
    if not isinstance(found, kind):
        message = (
            f"{argument}: the column {name!r} is of type {found.simpleString()}, not {_WANTED[kind]}. Convert it first."
        )
        raise AnalysisError(message)
    return str(named[0].name())
