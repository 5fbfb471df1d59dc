"""Spark's access to databases: its dialects, its connections, and the types that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sparkjet.catalyst.doors import JDBC, is_open
from sparkjet.errors import AnalysisError
from sparkjet.java import as_map, java_class, nothing, static_method
from sparkjet.spark_line import RELEASE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SQL = "org.apache.spark.sql"
_JDBC = f"{_SQL}.execution.datasources.jdbc"
_LOCKED = 1205


class Dialect:
    """The way Spark talks to the databases of a URL.

    Args:
        session: The user's session.
        url: The URL.

    Raises:
        AnalysisError: This version of Spark lacks what this needs.
    """

    def __init__(self, session: SparkSession, url: str) -> None:
        if not is_open(session, JDBC):
            message = f'format("jdbc"): Spark {RELEASE} lacks what it needs ({JDBC.purpose}). Use one that was tried.'
            raise AnalysisError(message)
        self._session = session
        self._found = static_method(session, f"{_SQL}.jdbc.JdbcDialects.get")(url)

    @property
    def name(self) -> str:
        """Name of Spark's class, such as ``MySQLDialect``; ``NoopDialect`` if Spark does not know the database."""
        return str(self._found.getClass().getSimpleName()).rstrip("$")

    def quoted(self, name: str) -> str:
        """A name as an identifier."""
        return str(self._found.quoteIdentifier(name))

    def connection(self, options: Mapping[str, str]) -> Any:
        """A new ``java.sql.Connection`` from the driver, opened as Spark does: with its credential providers."""
        with drivers_found(self._session):
            parsed = java_class(self._session, f"{_JDBC}.JDBCOptions")(as_map(self._session, options.items()))
            return self._found.createConnectionFactory(parsed).apply(-1)

    def columns(self, schema: StructType, types: str | None = None) -> str:
        """The columns of a schema as ``CREATE TABLE`` takes them."""
        parsed = java_class(self._session, f"{_SQL}.types.DataType").fromJson(schema.json())
        given = nothing(self._session) if types is None else java_class(self._session, "scala.Some")(types)
        return str(static_method(self._session, f"{_JDBC}.JdbcUtils.schemaString")(self._found, parsed, False, given))


@contextmanager
def drivers_found(session: SparkSession) -> Iterator[None]:
    """Have Spark find the drivers in all jars, including those that another thread has added by SQL's ADD JAR."""
    thread = java_class(session, "java.lang.Thread").currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(session._jsparkSession.sharedState().jarClassLoader())
    try:
        yield
    finally:
        thread.setContextClassLoader(before)


def is_locked(error: BaseException | None) -> bool:
    """Whether a database has refused because of another transaction: a lock that it holds, or a deadlock with it."""
    state, code = _state_of(error)
    # The number is from MySQL and MariaDB, whose SQLSTATE does not tell that a lock was waited for too long.
    return state.startswith(("40", "HYT", "55P03")) or code == _LOCKED


def may_pass(error: BaseException | None) -> bool:
    """Whether a database may accept the same a moment later: :func:`is_locked`, or the connection was lost."""
    return is_locked(error) or _state_of(error)[0].startswith("08")


def blames_rows(error: Py4JJavaError | PySparkException) -> bool:
    """Whether a database has refused values or constraints, and would accept other rows."""
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None:
        try:
            state = str(cause.getSQLState() or "")
        except Py4JError:
            state = ""
        if state[:2] in _OF_ROWS:
            return True
        following = cause.getCause()
        cause = None if following == cause else following
    return False


def message_of(error: Py4JJavaError | PySparkException) -> str:
    """Message of the innermost cause of a Java exception, on one line."""
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if cause is None:
        return " ".join(str(error).split())
    while cause.getCause() is not None and cause.getCause() != cause:
        cause = cause.getCause()
    return " ".join(str(cause.getMessage() or cause.toString()).split())


_OF_ROWS = ("22", "23", "44", "45")
"""SQLSTATE classes: data, constraints, violated view checks, and signals raised by triggers."""


def _state_of(error: BaseException | None) -> tuple[str, int]:
    """The SQLSTATE and the database's own number of a refusal; empty and 0 for anything else."""
    if not isinstance(error, Py4JJavaError):
        return "", 0
    try:
        return str(error.java_exception.getSQLState() or ""), int(error.java_exception.getErrorCode())
    except Py4JError:
        return "", 0
