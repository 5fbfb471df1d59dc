"""The data source ``sparkjet-rabbitmq``, as Spark runs it."""

from __future__ import annotations

from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from sparkjet.errors import AnalysisError
from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader
from sparkjet.sources.rabbitmq.settings import NAME, RabbitSettings
from sparkjet.sources.rabbitmq.source import RabbitSource

# Not as DDL text, which is parsed by the JVM, and Python workers have none.
COLUMNS = StructType(
    [
        StructField("body", BinaryType()),
        StructField("message_id", StringType()),
        StructField("queue", StringType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("content_type", StringType()),
        StructField("correlation_id", StringType()),
    ]
)
"""A message: its body, and AMQP's properties by their names; the time has whole seconds."""
ROWS = pa.schema(
    [
        pa.field("body", pa.binary()),
        *(pa.field(name, pa.string()) for name in ("message_id", "queue", "exchange", "routing_key")),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.string()) for name in ("content_type", "correlation_id")),
    ]
)


class RabbitDataSource(DataSource):
    """RabbitMQ queues; see docs/guide/rabbitmq.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return NAME

    @cached_property
    def settings(self) -> RabbitSettings:
        """The parsed options; they are checked here, when the user calls ``load()``."""
        return RabbitSettings.of(dict(self.options))

    def schema(self) -> StructType:
        """The columns of a message."""
        assert self.settings.queues  # noqa: S101 - for its checks
        return COLUMNS

    def streamReader(self, schema: StructType) -> AcknowledgingStreamReader:
        """A reader of the queues."""
        if schema.simpleString() != COLUMNS.simpleString():
            message = f'format("{NAME}") has a fixed schema: leave schema(…) out and select from its columns.'
            raise AnalysisError(message)
        return AcknowledgingStreamReader(partial(RabbitSource, self.settings), ROWS, self.settings.reader)
