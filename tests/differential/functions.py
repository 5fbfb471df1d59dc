"""Functions in Python that the queries call."""

import sys
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType

from sparkjet.catalyst.columns import quoted
from sparkjet.plan.diverting import ADDED

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


def names() -> DataFrame:
    """Another one, whose column is not called as the stream's."""
    return labels().selectExpr("n + 1 AS m", "upper(label) AS name")


def earlier(ddl: str, *rows: tuple[str | None, int]) -> DataFrame:
    """Rows from before the query: keys as texts, and times in microseconds."""
    session = SparkSession.getActiveSession()
    assert session is not None
    return session.createDataFrame(list(rows), "k string, at long").selectExpr(f"CAST(k AS {ddl}) AS c0", "at")


def longest(rows: DataFrame, step: int) -> DataFrame:
    """Rows with a column session_window: the sessions of a key, cut into pieces of some length."""
    by = Window.partitionBy("key").orderBy("at")
    # Windows, as sessions, tell apart what only a collation calls equal.
    alike = [field.name for field in rows.select("key.*").schema if "collate" in field.dataType.simpleString()]
    rows = rows.withColumn(
        "key", reduce(lambda key, name: key.withField(quoted(name), F.lower(key[name])), alike, F.col("key"))
    )
    keyed = rows.withColumns(
        {"at": F.unix_micros("ts"), "until": F.unix_micros(F.timestamp_micros("at") + F.col("gap"))}
    )
    keyed = keyed.where("until > at")
    before = F.max("until").over(by.rangeBetween(Window.unboundedPreceding, -1))
    first = F.when(before.isNull() | (before <= F.col("at")), F.col("at"))
    begun = keyed.withColumn("begun", F.max(first).over(by.rangeBetween(Window.unboundedPreceding, Window.currentRow)))
    ended = begun.withColumn("ended", F.max("until").over(Window.partitionBy("key", "begun")))
    start = F.expr(f"begun + (at - begun) div {step} * {step}")
    end = F.least(start + F.lit(step), F.col("ended"))
    bounds = F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end"))
    return ended.withColumn("session_window", bounds)


def tried(rows: DataFrame, *tries: tuple[str, str, Callable[[DataFrame], DataFrame]]) -> tuple[DataFrame, DataFrame]:
    """Rows for which no step raises, and those for which one does: as they are here, with where it was.

    Args:
        rows: Rows.
        tries: Of which rows a step raises, its place, and the step for the others.
    """
    names = rows.columns
    origin = F.struct(*(F.col(quoted(name)) for name in names)).alias("_origin")
    rows = rows.select("*", origin)
    dead = [rows.where("false").select("_origin", F.lit("").alias("place"))]
    for fails, place, step in tries:
        dead.append(rows.where(fails).select("_origin", F.lit(place).alias("place")))
        rows = step(rows.where(f"NOT ({fails})"))
    return rows.drop("_origin"), reduce(DataFrame.unionAll, dead).select("_origin.*", "place")


def letters(dead: Any) -> Any:
    """Dead letters as :func:`tried` has them."""
    place = F.regexp_extract("_stage", r"^(where|withColumn \w+)", 1)
    return dead.withColumn("place", place).drop(*ADDED)


def dropped(result: Any) -> Any:
    """The late rows of a result, and why they are."""
    return result.lateRows.drop("_substream", "_watermark")


def late(rows: DataFrame) -> DataFrame:
    """Rows that are late as :func:`dropped` has them."""
    return rows.withColumn("_reason", F.when(F.col("ts").isNull(), "null_timestamp").otherwise("late"))


def counted(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """All rows of a key so far."""
    total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "n_rows": [total]})


def silent(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """All rows of a key, once it has been silent for as many milliseconds as its rows say."""
    if state.hasTimedOut:
        total = state.get[0]
        state.remove()
        yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "n_rows": [total]})
        return
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += len(frame)
        state.setTimeoutDuration(int(frame["patience"].max()))
    state.update((total,))


def due(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """All rows of a window of a key, once it has ended."""
    if state.hasTimedOut:
        yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "end": [key[1]], "n_rows": [state.get[0]]})
        state.remove()
        return
    total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((total,))
    # One from before 1970 is refused, in Spark too.
    state.setTimeoutTimestamp(max(1, key[1] // 1000))


class Fresh(StatefulProcessor):
    """Counts the rows of each key in a state that is forgotten after some time."""

    def __init__(self, kind: str, ttl: int) -> None:
        """Of a ``value``, a ``list`` or a ``map``, for ``ttl`` milliseconds."""
        self.kind = kind
        self.ttl = ttl

    def init(self, handle: Any) -> None:
        """One variable."""
        if self.kind == "map":
            self.state = handle.getMapState("fresh", "sub string", "rows long", self.ttl)
        else:
            self.state = getattr(handle, f"get{self.kind.title()}State")("fresh", "rows long", self.ttl)

    def count(self, subs: list[str]) -> list[tuple[str | None, int]]:
        """Counts rows: by substream in a map, otherwise all of the key."""
        if self.kind == "value":
            total = (self.state.get()[0] if self.state.exists() else 0) + len(subs)
            self.state.update((total,))
            return [(None, total)]
        if self.kind == "list":
            self.state.appendList([(1,) for _ in subs])
            return [(None, sum(row[0] for row in self.state.get()))]
        for sub in subs:
            seen = self.state.getValue((sub,))[0] if self.state.containsKey((sub,)) else 0
            self.state.updateValue((sub,), (seen + 1,))
        return [(sub, self.state.getValue((sub,))[0]) for sub in sorted(set(subs))]


class transformWithStateFresh(Fresh):  # noqa: N801 - called after the method
    """With rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Counts them."""
        for sub, total in self.count([row["sub"] for row in rows]):
            yield Row(c0=key[0], sub=sub, n_rows=total)


class transformWithStateInPandasFresh(Fresh):  # noqa: N801 - called after the method
    """With DataFrames."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Counts them."""
        found = self.count([sub for frame in rows for sub in frame["sub"]])
        subs, totals = pd.Series([sub for sub, _ in found], dtype="object"), [total for _, total in found]
        yield pd.DataFrame({"c0": pd.Series([key[0]] * len(found), dtype="object"), "sub": subs, "n_rows": totals})


class Counts(StatefulProcessor):
    """Counts the rows of each key by windows of its own, which timers close."""

    def __init__(self, size: int) -> None:
        """Windows are ``size`` microseconds long."""
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

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """A row from before the query counts like any other."""
        self.count([initialState["at"]])

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

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """A row from before the query counts like any other."""
        self.count([int(at) for at in initialState["at"]])

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        """Counts them."""
        self.count([int(at) for frame in rows for at in frame["at"]])
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Closes a window."""
        end, rows = self.closed(expiredTimerInfo)
        yield pd.DataFrame({"c0": pd.Series([key[0]], dtype="object"), "end": [end], "n_rows": [rows]})
