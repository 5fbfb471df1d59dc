"""The console sink: prints each epoch's rows to the driver's standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.sinks.outbox_sink import OutboxSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ConsoleSink(OutboxSink):
    """Prints like Spark's console sink, for debugging.

    Args:
        rows: Number of rows to print per epoch.
        truncate: Whether to truncate long values.
    """

    def __init__(self, rows: int = 20, *, truncate: bool = True) -> None:
        super().__init__()
        self._rows = rows
        self._truncate = truncate

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        line = "-" * 43
        print(f"{line}\nEpoch: {epoch}\n{line}")  # noqa: T201 - the purpose of this sink
        rows.show(self._rows, self._truncate)
