"""Every built-in aggregate, by the name of Spark's function that computes the same.

Each gives Spark's result for the rows of a window, with three differences: what depends on order (first, last,
any_value, collect_list, listagg, ties of min_by, max_by and mode) goes by event time or value, never by arrival; an
overflowing sum is an error in every mode, except that of try_sum; and a type that Spark would cast silently, such as a
string in ``sum``, is refused.

Those that can take rows out of a running window again (*deduct*), and so cost the same however many windows overlap,
are: count, count_if, bool_and, bool_or, bit_xor, regr_count, and sum and avg of integers and of decimals up to 27
digits.
"""

from sparkjet.aggregates.bits import bit_and, bit_or, bit_xor
from sparkjet.aggregates.collected import bottom_n, collect_list, collect_set, top_n
from sparkjet.aggregates.conditions import bool_and, bool_or, count_if, every, some
from sparkjet.aggregates.correlations import corr, covar_pop, covar_samp
from sparkjet.aggregates.distinct import approx_count_distinct
from sparkjet.aggregates.distinct_values import avg_distinct, count_distinct, sum_distinct
from sparkjet.aggregates.extremes import any_value, first, last, max, max_by, min, min_by
from sparkjet.aggregates.histograms import histogram_numeric
from sparkjet.aggregates.listings import listagg, listagg_distinct
from sparkjet.aggregates.modes import mode
from sparkjet.aggregates.moments import (
    kurtosis,
    skewness,
    std,
    stddev,
    stddev_pop,
    stddev_samp,
    var_pop,
    var_samp,
    variance,
)
from sparkjet.aggregates.percentiles import median, percentile, percentile_cont, percentile_disc
from sparkjet.aggregates.quantiles import percentile_approx
from sparkjet.aggregates.regressions import (
    linear_trend,
    regr_avgx,
    regr_avgy,
    regr_count,
    regr_intercept,
    regr_r2,
    regr_slope,
    regr_sxx,
    regr_sxy,
    regr_syy,
)
from sparkjet.aggregates.sums import avg, count, product, sum, try_avg, try_sum

__all__ = [
    "any_value",
    "approx_count_distinct",
    "avg",
    "avg_distinct",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "bottom_n",
    "collect_list",
    "collect_set",
    "corr",
    "count",
    "count_distinct",
    "count_if",
    "covar_pop",
    "covar_samp",
    "every",
    "first",
    "histogram_numeric",
    "kurtosis",
    "last",
    "linear_trend",
    "listagg",
    "listagg_distinct",
    "max",
    "max_by",
    "median",
    "min",
    "min_by",
    "mode",
    "percentile",
    "percentile_approx",
    "percentile_cont",
    "percentile_disc",
    "product",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "skewness",
    "some",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "sum_distinct",
    "top_n",
    "try_avg",
    "try_sum",
    "var_pop",
    "var_samp",
    "variance",
]
