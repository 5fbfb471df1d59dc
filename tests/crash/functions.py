"""Users' functions with state, as the crashed queries call them; Spark's Python workers import them from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

GAP = 10_000
"""Milliseconds of event time without a row after which a key's rows are summed up."""
BUCKET = 10_000
"""Length of a bucket, in milliseconds."""
DELAY = 15_000
"""Milliseconds from the end of a bucket to its timer."""
VISIT = "key string, rows long, last long, ids long"
COUNT = "sub string, key string, bucket long, rows long"


def bucket_end(millisecond: int) -> int:
    """End of the bucket that a time is in."""
    return millisecond // BUCKET * BUCKET + BUCKET


def visited(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Sums up the rows of a key when it times out: their number, the highest time, and the sum of the ids."""
    if state.hasTimedOut:
        rows, last, ids = state.get
        state.remove()
        yield pd.DataFrame({"key": [key[0]], "rows": [rows], "last": [last], "ids": [ids]})
        return
    rows, last, ids = state.getOption or (0, 0, 0)
    for frame in frames:
        rows, last, ids = rows + len(frame), max(last, int(frame["ms"].max())), ids + int(frame["id"].sum())
    state.update((rows, last, ids))
    state.setTimeoutTimestamp(last + GAP)


class Buckets(StatefulProcessor):
    """Counts the rows of each bucket in a map with a timer for each entry; nothing is left of an old bucket."""

    def init(self, handle: Any) -> None:
        """Declare the map."""
        self._handle = handle
        self._counts = handle.getMapState("counts", "bucket long", "rows long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Count, and see to it that the bucket will be emitted."""
        for frame in rows:
            for millisecond in frame["ms"]:
                bucket = bucket_end(int(millisecond))
                before = self._counts.getValue((bucket,)) or (0,)
                self._counts.updateValue((bucket,), (before[0] + 1,))
                self._handle.registerTimer(bucket + DELAY)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Emit the bucket and forget it."""
        bucket = expiredTimerInfo.getExpiryTimeInMs() - DELAY
        (rows,) = self._counts.getValue((bucket,))
        self._counts.removeKey((bucket,))
        yield pd.DataFrame({"sub": [key[0]], "key": [key[1]], "bucket": [bucket], "rows": [rows]})

    def close(self) -> None:
        """Nothing is open."""
