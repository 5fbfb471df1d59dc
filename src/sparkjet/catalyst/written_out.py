"""Columns written out: the expressions that they stand for, down to the columns that a stream comes with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.expressions import inlined, parts_of, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import aliases, analyzed, attribute_id, kind_of, passed_nodes
from sparkjet.java import as_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_PARTS = 500
"""Expressions that use one column several times, column by column, would grow without end."""
_LONGEST, _SHOWN = 300, 200
_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"})


class WrittenOut:
    """Writes out expressions over some rows, for analysis only; on the driver.

    What is written has no names of columns in between, so that renaming these, or adding others, changes nothing.

    Args:
        rows: The rows.
        ends: Identities of the columns that are not followed any further, such as the results of a stage.
    """

    def __init__(self, rows: DataFrame, ends: Iterable[int] = ()) -> None:
        self._session = rows.sparkSession
        ended = set(ends)
        found = aliases(passed_nodes(analyzed(rows)))
        self._followed = {number: each for number, each in found.items() if number not in ended and not _is_null(each)}
        self._sizes: dict[int, int] = {}

    def text(self, expression: Any) -> str | None:
        """An analyzed expression as SQL; None of one that differs from run to run, or is too large to be compared."""
        expression = without_alias(expression)
        if self._size(expression) > _MOST_PARTS:
            return None
        written = self._written(expression)
        # Numbers of subqueries, and seeds, are drawn anew in each run.
        if not written.deterministic() or any(kind_of(part) in _SUBQUERIES for part in parts_of(written)):
            return None
        text = str(written.sql())
        if len(text) <= _LONGEST:
            return text
        return f"{text[:_SHOWN]}… ({hashlib.sha256(text.encode()).hexdigest()[:12]})"

    def _size(self, expression: Any) -> int:
        size = 0
        for part in parts_of(expression):
            size += 1
            if kind_of(part) == "AttributeReference" and attribute_id(part) in self._followed:
                number = attribute_id(part)
                if number not in self._sizes:
                    self._sizes[number] = self._size(self._followed[number])
                size += self._sizes[number]
            if size > _MOST_PARTS:
                break
        return size

    def _written(self, expression: Any) -> Any:
        def replaced(part: Any) -> Any:
            if kind_of(part) != "AttributeReference":
                return None
            followed = self._followed.get(attribute_id(part))
            if followed is not None:
                return self._written(without_alias(followed))
            # A table that was moved has the same columns.
            return part.withQualifier(as_seq(self._session, []))

        return rebuilt(inlined(expression, self._session), self._session, replaced)


def _is_null(expression: Any) -> bool:
    """Whether a column is null in each row, as those that a stream driver plans with: its name says more."""
    while kind_of(expression) == "Cast":
        expression = expression.child()
    return kind_of(expression) == "Literal" and expression.value() is None
