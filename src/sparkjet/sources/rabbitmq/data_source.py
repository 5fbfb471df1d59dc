"""The data source ``sparkjet-rabbitmq``, as Spark runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource

if TYPE_CHECKING:
    from sparkjet.sources.rabbitmq.source import RabbitSource

NAME = "sparkjet-rabbitmq"
"""Name of the source in ``readStream.format(…)``."""
ROWS = pa.schema(
    [
        pa.field("body", pa.binary()),
        *(pa.field(name, pa.string()) for name in ("message_id", "queue", "exchange", "routing_key")),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.string()) for name in ("content_type", "correlation_id")),
    ]
)
"""A message: its body, and AMQP's properties by their names; the time has whole seconds."""


class RabbitDataSource(AcknowledgingDataSource):
    """RabbitMQ queues; see docs/guide/rabbitmq.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return NAME

    @property
    def rows(self) -> pa.Schema:
        """Body and properties."""
        return ROWS

    def source(self) -> RabbitSource:
        """A consumer of the queues."""
        # Not at the top: executors do without pika.
        from sparkjet.sources.rabbitmq.settings import RabbitSettings  # noqa: PLC0415
        from sparkjet.sources.rabbitmq.source import RabbitSource  # noqa: PLC0415

        return RabbitSource(RabbitSettings.of(self.options))
