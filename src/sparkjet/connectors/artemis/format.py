"""The formats ``artemis`` and ``sparkjet-artemis``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.artemis.options import SINK_OPTIONS, SOURCE_NAME, SOURCE_OPTIONS
from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


def _sink(target: Target) -> Sink:
    with extra("artemis"):
        from sparkjet.connectors.artemis.sink import ArtemisSink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings  # noqa: PLC0415 - as above
    return ArtemisSink(ArtemisSinkSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.artemis.data_source import ArtemisDataSource  # noqa: PLC0415 - the extra is optional

    return ArtemisDataSource


SINK = SinkFormat("artemis", _sink, SINK_OPTIONS)
SOURCE = SourceFormat(
    SOURCE_NAME,
    _source,
    SOURCE_OPTIONS,
    {"pyarrow": "pyarrow"},
    # Queues are read on the driver's machine: executors need nothing of the broker's.
    KnownSource(partitions=("queue",), packages={"pyarrow": "pyarrow"}, takes=True),
)
