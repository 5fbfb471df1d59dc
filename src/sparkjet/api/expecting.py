"""The method of streams and results about conditions that each row should meet."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.catalyst.stars import starless
from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan.expectations import Action, Expectation, expect, expected


class Expecting(FrameMethods):
    """The method of streams and results about conditions that each row should meet."""

    def expect(self, name: str, condition: Column | str, action: str) -> Self:
        """Keep the rows for which a condition is true, count the others by name, and say what happens to them.

        Rows are judged at this point: a row that a ``where`` or an earlier expectation has removed is not judged. A
        condition that is null is not met. ``lastProgress["expectations"]`` and the metrics report how many rows did not
        meet each expectation; each row counts once, even if the query was killed in between.

        Args:
            name: The name under which it is counted; a query has one expectation per name.
            condition: A Column, or SQL.
            action: ``drop``: the other rows go nowhere. ``divert``: they are dead letters, with this name in
                ``_stage``; needs :meth:`divert` before. ``fail``: they fail the query, and nothing of the epoch is
                written.

        Raises:
            AnalysisError: A name that is empty or taken, another action, or no ``divert`` before.

        >>> import sparkjet as sj
        >>> prices = sj.stream(spark.createDataFrame([(101,), (-1,), (None,)], "px int"))
        >>> prices.expect("positive price", "px > 0", action="drop").toDF().collect()
        [Row(px=101)]
        """
        chosen = _action(action)
        given: object = name
        if not isinstance(given, str) or not given.strip():
            raise AnalysisError(f"expect: {given!r} is not a name. Give text by which rows that fail are counted.")
        if any(each.name == name for each in expected(self._chain.all_links).values()):
            message = f"expect: these rows have an expectation {name!r} already. Give each its own name."
            raise AnalysisError(message)
        asked: object = condition
        if not isinstance(asked, Column | str):
            message = f'expect: {asked!r} is not a condition: a Column or SQL, such as F.col("px") > 0 or "px > 0".'
            raise AnalysisError(message)
        if chosen is Action.DIVERT and self._chain.divert is None:
            message = (
                f'expect: {name!r} has action="divert", and rows are not diverted here. Call divert(errors=True) '
                "before it: dead letters are rows as they are there."
            )
            raise AnalysisError(message)
        column = F.expr(condition) if isinstance(condition, str) else condition
        return self._then(expect(Expectation(name, starless(column, self._chain.shape), chosen)))


def _action(given: object) -> Action:
    known = [each.value for each in Action]
    if given not in known:
        raise AnalysisError(f"expect: action={given!r}; {nearest(str(given), known)}.")
    return Action(given)
