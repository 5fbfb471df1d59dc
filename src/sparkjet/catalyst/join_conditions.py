"""Join conditions taken apart: what is equal on both sides, how far apart their times may be, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from sparkjet.catalyst.expressions import (
    by_name,
    column_of,
    expression_of,
    function_name,
    inlined,
    rebuilt,
    without_alias,
)
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed
from sparkjet.catalyst.time_bounds import TimeBounds, TimeComparisons
from sparkjet.catalyst.unsaid import Unsaid, unsaid
from sparkjet.errors import AnalysisError
from sparkjet.java import java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EQUALITIES = {"EqualTo": False, "EqualNullSafe": True}
"""Whether null equals null."""


def place(side: str, number: int) -> str:
    """Name of a column of a side, ``"left"`` or ``"right"``, in the Columns of a :class:`JoinCondition`."""
    return f"{side}{number}"


@dataclass(frozen=True)
class JoinKey:
    """Two expressions that must be equal.

    Attributes:
        left: The one on the left row.
        right: The one on the right row, of the same type.
        null_safe: Whether null equals null.
        type: Their type, as SQL spells it.
    """

    left: Column
    right: Column
    null_safe: bool
    type: str

    @property
    def is_equal(self) -> Column:
        """Whether they are equal, in a form that Spark does not take for a shuffle key."""
        equal = self.left.isin(self.right)
        return equal | (self.left.isNull() & self.right.isNull()) if self.null_safe else equal


@dataclass(frozen=True)
class JoinedColumn:
    """A column of the joined rows.

    Attributes:
        name: Its name.
        column: How it is computed from the columns of both sides.
        qualifier: The alias of a side that it can also be named by.
        times: The sides whose event time it holds; both, if one replaces the other's null.
    """

    name: str
    column: Column
    qualifier: tuple[str, ...]
    times: frozenset[str]


@dataclass(frozen=True)
class JoinCondition:
    """A join as Spark has analyzed it; its Columns name the columns of the sides as :func:`place` does.

    Attributes:
        keys: The expressions that must be equal.
        bounds: How far the right time may be from the left one.
        times: The event time of each side that the bounds apply to, by its number among those of the side.
        rest: The part of the condition that ``bounds`` do not express; None if they express all of it.
        text: The whole condition in SQL.
        unsaid: What the text leaves out.
        columns: The columns of the joined rows.
    """

    keys: tuple[JoinKey, ...]
    bounds: TimeBounds
    times: tuple[int, int]
    rest: Column | None
    text: str
    unsaid: Unsaid
    columns: tuple[JoinedColumn, ...]


def sided(on: Column, left: DataFrame, right: DataFrame) -> Column:
    """The condition with the sides of ``a.id == b.id``: without them it is ``id = id``, as columns have no side."""
    session = left.sparkSession

    def of_both(part: Any) -> Any:
        if function_name(part) not in {"=", "==", "<=>"}:
            return None
        one, other = listed(part.arguments())
        if kind_of(one) != "UnresolvedAttribute" or kind_of(other) != "UnresolvedAttribute":
            return None
        name = str(one.name())
        if name != str(other.name()) or name not in left.columns or name not in right.columns:
            return None
        equal = left[name] == right[name] if function_name(part) != "<=>" else left[name].eqNullSafe(right[name])
        return expression_of(equal, session)

    expression = expression_of(on, session)
    found = rebuilt(expression, session, of_both)
    return on if found is expression else column_of(found, session)


def join_condition(joined: DataFrame, times: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]) -> JoinCondition:
    """Take a join apart."""
    taken_apart = _TakenApart(joined)
    conjuncts = list(taken_apart.conjuncts())
    found = []
    for numbers in product(*(range(len(each)) for each in times)):
        comparisons = taken_apart.comparisons([times[side][number] for side, number in enumerate(numbers)])
        bounds = [comparisons.bounds(each) for each in conjuncts]
        found.append((numbers, bounds, reduce(TimeBounds.within, [each for each in bounds if each], TimeBounds())))
    # The two event times about which the condition says the most.
    numbers, bounds, together = max(found, key=lambda each: (each[2].lower is not None) + (each[2].upper is not None))
    keys = [taken_apart.key(each) for each in conjuncts]
    rest = [
        taken_apart.column(conjunct) if key is None else key.is_equal
        for conjunct, key, bound in zip(conjuncts, keys, bounds, strict=True)
        if bound is None or not bound.exact
    ]
    return JoinCondition(
        keys=tuple(key for key in keys if key is not None),
        bounds=together,
        times=(numbers[0], numbers[1]),
        rest=reduce(lambda one, other: one & other, rest) if rest else None,
        text=taken_apart.text,
        unsaid=taken_apart.unsaid,
        columns=tuple(taken_apart.columns([times[side][number] for side, number in enumerate(numbers)])),
    )


def spark_join(sides: tuple[DataFrame, DataFrame], on: Any, how: str) -> DataFrame:
    """The join of two DataFrames."""
    try:
        return sides[0].join(sides[1], on, how)
    except AnalysisException as error:
        raise AnalysisError(_explained(error)) from error


class _TakenApart:
    """An analyzed join, on the driver."""

    def __init__(self, joined: DataFrame) -> None:
        self._session = joined.sparkSession
        # Without calls such as BETWEEN, which stand for other expressions.
        replace = static_method(self._session, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply")
        self._plan = replace(analyzed(joined))
        self._join = self._plan
        while self._join.nodeName() != "Join":
            self._join = children(self._join)[0]
        # The output of this plan, as Spark gives one side new identities if both sides are the same rows.
        self._ids = [[attribute_id(each) for each in listed(side.output())] for side in children(self._join)]
        self._names = {
            identity: place(side, number)
            for side, ids in zip(("left", "right"), self._ids, strict=True)
            for number, identity in enumerate(ids)
        }
        condition = self._join.condition()
        self._condition = inlined(condition.get(), self._session) if condition.isDefined() else None
        self.text = "" if self._condition is None else str(self._condition.sql())
        self._check()
        self.unsaid = unsaid([] if self._condition is None else [self._condition], self._session)

    def conjuncts(self) -> Iterator[Any]:
        """The expressions that must all be true."""
        open_parts = [] if self._condition is None else [self._condition]
        while open_parts:
            part = open_parts.pop(0)
            if kind_of(part) == "And":
                open_parts[:0] = children(part)
            else:
                yield part

    def comparisons(self, times: Sequence[Sequence[int]]) -> TimeComparisons:
        """A reader of comparisons between the event times in these columns of the sides."""
        left, right = ({ids[number] for number in numbers} for ids, numbers in zip(self._ids, times, strict=True))
        return TimeComparisons(self._session, left, right)

    def key(self, conjunct: Any) -> JoinKey | None:
        """The key that a conjunct stands for, None if it is not one."""
        if kind_of(conjunct) not in EQUALITIES:
            return None
        one, other = children(conjunct)
        if self._sides_of(one) == {"right"}:
            one, other = other, one
        if (self._sides_of(one), self._sides_of(other)) != ({"left"}, {"right"}):
            return None
        return JoinKey(
            self.column(one), self.column(other), EQUALITIES[kind_of(conjunct)], str(one.dataType().catalogString())
        )

    def column(self, expression: Any) -> Column:
        """An expression as a Column over the places of the sides' columns."""
        return column_of(by_name(expression, self._session, self._names), self._session)

    def columns(self, times: Sequence[Sequence[int]]) -> Iterator[JoinedColumn]:
        """The columns of the joined rows."""
        held = {
            ids[number]: side
            for side, ids, numbers in zip(("left", "right"), self._ids, times, strict=True)
            for number in numbers
        }
        found = listed(self._plan.projectList() if self._plan.nodeName() == "Project" else self._plan.output())
        for named in found:
            expression = without_alias(named)
            # Given a list of names, a full join takes a column from whichever side has a row.
            parts = children(expression) if kind_of(expression) == "Coalesce" else [expression]
            sides = [held.get(attribute_id(each)) if _is_attribute(each) else None for each in parts]
            yield JoinedColumn(
                str(named.name()),
                self.column(expression),
                tuple(str(each) for each in listed(named.qualifier())),
                frozenset(side for side in sides if side) if all(sides) else frozenset(),
            )

    def _sides_of(self, expression: Any) -> set[str]:
        ids = {attribute_id(each) for each in listed(expression.references().toSeq())}
        return {side for side, own in zip(("left", "right"), self._ids, strict=True) if not ids.isdisjoint(own)}

    def _check(self) -> None:
        if self._condition is None:
            return
        patterns = java_class(self._session, "org.apache.spark.sql.catalyst.trees.TreePattern")
        for pattern, what in ((patterns.PYTHON_UDF(), "a Python function"), (patterns.PLAN_EXPRESSION(), "a subquery")):
            if self._condition.containsPattern(pattern):
                message = (
                    f"join: the condition contains {what}. Compute its value before, with withColumn(…), and compare "
                    "the column."
                )
                raise AnalysisError(message)


def _is_attribute(expression: Any) -> bool:
    return kind_of(expression) == "AttributeReference"


def _explained(error: AnalysisException) -> str:
    reason = str(error).partition("\n")[0].rstrip(".")
    way_out = ""
    if error.getCondition() in {"AMBIGUOUS_REFERENCE", "MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_APPEAR_IN_OPERATION"}:
        way_out = (
            ' Both streams have such a column: rename one, or name the streams, as in a.alias("a").join(b.alias("b"), '
            'F.expr("a.id = b.id AND …")).'
        )
    return f"join: {reason}.{way_out}"
