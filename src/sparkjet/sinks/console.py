"""The console sink: prints each epoch's rows to the driver's standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparkjet.sinks.outbox_sink import OutboxSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TRUNCATED = 20
"""Maximum length of a value, as in Spark's sink."""


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
        shown = rows._jdf.showString(self._rows, _TRUNCATED if self._truncate else 0, False)
        text = f"{line}\nEpoch: {epoch}\n{line}\n{shown}"
        # Otherwise a character that the terminal does not have would fail the epoch again at every start.
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding))  # noqa: T201 - the purpose of this sink
