"""Kept plans: what every epoch computes in the same way, from other rows and with other constants, is planned once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from sparkjet.catalyst.constants import recorded
from sparkjet.catalyst.physical_plans import PLANNED, as_frame, no_rows, planned
from sparkjet.catalyst.shuffles import with_one_shuffle, without_shuffle
from sparkjet.errors import SparkjetError
from sparkjet.java import as_map, as_seq, java_class, static_method

Constants = Sequence[int | None]
Build = Callable[..., DataFrame]
"""From one DataFrame for each group of tables, and the constants, to a DataFrame."""

_FIRST_MARKER, _NEXT_MARKER = 1 << 60, 1 << 52
"""Stand for constants in a kept plan; further apart than any window is long, so that what follows from them differs."""
_MOST = 256
"""Plans that are kept."""
_ALL_FIELDS = (1 << 31) - 1
_CHANGING = ("CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PLAN_EXPRESSION", "PYTHON_UDF")
"""What Spark evaluates while it plans, and what may remember something from one run to the next."""


Read = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Rows:
    """A table, or a part of it.

    Attributes:
        table: The table.
        read: Makes the part of it, the same each time; None for all.
    """

    table: DataFrame
    read: Read | None = None

    @property
    def frame(self) -> DataFrame:
        """The rows."""
        return self.table if self.read is None else self.read(self.table)


class KeptPlans:
    """Physical plans, by what they compute and the shape of the tables that they read; on the driver.

    Analysis, optimization and planning take longer than the rows of a small epoch. A kept plan is that of the first
    epoch; for later ones the RDDs at its leaves and its constants are exchanged. What cannot be kept is planned in
    every epoch: tables that are no RDDs (``localCheckpoint`` and ``foreachBatch`` give such that are), expressions
    that Spark evaluates while it plans, and all of a session with adaptive execution, as that of a batch DataFrame.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, _KeptPlan | None] = {}

    def __call__(
        self,
        *name: Hashable,
        inputs: Sequence[Sequence[Rows]],
        build: Build,
        constants: Constants = (),
        used: Callable[..., Constants] = lambda *constants: constants,
        by_partition: bool = False,
    ) -> DataFrame:
        """What ``build`` makes of its inputs and constants.

        Args:
            name: What is computed: where it is the same, and the same constants are None, ``build`` does the same.
            inputs: Each at least one table; ``build`` gets the union of its rows.
            build: Makes the result. Nothing else in it may differ from epoch to epoch.
            constants: What ``build`` gets behind the inputs.
            used: From the constants to all that ``build`` makes a :func:`sparkjet.catalyst.constants.constant` of.
            by_partition: Whether an aggregation at the end of ``build`` may give each group several times, aggregated
                from some of its rows each.
        """
        groups = [_groups(rows) for rows in inputs]
        if not all(groups):
            return build(*(_union([each.frame for each in rows]) for rows in inputs), *constants)
        shapes = tuple(tuple((shape, len(tables) > 1) for shape, tables in group.items()) for group in groups)
        key = (name, shapes, tuple(value is None for value in constants))
        if key not in self._kept:
            if len(self._kept) == _MOST:
                # A query that meets ever new shapes must not fill the driver.
                self._kept.clear()
            session = inputs[0][0].table.sparkSession
            self._kept[key] = _plan(
                session, groups, build, constants, used, without_shuffle if by_partition else with_one_shuffle
            )
        kept = self._kept[key]
        if kept is None:
            return build(*(_union([each.frame for each in rows]) for rows in inputs), *constants)
        return kept.run([tables for group in groups for tables in group.values()], used(*constants))


@dataclass(frozen=True)
class _Table:
    """A DataFrame that is nothing but an RDD, or computed by a physical plan that is known (``planned``).

    Attributes:
        frame: The DataFrame.
        logical: The logical plan of the RDD, or of no rows that stands for the physical plan.
        shape: What plans over it depend on: session, columns and partitioning.
        is_partitioned: Whether Spark knows which rows are in which partition.
        plan: The physical plan, None for an RDD.
    """

    frame: Any
    logical: Any
    shape: Hashable
    is_partitioned: bool
    plan: Any = None

    @property
    def rdd(self) -> Any:
        """The rows."""
        return self.logical.rdd() if self.plan is None else self.frame.queryExecution().toRdd()

    @staticmethod
    def of(frame: DataFrame) -> _Table | None:
        """The table of a DataFrame, None if it is anything else."""
        if frame not in _TABLES:
            _TABLES[frame] = _Table._of(frame)
        return _TABLES[frame]

    @staticmethod
    def _of(frame: DataFrame) -> _Table | None:
        if frame.is_cached:
            # Its plan would compute what is in memory.
            return None
        logical, plan = frame._jdf.queryExecution().logical(), None
        if logical.getClass().getSimpleName() == PLANNED:
            logical, plan = logical.logicalPlan(), logical.physicalPlan()
        if logical.getClass().getSimpleName() != "LogicalRDD" or logical.isStreaming():
            return None
        # The numbers of the columns are others each time.
        partitioning = re.sub(r"#\d+L?", "", logical.outputPartitioning().toString())
        session = frame.sparkSession._jsparkSession.sessionUUID()
        shape = session, frame._jdf.schema().json(), partitioning
        is_partitioned = partitioning.startswith("hashpartitioning")
        return _Table(frame._jdf, logical, shape, is_partitioned, plan)


_TABLES: WeakKeyDictionary[DataFrame, _Table | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class _KeptPlan:
    """A physical plan whose leaves are empty RDDs.

    Attributes:
        session: The session that it was planned in.
        plan: The plan, before Spark prepares it for execution.
        leaves: Its leaves, each with the number of the tables that it reads.
        output: The columns of its result.
        markers: What stands for the constants in it.
    """

    session: SparkSession
    plan: Any
    leaves: Sequence[tuple[Any, int]]
    output: Any
    markers: Constants

    def run(self, groups: Sequence[Sequence[_Table]], constants: Constants) -> DataFrame:
        """The result for other tables of the same shapes, and other constants."""
        scans = {leaf: self._scan(leaf, groups[number]) for leaf, number in self.leaves}
        plan = self.with_constants(self.plan.transformUp(as_map(self.session, scans)), constants)
        return planned(self.session, plan, self.output)

    def _scan(self, leaf: Any, tables: Sequence[_Table]) -> Any:
        """What reads tables in place of a leaf."""
        (first, *others) = tables
        if not others and first.plan is not None and first.plan.output().equals(leaf.output()):
            return first.plan
        rdd = _united(self.session, tables)
        name, partitioning, ordering = leaf.productElement(2), leaf.outputPartitioning(), leaf.outputOrdering()
        return leaf.copy(leaf.output(), rdd, name, partitioning, ordering, leaf.stream())

    def with_constants(self, plan: Any, constants: Constants) -> Any:
        """A plan with constants in place of the markers."""
        literals = self._literals(constants)
        return plan.transformAllExpressions(as_map(self.session, literals)) if literals else plan

    def _literals(self, constants: Constants) -> dict[Any, Any]:
        values: dict[int, int] = {}
        for marker, value in zip(self.markers, constants, strict=True):
            if marker is not None and value is not None and values.setdefault(marker, value) != value:
                message = f"{marker} stands for {values[marker]} and for {value} in a kept plan."
                raise SparkjetError(message)
        return {_literal(self.session, marker): _literal(self.session, value) for marker, value in values.items()}


_Groups = Mapping[tuple[Hashable, "Read | None"], Sequence[_Table]]
"""The tables of an input by their shape, and what is read of them."""


def _groups(rows: Sequence[Rows]) -> _Groups:
    """The tables of an input; empty if one of them is anything else, or cannot be put together with others."""
    groups: dict[tuple[Hashable, Read | None], list[_Table]] = {}
    for each in rows:
        table = _Table.of(each.table)
        if table is None:
            return {}
        groups.setdefault((table.shape, each.read), []).append(table)
    return {} if any(len(tables) > 1 and not tables[0].is_partitioned for tables in groups.values()) else groups


def _plan(
    session: SparkSession,
    groups: Sequence[_Groups],
    build: Build,
    constants: Constants,
    used: Callable[..., Constants],
    shuffled: Callable[[SparkSession, Any], Any],
) -> _KeptPlan | None:
    """Plan ``build`` once and for all; None if its plan cannot be kept."""
    if session.conf.get("spark.sql.adaptive.enabled") == "true":
        # It would look for the nodes of the kept plan in the logical one.
        return None
    places: dict[int, int] = {}
    inputs = []
    for group in groups:
        parts = []
        for (_, read), (table, *_) in group.items():
            logical = table.logical
            leaf = no_rows(session, logical.output(), logical.outputPartitioning())
            places[leaf.rdd().id()] = len(places)
            parts.append(Rows(as_frame(session, leaf), read).frame)
        inputs.append(_union(parts))
    markers = [
        None if value is None else _FIRST_MARKER + number * _NEXT_MARKER for number, value in enumerate(constants)
    ]
    known = used(*markers)
    with recorded() as needed:
        built = build(*inputs, *markers)
    unknown = set(needed) - set(known)
    if unknown:
        message = f"A kept plan uses constants that it does not name: {sorted(unknown)}."
        raise SparkjetError(message)
    execution = built._jdf.queryExecution()
    patterns = java_class(session, "org.apache.spark.sql.catalyst.trees.TreePattern")
    if any(execution.analyzed().containsPattern(getattr(patterns, name)()) for name in _CHANGING):
        return None
    plan = shuffled(session, execution.sparkPlan())
    leaves = _leaves(plan)
    # Of the analyzed plan too: the optimizer leaves out what is joined if it has no rows yet.
    for node, name in ((execution.analyzed(), "LogicalRDD"), (plan, "RDDScanExec")):
        if any(leaf.getClass().getSimpleName() != name or leaf.rdd().id() not in places for leaf in _leaves(node)):
            # A table that a user's transformation joins, or rows that are always the same.
            return None
    kept = _KeptPlan(session, plan, [(leaf, places[leaf.rdd().id()]) for leaf in leaves], plan.output(), known)
    # What no transformation finds, or was not made by ``constant``, would compute with a marker in every epoch.
    shown = kept.with_constants(plan, [None if marker is None else 0 for marker in known])
    text = shown.treeString(True, False, _ALL_FIELDS, False, False)
    return None if any(str(marker) in text for marker in {*markers, *known} if marker is not None) else kept


def _leaves(plan: Any) -> list[Any]:
    found = plan.collectLeaves()
    return [found.apply(number) for number in range(found.size())]


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def _united(session: SparkSession, tables: Sequence[_Table]) -> Any:
    """The RDD of tables of one shape: put together partition by partition, as Spark's own union does."""
    rdds = [table.rdd for table in tables]
    if len(rdds) == 1:
        return rdds[0]
    union = java_class(session, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    sequence = as_seq(session, rdds)
    context, count = session.sparkContext._jsc.sc(), rdds[0].getNumPartitions()
    return union(context, sequence, count, rdds[0].elementClassTag())


def _literal(session: SparkSession, value: int) -> Any:
    """The array that a ``constant`` is the element of, as Spark's optimizer leaves it."""
    gateway: Any = session.sparkContext._gateway
    values = gateway.new_array(java_class(session, "long"), 1)
    values[0] = value
    data = java_class(session, "org.apache.spark.sql.catalyst.util.GenericArrayData")(values)
    long = static_method(session, "org.apache.spark.sql.types.DataTypes.LongType")
    longs = static_method(session, "org.apache.spark.sql.types.DataTypes.createArrayType")(long, False)
    return java_class(session, "org.apache.spark.sql.catalyst.expressions.Literal")(data, longs)
