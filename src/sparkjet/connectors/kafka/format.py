"""The formats ``kafka`` and ``sparkjet-kafka``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, SourceFormat, Target, extra

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

    from sparkjet.sinks.protocol import Sink


KAFKA_OPTIONS: Mapping[str, str] = {
    "kafka.*": "Properties of librdkafka, at least kafka.bootstrap.servers. Never logged or recorded.",
    "topic": "Topic to write to; overrides a column topic.",
    "numPartitions": "Maximum number of transactions per epoch (16).",
    "commit": "staged (default) or prepared: whether rows wait for the decision in the home, or in open transactions.",
    "progressTopic": "commit=staged: compacted topic of the markers; named after query and output by default.",
    "progressInterval": "commit=staged: least time between epochs without rows that tell the watermark (none do).",
    "onLostTransaction": "commit=prepared: fail (default) or continue, if the brokers have dropped what was decided.",
    "onRestoredBackup": "fail (default) or continue, if the topic has epochs that the snapshots do not know.",
}
"""Options of ``format("kafka")``."""


def _sink(target: Target) -> Sink:
    with extra("kafka"):
        from sparkjet.connectors.kafka.producer_settings import KafkaSettings, guarantee_of  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.kafka.sink import KafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged import StagedKafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged_settings import StagedSettings  # noqa: PLC0415 - as above
        from sparkjet.sinks.protocol import Guarantee  # noqa: PLC0415 - workers import this module, and lack what sinks need
    # Without transactions there is nothing to commit.
    default = "staged" if guarantee_of(target.options) is Guarantee.EXACTLY_ONCE else "prepared"
    if target.options.choice("commit", ("staged", "prepared"), default) == "staged":
        return StagedKafkaSink(StagedSettings.of(target.options))
    return KafkaSink(KafkaSettings.of(target.options))


def _source() -> type[DataSource]:
    from sparkjet.connectors.kafka.source import KafkaDataSource  # noqa: PLC0415 - the extra is optional

    return KafkaDataSource


PACKAGES = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
"""What the driver and the executors need, for the source and the sink."""
SINK = SinkFormat("kafka", _sink, KAFKA_OPTIONS)
SOURCE = SourceFormat("sparkjet-kafka", _source, PACKAGES, KnownSource(True, ("topic", "partition"), PACKAGES))
