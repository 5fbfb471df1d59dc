"""One seed after the other: a case is run, and if it differs made smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.cases import Case
from tests.differential.check import Difference, Skipped, difference
from tests.differential.coverage import Coverage
from tests.differential.queries import random_case
from tests.differential.shrinking import shrunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Trials:
    """Runs cases and counts them."""

    def __init__(self, spark: SparkSession) -> None:
        """Nothing has run yet."""
        self.spark = spark
        self.coverage = Coverage()
        self.failed = 0

    def run(self, seed: int, *, shrink: float) -> str | None:
        """The differences for a seed, and the script that shows them; None if there are none."""
        case = random_case(seed)
        try:
            found = difference(self.spark, case)
        except Skipped as skipped:
            self.coverage.refused[str(skipped)[:100]] += 1
            return None
        self.coverage.add(case)
        if found is None:
            return None
        self.failed += 1
        small = shrunk(case, lambda other: self._kind(other) == found.kind, shrink)
        again = self._found(small) or found
        return f"{'=' * 80}\nseed {seed}: {again.kind}\n{again.text}\n\n{small.script()}"

    def _kind(self, case: Case) -> str | None:
        found = self._found(case)
        return found.kind if found else None

    def _found(self, case: Case) -> Difference | None:
        try:
            return difference(self.spark, case)
        except Exception:  # noqa: BLE001 - a query that lost a part it needs is no smaller case
            return None
