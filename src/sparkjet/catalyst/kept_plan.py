"""The kept plan: a physical plan whose tables and constants are exchanged between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.physical_plans import planned
from sparkjet.catalyst.tables import Kind, Table, remember, table_of
from sparkjet.errors import SparkjetError
from sparkjet.java import as_map, as_seq, java_class, scala_context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Constants = Sequence[int | None]


class Leaf:
    """A leaf of a kept plan.

    Args:
        node: The node, which scans an empty RDD.
        number: The number of the group of tables that it reads.
    """

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
class KeptPlan:
    """A physical plan whose leaves are empty RDDs.

    Attributes:
        session: The session in which it was planned.
        plan: The plan, before Spark prepares it for execution.
        leaves: Its leaves.
        output: The columns of its result.
        markers: The numbers that stand for the constants in it.
    """

    session: SparkSession
    plan: Any
    leaves: Sequence[Leaf]
    output: Any
    markers: Constants
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
        """A plan with constants in place of the markers."""
        literals = self._literals(constants)
        return plan.transformAllExpressions(as_map(self.session, literals)) if literals else plan

    def _literals(self, constants: Constants) -> list[tuple[Any, Any]]:
        values: dict[int, int] = {}
        for marker, value in zip(self.markers, constants, strict=True):
            if marker is not None and value is not None and values.setdefault(marker, value) != value:
                message = f"{marker} stands for {values[marker]} and for {value} in a kept plan."
                raise SparkjetError(message)
        gateway = self.session.sparkContext._gateway
        return [(_literal(gateway, marker), _literal(gateway, value)) for marker, value in values.items()]


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
