"""Expectations: conditions that should hold for each row, and what happens to rows for which they do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import FAILURE, KEPT, ORIGINAL, quoted, visible
from sparkjet.plan.diverting import PLACE, STEP, Tries, failure
from sparkjet.plan.links import where

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from sparkjet.plan.transformations import Link, Transformations

VIOLATION = "EXPECTATION_VIOLATION"
"""The value of ``_error`` in a dead letter if no expression has raised."""
NAME, ROW = "name", "row"
"""Columns of :meth:`Expected.violations`."""
_STEP = "_sparkjet_step"


class Action(Enum):
    """The fate of a row that does not meet an expectation."""

    DROP = "drop"
    """The row goes nowhere."""
    DIVERT = "divert"
    """The row goes to the dead letters."""
    FAIL = "fail"
    """The query ends before the decision."""


@dataclass(frozen=True, eq=False)
class Expectation:
    """A condition that should hold for each row; null counts as not met.

    Attributes:
        name: The name under which violations are counted.
        condition: The condition.
        action: What happens if it is not met.
    """

    name: str
    condition: Column
    action: Action

    @property
    def place(self) -> str:
        """The value of ``_stage`` in a dead letter."""
        return f"expect {self.name}"


@dataclass(frozen=True)
class Expected:
    """The expectations that are counted as rows pass through a chain, by the numbers of their links.

    Attributes:
        chain: The chain.
        plain: Those before ``divert``, or without it.
        tried: Those after it, where rows are marked.
    """

    chain: Transformations
    plain: Mapping[int, Expectation]
    tried: Mapping[int, Expectation]

    @staticmethod
    def of(chain: Transformations, counted: Collection[Expectation] = ()) -> Expected:
        """The expectations of a chain, without those that are counted for another chain with the same beginning."""
        every = {step: each for step, each in expected(chain.all_links).items() if each not in counted}
        tried = {step: each for step, each in every.items() if step in expected(chain.diverted_links)}
        return Expected(chain, {step: each for step, each in every.items() if step not in tried}, tried)

    @property
    def all(self) -> list[Expectation]:
        """All of both kinds."""
        return [*self.plain.values(), *self.tried.values()]

    def violations(self, rows: DataFrame, tried: DataFrame | None, after: int = 0) -> list[DataFrame]:
        """The rows that violate an expectation, each as text, with the name of the first one."""
        links, tried_from, number = self.chain.links, self.chain.tried_from, after
        plain = len(links) if tried_from is None else max(after, tried_from)
        found: list[DataFrame] = []
        while any(link.number in self.plain for link in links[number:plain]):
            # Consecutive expectations are evaluated in one pass.
            end = number
            while end < plain and links[end].expectation is not None:
                end += 1
            together = expected(links[number:end])
            if together.keys() & self.plain.keys():
                found.append(_first(rows, together, self.plain))
            end = max(end, number + 1)
            for link in links[number:end]:
                rows = link.plain(rows)
            number = end
        if tried is not None and self.tried:
            row = F.col(ORIGINAL).cast("string").alias(ROW)
            violated = tried.where(is_violation(self.tried))
            found.append(violated.select(_named(f"{FAILURE}.{STEP}", self.tried), row))
        return found


def expect(expectation: Expectation) -> Link:
    """The link of an expectation: a filter that records the rows that do not meet it."""
    tries = Tries([(f"{expectation.place}:", expectation.condition)])

    def tried(frame: DataFrame, step: int) -> DataFrame:
        frame = tries.on(frame)
        known = F.coalesce(tries.value(0), F.lit(False))
        marks = tries.marks(step, known)
        violated = F.when(F.col(KEPT) & ~known, failure(step, expectation.place))
        # After errors: if the condition has raised, it is neither true nor false.
        marks[FAILURE] = F.coalesce(marks.get(FAILURE, F.col(FAILURE)), violated)
        return tries.without(frame.withColumns(marks))

    return replace(where(expectation.condition), tried=tried, tries=lambda: tries, expectation=expectation)


def expected(links: Iterable[Link], *actions: Action) -> dict[int, Expectation]:
    """The expectations among some links, by number; all, or those with one of some actions."""
    found = {link.number: link.expectation for link in links if link.expectation is not None}
    return {number: each for number, each in found.items() if not actions or each.action in actions}


def is_violation(expectations: Mapping[int, Expectation]) -> Column:
    """Whether a tried row has violated one of some expectations; null if it has not failed."""
    each = [
        (F.col(f"{FAILURE}.{STEP}") == number) & (F.col(f"{FAILURE}.{PLACE}") == expectation.place)
        for number, expectation in expectations.items()
    ]
    return reduce(or_, each, F.lit(False))


def _first(rows: DataFrame, together: Mapping[int, Expectation], wanted: Mapping[int, Expectation]) -> DataFrame:
    """The rows that violate one of some expectations, each evaluated only if the previous ones are met."""
    steps = [F.when(~F.coalesce(each.condition, F.lit(False)), F.lit(step)) for step, each in together.items()]
    found = rows.withColumn(_STEP, F.coalesce(*steps)).where(F.col(_STEP).isin([*wanted]))
    row = F.struct(*(F.col(quoted(name)) for name in visible(rows)))
    return found.select(_named(_STEP, wanted), row.cast("string").alias(ROW))


def _named(step: str, expectations: Mapping[int, Expectation]) -> Column:
    """The name of the expectation whose number is in a column."""
    each = (F.when(F.col(step) == number, F.lit(found.name)) for number, found in expectations.items())
    return F.coalesce(*each).alias(NAME)
