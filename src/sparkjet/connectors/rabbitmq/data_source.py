"""The data source ``sparkjet-rabbitmq``, as Spark runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkjet.connectors.rabbitmq.options import INCLUDE_HEADERS, SOURCE_NAME
from sparkjet.options import Options
from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource

if TYPE_CHECKING:
    from sparkjet.connectors.rabbitmq.source import RabbitSource

ROWS = pa.schema(
    [
        pa.field("body", pa.binary()),
        *(pa.field(name, pa.string()) for name in ("message_id", "queue", "exchange", "routing_key")),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.string()) for name in ("content_type", "correlation_id")),
    ]
)
"""A message: its body, and AMQP's properties under their names; the time has whole seconds."""
FURTHER = pa.schema(
    [
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        *(pa.field(name, pa.string()) for name in ("type", "reply_to")),
        pa.field("redelivered", pa.bool_()),
    ]
)
"""Further columns, only with ``includeHeaders``: existing tables and states do not have them."""


class RabbitDataSource(AcknowledgingDataSource):
    """RabbitMQ queues; see docs/guide/queues.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return SOURCE_NAME

    @property
    def rows(self) -> pa.Schema:
        """Body and properties, and headers if they are wanted."""
        headers = Options(self.options)[INCLUDE_HEADERS]
        return pa.schema([*ROWS, *FURTHER]) if headers else ROWS

    def source(self) -> RabbitSource:
        """A consumer of the queues."""
        # Not at the top: executors do without pika.
        from sparkjet.connectors.rabbitmq.source import RabbitSource  # noqa: PLC0415
        from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings  # noqa: PLC0415

        return RabbitSource(RabbitSettings.of(self.options))
