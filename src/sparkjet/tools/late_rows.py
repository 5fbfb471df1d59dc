"""The lag of a watermark from the late rows that a query has counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.time.durations import format_duration
from sparkjet.tools.lag import LagReport, share_of

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record


def recommend(query: Any, loss: float | str) -> LagReport:
    """Which lag would have lost how many rows, by the late rows that a query has counted: no history is needed.

    The query counts how late its late rows are, rounded up to a millisecond and one digit, and how many rows it judges
    with the lag that it has; with another lag it starts over. So the report knows what more lag would have saved, at
    its own lags exactly, and nothing of less: rows in time do not say how early they were. A row counts at each window
    or stateful step that judges it, shares are of all these rows, and windows are judged by their ends. Rows that come
    while a watermark is idle or waits for a substream without rows would have come in time with any lag.

    Args:
        query: A query that was started, or its home, whoever runs it: as its ``checkpointLocation``.
        loss: The share of rows that may be lost, as of :func:`lag_for`.

    Raises:
        AnalysisError: No share; the query judges no rows, has no record of how late they were, or its watermarks have
            several lags or none.

    >>> import sparkjet as sj, tempfile, pathlib
    >>> from sparkjet.testing import StreamDriver
    >>> home = pathlib.Path(tempfile.mkdtemp())
    >>> windows = lambda rows: rows.withWatermark("ts", "1 second").groupBy(sj.window("ts", "2 seconds")).count()
    >>> driver = StreamDriver(spark, windows, "ts timestamp", directory=home)
    >>> for second in (3, 9, 6, 1):
    ...     driver.process([(f"1970-01-01 00:00:0{second}",)])
    >>> print(recommend(home, loss="25 %"))
    lag 1001 milliseconds loses 1 of 4 rows
                       1 second  all: 2 (50.0000%)
    ->        1001 milliseconds  all: 1 (25.0000%)
                      8 seconds  all: 0 (0.0000%)
    """
    record = _record(query)
    allowed = share_of(loss)
    lags: dict[str, int | None] = {}
    rows = 0
    late: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for stage in record.stages.values():
        if stage.lateness is not None:
            lags |= stage.lateness.lags
            rows += stage.lateness.rows
            for substream, counts in stage.lateness.late.items():
                late[substream].update(counts)
    if not lags:
        message = (
            "recommend: the query has not noted how late rows were: it judges none of its sources by a watermark, as "
            "where rows come from another step, or has not run with this version yet"
        )
        raise AnalysisError(message)
    least, *others = set(lags.values())
    if others or least is None:
        told = ", ".join(
            f"{prefix.rstrip('/') or 'the stream'}: {'none' if lag is None else format_duration(lag)}"
            for prefix, lag in sorted(lags.items())
        )
        message = (
            f"recommend: the query has no lag that all its streams share ({told}). Ask lag_for, by a history of when "
            "the rows of each came."
        )
        raise AnalysisError(message)
    needed = {name: {least + more: count for more, count in sorted(late[name].items())} for name in sorted(late)}
    return LagReport(allowed, dict.fromkeys(needed, rows), needed, least, rows)


def _record(query: Any) -> Record:
    """The newest record of a query."""
    if isinstance(query, str | Path):
        # What asks whether a place is complete needs no PySpark.
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from sparkjet.snapshots.record_log import newest_record  # noqa: PLC0415
        from sparkjet.storage.schemes import directory_at  # noqa: PLC0415

        return newest_record(directory_at(str(query), "query", SparkSession.active), "recommend")[1]
    record: Record | None = getattr(getattr(query, "_engine", None), "record", None)
    if record is None:
        raise AnalysisError(f"recommend: {query!r} is neither a query that start() has returned nor a home")
    return record
