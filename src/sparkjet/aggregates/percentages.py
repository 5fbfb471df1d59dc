"""Percentages: one or several numbers from 0 to 1, as the percentile functions take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Percentages:
    """The percentages as they were given.

    Attributes:
        values: The numbers.
        several: Whether they were given as a list, so that the result is an array.

    >>> str(Percentages.of([0.5, 0.9])), str(Percentages.of(0.5))
    ('array(0.5, 0.9)', '0.5')
    """

    values: tuple[object, ...]
    several: bool

    @staticmethod
    def of(percentage: float | Sequence[float]) -> Percentages:
        """The percentages in the argument of a function."""
        several = isinstance(percentage, Sequence)
        return Percentages(tuple(percentage) if isinstance(percentage, Sequence) else (percentage,), several)

    def __str__(self) -> str:
        """The percentages as Spark writes them."""
        return f"array({', '.join(map(str, self.values))})" if self.several else str(self.values[0])

    def check(self, name: str) -> None:
        """Check that there is at least one and that all are in range."""
        for one in self.values:
            if isinstance(one, bool) or not isinstance(one, (int, float)) or not 0 <= one <= 1:
                raise AnalysisError(f"{name}: a percentage is {one!r}; give numbers from 0 to 1, e.g. 0.95.")
        if not self.values:
            raise AnalysisError(f"{name}: not a percentage; give one number from 0 to 1, or several.")

    def column(self) -> Column:
        """An array of the percentages as doubles."""
        return F.array(*(F.lit(one).cast("double") for one in self.values))

    def result(self, values: Column) -> Column:
        """The result of a function, from an array with one value per percentage."""
        return values if self.several else F.get(values, F.lit(0))
