"""Aggregates: what a window computes from its rows, as Column expressions run by Catalyst."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import DataType, LongType, TimestampType

from sparkjet.catalyst.columns import visible
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.placeholders import placeholder_of
from sparkjet.catalyst.stars import starless
from sparkjet.catalyst.unsaid import Unsaid
from sparkjet.errors import AnalysisError, nearest

Accumulator: TypeAlias = Mapping[str, Column]
"""The state of one aggregate over some rows: Columns by field name."""
ColumnOrName: TypeAlias = Column | str


@dataclass(frozen=True, eq=False)
class AggregateOperation:
    """An aggregate in parts, so that rows aggregated separately can be combined later.

    The rows of a window are accumulated by key and frame, the accumulators are combined, and with ``deduct`` those that
    leave a sliding window are subtracted again. ``combine`` must be commutative and associative with ``create`` as its
    neutral element, and all parts must keep the types of ``accumulate``; :func:`sparkjet.testing.check_aggregate`
    checks this on data.

    Attributes:
        accumulate: An aggregate Column over the input rows for each field. Every group has at least one input row.
        create: The empty accumulator: one typed literal Column per field (``F.lit(None).cast("double")``).
        combine: Takes two accumulators, returns the accumulator of all their rows, as row-level Columns.
        finish: Takes an accumulator, returns the result as a Column.
        deduct: The exact inverse: ``deduct(combine(a, b), b)`` is ``a``. Not for floating-point values, which drift.
        combine_group: ``combine`` of all rows of a group, as aggregate Columns; an optimization with equal results.
            Required with ``deduct``: then each Column is a single call, such as ``F.sum``, that supports
            ``.over(window)``, and ``deduct(create, a)`` combined with ``a`` cancels it.
        scan: ``combine`` as a Column over an array of structs of the fields, for operations that Spark does not allow
            in lambdas, such as Python functions: element i becomes the combination of elements 0 to i. Requires
            ``combine_group``, whose Columns then need not support ``.over(window)``.
        bounded: False if the accumulator grows with its input, as lists and sets do.
        packages: The modules that its Python functions import on the executors, with the names to install them by.

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
    packages: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.accumulate or set(self.accumulate) != set(self.create):
            raise AnalysisError(
                "AggregateOperation: accumulate and create must have the same fields, at least one, "
                f"not {sorted(self.accumulate)} and {sorted(self.create)}."
            )
        if self.scan is not None and self.combine_group is None:
            raise AnalysisError(
                "AggregateOperation: scan needs combine_group, since such operations cannot be folded with combine. "
                "Give both, or leave scan out."
            )
        if self.deduct is not None and self.combine_group is None:
            raise AnalysisError(
                "AggregateOperation: deduct needs combine_group, by which running windows are summed. "
                'Give e.g. combine_group=lambda a: {"total": F.sum(a["total"])}, or leave deduct out.'
            )

    def alias(self, name: str) -> Aggregate:
        """This operation as a result column named ``name``."""
        return Aggregate(name, lambda _: self, "an operation of the user's")


@dataclass(frozen=True)
class Inputs:
    """The input rows of an aggregate, for looking up types; no data is read.

    Attributes:
        frame: The input rows, batch or streaming.
        event_time: Event time in microseconds, a long column of ``frame``; never null.
    """

    frame: DataFrame
    event_time: Column

    def type_of(self, column: ColumnOrName) -> DataType:
        """The Spark type of a column or expression.

        Raises:
            AnalysisError: There is no such column; the message lists the existing ones.
        """
        if isinstance(column, str) and self.frame.columns.count(column) == 1:
            return self.frame.schema[column].dataType
        try:
            if isinstance(column, Column):
                column = starless(column, self.frame)
            fields = self.frame.select(column).schema.fields
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
                raise AnalysisError(f"{label(column)}: {error}") from error
            missing = (error.getMessageParameters() or {}).get("objectName", label(column)).strip("`")
            raise AnalysisError(f"no column {missing!r}: {nearest(missing, visible(self.frame))}.") from error
        if len(fields) != 1:
            raise AnalysisError(f"{label(column)}: an aggregate takes one column, but this is {len(fields)} columns.")
        return fields[0].dataType


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(ClassicColumn):
    """A named aggregate as passed to ``agg``; its operation depends on the type of its input.

    A Column like those of ``pyspark.sql.functions``, which can be composed with others in sparkjet's ``agg``.

    Attributes:
        output_name: Name of the result column.
        resolve: Returns the operation for given inputs.
        computes: What is computed, regardless of the result's name: a query that continues from saved state must
            compute the same.
        unsaid: What that text leaves out, by the name of the setting.

    Raises:
        AnalysisError: From ``resolve``, if a column is missing or has a type that the aggregate does not support.

    >>> from sparkjet import functions as J
    >>> J.top_n("px", 3).output_name
    'top_n(px, 3)'
    >>> J.top_n("px", 3).alias("highest").output_name
    'highest'
    """

    output_name: str
    resolve: Callable[[Inputs], AggregateOperation]
    computes: str = ""
    unsaid: Unsaid = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "computes", self.computes or self.output_name)

    @cached_property
    def _jc(self) -> Any:
        # Only when needed: an aggregate can be named without a session.
        return placeholder_of(self)._jc

    def __repr__(self) -> str:
        return f"Aggregate<{self.output_name!r}>"

    def __str__(self) -> str:
        return self.output_name

    def alias(self, *alias: str, **kwargs: Any) -> Column:
        """The same aggregate under another name."""
        if len(alias) != 1 or kwargs:
            return super().alias(*alias, **kwargs)
        return replace(self, output_name=alias[0])

    def within(self, inputs: Inputs) -> AggregateOperation:
        """The operation for given inputs, of which it takes the columns visible to the user."""
        operation = self.resolve(inputs)
        accumulate = {field: starless(column, inputs.frame) for field, column in operation.accumulate.items()}
        return replace(operation, accumulate=accumulate)

    def type_in(self, inputs: Inputs) -> DataType:
        """Type of the result for given inputs."""
        operation = self.within(inputs)
        return self._finished(inputs.frame, operation).schema[0].dataType

    def evaluate(self, rows: DataFrame, event_time: ColumnOrName | None = None) -> Any:
        """The result of a window with exactly ``rows`` (at least one), for experiments and tests."""
        operation = self.within(Inputs(rows, microseconds(rows, event_time)))
        return self._finished(rows, operation).collect()[0][0]

    def _finished(self, rows: DataFrame, operation: AggregateOperation) -> DataFrame:
        accumulated = rows.agg(*(column.alias(field) for field, column in operation.accumulate.items()))
        return accumulated.select(operation.finish({field: F.col(field) for field in operation.create}))


def microseconds(rows: DataFrame, event_time: ColumnOrName | None) -> Column:
    """An event-time column as a long in microseconds since the epoch; a constant without one.

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
        "give a timestamp, or a bigint in microseconds since the epoch."
    )
