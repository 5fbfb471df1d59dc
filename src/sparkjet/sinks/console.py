"""The console sink: each epoch's rows printed on the driver's standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.sinks.outbox import OutboxSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ConsoleSink(OutboxSink):
    """Prints like Spark's console sink, for looking at a query while writing it.

    Args:
        rows: How many rows of an epoch to print.
        truncate: Whether to cut long values.
    """

    def __init__(self, rows: int = 20, *, truncate: bool = True) -> None:
        super().__init__()
        self._rows = rows
        self._truncate = truncate

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        line = "-" * 43
        print(f"{line}\nEpoch: {epoch}\n{line}")  # noqa: T201 - what this sink is for
        rows.show(self._rows, self._truncate)
