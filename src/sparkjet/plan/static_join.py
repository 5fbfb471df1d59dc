"""Joins with a static table: row by row, as Spark joins a stream with a batch DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, quoted, visible
from sparkjet.catalyst.expressions import column_of, expression_of, parts_of, rebuilt
from sparkjet.catalyst.logical_plans import (
    analyzed,
    attribute_id,
    attribute_ids,
    children,
    kind_of,
    listed,
    same_name,
)
from sparkjet.errors import AnalysisError
from sparkjet.plan.transformations import Link

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.static_tables import StaticTable
    from sparkjet.plan.transformations import Transformations

On: TypeAlias = "str | list[str] | Column | list[Column] | None"

_INNER = frozenset({"inner", "cross"})
_LEFT = frozenset({"left", "leftouter"})
_FILTERING = frozenset({"semi", "leftsemi", "anti", "leftanti"})
_WHOLE_TABLE = frozenset({"right", "rightouter", "outer", "full", "fullouter"})
_MATCHED = "_sparkjet_matched"
_COPY = "_sparkjet_copy"
_BOUND = "AttributeReference"
_CANNOT_FAIL = frozenset(
    {
        *(_BOUND, "Literal", "And", "Or", "Not", "IsNull", "IsNotNull", "In", "InSet"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
    }
)
"""Expressions that can be computed for rows that a filter has dropped."""


def static_join(rows: Transformations, table: StaticTable, on: On, how: str | None) -> Link:
    """The join of rows with a table, with the arguments of ``DataFrame.join``."""
    kind = (how or "inner").lower().replace("_", "")
    if kind in _WHOLE_TABLE:
        message = (
            f"join: how={how!r} would also give the rows of the table that match nothing, and a stream has no end at "
            "which that is known (Spark refuses it too). Use 'left', or join the written results with the table later."
        )
        raise AnalysisError(message)
    join = _Join(rows.shape, table.shape, on)
    parts = _condition_parts(rows.shape, join(rows.shape, table.shape, how))
    filtered = any(link.filters for link in rows.links)

    def plain(frame: DataFrame) -> DataFrame:
        return join(frame, table.frame(), how)

    def inner(frame: DataFrame) -> DataFrame:
        return join.marked(frame, table.frame())

    # Dropped rows would reach the condition; and Spark allows no Python function in the condition of an outer join.
    unsafe = (filtered and not _CANNOT_FAIL.issuperset(parts)) or any("PythonUDF" in part for part in parts)
    marked = {**dict.fromkeys(_INNER, inner), **dict.fromkeys(_LEFT, plain)}.get(kind)
    return Link(
        plain,
        None if unsafe else marked,
        filters=kind not in _LEFT,
        multiplies=kind not in _FILTERING,
        table=table,
        analyzed=lambda frame: join(frame, table.shape, how),
    )


class _Join:
    """A join whose condition is built once, for rows whose columns are found by name.

    A condition such as ``s.id == dim.id`` refers to a column of the table itself, and to one of the stream by its name,
    which both may have. Such a column of the stream is joined by a copy under a different name.
    """

    def __init__(self, rows: DataFrame, table: DataFrame, on: On) -> None:
        self._copies: dict[str, Column] = {}
        self._on: Any = None
        given: Sequence[object] = list(on) if isinstance(on, list | tuple) else [on]
        names = [each for each in given if isinstance(each, str)]
        conditions = [each for each in given if isinstance(each, Column)]
        if given and len(names) == len(given):
            _check_names(names)
            self._on = names
        elif given and len(conditions) == len(given):
            self._on = self._told_apart(reduce(and_, conditions), rows, table)
        elif on is not None:
            raise AnalysisError(f"join: on={on!r} must be a name, a Column, or a list of names or Columns.")

    def __call__(self, frame: DataFrame, table: DataFrame, how: str | None) -> DataFrame:
        """The rows joined with the table."""
        found = self._with_copies(frame).join(table, self._on, how)
        return found.drop(*self._copies) if self._copies else found

    def marked(self, frame: DataFrame, table: DataFrame) -> DataFrame:
        """An inner join that keeps the rows without a match, marked as dropped."""
        on = F.col(KEPT) if self._on is None else self._on
        found = self._with_copies(frame).join(table.withColumn(_MATCHED, F.lit(True)), on, "left_outer")
        kept = F.col(KEPT) & F.col(_MATCHED).isNotNull()
        return found.withColumn(KEPT, kept).drop(_MATCHED, *self._copies)

    def _with_copies(self, frame: DataFrame) -> DataFrame:
        return frame.withColumns(self._copies) if self._copies else frame

    def _told_apart(self, condition: Column, rows: DataFrame, table: DataFrame) -> Column:
        """A condition in which each column of the rows has a name that the table does not have."""
        session = rows.sparkSession
        outputs = [listed(analyzed(frame).output()) for frame in (rows, table)]
        own = {attribute_id(each): name for each, name in zip(outputs[0], rows.columns, strict=True)}
        others = {attribute_id(each) for each in outputs[1]}
        expression = expression_of(condition, session)
        # As in Spark, refuse a name that both have, unless it is compared with something that can only be the table's.
        decided = any(kind_of(part) == _BOUND and attribute_id(part) in others for part in parts_of(expression))

        def replacement(part: Any) -> Any:
            if kind_of(part) == _BOUND and attribute_id(part) not in others:
                name = own.get(attribute_id(part))
            elif decided and kind_of(part) == "UnresolvedAttribute" and part.nameParts().size() == 1:
                name = _same(rows, visible(rows), str(part.nameParts().head()))
            else:
                name = None
            return None if name is None else expression_of(self._own(name, rows, table), session)

        return column_of(rebuilt(expression, session, replacement), session)

    def _own(self, name: str, rows: DataFrame, table: DataFrame) -> Column:
        """A column of the rows, by a name that the table does not have."""
        if _same(rows, table.columns, name) is None:
            return F.col(quoted(name))
        copy = f"{_COPY}{rows.columns.index(name)}"
        self._copies[copy] = F.col(quoted(name))
        return F.col(copy)


def _same(rows: DataFrame, names: Sequence[str], name: str) -> str | None:
    return next((each for each in names if same_name(rows, each, name)), None)


def _check_names(names: Sequence[str]) -> None:
    hidden = [name for name in names if name.lower() in HIDDEN]
    if hidden:
        raise AnalysisError(f"join: the column {hidden[0]!r} is one of sparkjet's own. Join by a column of yours.")


def _condition_parts(rows: DataFrame, joined: DataFrame) -> list[str]:
    """The kinds of expression in the condition of a join."""
    node = analyzed(joined)
    while node.nodeName() != "Join":
        node = children(node)[0]
    if not node.condition().isDefined():
        return []
    condition = node.condition().get()
    hidden = {identity for name in HIDDEN for identity in attribute_ids(rows, name)}
    if any(attribute_id(each) in hidden for each in listed(condition.references().toSeq())):
        message = "join: the condition reads a column of sparkjet's own. Name the columns that it is to compare."
        raise AnalysisError(message)
    return [kind_of(part) for part in parts_of(condition)]
