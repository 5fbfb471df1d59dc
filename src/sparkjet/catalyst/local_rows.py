"""Local rows: a growing table in the driver's JVM, without a detour through Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.physical_plans import as_frame, local_rows
from sparkjet.java import java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COLLECTIONS = "scala.collection.immutable"


class LocalRows:
    """Rows as Spark has them; on the driver.

    Python has no value for some (years beyond 9999, month intervals), and only one for two instants in the hour that is
    repeated when clocks are set back.

    Args:
        session: The session of the table.
        schema: Its columns.
    """

    def __init__(self, session: SparkSession, schema: StructType) -> None:
        jsession: Any = session._jsparkSession
        attributes = static_method(session, "org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes")
        self._session = session
        self._columns = attributes(jsession.parseDataType(schema.json()))
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._rows: Any = java_class(self._session, f"{_COLLECTIONS}.VectorBuilder")().result()

    def append(self, rows: DataFrame) -> None:
        """Compute rows and append them, without copying the existing ones; columns are matched by position."""
        found = rows._jdf.queryExecution().executedPlan().executeCollect()
        wrapped = static_method(self._session, f"{_COLLECTIONS}.ArraySeq.unsafeWrapArray")(found)
        self._rows = self._rows.appendedAll(wrapped)

    def frame(self) -> DataFrame:
        """The current rows."""
        tasks = max(1, min(self._rows.size(), self._session.sparkContext.defaultParallelism))
        return as_frame(self._session, local_rows(self._session, self._columns, self._rows, tasks))
