"""Functions in Python that the queries call."""

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType

# Workers do not have the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@F.udf(returnType=LongType(), useArrow=False)
def plus_one(number: int | None) -> int | None:
    """One more, row by row."""
    return None if number is None else number + 1


@F.pandas_udf(LongType())
def doubled(numbers: pd.Series) -> pd.Series:
    """Twice each number, through Arrow."""
    return numbers * 2


def labels() -> DataFrame:
    """A static table."""
    session = SparkSession.getActiveSession()
    assert session is not None
    return session.createDataFrame(
        [(0, "zero"), (1, "one"), (1, "uno"), (7, None), (None, "none")], "n long, label string"
    )


def counted(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """All rows of a key so far."""
    total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "n_rows": [total]})


class Counts(StatefulProcessor):
    """Counts the rows of each key by windows of its own, which timers close."""

    def __init__(self, size: int) -> None:
        """Windows are so many microseconds long."""
        self.size = size

    def init(self, handle: Any) -> None:
        """One map for all windows of a key."""
        self.handle = handle
        self.windows = handle.getMapState("windows", "end long", "rows long")

    def count(self, times: list[int]) -> None:
        """Counts rows by their times."""
        for time in times:
            end = (time - time % self.size + self.size,)
            seen = self.windows.getValue(end)[0] if self.windows.containsKey(end) else 0
            self.windows.updateValue(end, (seen + 1,))
            self.handle.registerTimer(end[0] // 1000)

    def closed(self, info: Any) -> tuple[int, int]:
        """End and rows of the window whose timer has expired."""
        end = info.getExpiryTimeInMs() * 1000
        rows = self.windows.getValue((end,))[0]
        self.windows.removeKey((end,))
        return end, rows


class transformWithStateCounts(Counts):  # noqa: N801 - called after the method
    """With rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Counts them."""
        self.count([row["at"] for row in rows])
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Closes a window."""
        end, rows = self.closed(expiredTimerInfo)
        yield Row(c0=key[0], end=end, n_rows=rows)


class transformWithStateInPandasCounts(Counts):  # noqa: N801 - called after the method
    """With DataFrames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Counts them."""
        self.count([int(at) for frame in rows for at in frame["at"]])
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Closes a window."""
        end, rows = self.closed(expiredTimerInfo)
        yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "end": [end], "n_rows": [rows]})
