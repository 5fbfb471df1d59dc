"""Columns written out: the expressions that they stand for, down to the columns that a stream comes with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import SIDE
from sparkjet.catalyst.expressions import expression_of, inlined, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, kind_of, listed, passed_children
from sparkjet.java import as_seq, java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_INPUTS = 16
"""Inputs of a union that are written out; of more the first alone, as each costs calls for each column."""
_Step: TypeAlias = Any
"""Spark's map of a projection's aliases, or by its identity what a union's column is in one of its inputs."""
_Way: TypeAlias = list[tuple[Any, dict[int, Any]]]
_CATALYST = "org.apache.spark.sql.catalyst"
_MOST_LEAVES = 500
"""Expressions that use one column several times, column by column, would grow without end."""
_LONGEST, _SHOWN = 300, 200
_ZONED = "TIMESTAMP '"


class WrittenOut:
    """Writes out expressions over some rows, for analysis only; on the driver.

    What is written has no names of columns in between, so that renaming these, or adding others, changes nothing. Where
    the rows are a union it is written once for each of the inputs below, in their order.

    Args:
        rows: The rows.
        ends: Identities of the columns that are not followed any further: the results of a stage; none of others.
    """

    def __init__(self, rows: DataFrame, ends: Iterable[int] = ()) -> None:
        self._rows = rows
        self._session = rows.sparkSession
        self._ends = frozenset(ends)

    @property
    def inputs(self) -> int:
        """How many inputs a union has below; 1 without one, or if there are more than :data:`MOST_INPUTS`."""
        return len(self._ways)

    def texts(self, expression: Any) -> list[str | None]:
        """An analyzed expression as SQL, for each input.

        None of one that differs from run to run, or is too large to be compared.
        """
        return [self._text(expression, way) for way in self._ways]

    def columns(self, expression: Any) -> set[int]:
        """Identities of the columns at the ends that an analyzed expression is computed from, of the first input."""
        written = without_alias(expression)
        for step in self._ways[0]:
            written = self._below(written, step)
        return set(map(attribute_id, _references(written)))

    def _text(self, expression: Any, way: Sequence[_Step]) -> str | None:
        written = without_alias(expression)
        for step in way:
            written = self._below(written, step)
            if written.collectLeaves().size() > _MOST_LEAVES:
                return None
        # Each run draws new numbers of subqueries, and new seeds.
        if not written.deterministic() or written.containsPattern(self._pattern("PLAN_EXPRESSION")):
            return None
        if written.containsPattern(self._pattern("WITH_EXPRESSION")):
            written = inlined(written, self._session)
        text = str(self._unqualified(written).sql())
        if _ZONED in text:
            text = str(self._zoneless(self._unqualified(written)).sql())
        if len(text) <= _LONGEST:
            return text
        return f"{text[:_SHOWN]}… ({hashlib.sha256(text.encode()).hexdigest()[:12]})"

    def _below(self, expression: Any, step: _Step) -> Any:
        """An expression over a node's output as one over its input."""
        if isinstance(step, dict):
            return rebuilt(
                expression,
                self._session,
                lambda part: step.get(attribute_id(part)) if kind_of(part) == "AttributeReference" else None,
            )
        found = self._rule.replaceAlias(expression, step)
        # Rows travel as structs: what else is in these is not read.
        return self._extracted(found) if found.containsPattern(self._pattern("EXTRACT_VALUE")) else found

    def _extracted(self, expression: Any) -> Any:
        """The expression with the fields of structs that are made in it."""

        def field(part: Any) -> Any:
            if kind_of(part) != "GetStructField" or kind_of(part.child()) != "CreateNamedStruct":
                return None
            return self._extracted(part.child().valExprs().apply(part.ordinal()))

        return rebuilt(expression, self._session, field)

    @cached_property
    def _rule(self) -> Any:
        return getattr(java_class(self._session, f"{_CATALYST}.optimizer.CollapseProject$"), "MODULE$")

    @cached_property
    def _ways(self) -> list[list[_Step]]:
        """For each input what projections and unions make of its columns, from the top down."""
        plan = analyzed(self._rows)
        first = next(_ways(plan))
        if not self._ends and not _names_alone(first):
            # Into few of them, where that does not repeat anything: each costs calls for each column.
            plan = self._rule.apply(plan)
        # Where each side of a union reads all inputs and drops the others', there are as many ways as pairs of them.
        ways = list(islice(_ways(plan), MOST_INPUTS * MOST_INPUTS + 1))
        found = [way for way in ways if self._is_one(way)] if len(ways) <= MOST_INPUTS * MOST_INPUTS else []
        return [self._steps(way) for way in (found if 0 < len(found) <= MOST_INPUTS else ways[:1])]

    def _steps(self, way: _Way) -> list[_Step]:
        ends, steps = self._ends or _names_alone(way), list[_Step]()
        for node, renamed in way:
            if ends and _output(node) <= ends:
                break
            if renamed:
                steps.append(renamed)
            elif node.nodeName() == "Project":
                steps.append(self._rule.getAliasMap(node))
        return steps

    def _is_one(self, way: _Way) -> bool:
        """Whether rows come this way: each side of a union may read both below, of which it drops one."""
        held: list[Any] = []
        for node, renamed in way:
            if node.nodeName() == "Filter" and SIDE in {str(each.name()) for each in _references(node.condition())}:
                held.append(node.condition())
            elif held and renamed:
                held = [self._below(each, renamed) for each in held]
            elif held and node.nodeName() == "Project":
                held = [self._below(each, self._rule.getAliasMap(node)) for each in held]
        return not any(each.foldable() and each.eval(None) is False for each in held)

    def _pattern(self, name: str) -> Any:
        return static_method(self._session, f"{_CATALYST}.trees.TreePattern.{name}")()

    def _zoneless(self, expression: Any) -> Any:
        """The expression with timestamps as numbers: Spark writes them in the session's time zone, which may change."""

        def number(part: Any) -> Any:
            is_time = kind_of(part) == "Literal" and str(part.dataType().typeName()) == "timestamp"
            return expression_of(F.lit(part.value()), self._session) if is_time and part.value() is not None else None

        return rebuilt(expression, self._session, number)

    def _unqualified(self, expression: Any) -> Any:
        """The expression with the names of columns alone: a table that was moved has the same."""
        if not any(each.qualifier().size() for each in listed(expression.references().toSeq())):
            return expression

        def named(part: Any) -> Any:
            is_column = kind_of(part) == "AttributeReference"
            return part.withQualifier(as_seq(self._session, [])) if is_column else None

        return rebuilt(expression, self._session, named)


def _ways(plan: Any) -> Iterator[_Way]:
    """The ways from the top of a plan to its inputs: the nodes, of a union with what its columns are in that input."""
    below = passed_children(plan)
    if plan.nodeName() != "Union":
        for ways in product(*map(_ways, below)):
            yield [(plan, {}), *chain.from_iterable(ways)]
        return
    columns = list(map(attribute_id, listed(plan.output())))
    for child in below:
        renamed = dict(zip(columns, listed(child.output()), strict=True))
        for way in _ways(child):
            # Its columns are those of the first input.
            yield [(plan, {} if child is below[0] else renamed), *way]


def _references(expression: Any) -> list[Any]:
    return listed(expression.references().toSeq())


def _output(node: Any) -> set[int]:
    return {attribute_id(each) for each in listed(node.output())}


def _names_alone(way: _Way) -> set[int]:
    """The columns of a source that is a projection of nulls, as a stream driver plans with: its names say more."""
    last = next((node for node, _ in reversed(way) if node.nodeName() == "Project"), None)
    return _output(last) if last is not None and all(map(_is_null, listed(last.projectList()))) else set()


def _is_null(column: Any) -> bool:
    expression = without_alias(column)
    while kind_of(expression) == "Cast":
        expression = expression.child()
    return kind_of(expression) == "Literal" and expression.value() is None
