"""The foreach sink: hands each row to a user's function or object on the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.errors import PythonException
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.sendable import check_sendable
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.outbox_sink import OutboxSink
from sparkjet.storage.written import ROWS, metrics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from sparkjet.sinks.protocol import Handle, TransactionId

_LIMITS: dict[type[T.DataType], tuple[str, str]] = {
    # Two days within the first and the last year: which moments Python can represent depends on its process' time zone.
    T.TimestampType: ("TIMESTAMP_LTZ '0001-01-03 00:00:00'", "TIMESTAMP_LTZ '9999-12-29 00:00:00'"),
    T.TimestampNTZType: ("TIMESTAMP_NTZ '0001-01-03 00:00:00'", "TIMESTAMP_NTZ '9999-12-29 00:00:00'"),
    T.DateType: ("DATE '0001-01-01'", "DATE '9999-12-31'"),
}
_WAY_OUT = "Create what cannot be pickled, such as a connection, in open(partition_id, epoch_id)."


class ForeachSink(OutboxSink):
    """Calls ``writer(row)``, or ``open``, ``process`` and ``close`` of an object, like Spark's ``foreach``.

    At least once: a partition is repeated when its task fails, and an epoch after a crash, then with the same number
    and rows, but perhaps in other partitions. An object whose ``open(partition_id, epoch_id)`` returns False skips a
    partition.

    Args:
        writer: The function or object; each task gets a copy.

    Raises:
        AnalysisError: It is neither.
    """

    def __init__(self, writer: Any) -> None:
        super().__init__()
        parts = [name for name in ("process", "open", "close") if hasattr(writer, name)]
        if not callable(writer) and ("process" not in parts or not all(callable(getattr(writer, p)) for p in parts)):
            message = (
                f"foreach: {type(writer).__name__} is neither a function of a row nor an object with a method "
                "process(row), and, if needed, open(partition_id, epoch_id) and close(error)."
            )
            raise AnalysisError(message)
        self._writer = writer

    def check(self, schema: T.StructType) -> None:
        """See :meth:`Sink.check`: the executors get the writer by pickle."""
        del schema
        check_sendable(self._writer, "foreach", _WAY_OUT)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; refuses values that no Python function can be called with."""
        in_doubt = doubtful(rows.schema)
        if in_doubt is None:
            return super().prepare(rows, transaction)
        noticed = Observation()
        counts = (F.count(F.lit(1)).alias(ROWS), F.count_if(in_doubt).alias("doubtful"))
        handle = super().prepare(rows.observe(noticed, *counts), transaction)
        if metrics(noticed, "rows for foreach", SinkError)["doubtful"] and handle is not None:
            try:
                # Converts each row to Python values, as calling the user's function does.
                self.stored(handle).where(in_doubt).foreachPartition(_task(lambda _: None, transaction.epoch))
            except PythonException as error:
                message = (
                    f"foreach: epoch {transaction.epoch} has rows that Python has no values for: its dates and times "
                    "are of the years 1 to 9999, and it has no intervals of months. Filter these rows, or cast the "
                    'column, e.g. to string, or with F.unix_micros("ts").'
                )
                raise SinkError(message) from error
        return handle

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        rows.foreachPartition(_task(self._writer, epoch))


def _task(writer: Any, epoch: int) -> Callable[[Iterator[Row]], None]:
    """The function of a task; nested, as the executors need not have sparkjet."""

    def run(rows: Iterator[Row]) -> None:
        from pyspark import TaskContext  # noqa: PLC0415 - on the executor

        if callable(writer):
            for row in rows:
                writer(row)
            return
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - we are in a task
        failure = None
        if not hasattr(writer, "open") or writer.open(context.partitionId(), epoch):
            try:
                for row in rows:
                    writer.process(row)
            except Exception as error:  # noqa: BLE001 - close gets it, whatever it is
                failure = error
        if hasattr(writer, "close"):
            writer.close(failure)
        if failure is not None:
            raise failure

    return run


def doubtful(schema: T.StructType) -> Column | None:
    """Whether a row has a value that Python may not be able to represent, such as a time after the year 9999.

    None if no row can have one.
    """
    return _any([_doubtful(field.dataType, F.col(quoted(field.name))) for field in schema.fields])


def _doubtful(kind: T.DataType, value: Column) -> Column | None:
    if type(kind) in _LIMITS:
        first, last = _LIMITS[type(kind)]
        return (value < F.expr(first)) | (value > F.expr(last))
    if isinstance(kind, T.YearMonthIntervalType):
        # Null, too: PySpark refuses types that it does not convert, whatever the value.
        return F.lit(True)
    if isinstance(kind, T.StructType):
        return _any([_doubtful(field.dataType, value.getField(field.name)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return _in_elements(kind.elementType, value)
    if isinstance(kind, T.MapType):
        return _any([_in_elements(kind.keyType, F.map_keys(value)), _in_elements(kind.valueType, F.map_values(value))])
    return None


def _in_elements(kind: T.DataType, elements: Column) -> Column | None:
    if _doubtful(kind, F.lit(None)) is None:
        return None

    def of_element(element: Column) -> Column:
        found = _doubtful(kind, element)
        assert found is not None  # noqa: S101 - as above
        return F.coalesce(found, F.lit(False))

    return F.exists(elements, of_element)


def _any(found: list[Column | None]) -> Column | None:
    conditions = [F.coalesce(each, F.lit(False)) for each in found if each is not None]
    return reduce(or_, conditions) if conditions else None
