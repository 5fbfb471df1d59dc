"""Columns written out: the expressions that they stand for, down to the columns that a stream comes with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import expression_of, inlined, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, kind_of, listed, passed_nodes
from sparkjet.java import as_seq, java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CATALYST = "org.apache.spark.sql.catalyst"
_MOST_LEAVES = 500
"""Expressions that use one column several times, column by column, would grow without end."""
_LONGEST, _SHOWN = 300, 200
_ZONED = "TIMESTAMP '"


class WrittenOut:
    """Writes out expressions over some rows, for analysis only; on the driver.

    What is written has no names of columns in between, so that renaming these, or adding others, changes nothing.

    Args:
        rows: The rows.
        ends: Identities of the columns that are not followed any further: the results of a stage; none of others.
    """

    def __init__(self, rows: DataFrame, ends: Iterable[int] = ()) -> None:
        self._rows = rows
        self._session = rows.sparkSession
        self._ends = frozenset(ends)

    def text(self, expression: Any) -> str | None:
        """An analyzed expression as SQL; None of one that differs from run to run, or is too large to be compared."""
        written = without_alias(expression)
        for aliases in self._aliases:
            written = self._rule.replaceAlias(written, aliases)
            if written.collectLeaves().size() > _MOST_LEAVES:
                return None
        # Numbers of subqueries, and seeds, are drawn anew in each run.
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

    @cached_property
    def _rule(self) -> Any:
        return getattr(java_class(self._session, f"{_CATALYST}.optimizer.CollapseProject$"), "MODULE$")

    @cached_property
    def _aliases(self) -> list[Any]:
        """What each projection computes, from the top down."""
        plan = analyzed(self._rows)
        ends = self._ends or _names_alone(plan)
        if not ends:
            # Into few of them, where that does not repeat anything: each costs calls for each column.
            plan = self._rule.apply(plan)
        found = []
        for node in passed_nodes(plan):
            if ends and _output(node) <= ends:
                break
            if node.nodeName() == "Project":
                found.append(self._rule.getAliasMap(node))
        return found

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


def _output(node: Any) -> set[int]:
    return {attribute_id(each) for each in listed(node.output())}


def _names_alone(plan: Any) -> set[int]:
    """The columns of a source that is a projection of nulls, as a stream driver plans with: its names say more."""
    last = next((node for node in reversed(list(passed_nodes(plan))) if node.nodeName() == "Project"), None)
    return _output(last) if last is not None and all(map(_is_null, listed(last.projectList()))) else set()


def _is_null(column: Any) -> bool:
    expression = without_alias(column)
    while kind_of(expression) == "Cast":
        expression = expression.child()
    return kind_of(expression) == "Literal" and expression.value() is None
