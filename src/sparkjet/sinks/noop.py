"""The noop sink: computes each epoch's rows and discards them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId, Unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class NoopSink:
    """Discards the rows, like Spark's noop sink; for measurements, and if only late rows are wanted."""

    guarantee = Guarantee.NONE

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`: rows of every schema can be discarded."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; there is never anything to commit."""
        del transaction
        rows.write.format("noop").mode("append").save()
        return None

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`: nothing is kept."""
        del newest, handle
        return Unknown.UNKNOWN

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
