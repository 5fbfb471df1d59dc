"""The memory sink: all result rows in a temporary view of the driver's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.catalyst.local_rows import LocalRows
from sparkjet.errors import AnalysisError
from sparkjet.sinks.outbox_sink import OutboxSink
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class MemorySink(OutboxSink):
    """Keeps the rows in the driver and exposes them as a temporary view, for tests and small results.

    Exactly once within the process; a new process starts with an empty table, as Spark's memory sink does.

    Args:
        view: Name of the temporary view, which is the query's name.
        session: The session in which the view is created.
        complete: Whether the rows of an epoch replace all earlier ones.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, view: str, session: SparkSession, *, complete: bool = False) -> None:
        super().__init__(complete=complete)
        if not view:
            raise AnalysisError('format("memory") needs queryName(…): it is the name of the table.')
        self.view = view
        self._target = session
        self._rows: LocalRows | None = None
        self._last = -1

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        # A sink that is restarted in its process keeps its rows.
        if self._rows is None:
            self._rows = LocalRows(self._target, schema)

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the empty view."""
        self._table.frame().createOrReplaceTempView(self.view)

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`; skips an epoch that is already there."""
        if epoch <= self._last:
            return
        if self._is_complete:
            self._table.clear()
        self._table.append(rows)
        self._last = epoch
        self._table.frame().createOrReplaceTempView(self.view)

    @property
    def _table(self) -> LocalRows:
        assert self._rows is not None  # noqa: S101 - check() comes first
        return self._rows
