"""The formats ``artemis`` and ``sparkjet-artemis``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra
from sparkjet.options import BROKER_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


ARTEMIS_CONNECTION_OPTIONS: Mapping[str, str] = {
    "host": "Host name of the broker (localhost).",
    "port": "Port of an acceptor that takes STOMP (61616).",
    "user": "User name.",
    **BROKER_OPTIONS,
}
"""Options of ``format("artemis")`` and ``format("sparkjet-artemis")`` alike."""

ARTEMIS_OPTIONS: Mapping[str, str] = {
    "queue": "Queue to send to: one consumer gets each message.",
    "topic": "Topic to send to instead: all subscribers get each message.",
    **ARTEMIS_CONNECTION_OPTIONS,
    "maxMessagesPerTransaction": "Messages that become visible together (10000); the broker holds them in memory.",
}
"""Options of ``format("artemis")``."""


def _sink(target: Target) -> Sink:
    with extra("artemis"):
        from sparkjet.connectors.artemis.sink import ArtemisSink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings  # noqa: PLC0415 - as above
    return ArtemisSink(ArtemisSinkSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.artemis.data_source import ArtemisDataSource  # noqa: PLC0415 - the extra is optional

    return ArtemisDataSource


SINK = SinkFormat("artemis", _sink, ARTEMIS_OPTIONS)
SOURCE = SourceFormat(
    "sparkjet-artemis",
    _source,
    {"pyarrow": "pyarrow"},
    # What reads queues is of the driver's machine: executors need nothing of the broker's.
    KnownSource(partitions=("queue",), packages={"pyarrow": "pyarrow"}),
)
