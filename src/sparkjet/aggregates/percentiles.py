"""percentile and median: exact percentiles, from the count of each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.percentages import Percentages
from sparkjet.aggregates.value_counts import first_where, total_count, value_counts
from sparkjet.aggregates.values import bound, column_of, integer, number, whole_number
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from sparkjet.aggregates.operation import AggregateOperation, ColumnOrName, Inputs

_MOST_ROWS = (1 << 63) - 1
_At = Callable[["Column", "Column", "Column"], "Column"]
"""The percentile, from the entries, their total count and the percentage."""


def percentile(col: ColumnOrName, percentage: float | Sequence[float], frequency: ColumnOrName | int = 1) -> Aggregate:
    """Exact percentile of the non-null values, interpolated between the two nearest, as double; null if there are none.

    For a list of percentages, the result is an array. NaN is greater than any other number. Numbers are cast to double.

    The state holds every distinct value with its count: it grows with the number of distinct values. See
    :func:`percentile_approx` for a state of limited size.
    """
    percentages = Percentages.of(percentage)
    often = str(frequency) if isinstance(frequency, int) else label(frequency)
    name = f"percentile({label(col)}, {percentages}, {often})"
    percentages.check(name)
    if isinstance(frequency, int):
        whole_number(name, "frequency", frequency, 0, _MOST_ROWS)

    def resolve(inputs: Inputs) -> AggregateOperation:
        return _exact(inputs, name, col, percentages, _interpolated, _times(inputs, name, col, frequency))

    return Aggregate(name, resolve)


def median(col: ColumnOrName) -> Aggregate:
    """Exact median of the non-null values, as double: :func:`percentile` of 0.5."""
    name = f"median({label(col)})"
    return Aggregate(name, lambda inputs: _exact(inputs, name, col, Percentages.of(0.5), _interpolated))


def percentile_cont(col: ColumnOrName, percentage: float | Sequence[float], reverse: bool = False) -> Aggregate:
    """Exact percentile, interpolated: ``percentile_cont(percentage) WITHIN GROUP (ORDER BY col)`` in SQL.

    See :func:`percentile`.

    Args:
        col: Numbers.
        percentage: One from 0 to 1, or several.
        reverse: Whether to count from the greatest value, as with ``ORDER BY col DESC``.

    Raises:
        AnalysisError: A percentage is out of range; when resolved: the column is not a number.

    >>> from sparkjet import functions as J
    >>> J.percentile_cont("id", 0.25, reverse=True).evaluate(spark.range(4))
    2.25
    """
    return _within_group("percentile_cont", col, percentage, _interpolated, reverse=reverse)


def percentile_disc(col: ColumnOrName, percentage: float | Sequence[float], reverse: bool = False) -> Aggregate:
    """Exact percentile that occurs: ``percentile_disc(percentage) WITHIN GROUP (ORDER BY col)`` in SQL, as double.

    The first value such that it and those before it make up at least ``percentage`` of all. See :func:`percentile`.

    Args:
        col: Numbers.
        percentage: One from 0 to 1, or several.
        reverse: Whether to count from the greatest value, as with ``ORDER BY col DESC``.

    Raises:
        AnalysisError: A percentage is out of range; when resolved: the column is not a number.

    >>> from sparkjet import functions as J
    >>> J.percentile_disc("id", 0.5).evaluate(spark.range(4))
    1.0
    """
    return _within_group("percentile_disc", col, percentage, _occurring, reverse=reverse)


def _within_group(
    function: str, col: ColumnOrName, percentage: float | Sequence[float], at: _At, *, reverse: bool
) -> Aggregate:
    percentages = Percentages.of(percentage)
    name = f"{function}({percentages}) WITHIN GROUP (ORDER BY {label(col)}{' DESC' if reverse else ''})"
    percentages.check(name)

    def from_the_greatest(entries: Column, total: Column, percentage: Column) -> Column:
        return at(F.reverse(entries), total, percentage)

    return Aggregate(name, lambda inputs: _exact(inputs, name, col, percentages, from_the_greatest if reverse else at))


def _exact(
    inputs: Inputs, name: str, col: ColumnOrName, percentages: Percentages, at: _At, frequency: Column | None = None
) -> AggregateOperation:
    number(inputs, name, col)

    def finish(entries: Column) -> Column:
        def values(total: Column) -> Column:
            return F.transform(percentages.column(), lambda percentage: at(entries, total, percentage))

        return F.when(F.size(entries) > 0, percentages.result(bound(total_count(entries), values)))

    # As double, since that is the result type: values that become equal interpolate to the same.
    return value_counts(column_of(col).cast("double"), DoubleType(), finish, frequency)


def _interpolated(entries: Column, total: Column, percentage: Column) -> Column:
    position = (total - 1) * percentage
    below, above = F.floor(position), F.ceil(position)
    low = first_where(entries, lambda seen: seen > below, DoubleType())
    high = first_where(entries, lambda seen: seen > above, DoubleType())
    # No interpolation between equal values: it would turn two infinite values into NaN.
    return F.when(low == high, low).otherwise(low + (position - below) * (high - low))


def _occurring(entries: Column, total: Column, percentage: Column) -> Column:
    return first_where(entries, lambda seen: seen / total >= percentage, DoubleType())


def _times(inputs: Inputs, name: str, col: ColumnOrName, frequency: ColumnOrName | int) -> Column | None:
    if isinstance(frequency, int):
        return None if frequency == 1 else F.lit(frequency or None).cast("bigint")
    integer(inputs, name, frequency)
    often = column_of(frequency).cast("bigint")
    negative = F.raise_error(
        F.concat(
            F.lit(f"[NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION] {name}: the frequency {label(frequency)} is "),
            often.cast("string"),
            F.lit(", but must not be negative."),
        )
    )
    return F.when(often > 0, often).when((often < 0) & column_of(col).isNotNull(), negative.cast("bigint"))
