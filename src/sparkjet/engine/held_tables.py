"""Held tables: static tables that executors hold, from their first use to the end of the last query."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sparkjet.catalyst.logical_plans import analyzed
from sparkjet.java import is_stopped
from sparkjet.plan.static_tables import StaticTable, checked_table
from sparkjet.state.partitions import lost_partitions, release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HeldTable(StaticTable):
    """A DataFrame that is read once and held by the executors. Thread-safe.

    Not by ``persist``: Spark reads a persisted DataFrame again when the application writes to its origin, and lost
    partitions one by one, so that they could be of different versions.
    """

    by_epoch = True

    def __init__(self, shape: DataFrame) -> None:
        super().__init__(shape)
        self._changing = threading.Lock()
        self._held: DataFrame | None = None
        self._hint = _join_hint(shape)
        self._queries = 0

    def frame(self) -> DataFrame:
        """See :meth:`StaticTable.frame`."""
        with self._changing:
            if self._held is None:
                self._held = self.shape.localCheckpoint()
            # A checkpoint drops the hint.
            return self._held if self._hint is None else self._held.hint(self._hint)

    def acquire(self) -> None:
        """See :meth:`StaticTable.acquire`."""
        with self._changing:
            self._queries += 1

    def release(self) -> None:
        """See :meth:`StaticTable.release`."""
        with self._changing:
            self._queries -= 1
            last = self._queries == 0
        if last:
            self.forget()

    def forget(self) -> None:
        """See :meth:`StaticTable.forget`."""
        with self._changing:
            held, self._held = self._held, None
        # A context that was stopped has already freed it.
        if held is not None and not is_stopped(held.sparkSession.sparkContext):
            release(held)

    @property
    def has_lost(self) -> bool:
        """See :attr:`StaticTable.has_lost`."""
        with self._changing:
            return self._held is not None and bool(lost_partitions(self._held))


def read_once(df: DataFrame) -> StaticTable:
    """A static table for ``join`` that is read once, at the first use by a query, and then held in memory.

    All epochs see the same version, whatever happens to the table. The copy is freed when the query has ended, or the
    last of several queries; a restarted query reads the table again, and so does one that has lost the copy with an
    executor.

    Args:
        df: A batch DataFrame; may have an alias or a hint such as ``F.broadcast``.

    Raises:
        AnalysisError: Not a batch DataFrame.

    >>> import sparkjet as sj
    >>> countries = spark.createDataFrame([("de", "Germany")], "code string, country string")
    >>> visits = sj.stream(spark.createDataFrame([("de", 3), ("fr", 4)], "code string, visits int"))
    >>> visits.join(sj.read_once(countries), "code", "left").toDF().orderBy("code").collect()
    [Row(code='de', visits=3, country='Germany'), Row(code='fr', visits=4, country=None)]
    """
    return HeldTable(checked_table(df, "read_once"))


def _join_hint(df: DataFrame) -> str | None:
    """The name of a join hint at the top of a DataFrame, such as ``broadcast``; None if it has none."""
    node = analyzed(df)
    while node.nodeName() == "SubqueryAlias":
        node = node.child()
    strategy = node.hints().strategy() if node.nodeName() == "ResolvedHint" else None
    return str(strategy.get().displayName()) if strategy is not None and strategy.isDefined() else None
