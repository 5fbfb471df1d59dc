"""Lateral aliases: columns of a ``select`` that name other columns of it, replaced by what these compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import column_of, expression_of, label, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, kind_of, listed, same_name
from sparkjet.catalyst.plan_analysis import can_repeat
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def standing_alone(items: Sequence[Column | str], names: Sequence[str], rows: DataFrame) -> list[Column | str]:
    """The columns of a ``select``, rewritten so that none needs another one."""
    session, plan = rows.sparkSession, analyzed(rows)
    resolver = session._jsparkSession.sessionState().conf().resolver()
    earlier: list[tuple[str, Any]] = []
    alone: list[Column | str] = []
    for item, name in zip(items, names, strict=True):

        def named(part: Any, item: Column | str = item) -> Any:
            if kind_of(part) != "UnresolvedAttribute" or plan.resolve(part.nameParts(), resolver).isDefined():
                return None
            first, *fields = map(str, listed(part.nameParts()))
            found = next((each for other, each in earlier if same_name(rows, other, first)), None)
            if found is None:
                return None
            column = column_of(found, session)
            if not can_repeat(rows.select(column)):
                message = (
                    f"select: {label(item)} uses {first!r} of the same select(…), which would be computed once more, "
                    "as something else. Compute that in a select(…) or withColumn(…) before."
                )
                raise AnalysisError(message)
            for each in fields:
                column = column.getField(each)
            return expression_of(column, session)

        before = expression_of(item if isinstance(item, Column) else F.col(item), session)
        expression = rebuilt(before, session, named)
        alone.append(item if expression is before else column_of(expression, session))
        earlier.append((name, without_alias(expression)))
    return alone
