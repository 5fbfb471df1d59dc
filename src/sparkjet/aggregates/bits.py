"""bit_and, bit_or and bit_xor: the bits of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.aggregates.values import column_of, integer
from sparkjet.catalyst.expressions import label

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkjet.aggregates.operation import Accumulator, ColumnOrName, Inputs


def bit_and(col: ColumnOrName) -> Aggregate:
    """Bitwise AND of the non-null values, of the type of the column; null if there are none. Does not deduct."""
    return _bits("bit_and", col, F.bit_and, Column.bitwiseAND, -1)


def bit_or(col: ColumnOrName) -> Aggregate:
    """Bitwise OR of the non-null values, of the type of the column; null if there are none. Does not deduct."""
    return _bits("bit_or", col, F.bit_or, Column.bitwiseOR, 0)


def bit_xor(col: ColumnOrName) -> Aggregate:
    """Bitwise XOR of the non-null values, of the type of the column; null if there are none. Deducts."""
    return _bits("bit_xor", col, F.bit_xor, Column.bitwiseXOR, 0, own_inverse=True)


def _bits(
    function: str,
    col: ColumnOrName,
    aggregate: Callable[[Column], Column],
    operator: Callable[[Column, Column], Column],
    neutral: int,
    *,
    own_inverse: bool = False,
) -> Aggregate:
    name = f"{function}({label(col)})"

    def combine(left: Accumulator, right: Accumulator) -> Accumulator:
        return {"bits": operator(left["bits"], right["bits"]), "count": left["count"] + right["count"]}

    def deduct(left: Accumulator, right: Accumulator) -> Accumulator:
        return {"bits": operator(left["bits"], right["bits"]), "count": left["count"] - right["count"]}

    def resolve(inputs: Inputs) -> AggregateOperation:
        data_type, value = integer(inputs, name, col), column_of(col)
        nothing = F.lit(neutral).cast(data_type)
        return AggregateOperation(
            accumulate={"bits": F.coalesce(aggregate(value), nothing), "count": F.count(value)},
            create={"bits": nothing, "count": F.lit(0).cast("bigint")},
            combine=combine,
            finish=lambda acc: F.when(acc["count"] > 0, acc["bits"]),
            deduct=deduct if own_inverse else None,
            combine_group=lambda acc: {"bits": aggregate(acc["bits"]), "count": F.sum(acc["count"])},
        )

    return Aggregate(name, resolve)
