"""The data source ``sparkjet-artemis``, as Spark runs it."""

from __future__ import annotations

from functools import cached_property, partial

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, BooleanType, MapType, StringType, StructField, StructType, TimestampType

from sparkjet.errors import AnalysisError
from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader
from sparkjet.sources.artemis.messages import ROWS
from sparkjet.sources.artemis.settings import NAME, ArtemisSettings
from sparkjet.sources.artemis.source import ArtemisSource

# Not as DDL text, which is parsed by the JVM, and Python workers have none.
COLUMNS = StructType(
    [
        StructField("body", BinaryType()),
        StructField("message_id", StringType()),
        StructField("queue", StringType()),
        StructField("timestamp", TimestampType()),
        *(StructField(name, StringType()) for name in ("correlation_id", "reply_to", "type", "content_type")),
        StructField("redelivered", BooleanType()),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)
"""A message: its body, JMS's headers, and the producer's properties as text; the time is that of sending."""


class ArtemisDataSource(DataSource):
    """Queues of ActiveMQ Artemis; see docs/guide/artemis.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return NAME

    @cached_property
    def settings(self) -> ArtemisSettings:
        """The parsed options; they are checked here, when the user calls ``load()``."""
        return ArtemisSettings.of(dict(self.options))

    def schema(self) -> StructType:
        """The columns of a message."""
        assert self.settings.queues  # noqa: S101 - for its checks
        return COLUMNS

    def streamReader(self, schema: StructType) -> AcknowledgingStreamReader:
        """A reader of the queues."""
        if schema.simpleString() != COLUMNS.simpleString():
            message = f'format("{NAME}") has a fixed schema: leave schema(…) out and select from its columns.'
            raise AnalysisError(message)
        return AcknowledgingStreamReader(partial(ArtemisSource, self.settings), ROWS, self.settings.reader)
