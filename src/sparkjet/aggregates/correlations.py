"""corr, covar_pop and covar_samp: moments of pairs, merged around their means so that they stay stable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.aggregates.moments import exact_mean, no_rows, shares
from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.values import column_of, number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs

_SIDES = {"xx": ("mean_x", "mean_x"), "xy": ("mean_x", "mean_y"), "yy": ("mean_y", "mean_y")}
_SPARKS: dict[str, Callable[[Column, Column], Column]] = {"xx": F.regr_sxx, "xy": F.regr_sxy, "yy": F.regr_syy}


def corr(col1: ColumnOrName, col2: ColumnOrName) -> Aggregate:
    """Pearson's correlation of two columns, as double; null if either has fewer than two distinct values.

    Rows where either is null are ignored. Numbers are cast to double. Parts are merged around their means, which
    is numerically stable, unlike sums of products. Does not deduct.
    """
    name = f"corr({label(col1)}, {label(col2)})"
    return pairs(name, col2, col1, ("xx", "xy", "yy"), lambda acc: F.when(acc["count"] > 1, correlation(acc)))


def covar_pop(col1: ColumnOrName, col2: ColumnOrName) -> Aggregate:
    """Population covariance of two columns, as double; null if there are no pairs. See :func:`corr`."""
    name = f"covar_pop({label(col1)}, {label(col2)})"
    return pairs(name, col2, col1, ("xy",), lambda acc: F.when(acc["count"] > 0, acc["xy"] / acc["count"]))


def covar_samp(col1: ColumnOrName, col2: ColumnOrName) -> Aggregate:
    """Sample covariance of two columns, as double; null for fewer than two pairs. See :func:`corr`."""
    name = f"covar_samp({label(col1)}, {label(col2)})"
    return pairs(name, col2, col1, ("xy",), lambda acc: F.when(acc["count"] > 1, acc["xy"] / (acc["count"] - 1)))


def correlation(acc: Accumulator) -> Column:
    """The correlation of pairs, from the sums of all their products."""
    varies = (acc["xx"] != 0) & (acc["yy"] != 0)
    return F.when(varies, F.try_divide(acc["xy"], F.sqrt(acc["xx"] * acc["yy"])))


def pairs(
    name: str, y: ColumnOrName, x: ColumnOrName, products: Sequence[str], finish: Callable[[Accumulator], Column]
) -> Aggregate:
    """The aggregate of the pairs without null: their number, their means, and sums of products around these."""

    def resolve(inputs: Inputs) -> AggregateOperation:
        number(inputs, name, x)
        number(inputs, name, y)
        return _moments(column_of(y).cast("double"), column_of(x).cast("double"), products, finish)

    return Aggregate(name, resolve)


def _moments(
    y: Column, x: Column, products: Sequence[str], finish: Callable[[Accumulator], Column]
) -> AggregateOperation:
    both = y.isNotNull() & x.isNotNull()
    sums = {
        "mean_x": exact_mean(F.when(both, x), F.regr_sxx(y, x)),
        "mean_y": exact_mean(F.when(both, y), F.regr_syy(y, x)),
        **{name: _SPARKS[name](y, x) for name in products},
    }
    return AggregateOperation(
        accumulate={"count": F.regr_count(y, x), **{field: F.coalesce(c, F.lit(0.0)) for field, c in sums.items()}},
        create={"count": no_rows(), **{field: F.lit(0.0) for field in sums}},
        combine=partial(_combine, products),
        finish=finish,
    )


def _combine(products: Sequence[str], left: Accumulator, right: Accumulator) -> Accumulator:
    count, share = shares(left, right)
    delta = {mean: right[mean] - left[mean] for mean in ("mean_x", "mean_y")}
    weight = left["count"] * share
    return {
        "count": count,
        **{mean: left[mean] + difference * share for mean, difference in delta.items()},
        # Multiplied in this order: with an empty left side, the product of the two may be infinite, and 0 × inf is NaN.
        **{
            name: left[name] + right[name] + delta[one] * weight * delta[other]
            for name, (one, other) in _SIDES.items()
            if name in products
        },
    }
