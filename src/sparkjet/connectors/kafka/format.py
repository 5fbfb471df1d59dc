"""The formats ``kafka`` and ``sparkjet-kafka``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra
from sparkjet.connectors.kafka.options import (
    BEGINS,
    COMMIT,
    PACKAGES,
    PREPARED,
    SINK_OPTIONS,
    SOURCE_NAME,
    SOURCE_OPTIONS,
    STAGED,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


def _sink(target: Target) -> Sink:
    with extra("kafka"):
        from sparkjet.connectors.kafka.producer_settings import KafkaSettings, guarantee_of  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.kafka.sink import KafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged import StagedKafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged_settings import StagedSettings  # noqa: PLC0415 - as above
        from sparkjet.sinks.protocol import Guarantee  # noqa: PLC0415 - workers import this module, and lack what sinks need
    # Without transactions there is nothing to commit.
    default = STAGED if guarantee_of(target.options) is Guarantee.EXACTLY_ONCE else PREPARED
    if target.options[COMMIT.defaulting_to(default)] == STAGED:
        return StagedKafkaSink(StagedSettings.of(target.options))
    return KafkaSink(KafkaSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.kafka.source import KafkaDataSource  # noqa: PLC0415 - the extra is optional

    return KafkaDataSource


SINK = SinkFormat("kafka", _sink, SINK_OPTIONS, reads_once=True)
SOURCE = SourceFormat(
    SOURCE_NAME, _source, SOURCE_OPTIONS, PACKAGES, KnownSource(True, ("topic", "partition"), PACKAGES, begins=BEGINS)
)
