"""A user's function with state, as the driver knows it: its schemas, and the step that runs it in Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import dumps as cloudpickle
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, MapType, StructField, StructType

from sparkjet import spark_line
from sparkjet.catalyst.sendable import check_sendable
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from sparkjet.stateful.functions.worker import Calls


TIMERS = "timers"
"""Column in the state of a processor's key: its timers, in milliseconds."""


class TimeDomain(Enum):
    """The kind of time that makes keys without rows due."""

    NONE = "none"
    CLOCK = "clock"
    WATERMARK = "watermark"


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A user's function with state; pure description.

    Attributes:
        name: The user's name for it.
        domain: The kind of time that its timers use.
        output: Schema of the rows that it returns.
        payload: Columns of a key's state.
        variables: The user's names for them, with their types.
        calls: Makes the object that calls it in a worker, given the schemas of the rows and of the keys.
    """

    name: str
    domain: TimeDomain
    output: StructType
    payload: StructType
    variables: dict[str, str]
    calls: Callable[[StructType, StructType], Calls]

    def step(self, session: SparkSession, rows: StructType, keys: StructType) -> Callable[[DataFrame], DataFrame]:
        """The function as a step over rows by key, as :class:`sparkjet.stateful.functions.worker.Worker` takes it."""
        from sparkjet.stateful.functions.worker import Worker  # noqa: PLC0415 - pyarrow and pandas are extras

        _ship()
        longest = int(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0)
        worker = Worker(self.calls(rows, keys), keys.names, longest if longest > 0 else 2**31)
        marks = [StructField(name, LongType()) for name in ("due", "latest")] + [StructField("gone", BooleanType())]
        kept = StructType([*keys.fields, *marks, *self.payload.fields])
        schema = StructType(
            [StructField("key_hash", LongType()), StructField("emitted", self.output), StructField("kept", kept)]
        )
        return lambda frame: frame.mapInArrow(worker.run, schema)


def group_state_function(
    function: Callable[..., Any],
    output: StructType | str,
    state: StructType | str,
    timeout: str,
    session: SparkSession,
    *,
    watermark: bool,
) -> UserFunction:
    """``applyInPandasWithState``."""
    from sparkjet.stateful.functions.frames import Frames, ReturnedFrames  # noqa: PLC0415
    from sparkjet.stateful.functions.group_state_calls import GroupStateCalls  # noqa: PLC0415

    method = "applyInPandasWithState"
    domains = {
        GroupStateTimeout.NoTimeout: TimeDomain.NONE,
        GroupStateTimeout.ProcessingTimeTimeout: TimeDomain.CLOCK,
        GroupStateTimeout.EventTimeTimeout: TimeDomain.WATERMARK,
    }
    if timeout not in domains:
        raise AnalysisError(f"{method}: timeoutConf={timeout!r} must be one of {', '.join(domains)}.")
    if not callable(function):
        raise AnalysisError(f"{method}: func={function!r} is not a function.")
    check_sendable(function, method, "Create what cannot be pickled, such as a connection, inside of it.")
    emitted, kept = schema_of(method, "outputStructType", output), schema_of(method, "stateStructType", state)
    zone, by_name = _settings(session)

    def calls(rows: StructType, keys: StructType) -> GroupStateCalls:
        return GroupStateCalls(
            function,
            timeout,
            kept,
            Frames(rows, zone),
            Frames(keys, zone),
            ReturnedFrames(emitted, zone, by_name=by_name),
            watermark=watermark,
        )

    payload = StructType([StructField("state", kept), StructField("timeout", LongType())])
    variables = {"state": kept.simpleString()}
    return UserFunction(method, domains[timeout], emitted, payload, variables, calls)


def processor_function(
    processor: StatefulProcessor,
    output: StructType | str,
    time_mode: str,
    session: SparkSession,
    *,
    pandas: bool,
    initial: StructType | None = None,
) -> UserFunction:
    """``transformWithStateInPandas`` or, with Rows, ``transformWithState``."""
    from sparkjet.stateful.functions.frames import Frames, ReturnedFrames  # noqa: PLC0415
    from sparkjet.stateful.functions.handle import EVENT_TIME, NONE, PROCESSING_TIME, TIME_MODES  # noqa: PLC0415
    from sparkjet.stateful.functions.processor_calls import ProcessorCalls  # noqa: PLC0415
    from sparkjet.stateful.functions.rows import ReturnedRows, Rows  # noqa: PLC0415

    method = "transformWithStateInPandas" if pandas else "transformWithState"
    domains = {NONE: TimeDomain.NONE, PROCESSING_TIME: TimeDomain.CLOCK, EVENT_TIME: TimeDomain.WATERMARK}
    mode = str(time_mode).lower()
    if mode not in domains:
        raise AnalysisError(f"{method}: timeMode={time_mode!r} must be one of {', '.join(TIME_MODES.values())}.")
    emitted = schema_of(method, "outputStructType", output)
    schemas, variables = _declared(method, processor, mode)
    zone, by_name = _settings(session)

    def calls(rows: StructType, _: StructType) -> ProcessorCalls:
        def reader(schema: StructType) -> Frames | Rows:
            return Frames(schema, zone) if pandas else Rows(schema)

        returned = ReturnedFrames(emitted, zone, by_name=by_name) if pandas else ReturnedRows(emitted)
        first = None if initial is None else reader(initial)
        return ProcessorCalls(processor, mode, schemas, list(variables), reader(rows), returned, first)

    columns = [StructField(f"state{i}", each.type) for i, each in enumerate(variables.values())]
    payload = StructType([*columns, StructField(TIMERS, ArrayType(LongType()))])
    types = {name: each.type.simpleString() for name, each in variables.items()}
    # The same for both: the state does not depend on how rows are passed.
    return UserFunction("transformWithState", domains[mode], emitted, payload, types, calls)


def schema_of(method: str, option: str, declared: StructType | str) -> StructType:
    """A declared schema, with everything nullable."""
    try:
        parsed = DataType.fromDDL(declared) if isinstance(declared, str) else declared
    except PySparkException as error:
        raise AnalysisError(
            f'{method}: {option}={declared!r} is not a schema; give columns, e.g. "id long, total double". {error}'
        ) from error
    nullable = _nullable(parsed)
    if not isinstance(nullable, StructType) or not nullable.fields:
        raise AnalysisError(f'{method}: {option}={declared!r} has no columns; give some, e.g. "total double".')
    return nullable


def _nullable(declared: DataType) -> DataType:
    """A type without NOT NULL: a key without state has nulls everywhere."""
    if isinstance(declared, StructType):
        return StructType([StructField(each.name, _nullable(each.dataType)) for each in declared.fields])
    if isinstance(declared, ArrayType):
        return ArrayType(_nullable(declared.elementType))
    if isinstance(declared, MapType):
        return MapType(_nullable(declared.keyType), _nullable(declared.valueType))
    return declared


class _Schemas(dict[str, StructType]):
    """Schemas by their text, parsed on demand."""

    def __missing__(self, text: str) -> StructType:
        self[text] = schema_of("init", "schema", text)
        return self[text]


def _declared(method: str, processor: StatefulProcessor, mode: str) -> tuple[dict[str, StructType], dict[str, Any]]:
    """The declarations made by ``init``, run on a copy as in Spark, and the schemas that it gives as text."""
    from sparkjet.stateful.functions.handle import Handle  # noqa: PLC0415

    schemas = _Schemas()
    handle = Handle(mode, schemas)
    try:
        copy = pickle.loads(cloudpickle(processor))  # noqa: S301 - our own copy, of this moment
        copy.init(handle)
        copy.close()
    except Exception as error:
        raise AnalysisError(f"{method}: {type(processor).__name__}.init failed: {error}") from error
    return dict(schemas), handle.variables


def _settings(session: SparkSession) -> tuple[str, bool]:
    """The session's time zone, and whether DataFrame columns are matched by name."""
    by_name = session.conf.get("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName") or "true"
    return session.conf.get("spark.sql.session.timeZone") or "UTC", by_name.lower() == "true"


def _ship() -> None:
    """Have Spark ship what workers run, along with the user's code: sparkjet need not be installed there."""
    from sparkjet.stateful import functions  # noqa: PLC0415

    for each in (functions, spark_line):
        register_pickle_by_value(each)
