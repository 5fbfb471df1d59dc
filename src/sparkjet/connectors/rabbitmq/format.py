"""The formats ``rabbitmq`` and ``sparkjet-rabbitmq``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra
from sparkjet.options import BROKER_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


RABBITMQ_CONNECTION_OPTIONS: Mapping[str, str] = {
    "host": "Host name of the broker (localhost).",
    "port": "Port of the broker (5672; 5671 with tls).",
    "virtualHost": "Virtual host (/).",
    "user": "User name (guest).",
    **BROKER_OPTIONS,
}
"""Options of ``format("rabbitmq")`` and ``format("sparkjet-rabbitmq")`` alike."""

RABBITMQ_OPTIONS: Mapping[str, str] = {
    "exchange": "Exchange to publish to (the default exchange, where keys are queues); overrides a column exchange.",
    "routingKey": "Routing key of every message; overrides a column routing_key.",
    "confirmTimeoutMs": "How long the broker may take to confirm a message (60000).",
    **RABBITMQ_CONNECTION_OPTIONS,
}
"""Options of ``format("rabbitmq")``."""


def _sink(target: Target) -> Sink:
    with extra("rabbitmq"):
        from sparkjet.connectors.rabbitmq.sink import RabbitSink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings  # noqa: PLC0415 - as above
    return RabbitSink(RabbitSinkSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.rabbitmq.data_source import RabbitDataSource  # noqa: PLC0415 - the extra is optional

    return RabbitDataSource


SINK = SinkFormat("rabbitmq", _sink, RABBITMQ_OPTIONS)
SOURCE = SourceFormat(
    "sparkjet-rabbitmq",
    _source,
    {"pika": "pika", "pyarrow": "pyarrow"},
    # What reads queues is of the driver's machine: executors need nothing of the broker's.
    KnownSource(partitions=("queue",), packages={"pyarrow": "pyarrow"}),
)
