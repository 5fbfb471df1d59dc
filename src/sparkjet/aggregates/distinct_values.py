"""count_distinct, sum_distinct and avg_distinct: exact aggregates of the distinct values, which they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegralType, NumericType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate
from sparkjet.aggregates.totals import check_addable, decimal_mean, failing, no_time
from sparkjet.aggregates.value_sets import value_set
from sparkjet.aggregates.values import column_of, none_null, orderable_type, summable
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from sparkjet.aggregates.operation import AggregateOperation, ColumnOrName, Inputs

_WIDEST = "decimal(38,0)"
_MOST_DIGITS, _SPARE_DIGITS, _KEPT_SCALE = 38, 10, 6


def count_distinct(col: ColumnOrName, *cols: ColumnOrName) -> Aggregate:
    """Exact number of distinct values, or of distinct rows over several columns, none of them null; bigint.

    The state holds the distinct values, so it grows with their number. See :func:`approx_count_distinct` for a state of
    limited size.
    """
    name = f"count(DISTINCT {', '.join(map(label, (col, *cols)))})"

    def resolve(inputs: Inputs) -> AggregateOperation:
        types = [orderable_type(inputs, name, one, "its values cannot be distinguished") for one in (col, *cols)]
        value, data_type = column_of(col), types[0]
        if cols:
            parts = [column_of(one).alias(f"part{i}") for i, one in enumerate((col, *cols))]
            value = F.when(none_null(col, *cols), F.struct(*parts))
            data_type = StructType([StructField(f"part{i}", part) for i, part in enumerate(types)])
        return value_set(value, data_type, lambda values: F.size(values).cast("bigint"))

    return Aggregate(name, resolve)


def sum_distinct(col: ColumnOrName) -> Aggregate:
    """Sum of the distinct non-null values; null if there are none.

    The result has the type of :func:`sum`, and overflow is an error whatever ``spark.sql.ansi.enabled`` is. The values
    are added in ascending order, so that floating-point sums do not depend on the order of the rows. The state holds
    the distinct values, so it grows with their number.
    """
    return _distinct(f"sum(DISTINCT {label(col)})", col, _sum)


def avg_distinct(col: ColumnOrName) -> Aggregate:
    """Mean of the distinct non-null values; null if there are none.

    The result has the type of :func:`avg`. The state holds the distinct values, so it grows with their number.
    """
    return _distinct(f"avg(DISTINCT {label(col)})", col, _mean)


def _distinct(name: str, col: ColumnOrName, read: Callable[[str, Column, DataType], Column]) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type = summable(inputs, name, col)
        check_addable(name, data_type)

        def finish(values: Column) -> Column:
            return F.when(F.size(values) > 0, read(name, F.sort_array(values), data_type))

        return value_set(column_of(col), data_type, finish)

    return Aggregate(name, resolve)


def _sum(name: str, values: Column, data_type: DataType) -> Column:
    result = _sum_type(data_type)
    overflow = failing(f"{name}: the sum exceeds {result}. Cast the column to a decimal with room for it.", result)
    return F.coalesce(_added(values, data_type).try_cast(result), overflow)


def _mean(name: str, values: Column, data_type: DataType) -> Column:
    count = F.size(values).cast("bigint")
    if isinstance(data_type, DecimalType):
        return decimal_mean(name, _sum(name, values, data_type), count, data_type, failing)
    total = _added(values, data_type) if isinstance(data_type, IntegralType) else _sum(name, values, data_type)
    return (total.cast("double") if isinstance(data_type, IntegralType) else total) / count


def _sum_type(data_type: DataType) -> str:
    """The result type of Spark's sum."""
    if isinstance(data_type, DecimalType):
        return f"decimal({min(_MOST_DIGITS, data_type.precision + _SPARE_DIGITS)},{data_type.scale})"
    if isinstance(data_type, IntegralType):
        return "bigint"
    return "double" if isinstance(data_type, NumericType) else data_type.simpleString()


def _added(values: Column, data_type: DataType) -> Column:
    """The sum, null where it overflows; for integers, in a wider type than Spark's."""
    # Not bigint: a partial sum may exceed 64 bits where the whole does not.
    total = _WIDEST if isinstance(data_type, IntegralType) else _sum_type(data_type)
    added = total
    if isinstance(data_type, DecimalType) and data_type.precision + _SPARE_DIGITS >= _MOST_DIGITS:
        # Spark drops a digit of scale when adding two 38-digit decimals.
        added = total if data_type.scale <= _KEPT_SCALE else f"decimal({_MOST_DIGITS - 1},{data_type.scale})"
    zero = F.lit(0).cast(total) if isinstance(data_type, NumericType) else no_time(data_type)

    def add(done: Column, value: Column) -> Column:
        return F.try_add(done.try_cast(added), value.try_cast(added)).try_cast(total)

    return F.aggregate(values, zero, add)
