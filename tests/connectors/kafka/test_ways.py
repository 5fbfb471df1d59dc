"""The two ways into Kafka: which one is taken, which options belong to it, and homes of the other one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.sink_formats import sink_format
from sparkjet.connectors.kafka.progress_topic import COMPLETE
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.options import Options
from tests.feed import START, Feed, rows
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Sink
    from tests.servers.kafka import KafkaServer

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0", "topic": "out"}
AT_LEAST_ONCE = {"processingGuarantee": "at-least-once"}


def sink_of(**options: str) -> Sink:
    # Only the sinks of files need the rest.
    return sink_format("kafka").create(
        Options({**GIVEN, **options}), partition_by=(), query="", session=None, clock=None  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, StagedKafkaSink),
        ({"commit": "staged"}, StagedKafkaSink),
        ({"commit": "prepared"}, KafkaSink),
        (AT_LEAST_ONCE, KafkaSink),
        ({"processingGuarantee": "none"}, KafkaSink),
    ],
)
def test_rows_wait_in_the_home_unless_asked_otherwise(options: dict[str, str], expected: type[Sink]) -> None:
    assert type(sink_of(**options)) is expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit": "stage"}, 'commit="stage" is not one of staged, prepared; did you mean "staged"'),
        ({"onLostTransaction": "continue"}, "onLostTransaction: this is for commit=prepared.*leave it out"),
        (
            {"commit": "prepared", "progressInterval": "1s"},
            "progressInterval: with commit=prepared there are no markers without progressTopic",
        ),
        ({"commit": "prepared", "progressTopic": "out"}, 'progressTopic: "out" is the topic of the rows'),
        ({**AT_LEAST_ONCE, "progressTopic": "p"}, "progressTopic: rows that are written at least once.*leave it out"),
        ({**AT_LEAST_ONCE, "commit": "staged"}, "staged is for processingGuarantee=exactly-once; leave commit out"),
        ({"progressTopic": "out"}, 'progressTopic: "out" is the topic of the rows'),
        ({"progressTopic": "a\0b"}, "cannot be the name of a topic: 1 to 249 of the characters"),
        ({"numPartitions": "10000"}, "numPartitions must be 9999 at most, not 10000"),
        ({"commit": "prepared", "numPartitions": "2147483648"}, "numPartitions must be 2147483647 at most"),
        ({"kafka.default.topic.config": "x"}, "kafka.default.topic.config: librdkafka does not accept its value"),
        ({"kafka.bootstrap.servers": "a:b"}, 'kafka.bootstrap.servers: "a:b" is not host:port'),
        ({"kafka.message.max.bytes": "0x10000"}, 'kafka.message.max.bytes: "0x10000" is not a number of bytes'),
        ({"kafka.batch.size": "0100000"}, 'kafka.batch.size: "0100000" is not a number of bytes'),
        ({"kafka.log_level": "debug"}, "kafka.log_level: librdkafka does not accept its value"),
        ({"kafka.max.poll.interval.ms": "1000"}, "kafka.max.poll.interval.ms.* together: .*session.timeout.ms"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers names no broker"),
    ],
)
def test_options_of_the_other_way_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(sj.AnalysisError, match=message):
        sink_of(**options)


@pytest.mark.parametrize("level", ["0", "7"])
def test_checking_options_writes_nothing(capfd: pytest.CaptureFixture[str], level: str) -> None:
    sink_of(**{"kafka.log_level": level})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "compresses"),
    [
        ({}, False),
        ({"kafka.compression.type": "none"}, False),
        ({"kafka.compression.type": " NONE"}, False),
        ({"kafka.compression.codec": "gzip"}, True),
    ],
)
def test_rows_are_measured_as_brokers_see_them(options: dict[str, str], *, compresses: bool) -> None:
    assert StagedSettings.of(Options({**GIVEN, **options})).compresses is compresses


def test_how_to_connect_is_librdkafkas_to_judge() -> None:
    oauth = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.enable.sasl.oauthbearer.unsecure.jwt": "true",
    }
    assert StagedSettings.of(Options({**GIVEN, **oauth})).access is None
    assert StagedSettings.of(Options(GIVEN)).access is not None
    with pytest.raises(sj.AnalysisError, match="OAUTHBEARER"):
        sink_of(commit="prepared", **oauth)


@pytest.mark.parametrize("options", [{"commit": "prepared"}, AT_LEAST_ONCE], ids=["prepared", "at least once"])
def test_rows_that_wait_in_the_home_are_not_taken_for_prepared_ones(options: dict[str, str]) -> None:
    # A start settles what brokers would drop before anything may refuse it.
    decided = {"way": "kafka-staged", "query": "q", "sink": "results", "epoch": 1, "run": "aa", "since": 0}
    with pytest.raises(sj.AnalysisError, match=r"commit=staged, the default.*without the options commit"):
        sink_of(**options).commit(decided, lambda: None)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("before", "after", "way_out"),
    [
        ({"commit": "prepared"}, {}, 'option."commit", "prepared"'),
        ({}, {"commit": "prepared"}, "commit=staged, the default. Go on without the options commit"),
        pytest.param(
            *(
                {},
                AT_LEAST_ONCE,
                "commit=staged, the default. Go on without the options commit and processingGuarantee",
            ),
            marks=pytest.mark.long,
        ),
    ],
    ids=["prepared", "staged", "staged, at least once"],
)
def test_a_home_of_the_other_way_is_refused_with_the_option_that_goes_on(
    spark: SparkSession,
    kafka: KafkaServer,
    tmp_path: Path,
    before: dict[str, str],
    after: dict[str, str],
    way_out: str,
) -> None:
    feed, topic = Feed(tmp_path / "in"), kafka.topic()

    def run(options: dict[str, str]) -> None:
        given = {f"kafka.{name}": value for name, value in kafka.client().items()} | {"topic": topic, **options}
        records = sj.stream(feed.read(spark)).select(F.col("v").cast("string").alias("value"))
        writer = records.where("value <> '0'").writeStream.format("kafka").options(**given)
        writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start().awaitTermination()

    feed.add(*rows([1], v=1))
    run(before)
    # Also where nothing of the way is left in the newest record.
    feed.add(*rows([2], v=0))
    run(before)
    feed.add(*rows([3], v=2))
    with pytest.raises(sj.AnalysisError, match=way_out):
        run(after)
    run(before)
    assert [message.value() for message in committed(kafka, topic)] == [b"1", b"2"]


def test_the_marker_of_an_epoch_tells_the_watermark(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    feed, topic = Feed(tmp_path / "in"), kafka.topic()
    given = {f"kafka.{name}": value for name, value in kafka.client().items()}
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds")).count().select(F.col("count").cast("string").alias("value"))
    writer = counts.writeStream.format("kafka").options(topic=topic, progressTopic=f"{topic}-progress", **given)
    feed.add(*rows([1, 12, 25], v=1))
    writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start().awaitTermination()
    told = [json.loads(each.value()) for each in committed(kafka, f"{topic}-progress") if each.partition() == COMPLETE]
    assert [each["watermark"] for each in told] == [1_000_000 * (START + 20)]
