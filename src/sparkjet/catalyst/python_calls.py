"""Python calls in an expression, each computed in a separate column, with whatever it raises as a value.

Spark takes Python functions out of the expressions that call them, and computes them for all rows beforehand: no
condition and no try around a call affects it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType, _parse_datatype_json_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkjet.catalyst import tried_batches, tried_functions
from sparkjet.catalyst.columns import KEPT
from sparkjet.catalyst.expressions import by_name, column_of, expression_of, inlined, parts_of, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed
from sparkjet.catalyst.tried_batches import TriedArrays, TriedIterator, TriedSeries
from sparkjet.catalyst.tried_functions import (
    FAILED,
    SEPARATOR,
    Conversion,
    Converted,
    TriedArrowRows,
    TriedRows,
)
from sparkjet.catalyst.tries import VALUE, Said, never_raises, tried
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import LINE, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_SERIES, _SERIES_ITERATOR = PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
# Since Spark 4.1.
_ARRAYS: int | None = getattr(PythonEvalType, "SQL_SCALAR_ARROW_UDF", None)
_ARRAYS_ITERATOR: int | None = getattr(PythonEvalType, "SQL_SCALAR_ARROW_ITER_UDF", None)
_ROWS, _ARROW_ROWS = PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF
_KNOWN = {_ROWS, _ARROW_ROWS, _SERIES, _SERIES_ITERATOR, _ARRAYS, _ARRAYS_ITERATOR}
_NEEDED = "a Python function has failed"
"""Raised where the value of a failed call is needed; never read."""


@dataclass
class CallSteps:
    """An expression whose calls of Python functions are computed before it.

    Attributes:
        column: The expression, over the columns of the steps; raises if it needs a call that has failed.
        steps: Columns to be added one after another.
        cause: What the first failed call said; empty if one of its arguments raised in SQL, null if no call failed.
        arguments: The arguments of the calls that may raise, over the columns of the steps.
    """

    column: Column
    steps: Sequence[Mapping[str, Column]]
    cause: Column
    arguments: Sequence[Column]

    @property
    def names(self) -> list[str]:
        """The columns that the steps add."""
        return [name for step in self.steps for name in step]


def check_calls(expressions: Iterable[Any]) -> None:
    """Refuse calls of Python functions that cannot be tried row by row."""
    for expression in expressions:
        for part in parts_of(expression):
            if kind_of(part) == "TranspiledPythonUDF":
                message = (
                    "divert: a function that Spark rewrites as SQL is not tried. Set "
                    "spark.sql.experimental.optimizer.transpilePyUDFs to false."
                )
                raise AnalysisError(message)
            if kind_of(part).startswith("Python") and (kind_of(part) != "PythonUDF" or part.evalType() not in _KNOWN):
                message = (
                    f"divert: {part.name()}(…) is a Python function of groups of rows or of tables, and none that is "
                    "tried row by row after it. Call divert(…) after it; or have the function return an error as a "
                    "value."
                )
                raise AnalysisError(message)


def has_calls(expression: Any) -> bool:
    """Whether an analyzed expression calls a Python function."""
    return any("Python" in kind_of(part) for part in parts_of(expression))


def in_steps(expression: Any, frame: DataFrame, prefix: str) -> CallSteps:
    """An analyzed expression over some rows with its calls in separate columns."""
    names = {attribute_id(each): str(each.name()) for each in listed(analyzed(frame).output())}
    calls = _Calls(frame.sparkSession, names, prefix)
    column = calls.rewritten(inlined(without_alias(expression), frame.sparkSession))
    steps = [step for level in calls.levels for step in level if step]
    return CallSteps(column, steps, F.coalesce(*calls.causes), calls.arguments)


def said_by(cause: Column) -> dict[str, Column]:
    """The error, message and trace of a cause, by the names that :class:`Said` has for them."""
    parts = F.split(cause, SEPARATOR)
    return {name: F.when(F.length(cause) > 0, parts.getItem(number)) for number, name in enumerate(Said._fields)}


@dataclass
class _Calls:
    """The calls in one expression."""

    session: SparkSession
    names: Mapping[int, str]
    prefix: str
    # By the number of calls nested in one: the arguments, then the calls.
    levels: list[tuple[dict[str, Column], dict[str, Column]]] = field(default_factory=list)
    causes: list[Column] = field(default_factory=list)
    arguments: list[Column] = field(default_factory=list)

    def rewritten(self, expression: Any) -> Column:
        """An expression with its calls replaced."""

        def replaced(part: Any) -> Any:
            return expression_of(self._call(part), self.session) if kind_of(part) == "PythonUDF" else None

        found = rebuilt(expression, self.session, replaced)
        return column_of(by_name(found, self.session, self.names), self.session)

    def _call(self, call: Any) -> Column:
        """The replacement for a call: its value; raises if there is none."""
        level = _depth(call) - 1
        given = children(call)
        named = [str(each.key()) if kind_of(each) == "NamedArgumentExpression" else None for each in given]
        values = [each if name is None else each.value() for each, name in zip(given, named, strict=True)]
        columns = [self.rewritten(each) for each in values]
        while len(self.levels) <= level:
            self.levels.append(({}, {}))
        number = len(self.causes)
        arguments, result = f"{self.prefix}_a{number}", f"{self.prefix}_c{number}"
        kept, failed = F.col(KEPT), []
        if not all(never_raises(each, self.session) for each in values):
            fields = [column.alias(f"a{place}") for place, column in enumerate(columns)]
            self.arguments.append(F.struct(*fields))
            self.levels[level][0][arguments] = tried(F.when(F.col(KEPT), self.arguments[-1]), self.session)
            columns = [F.col(f"{arguments}.{VALUE}.a{place}") for place in range(len(columns))]
            kept = kept & F.col(arguments).isNotNull()
            failed = [F.col(arguments).isNull()]
        function = _tried_function(call, self.session)
        positional = [column for column, name in zip(columns, named, strict=True) if name is None]
        by_key = {name: column for column, name in zip(columns, named, strict=True) if name is not None}
        self.levels[level][1][result] = function.udf(kept, *positional, **by_key)
        said = F.col(f"{result}.{FAILED}")
        self.causes.append(F.when(failed[0], F.lit("")).otherwise(said) if failed else said)
        raised = reduce(or_, [*failed, said.isNotNull()])
        return F.when(raised, F.raise_error(F.lit(_NEEDED))).otherwise(function.value(result))


def _depth(expression: Any) -> int:
    """How deeply calls of Python functions are nested."""
    below = max((_depth(each) for each in children(expression)), default=0)
    return below + (kind_of(expression) == "PythonUDF")


@dataclass(frozen=True)
class _TriedFunction:
    """A user's function that returns what it raises.

    Attributes:
        udf: The function; takes whether a row is kept, then the user's arguments.
        names: Field names of its struct that correspond to the fields of the returned value, None if that is a single
        field.
    """

    udf: UserDefinedFunction
    names: Sequence[str] | None

    def value(self, column: str) -> Column:
        """The return value of the user's function, from a column of this one."""
        if self.names is None:
            return F.col(f"{column}.{VALUE}")
        fields = [F.col(f"{column}.{VALUE}{number}").alias(name) for number, name in enumerate(self.names)]
        # Never null: the rows that have none are those that have failed or are not kept.
        return F.struct(*fields)


def _tried_function(call: Any, session: SparkSession) -> _TriedFunction:
    """The function of a call, tried in Spark's workers."""
    for module in (tried_functions, tried_batches):
        register_pickle_by_value(module)
    function, kind = call.func(), int(call.evalType())
    # As it was pickled: the driver could not unpickle what refers to broadcast variables.
    command = bytes(function.command().unsafeArray())
    returned = _parse_datatype_json_string(str(call.dataType().json()))
    value, failure = StructField(VALUE, returned), StructField(FAILED, StringType())
    names: list[str] | None = None
    struct: DataType = StructType([value, failure])
    tried_one: Any
    if kind == _ROWS:
        struct, tried_one = Converted([value, failure]), TriedRows(command)
    elif kind == _ARROW_ROWS:
        tried_one = TriedArrowRows(command, _conversion(returned, session, fields=False))
    elif kind in {_ARRAYS, _ARRAYS_ITERATOR}:
        struct = StructType([failure, value])
        tried_one = TriedArrays(command, _conversion(returned, session, fields=False))
    else:
        tried_one = TriedSeries(command, _conversion(returned, session, fields=True))
        struct = StructType([failure, value])
        if isinstance(returned, StructType):
            names = list(returned.names)
            fields = [StructField(f"{VALUE}{number}", each.dataType) for number, each in enumerate(returned.fields)]
            struct = StructType([failure, *fields])
    if kind in {_SERIES_ITERATOR, _ARRAYS_ITERATOR}:
        tried_one = TriedIterator(tried_one)
    # Nondeterministic: Spark would otherwise compute it again wherever it moves an expression that needs its outcome.
    udf = UserDefinedFunction(tried_one, struct, str(call.name()), kind, deterministic=False)
    _with_broadcasts(udf, function.broadcastVars(), session)
    return _TriedFunction(udf, names)


def _conversion(returned: DataType, session: SparkSession, *, fields: bool) -> Conversion:
    """How Spark's workers convert the return value of a function."""

    def setting(name: str, default: str) -> str:
        return session.conf.get(f"spark.sql.{name}", default) or default

    of_struct = fields and isinstance(returned, StructType)
    kinds = [each.dataType for each in returned.fields] if of_struct else [returned]  # type: ignore[attr-defined]
    legacy = setting("legacy.execution.pythonUDF.pandas.conversion.enabled", "false") == "true"
    return Conversion(
        types=tuple(map(arrow_type, kinds)),
        kinds=tuple(kinds),
        names=tuple(returned.names) if of_struct else None,  # type: ignore[attr-defined]
        timezone=setting("session.timeZone", "UTC"),
        safe=setting("execution.pandas.convertToArrowArraySafely", "false") == "true",
        # Spark 4.0 casts what functions of rows return, and nothing else.
        casts=LINE >= (4, 1) or not fields,
        by_name=setting("legacy.execution.pandas.groupedMap.assignColumnsByName", "true") == "true",
        by_pandas=fields or legacy or LINE < (4, 1),
    )


class _Pickled:
    """A broadcast variable that a function refers to, as PySpark keeps it until the function has been pickled."""

    def __init__(self, java: Any) -> None:
        self._jbroadcast = java


def _with_broadcasts(udf: UserDefinedFunction, broadcasts: Any, session: SparkSession) -> None:
    """Send a function's broadcast variables along with whatever calls it, and create the function in the JVM."""
    pickled: Any = session.sparkContext._pickled_broadcast_vars  # noqa: SLF001 - see above
    for each in broadcasts:
        pickled.add(_Pickled(each))
    assert udf._judf is not None  # noqa: S101, SLF001 - which pickles it now
