"""Tables that a kept plan can read: DataFrames that are just an RDD, or a known physical plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparkjet.catalyst.physical_plans import PLANNED
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Read = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Rows:
    """A table, or a part of it.

    Attributes:
        table: The table.
        read: Makes the part, the same each time; None for the whole table.
    """

    table: DataFrame
    read: Read | None = None

    @property
    def frame(self) -> DataFrame:
        """The rows."""
        return self.table if self.read is None else self.read(self.table)


@dataclass(frozen=True)
class Chained:
    """Reads a part of a part of a table; equal to any other of the same parts, so that one plan is kept for both.

    Attributes:
        first: Makes the part of the table.
        then: Makes the part that is read from it.
    """

    first: Read
    then: Read

    def __call__(self, table: DataFrame) -> DataFrame:
        """The part of the part."""
        return self.then(self.first(table))


@dataclass(frozen=True)
class Kind:
    """The properties of a table that plans over it depend on.

    Attributes:
        shape: Its session, columns and partitioning.
        is_partitioned: Whether Spark knows which rows are in which partition.
        columns: Identifies the columns of a known plan, which are the same each time; None if they are not.
    """

    shape: Hashable
    is_partitioned: bool
    columns: object = None


@dataclass(frozen=True, eq=False)
class Table:
    """A DataFrame that is just an RDD, or computed by a known physical plan.

    Attributes:
        frame: The DataFrame in the JVM.
        kind: The properties that plans over it depend on.
        plan: The physical plan, None for an RDD.
    """

    frame: Any
    kind: Kind
    plan: Any = None

    @cached_property
    def logical(self) -> Any:
        """The logical plan of the RDD, or of an empty table that stands for the physical plan."""
        logical = self.frame.queryExecution().logical()
        return logical if self.plan is None else logical.logicalPlan()

    @cached_property
    def identity(self) -> int:
        """Spark's number of the RDD."""
        return int(self.rdd.id())

    @cached_property
    def rdd(self) -> Any:
        """The rows."""
        return self.logical.rdd() if self.plan is None else self.frame.queryExecution().toRdd()


_UNITING = (4, 1)
"""The first Spark line whose union leaves rows in their partitions."""
_TABLES: WeakKeyDictionary[DataFrame, Table | None] = WeakKeyDictionary()


def table_of(frame: DataFrame) -> Table | None:
    """The table of a DataFrame, None if it is anything else."""
    if frame not in _TABLES:
        _TABLES[frame] = _found(frame)
    return _TABLES[frame]


def remember(frame: DataFrame, table: Table) -> None:
    """Remember what is known of a DataFrame, which saves :func:`table_of` a dozen JVM calls."""
    _TABLES[frame] = table


def _found(frame: DataFrame) -> Table | None:
    if frame.is_cached:
        # Its plan would recompute what is in memory.
        return None
    logical, plan = frame._jdf.queryExecution().logical(), None
    if logical.getClass().getSimpleName() == PLANNED:
        logical, plan = logical.logicalPlan(), logical.physicalPlan()
    if logical.getClass().getSimpleName() != "LogicalRDD" or logical.isStreaming():
        return None
    partitioning = logical.outputPartitioning()
    kind = partitioning.getClass().getSimpleName()
    is_partitioned = kind == "HashPartitioning"
    # Its own text has no more keys than the session shows of a plan, and then no number of partitions either. The
    # column numbers differ each time.
    keys = re.sub(r"#\d+L?", "", partitioning.expressions().mkString(", ")) if is_partitioned else ""
    known = kind, keys, partitioning.numPartitions()
    shape = frame.sparkSession._jsparkSession.sessionUUID(), frame._jdf.schema().json(), known
    return Table(frame._jdf, Kind(shape, is_partitioned), plan)


Groups = Mapping[tuple[Hashable, "Read | None"], Sequence[Table]]
"""The tables of an input by their shape and by what is read of them."""


def groups_of(rows: Sequence[Rows]) -> Groups:
    """The tables of an input; empty if one of them is anything else, or cannot be combined with others."""
    groups: dict[tuple[Hashable, Read | None], list[Table]] = {}
    for each in rows:
        table = table_of(each.table)
        if table is None:
            return {}
        groups.setdefault((table.kind.shape, each.read), []).append(table)
    alone = any(len(tables) > 1 and not tables[0].kind.is_partitioned for tables in groups.values())
    several = any(len(tables) > 1 for tables in groups.values())
    return {} if alone or (several and LINE < _UNITING) else groups
