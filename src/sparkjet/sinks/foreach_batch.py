"""The foreachBatch sink: calls a user's function with each epoch's rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkjet.sinks.outbox import OutboxSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ForeachBatchSink(OutboxSink):
    """Calls ``function(rows, epoch)`` on the driver for every epoch that has rows.

    At least once: after a crash the function may be called again with the same epoch and the same rows, so a function
    that stores the last epoch together with its rows delivers exactly once. Epoch numbers ascend, with gaps.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        super().__init__()
        self._function = function

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        self._function(rows, epoch)
