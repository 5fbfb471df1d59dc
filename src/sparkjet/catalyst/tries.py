"""Tries: columns that are null where an expression raises, which ones cannot raise, and what is said where one does."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import column_of, expression_of, parts_of
from sparkjet.catalyst.logical_plans import kind_of
from sparkjet.catalyst.physical_plans import as_frame
from sparkjet.java import as_seq, java_class, nothing, static_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from logging import LogRecord

    from pyspark.sql import DataFrame, SparkSession

VALUE = "v"
"""The field of :func:`tried` that holds the value."""
_SQL = "org.apache.spark.sql"
_THROWABLE = "org.apache.spark.SparkThrowable"
LONGEST = 2000
"""Maximum length of a message or a trace: a message quotes the value, and a Kafka record is limited in size."""
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's loggers of failures."""
_NEVER_RAISE = frozenset(
    {
        *("AttributeReference", "Literal", "Alias", "GetStructField", "CreateNamedStruct", "XxHash64", "BitwiseNot"),
        *("UnixMicros",),
        # For sums, which take long numbers apart.
        *("ShiftLeft", "ShiftRight", "ShiftRightUnsigned", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
        *("And", "Or", "Not", "IsNull", "IsNotNull", "IsNaN", "In", "InSet", "CaseWhen", "If", "Coalesce"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
    }
)
"""Expressions that have a value for any arguments; an allow list, as nothing is known of those of a later Spark."""


def tried(column: Column, session: SparkSession) -> Column:
    """A struct with the value of a column; null if computing it raises.

    A null value is in a struct that is not null, so that the two can be told apart.
    """
    struct = expression_of(F.struct(column.alias(VALUE)), session)
    return column_of(java_class(session, f"{_SQL}.catalyst.expressions.TryEval")(struct), session)


def never_raises(expression: Any, session: SparkSession) -> bool:
    """Whether an analyzed expression is known to have a value for any row."""
    return all(kind_of(part) in _NEVER_RAISE or _widens(part, session) for part in parts_of(expression))


def always() -> Column:
    """True, in a way that Spark's optimizer does not see through.

    Given a literal, it would remove the conditions that guard an expression. Whatever several expressions have in
    common would then be computed before any of them, where nothing catches what it raises. And as the column is
    nondeterministic, no filter is moved below it.
    """
    return F.spark_partition_id() >= 0


class Said(NamedTuple):
    """The report of an expression that raises: Spark's error condition, the message and the beginning of the trace."""

    error: str | None = None
    message: str | None = None
    trace: str | None = None


def one_by_one(rows: DataFrame) -> Iterator[tuple[Any, DataFrame]]:
    """Rows computed here and now: as Spark has them, and each as a DataFrame that needs no job."""
    session = rows.sparkSession
    jsession: Any = session._jsparkSession
    attributes = static_method(session, f"{_SQL}.catalyst.types.DataTypeUtils.toAttributes")
    columns = attributes(jsession.parseDataType(rows.schema.json()))
    relation = java_class(session, f"{_SQL}.catalyst.plans.logical.LocalRelation")
    for row in rows._jdf.queryExecution().executedPlan().executeCollect():
        yield row, as_frame(session, relation(columns, as_seq(session, [row]), False, nothing(session)))


def said(rows: DataFrame) -> Said:
    """The error raised when a row of :func:`one_by_one` is computed; empty if it is not known."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_not_expected)
    expected = _expected.set(True)
    try:
        # Spark's optimizer computes such rows itself. A job would be tried several times, and log each failure.
        rows._jdf.queryExecution().optimizedPlan()
    except (PySparkException, Py4JJavaError) as error:
        raised = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        texts: list[str] = []
        if raised is not None and is_instance_of(rows.sparkSession.sparkContext._gateway, raised, _THROWABLE):
            # PySpark does not know everything that Spark throws.
            condition = raised.getCondition()
            texts = [str(each.summary()) for each in raised.getQueryContext()]
        if raised is None:
            return Said(condition or type(error).__name__, _without_text(str(error))[:LONGEST])
        trace = str(static_method(rows.sparkSession, "org.apache.spark.util.Utils.exceptionString")(raised))
        name, message = str(raised.getClass().getSimpleName()), raised.getMessage()
        said_by_it = None if message is None else _without_text(str(message), texts)[:LONGEST]
        return Said(condition or name, said_by_it, _without_text(trace, texts)[:LONGEST])
    finally:
        _expected.reset(expected)
    return Said()


_expected: ContextVar[bool] = ContextVar("failures are expected", default=False)


def _not_expected(record: LogRecord) -> bool:
    """Whether PySpark may log a failure: it logs each with its whole trace, even an expected one."""
    del record
    return not _expected.get()


_TEXT = re.compile(r"\n== (?:SQL|DataFrame)\b[^\n]*==\n.*?(?=\n\tat [\w$./<>]+\(|\nCaused by: |\n== |\Z)", re.DOTALL)
"""The part of the query that has raised, as the user wrote it."""


def _without_text(message: str, texts: Sequence[str] = ()) -> str:
    """The message without the text of the query, whose constants may be keys or passwords.

    ``texts`` are parts of it known to be that text: in the messages of causes, one cannot see where it ends.
    """
    for each in texts:
        message = message.replace(each, "") if each else message
    return _TEXT.sub("", message)


def _widens(part: Any, session: SparkSession) -> bool:
    """Whether an expression is a cast that every value survives."""
    if kind_of(part) != "Cast":
        return False
    if "timestamp" in str(part.dataType().json()) and not part.dataType().sameType(part.child().dataType()):
        # There are more dates and local times than there are instants.
        return False
    if kind_of(part.dataType()) == "DoubleType$" and kind_of(part.child().dataType()) == "DecimalType":
        return True
    can = static_method(session, f"{_SQL}.types.UpCastRule.canUpCast")
    return bool(can(part.child().dataType(), part.dataType()))
