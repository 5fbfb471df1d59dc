"""Aggregate functions for ``agg`` that Spark lacks; those of ``pyspark.sql.functions`` are used as they are."""

from typing import TYPE_CHECKING

from sparkjet.aggregates.advice import instead_of
from sparkjet.aggregates.collected import bottom_n, top_n
from sparkjet.aggregates.percentiles import percentile_cont, percentile_disc
from sparkjet.aggregates.regressions import linear_trend
from sparkjet.errors import missing

__all__ = ["bottom_n", "linear_trend", "percentile_cont", "percentile_disc", "top_n"]

if not TYPE_CHECKING:
    # Hidden from type checkers: they would accept every misspelled name.
    def __getattr__(name: str) -> None:
        """Name the alternative to a function that is not here."""
        raise missing(__name__, name, __all__, instead_of(name))
