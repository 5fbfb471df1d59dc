"""Kept plans: what every epoch computes in the same way, with other rows and constants, is planned once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkjet.catalyst.constants import recorded
from sparkjet.catalyst.doors import KEPT_PLANS, is_open
from sparkjet.catalyst.kept_plan import Constants, KeptPlan, Leaf
from sparkjet.catalyst.moments import changes
from sparkjet.catalyst.physical_plans import as_frame, no_rows
from sparkjet.catalyst.shuffles import with_one_shuffle, without_shuffle
from sparkjet.catalyst.tables import Groups, Rows, groups_of
from sparkjet.errors import SparkjetError
from sparkjet.spark_line import LINE

Build = Callable[..., DataFrame]
"""Makes a DataFrame from one DataFrame per group of tables, and the constants."""

_FIRST_MARKER, _NEXT_MARKER = 1 << 60, 1 << 52
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
        self._kept: dict[Hashable, KeptPlan | None] = {}

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
        anew: Callable[[DataFrame], DataFrame] = lambda built: built,
    ) -> DataFrame:
        """The result of ``build`` for its inputs and constants."""

        def planned_anew() -> DataFrame:
            built = anew(build(*(_read([each.frame for each in rows], tasks) for rows in inputs), *constants))
            return built.localCheckpoint(eager=False) if held else built

        groups = [groups_of(rows) for rows in inputs]
        session = inputs[0][0].table.sparkSession
        if not all(groups) or not is_open(session, KEPT_PLANS):
            return planned_anew()
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
            return planned_anew()
        return kept.run([tables for group in groups for tables in group.values()], used(*constants), held=held)


def _plan(
    session: SparkSession,
    groups: Sequence[Groups],
    build: Build,
    constants: Constants,
    used: Callable[..., Constants],
    tasks: int | None,
    shuffled: Callable[[SparkSession, Any], Any],
) -> KeptPlan | None:
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
    if changes(session, execution.analyzed()):
        return None
    plan = shuffled(session, execution.sparkPlan())
    leaves = _leaves(plan)
    # Of the analyzed plan too: the optimizer leaves out a joined table that has no rows yet.
    for node, name in ((execution.analyzed(), "LogicalRDD"), (plan, "RDDScanExec")):
        if any(leaf.getClass().getSimpleName() != name or leaf.rdd().id() not in places for leaf in _leaves(node)):
            # A table that a user's transformation joins, or rows that are always the same.
            return None
    kept = KeptPlan(session, plan, [Leaf(leaf, places[leaf.rdd().id()]) for leaf in leaves], plan.output(), known)
    # What no transformation finds, or ``constant`` did not make, would compute with a marker in every epoch.
    shown = kept.with_constants(plan, [None if marker is None else 0 for marker in known])
    text = shown.treeString(True, False, _ALL_FIELDS, False, *(() if LINE < (4, 1) else (False,)))
    return None if any(str(marker) in text for marker in {*markers, *known} if marker is not None) else kept


def _leaves(plan: Any) -> list[Any]:
    found = plan.collectLeaves()
    return [found.apply(number) for number in range(found.size())]


def _read(frames: Sequence[DataFrame], tasks: int | None) -> DataFrame:
    rows = reduce(DataFrame.unionByName, frames)
    return rows if tasks is None else rows.coalesce(tasks)
