"""Static tables: the tables with which the rows of a stream are joined, and when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.python_sources import options_of
from sparkjet.connectors.grid.options import GRID_MAP
from sparkjet.errors import AnalysisError, SourceError, refuse_connect


class StaticTable:
    """A table with which a stream, or results, can be joined: a DataFrame as Spark reads it in its own queries.

    Attributes:
        shape: The table as it was when the query was written.
        by_epoch: Whether each epoch requests the table, instead of Spark's plan containing it.
    """

    by_epoch = False

    def __init__(self, shape: DataFrame) -> None:
        self.shape = shape

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {found}" for name, found in self.shape.dtypes)
        return f"{type(self).__name__}[{columns}]"

    def frame(self) -> DataFrame:
        """The table for the current epoch."""
        return self.shape

    def acquire(self) -> None:
        """Keep the held data until :meth:`release`, which must be called once per call; called when a query starts."""

    def release(self) -> None:
        """Release the held data if this was the last query; called when a query has ended."""

    def forget(self) -> None:
        """Release the held data; it is read again at its next use."""

    @property
    def has_lost(self) -> bool:
        """Whether some of the data that should be held is on no executor."""
        return False


class MapTable(StaticTable):
    """A DataFrame that reads maps of a grid: each epoch reads one version of each, the newest when it begins.

    The engine chooses the versions, and replaces the reads in what the epoch computes; see
    :class:`sparkjet.engine.map_reads.MapReads`.

    Attributes:
        reads: The options of each read.
    """

    by_epoch = True

    def __init__(self, shape: DataFrame, reads: list[dict[str, str]]) -> None:
        super().__init__(shape)
        self.reads = reads


class RenewedTable(StaticTable):
    """A DataFrame that is created again for each epoch."""

    by_epoch = True

    def __init__(self, make: Callable[[], DataFrame]) -> None:
        super().__init__(checked_table(make(), "read_every_epoch"))
        self._make = make
        self._types = self.shape.dtypes

    def frame(self) -> DataFrame:
        """See :meth:`StaticTable.frame`.

        Raises:
            SourceError: A column that the query relies on is missing, or has another type.
        """
        found = checked_table(self._make(), "read_every_epoch")
        types = found.dtypes
        if types == self._types:
            return found
        for name, data_type in self._types:
            if (name, data_type) not in types:
                message = (
                    f"read_every_epoch: the column {name!r} of type {data_type} is missing; the table has "
                    f"{', '.join(' '.join(each) for each in types)} now. Start the query again with the new table."
                )
                raise SourceError(message)
        return found.select(*(quoted(name) for name, _ in self._types))


def read_every_epoch(make: Callable[[], DataFrame]) -> StaticTable:
    """A static table for ``join`` that is created and read again in every epoch, so that new files are seen.

    ``spark.read.parquet(path)`` lists the files when it is called, and a query that was given its DataFrame never sees
    later ones. Here it is called again. An epoch that is repeated after a crash may see a newer table than the failed
    attempt, and so may two outputs of one epoch.

    Args:
        make: Returns a batch DataFrame, with the same columns each time; additional columns are left out. It is called
            on the driver, once here and once for each use in an epoch. Specify a schema if it reads files: otherwise
            Spark infers one each time.

    Raises:
        AnalysisError: It does not return a batch DataFrame.

    >>> import sparkjet as sj
    >>> prices = sj.read_every_epoch(lambda: spark.sql("SELECT 'tea' AS item, 3 AS price"))
    >>> sold = sj.stream(spark.createDataFrame([("tea", 2)], "item string, number int"))
    >>> sold.join(prices, "item").selectExpr("item", "number * price AS paid").toDF().collect()
    [Row(item='tea', paid=6)]
    """
    return RenewedTable(make)


def static_table(other: object) -> StaticTable:
    """The argument of ``join`` as a table.

    Raises:
        AnalysisError: It cannot be a static table.
    """
    if isinstance(other, StaticTable):
        return other
    table = checked_table(other, "join")
    reads = options_of(table, GRID_MAP)
    return MapTable(table, reads) if reads else StaticTable(table)


def checked_table(other: Any, method: str) -> DataFrame:
    """A DataFrame that can be a static table.

    Raises:
        AnalysisError: It is not a DataFrame, is a stream, or has a column whose name sparkjet uses.
    """
    refuse_connect(method, other)
    if not isinstance(other, DataFrame):
        message = (
            f"{method}: expected a batch DataFrame of a classic session, got {type(other).__module__}."
            f"{type(other).__name__}."
        )
        raise AnalysisError(message)
    if other.isStreaming:
        raise AnalysisError(f"{method}: this DataFrame is a stream. {alternatives.STREAM_JOIN}")
    taken = [name for name in other.columns if name.lower().startswith("_sparkjet_")]
    if taken:
        message = f"{method}: the column name {taken[0]!r} is used by sparkjet. Rename the column of the table."
        raise AnalysisError(message)
    return other
