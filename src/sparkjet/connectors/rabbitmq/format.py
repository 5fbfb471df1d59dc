"""The formats ``rabbitmq`` and ``sparkjet-rabbitmq``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra
from sparkjet.connectors.rabbitmq.options import SINK_OPTIONS, SOURCE_NAME, SOURCE_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


def _sink(target: Target) -> Sink:
    with extra("rabbitmq"):
        from sparkjet.connectors.rabbitmq.sink import RabbitSink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings  # noqa: PLC0415 - as above
    return RabbitSink(RabbitSinkSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.rabbitmq.data_source import RabbitDataSource  # noqa: PLC0415 - the extra is optional

    return RabbitDataSource


SINK = SinkFormat("rabbitmq", _sink, SINK_OPTIONS)
SOURCE = SourceFormat(
    SOURCE_NAME,
    _source,
    SOURCE_OPTIONS,
    {"pika": "pika", "pyarrow": "pyarrow"},
    # Queues are read on the driver's machine: executors need nothing of the broker's.
    KnownSource(partitions=("queue",), packages={"pyarrow": "pyarrow"}, takes=True),
)
