"""Kept plans: what every epoch computes in the same way, with other rows and constants, is planned once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkjet.catalyst.constants import recorded
from sparkjet.catalyst.doors import KEPT_PLANS, is_open
from sparkjet.catalyst.moments import changes
from sparkjet.catalyst.physical_plans import as_frame, no_rows, planned
from sparkjet.catalyst.shuffles import with_one_shuffle, without_shuffle
from sparkjet.catalyst.tables import Groups, Kind, Rows, Table, groups_of, remember, table_of
from sparkjet.errors import SparkjetError
from sparkjet.java import as_map, as_seq, java_class, scala_context
from sparkjet.spark_line import LINE

Constants = Sequence[int | None]
Build = Callable[..., DataFrame]
"""Makes a DataFrame from one DataFrame per group of tables, and the constants."""

_FIRST_PLACEHOLDER, _NEXT_PLACEHOLDER = 1 << 60, 1 << 52
"""Stand for constants in a kept plan; further apart than any window is long, so that derived values differ."""
_MOST = 256
"""Maximum number of kept plans."""
_ALL_FIELDS = (1 << 31) - 1


class KeptPlans:
    """Physical plans, by what they compute and the shape of the tables they read; on the driver.

    Analysis, optimization and planning take longer than the rows of a small epoch. A kept plan is that of the first
    epoch; for later ones the RDDs at its leaves and its constants are exchanged. Some things cannot be kept, and are
    planned in every epoch: tables that are not RDDs (``localCheckpoint`` and ``foreachBatch`` return RDDs), expressions
    that Spark evaluates during planning, and everything in a session with adaptive execution, such as that of a batch
    DataFrame.
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
        tasks: int | None = None,
        by_partition: bool = False,
        held: bool = False,
        unkept: Callable[[DataFrame], DataFrame] = lambda built: built,
    ) -> DataFrame:
        """The result of ``build`` for its inputs and constants, passed through ``unkept`` if its plan is not kept."""

        def planned() -> DataFrame:
            built = unkept(build(*(_read([each.frame for each in rows], tasks) for rows in inputs), *constants))
            return built.localCheckpoint(eager=False) if held else built

        groups = [groups_of(rows) for rows in inputs]
        session = inputs[0][0].table.sparkSession
        if not all(groups) or not is_open(session, KEPT_PLANS):
            return planned()
        shapes = tuple(tuple((shape, len(tables) > 1) for shape, tables in group.items()) for group in groups)
        key = (name, shapes, tasks, tuple(value is None for value in constants))
        if key not in self._kept:
            if len(self._kept) == _MOST:
                # A query that keeps meeting new shapes must not fill up the driver.
                self._kept.clear()
            self._kept[key] = _plan(
                session, groups, build, constants, used, tasks, without_shuffle if by_partition else with_one_shuffle
            )
        kept = self._kept[key]
        if kept is None:
            return planned()
        return kept.run([tables for group in groups for tables in group.values()], used(*constants), held=held)


class _Leaf:
    """A leaf of a kept plan: a node that scans an empty RDD, and the number of the group of tables that it reads."""

    def __init__(self, node: Any, number: int) -> None:
        self.node = node
        self.number = number
        self._output = node.output()
        # Asked once: each answer takes a JVM call, and another one to release it.
        self._others = node.productElement(2), node.outputPartitioning(), node.outputOrdering(), node.stream()
        self._fits: dict[object, bool] = {}

    def scan(self, session: SparkSession, tables: Sequence[Table]) -> Any:
        """A plan that reads tables in place of the leaf."""
        (first, *others) = tables
        if not others and first.plan is not None and self._is_replaced_by(first):
            return first.plan
        return self.node.copy(self._output, _united(session, tables), *self._others)

    def _is_replaced_by(self, table: Table) -> bool:
        """Whether a table's plan has the same columns as the leaf."""
        columns = table.kind.columns
        if columns is None:
            return bool(table.plan.output().equals(self._output))
        if columns not in self._fits:
            self._fits[columns] = bool(table.plan.output().equals(self._output))
        return self._fits[columns]


@dataclass(frozen=True, eq=False)
class _KeptPlan:
    """A physical plan whose leaves are empty RDDs.

    Attributes:
        session: The session in which it was planned.
        plan: The plan, before Spark prepares it for execution.
        leaves: Its leaves.
        output: The columns of its result.
        placeholders: The numbers that stand for the constants in it.
    """

    session: SparkSession
    plan: Any
    leaves: Sequence[_Leaf]
    output: Any
    placeholders: Constants
    _kinds: dict[bool, Kind] = field(default_factory=dict)

    def run(self, groups: Sequence[Sequence[Table]], constants: Constants, *, held: bool) -> DataFrame:
        """The result for other tables of the same shapes, and other constants; kept in memory once read if ``held``."""
        scans = [(leaf.node, leaf.scan(self.session, groups[leaf.number])) for leaf in self.leaves]
        plan = self.with_constants(self.plan.transformUp(as_map(self.session, scans)), constants)
        frame = planned(self.session, plan, self.output)
        if held:
            frame, plan = frame.localCheckpoint(eager=False), None
        if held not in self._kinds:
            table = table_of(frame)
            if table is None:
                return frame
            # The same for every result: the identities of a plan's columns, and the partitioning of the held rows.
            self._kinds[held] = table.kind if held else replace(table.kind, columns=self)
        remember(frame, Table(frame._jdf, self._kinds[held], plan))
        return frame

    def with_constants(self, plan: Any, constants: Constants) -> Any:
        """A plan with constants in place of the placeholders."""
        literals = self._literals(constants)
        return plan.transformAllExpressions(as_map(self.session, literals)) if literals else plan

    def _literals(self, constants: Constants) -> list[tuple[Any, Any]]:
        values: dict[int, int] = {}
        for placeholder, value in zip(self.placeholders, constants, strict=True):
            if placeholder is not None and value is not None and values.setdefault(placeholder, value) != value:
                raise SparkjetError(f"{placeholder} stands for {values[placeholder]} and for {value} in a kept plan.")
        gateway = self.session.sparkContext._gateway
        return [(_literal(gateway, placeholder), _literal(gateway, value)) for placeholder, value in values.items()]


def _plan(
    session: SparkSession,
    groups: Sequence[Groups],
    build: Build,
    constants: Constants,
    used: Callable[..., Constants],
    tasks: int | None,
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
        inputs.append(_read(parts, tasks))
    placeholders = [
        None if value is None else _FIRST_PLACEHOLDER + number * _NEXT_PLACEHOLDER
        for number, value in enumerate(constants)
    ]
    known = used(*placeholders)
    with recorded() as needed:
        built = build(*inputs, *placeholders)
    unknown = set(needed) - set(known)
    if unknown:
        raise SparkjetError(f"A kept plan uses constants that it does not name: {sorted(unknown)}.")
    execution = built._jdf.queryExecution()
    if changes(session, execution.analyzed()):
        return None
    plan = shuffled(session, execution.sparkPlan())
    leaves = _leaves(plan)
    # Of the analyzed plan too: the optimizer leaves out a joined table that has no rows yet.
    for node, name in ((execution.analyzed(), "LogicalRDD"), (plan, "RDDScanExec")):
        if any(leaf.getClass().getSimpleName() != name or leaf.rdd().id() not in places for leaf in _leaves(node)):
            # A table that a user's transformation joins, or rows that are always the same.
            return None
    kept = _KeptPlan(session, plan, [_Leaf(leaf, places[leaf.rdd().id()]) for leaf in leaves], plan.output(), known)
    # What no transformation finds, or ``constant`` did not make, would compute with a placeholder in every epoch.
    shown = kept.with_constants(plan, [None if placeholder is None else 0 for placeholder in known])
    text = shown.treeString(True, False, _ALL_FIELDS, False, *(() if LINE < (4, 1) else (False,)))
    return (
        None
        if any(str(placeholder) in text for placeholder in {*placeholders, *known} if placeholder is not None)
        else kept
    )


def _leaves(plan: Any) -> list[Any]:
    found = plan.collectLeaves()
    return [found.apply(number) for number in range(found.size())]


def _read(frames: Sequence[DataFrame], tasks: int | None) -> DataFrame:
    rows = reduce(DataFrame.unionByName, frames)
    return rows if tasks is None else rows.coalesce(tasks)


def _united(session: SparkSession, tables: Sequence[Table]) -> Any:
    """The RDD of tables of one shape, combined partition by partition as in Spark's own union."""
    rdds = [table.rdd for table in tables]
    if len(rdds) == 1:
        return rdds[0]
    union = java_class(session, "org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    sequence, count = as_seq(session, rdds), rdds[0].getNumPartitions()
    return union(scala_context(session), sequence, count, rdds[0].elementClassTag())


@lru_cache(1024)
def _literal(gateway: Any, value: int) -> Any:
    """The array of which a ``constant`` is the element, as Spark's optimizer leaves it; plans share constants."""
    values = gateway.new_array(gateway.jvm.long, 1)
    values[0] = value
    data, literal, longs = _classes(gateway)
    return literal(data(values), longs)


@lru_cache(4)
def _classes(gateway: Any) -> tuple[Any, Any, Any]:
    catalyst = gateway.jvm.org.apache.spark.sql.catalyst
    types = gateway.jvm.org.apache.spark.sql.types.DataTypes
    longs = types.createArrayType(types.LongType, False)
    return catalyst.util.GenericArrayData, catalyst.expressions.Literal, longs
