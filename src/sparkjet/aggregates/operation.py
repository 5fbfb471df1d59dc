"""Aggregates: what a window computes of its rows, as Column expressions that Catalyst runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, TimestampType

from sparkjet.aggregates.advice import advice
from sparkjet.catalyst.columns import visible
from sparkjet.errors import AnalysisError, nearest

Accumulator: TypeAlias = Mapping[str, Column]
"""Field name to Column: the state of one aggregate over some rows."""
ColumnOrName: TypeAlias = Column | str


class NotAnAggregateError(AnalysisError, TypeError):
    """Something else than an aggregate of sparkjet was given to ``agg``."""


@dataclass(frozen=True, eq=False)
class AggregateOperation:
    """An aggregate in five parts, so that rows aggregated apart can be joined later.

    The rows of a window are accumulated in parts (by key and frame), the parts combined, and where ``deduct`` exists
    the parts that leave a sliding window taken out again. ``combine`` must be commutative and associative with
    ``create`` as its neutral element, and all parts must keep the types of ``accumulate``;
    :func:`sparkjet.testing.check_aggregate` checks it on data.

    Attributes:
        accumulate: Field name to an aggregate Column over input rows. At least one input row is in every group.
        create: The empty accumulator: one literal Column per field, typed (``F.lit(None).cast("double")``).
        combine: Two accumulators to the accumulator of all their rows, as row-level Columns.
        finish: An accumulator to the result Column.
        deduct: The exact inverse: ``deduct(combine(a, b), b)`` is ``a``. Not for anything floating, which drifts.
        combine_group: ``combine`` of all rows of a group, as aggregate Columns; a speed-up that must give the same.
            Needed with ``deduct``: then each Column is one plain call, such as ``F.sum``, that takes ``.over(window)``,
            and ``deduct(create, a)`` next to ``a`` cancels it.
        scan: ``combine`` as a Column over an array of structs of the fields, for operations that Spark allows in no
            lambda, such as Python functions: element i becomes elements 0 to i combined. Needs ``combine_group``,
            whose Columns then need not take ``.over(window)``.
        bounded: False if the accumulator grows with its input, as lists and sets do.

    Raises:
        AnalysisError: The fields of ``accumulate`` and ``create`` differ, or ``deduct`` or ``scan`` has no
            ``combine_group``.

    The root mean square of a column, for use in ``agg(rms.alias("rms"))``:

        >>> from pyspark.sql import functions as F
        >>> ready = spark.range(1)  # Columns need a session
        >>> rms = AggregateOperation(
        ...     accumulate={"squares": F.sum(F.col("x") ** 2), "rows": F.count("x")},
        ...     create={"squares": F.lit(0.0), "rows": F.lit(0).cast("long")},
        ...     combine=lambda a, b: {field: a[field] + b[field] for field in a},
        ...     finish=lambda a: F.sqrt(a["squares"] / a["rows"]),
        ... )
        >>> rms.alias("rms").evaluate(spark.createDataFrame([(1.0,), (7.0,)], "x double"))
        5.0
    """

    accumulate: Mapping[str, Column]
    create: Mapping[str, Column]
    combine: Callable[[Accumulator, Accumulator], Accumulator]
    finish: Callable[[Accumulator], Column]
    deduct: Callable[[Accumulator, Accumulator], Accumulator] | None = None
    combine_group: Callable[[Accumulator], Accumulator] | None = None
    scan: Callable[[Column], Column] | None = None
    bounded: bool = True

    def __post_init__(self) -> None:
        if not self.accumulate or set(self.accumulate) != set(self.create):
            raise AnalysisError(
                "AggregateOperation: accumulate and create must have the same fields and at least one, "
                f"not {sorted(self.accumulate)} and {sorted(self.create)}."
            )
        if self.scan is not None and self.combine_group is None:
            raise AnalysisError(
                "AggregateOperation: scan needs combine_group, since what needs a scan cannot be folded with combine. "
                "Give both, or leave scan out."
            )
        if self.deduct is not None and self.combine_group is None:
            raise AnalysisError(
                "AggregateOperation: deduct needs combine_group, with which running windows are summed. "
                'Give e.g. combine_group=lambda a: {"total": F.sum(a["total"])}, or leave deduct out.'
            )

    def alias(self, name: str) -> Aggregate:
        """This operation as a result column called ``name``."""
        return Aggregate(name, lambda _: self, "an operation of the user's")


@dataclass(frozen=True)
class Inputs:
    """The rows that an aggregate will get, for looking up types; nothing is read from them.

    Attributes:
        frame: The input rows, batch or streaming.
        event_time: Event time in microseconds, a long column of ``frame``; never null.
    """

    frame: DataFrame
    event_time: Column

    def type_of(self, column: ColumnOrName) -> DataType:
        """The Spark type of a column or expression.

        Raises:
            AnalysisError: There is no such column; the message lists those there are.
        """
        if isinstance(column, str) and self.frame.columns.count(column) == 1:
            return self.frame.schema[column].dataType
        try:
            fields = self.frame.select(column).schema.fields
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise AnalysisError(f"{label(column)}: {error}") from error
            missing = (error.getMessageParameters() or {}).get("objectName", label(column)).strip("`")
            raise AnalysisError(f"no column {missing!r}: {nearest(missing, visible(self.frame))}.") from error
        if len(fields) != 1:
            raise AnalysisError(f"{label(column)}: an aggregate takes one column, this stands for {len(fields)}.")
        return fields[0].dataType


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A named aggregate as given to ``agg``; which operation it is depends on the type of its input.

    Attributes:
        name: Name of the result column.
        resolve: The operation for given inputs.
        computes: What is computed, whatever the result is called: a query that goes on from saved state must compute
            the same.

    Raises:
        AnalysisError: By ``resolve``, where a column is missing or has a type that the aggregate does not take.

    >>> from sparkjet import functions as J
    >>> J.avg("px").name
    'avg(px)'
    >>> J.avg("px").alias("mean_px").name
    'mean_px'
    """

    name: str
    resolve: Callable[[Inputs], AggregateOperation]
    computes: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "computes", self.computes or self.name)

    def alias(self, name: str) -> Aggregate:
        """The same aggregate with another name."""
        return replace(self, name=name)

    def evaluate(self, rows: DataFrame, event_time: ColumnOrName | None = None) -> Any:
        """What a window would report if it held exactly ``rows`` (at least one), for trying out and for tests.

        Args:
            rows: A batch DataFrame.
            event_time: A timestamp column, or a long one of microseconds; without it all rows are simultaneous.

        >>> from sparkjet import functions as J
        >>> J.max("id").evaluate(spark.range(5))
        4
        """
        operation = self.resolve(Inputs(rows, microseconds(rows, event_time)))
        accumulated = rows.agg(*(column.alias(field) for field, column in operation.accumulate.items()))
        return accumulated.select(operation.finish({field: F.col(field) for field in operation.create})).collect()[0][0]


def as_aggregate(obj: Any) -> Aggregate:
    """What a user gave to ``agg`` as an :class:`Aggregate`.

    Raises:
        NotAnAggregateError: It is none; for an aggregate of Spark the message names ours if it means the same, and
            otherwise says how the nearest differs.

    >>> as_aggregate(max)
    Traceback (most recent call last):
        ...
    sparkjet.aggregates.operation.NotAnAggregateError: agg: <built-in function max> is no aggregate of sparkjet. Use ...
    """
    if isinstance(obj, Aggregate):
        return obj
    if isinstance(obj, AggregateOperation):
        return obj.alias("aggregate")
    if isinstance(obj, Column):
        written, way_out = advice(obj)
        raise NotAnAggregateError(
            f"agg: {written} is a Spark Column: it cannot be joined over the parts of a window. {way_out}"
        )
    raise NotAnAggregateError(
        f"agg: {obj!r} is no aggregate of sparkjet. Use one of sparkjet.functions, e.g. sparkjet.functions.avg(…)."
    )


def microseconds(rows: DataFrame, event_time: ColumnOrName | None) -> Column:
    """An event time column as a long of microseconds since the epoch, a constant where there is none.

    Raises:
        AnalysisError: The column is missing or is neither a timestamp nor a long.
    """
    if event_time is None:
        return F.lit(0).cast("long")
    data_type = Inputs(rows, F.lit(0)).type_of(event_time)
    column = F.col(event_time) if isinstance(event_time, str) else event_time
    if isinstance(data_type, TimestampType):
        return F.unix_micros(column)
    if isinstance(data_type, LongType):
        return column
    raise AnalysisError(
        f"event_time: {label(event_time)} is {data_type.simpleString()}; "
        "give a timestamp or a bigint of microseconds since the epoch."
    )


def label(column: ColumnOrName) -> str:
    """A column as a result name spells it.

    >>> label("px")
    'px'
    """
    return column if isinstance(column, str) else re.sub(r"^Column<'(.*)'>$", r"\1", str(column), flags=re.DOTALL)
