"""Aggregate functions for ``agg``, with the names and argument order of pyspark.sql.functions where Spark has them.

Each gives Spark's result for the rows of a window, with three differences: what depends on order (first, last,
collect_list, ties of min_by and max_by) goes by event time, never by arrival; an overflowing sum is an error in
every mode; and a type that Spark would cast silently, such as a string in ``sum``, is refused.

Those that can take rows out of a running window again (*deduct*), and so cost the same however many windows
overlap: count, and sum and avg of integers and of decimals up to 27 digits.
"""

from typing import TYPE_CHECKING

from sparkjet.aggregates.advice import instead_of
from sparkjet.aggregates.collected import bottom_n, collect_list, collect_set, top_n
from sparkjet.aggregates.distinct import approx_count_distinct
from sparkjet.aggregates.extremes import first, last, max, max_by, min, min_by
from sparkjet.aggregates.moments import linear_trend, stddev, stddev_pop, stddev_samp, var_pop, var_samp, variance
from sparkjet.aggregates.quantiles import percentile_approx
from sparkjet.aggregates.sums import avg, count, mean, sum
from sparkjet.errors import missing

__all__ = [
    "approx_count_distinct",
    "avg",
    "bottom_n",
    "collect_list",
    "collect_set",
    "count",
    "first",
    "last",
    "linear_trend",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "percentile_approx",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "top_n",
    "var_pop",
    "var_samp",
    "variance",
]

if not TYPE_CHECKING:
    # Hidden from type checkers: they would accept every misspelt name.
    def __getattr__(name: str) -> None:
        """Name what to use instead of a function that is not here."""
        raise missing(__name__, name, __all__, instead_of(name))
