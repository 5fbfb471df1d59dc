"""The data source ``sparkjet-artemis``, as Spark runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkjet.connectors.artemis.options import SOURCE_NAME
from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource

if TYPE_CHECKING:
    from sparkjet.connectors.artemis.source import ArtemisSource

ROWS = pa.schema(
    [
        pa.field("body", pa.binary()),
        pa.field("message_id", pa.string()),
        pa.field("queue", pa.string()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.string()) for name in ("correlation_id", "reply_to", "type", "content_type")),
        pa.field("redelivered", pa.bool_()),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
    ]
)
"""A message: its body, JMS headers, and the producer's properties as text; the time is the time of sending."""


class ArtemisDataSource(AcknowledgingDataSource):
    """Queues of ActiveMQ Artemis; see docs/design/024-artemis.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return SOURCE_NAME

    @property
    def rows(self) -> pa.Schema:
        """Body, headers and properties."""
        return ROWS

    def source(self) -> ArtemisSource:
        """A consumer of the queues."""
        # Not at the top: executors do without msgspec.
        from sparkjet.connectors.artemis.source import ArtemisSource  # noqa: PLC0415
        from sparkjet.connectors.artemis.source_settings import ArtemisSettings  # noqa: PLC0415

        return ArtemisSource(ArtemisSettings.of(self.options))
