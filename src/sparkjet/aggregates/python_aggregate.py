"""Aggregates written in Python, for what Column expressions cannot compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.sendable import check_sendable
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import LINE, LINE_NAME, arrow_type

if TYPE_CHECKING:
    from sparkjet.aggregates.operation import ColumnOrName, Inputs

_FIELD = "value"
_ARROW_FUNCTIONS = (4, 1)
"""The first Spark line with functions over Arrow arrays."""


def python_aggregate(
    *inputs: ColumnOrName,
    accumulatorType: DataType | str,
    returnType: DataType | str,
    create: Callable[[], Any],
    accumulate: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any],
    deduct: Callable[[Any, Any], Any] | None = None,
    bounded: bool = True,
) -> Aggregate:
    """An aggregate whose parts are Python functions, run in Spark's Python workers on rows passed through Arrow.

    The parts are those of :class:`sparkjet.AggregateOperation`, with the same laws (checked by
    :func:`sparkjet.testing.check_aggregate`). They are plain functions, not methods of a base class, so
    that only their code is shipped to the workers, and each can be tested without Spark. An accumulator is a value of
    the declared type, stored as a Spark column in memory and in snapshots; it is never pickled.

    **Cost.** An input row costs about 4 times as much as ``J.sum`` and ``J.count`` together (docs/guide/aggregates.md
    has the figures), as every row is shuffled and sent to Python, and the rows of a key and frame are in memory at
    once. Windows cost the same as with other aggregates: with two stacks or deduct, a slide does not depend on the
    length. Prefer Spark's functions and AggregateOperation where they suffice; one ``agg`` can mix them.

    Args:
        inputs: The columns passed to ``accumulate``, at least one.
        accumulatorType: Type of the accumulator, as DDL or as an object: the fields of a struct
            (``"count long, total double"``) or any other type (``"double"``, ``"map<string,long>"``).
        returnType: Type of the result.
        create: Returns the empty accumulator. For a struct, a tuple or a dict of its fields: the other parts get what
            ``create`` returns. Any field, and the whole, may be None.
        accumulate: Takes an accumulator and the values of one row, returns the accumulator with that row. Null is None,
            structs and maps are dicts, timestamps have a zone. Rows come in any order. May modify its first argument.
        combine: Takes two accumulators, returns that of all their rows. May modify its first argument.
        finish: Takes the accumulator, returns the result.
        deduct: The exact inverse, as in AggregateOperation, and as there not for floating-point values:
            ``deduct(create(), a)`` combined with ``a`` cancels it. Sliding windows use the deduct strategy if all
            aggregates of the ``agg`` support it, else two stacks.
        bounded: False if the accumulator grows with its input: then each window is combined from all its frames.

    Raises:
        AnalysisError: pyarrow is missing, a part is not a function, or there are no inputs. When resolved: a column is
            missing, a type cannot be parsed, or ``create`` fails or does not match its type.

    A price weighted by quantity:

        >>> vwap = python_aggregate(
        ...     "px",
        ...     "quantity",
        ...     accumulatorType="spent double, bought long",
        ...     returnType="double",
        ...     create=lambda: (0.0, 0),
        ...     accumulate=lambda acc, px, quantity: (acc[0] + px * quantity, acc[1] + quantity),
        ...     combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        ...     finish=lambda acc: acc[0] / acc[1] if acc[1] else None,
        ... )
        >>> vwap.evaluate(spark.createDataFrame([(10.0, 1), (20.0, 3)], "px double, quantity long"))
        17.5
    """
    name = f"python_aggregate({', '.join(label(column) for column in inputs)})"
    if find_spec("pyarrow") is None:
        raise AnalysisError(f'{name}: rows reach Python through Arrow. Install it: pip install "sparkjet[arrow]".')
    if LINE < _ARROW_FUNCTIONS:
        raise AnalysisError(f"{name}: aggregates in Python need Spark 4.1 or later; this is {LINE_NAME}.")
    if not inputs:
        raise AnalysisError(f"{name}: no inputs; give the columns for accumulate. To count rows use J.count().")
    parts = {"create": create, "accumulate": accumulate, "combine": combine, "finish": finish}
    if deduct is not None:
        parts["deduct"] = deduct
    for part, function in parts.items():
        if not callable(function):
            raise AnalysisError(f"{name}: {part} is {function!r}; give a function, e.g. {part}=lambda …: ….")
        check_sendable(function, name, f"Create what cannot be pickled, such as a connection, inside of {part}.")

    def resolve(rows: Inputs) -> AggregateOperation:
        for column in inputs:
            rows.type_of(column)
        accumulator = _parsed(name, "accumulatorType", accumulatorType)
        result = _parsed(name, "returnType", returnType)
        # A dropped row has no event time; it is present with null columns, and must not reach the user's function.
        values = F.struct(*((F.col(c) if isinstance(c, str) else c).alias(f"input{i}") for i, c in enumerate(inputs)))
        seen = F.collect_list(F.when(rows.event_time.isNotNull(), values))
        return _operation(name, parts, accumulator, result, seen, bounded=bounded)

    return Aggregate(name, resolve)


def _operation(
    name: str, functions: dict[str, Any], accumulator: DataType, result: DataType, seen: Column, *, bounded: bool
) -> AggregateOperation:
    # Imported here, because pyarrow is an extra.
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415

    from sparkjet.aggregates.python_worker import PartError, PythonParts  # noqa: PLC0415

    _ship_parts()
    arrow, returned = (arrow_type(each) for each in (accumulator, result))
    deducts = "deduct" in functions
    parts = PythonParts(name, **{"deduct": None, **functions}, accumulator=arrow, result=returned, as_dict=False)
    try:
        empty = _literal(parts.created(), accumulator)
    except PartError as error:
        raise AnalysisError(str(error)) from error
    parts = replace(parts, as_dict=isinstance(functions["create"](), dict))
    scanned = ArrayType(StructType([StructField(_FIELD, accumulator)]))

    def udf(function: Callable[..., Any], returned: DataType) -> Callable[..., Column]:
        made: Callable[..., Column] = arrow_udf(function, returned)  # type: ignore[call-overload] # takes any
        return made

    accumulated, grouped = udf(parts.accumulate_groups, accumulator), udf(parts.combine_groups, accumulator)
    combined, deducted = udf(parts.combine_pairs, accumulator), udf(parts.deduct_pairs, accumulator)
    finished = udf(parts.finish_all, result)
    return AggregateOperation(
        accumulate={_FIELD: accumulated(seen)},
        create={_FIELD: empty},
        combine=lambda a, b: {_FIELD: combined(a[_FIELD], b[_FIELD])},
        finish=lambda a: finished(a[_FIELD]),
        deduct=(lambda a, b: {_FIELD: deducted(a[_FIELD], b[_FIELD])}) if deducts else None,
        combine_group=lambda a: {_FIELD: grouped(F.collect_list(F.struct(a[_FIELD].alias(_FIELD))))},
        scan=udf(parts.scan_groups, scanned),
        bounded=bounded,
        packages={"pyarrow": "pyarrow"},
    )


def _parsed(name: str, option: str, declared: DataType | str) -> DataType:
    try:
        parsed = DataType.fromDDL(declared) if isinstance(declared, str) else declared
        # By its text, which omits NOT NULL: in a window without rows, everything may be null.
        parsed = DataType.fromDDL(parsed.simpleString())
    except (PySparkException, AttributeError) as error:
        raise AnalysisError(
            f'{name}: {option} is {declared!r}; give a type, e.g. "double" or "count long, total double". {error}'
        ) from error
    if isinstance(parsed, StructType) and not parsed.fields:
        raise AnalysisError(f"{name}: {option} is {declared!r}, a struct without fields; give at least one.")
    return parsed


def _literal(value: Any, declared: DataType) -> Column:
    """A value read from Arrow, as a constant Column."""
    if value is None:
        return F.lit(None).cast(declared)
    if isinstance(declared, StructType):
        return F.struct(*(_literal(value[field.name], field.dataType).alias(field.name) for field in declared.fields))
    if isinstance(declared, ArrayType):
        return F.array(*(_literal(item, declared.elementType) for item in value)).cast(declared)
    if isinstance(declared, MapType):
        pairs = ((_literal(k, declared.keyType), _literal(v, declared.valueType)) for k, v in value.items())
        return F.create_map(*(column for pair in pairs for column in pair)).cast(declared)
    return F.lit(value).cast(declared)


def _ship_parts() -> None:
    """Have Spark ship these modules to the workers along with the user's code: sparkjet need not be installed there."""
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415

    from sparkjet.aggregates import arrow_values, python_worker  # noqa: PLC0415

    for module in (arrow_values, python_worker):
        register_pickle_by_value(module)
