"""The Kafka sink with ``commit=staged`` against a real broker: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
import re
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import functions as F

from sparkjet.connectors.kafka import producing, publishing
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import SinkContract, SinkUnderTest, transaction
from tests.protocol.kafka.checks import committed
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import TransactionId

RECORDS = "key string, value string"


def sink_of(
    spark: SparkSession, server: KafkaServer, outbox: Path, schema: str = RECORDS, few: int = 20_000, **options: str
) -> StagedKafkaSink:
    connected = {f"kafka.{name}": value for name, value in server.client().items()}
    given = {
        **({} if "kafka.bootstrap.servers" in options else connected),
        "kafka.message.timeout.ms": "5000",
        "progressTopic": f"progress-{uuid.uuid4().hex}",
        **options,
    }
    sink = StagedKafkaSink(replace(StagedSettings.of(Options(given)), few=few))
    sink.check(spark.createDataFrame([], schema).schema)
    sink.attach(outbox, spark)
    sink.published_after(transaction(0), None)
    sink.create()
    return sink


class Contract(SinkContract):
    def rows(self, spark: SparkSession, *numbers: int) -> DataFrame:
        rows = [(f"k{n}", json.dumps([f"k{n}", n])) for n in numbers]
        return spark.createDataFrame(rows, RECORDS).repartition(2)

    def under_test(self, spark: SparkSession, server: KafkaServer, outbox: Path, few: int) -> SinkUnderTest:
        topic = server.topic(partitions=2)

        def read() -> list[tuple[str, int]]:
            return [tuple(json.loads(message.value())) for message in committed(server, topic)]

        def dangling() -> int:
            return sum(1 for _ in outbox.glob("results/0*"))

        sink = sink_of(spark, server, outbox, topic=topic, few=few, numPartitions="4")
        large = F.repeat(F.lit("x"), F.lit(2_000_000))
        return SinkUnderTest(sink, read, dangling, lambda rows: rows.withColumn("value", large))

    # A condition that holds for these rows.
    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(self.rows(spark, 1).where("false"), transaction(1)) is None
        assert target.dangling() == 0


@pytest.mark.crash
class TestByTheDriver(Contract):
    """Rows that the driver publishes instead of tasks are published by the same code."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka, tmp_path, few=20_000)


class TestInTasks(Contract):
    """The others, `TestByTheDriver`, `test_other_brokers` and `protocol/kafka` do in CI."""

    OFTEN = (
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_repeated_commit_changes_nothing",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka, tmp_path, few=0)


@pytest.mark.long
class TestSecureBroker(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka_secure: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka_secure, tmp_path, few=0)


@pytest.mark.long
class TestUpgradedBroker(Contract):
    @pytest.fixture
    def target(self, spark: SparkSession, kafka_old: KafkaServer, tmp_path: Path) -> SinkUnderTest:
        return self.under_test(spark, kafka_old, tmp_path, few=0)


@pytest.mark.crash
@pytest.mark.parametrize("version", ["kafka_secure", "kafka_old"])
def test_other_brokers(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, version: str) -> None:
    """Requests to a broker: transactions, markers and where they end; the whole contract takes long."""
    suite, server = Contract(), request.getfixturevalue(version)
    for test in (
        suite.test_nothing_is_seen_before_the_commit_and_everything_after,
        suite.test_a_driver_that_slept_for_epochs_and_commits_again_changes_nothing,
        suite.test_it_knows_later_epochs_or_says_that_it_cannot,
    ):
        test(spark, suite.under_test(spark, server, tmp_path / test.__name__, few=0))


def prepared(spark: SparkSession, sink: StagedKafkaSink, of: TransactionId, *values: str) -> Any:
    handle = sink.prepare(spark.createDataFrame([(each, each) for each in values], RECORDS), of)
    assert handle is not None
    return handle


def read(server: KafkaServer, topic: str) -> list[bytes]:
    return sorted(message.value() for message in committed(server, topic))


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [
        (17, "delete", r"cleanup.policy=delete, which would lose markers. Set it: kafka-configs.sh --alter"),
        (1, "compact", r"has one partition and needs 17.*kafka-topics.sh --alter --topic \S+ --partitions 17"),
    ],
)
def test_a_progress_topic_that_would_lose_markers_is_refused(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path, partitions: int, policy: str, message: str
) -> None:
    wrong = kafka.topic(partitions=partitions, cleanup_policy=policy)
    with pytest.raises(AnalysisError, match=message):
        sink_of(spark, kafka, tmp_path, topic=kafka.topic(), progressTopic=wrong)


def test_what_readers_do_not_get_yet_is_not_taken_for_a_topic_that_was_emptied(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    progress = f"progress-{uuid.uuid4().hex}"
    sink = sink_of(spark, kafka, tmp_path, topic=kafka.topic(), progressTopic=progress)
    # The broker rolls it back within two seconds, and the epochs are behind it until then.
    held = Producer({**kafka.client(), "transactional.id": progress, "transaction.timeout.ms": 1000})
    held.init_transactions(30)
    held.begin_transaction()
    held.produce(progress, b"{}", b"not ours", partition=0)
    held.flush(30)
    for epoch in (1, 2):
        handle = prepared(spark, sink, transaction(epoch), str(epoch))
        with suppress(SinkError):
            # If it is rolled back between the look and the marker; whoever commits tries again.
            sink.commit(handle, lambda: None)
        sink.commit(handle, lambda: None)
    again = StagedKafkaSink(sink._settings)
    again.attach(tmp_path, spark)
    assert again.published_after(transaction(2), handle) is None


def test_a_progress_topic_that_was_emptied_or_is_older_than_the_record_is_refused(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic, progress = kafka.topic(), f"progress-{uuid.uuid4().hex}"
    sink = sink_of(spark, kafka, tmp_path, topic=topic, progressTopic=progress)
    for epoch in (1, 2):
        handle = prepared(spark, sink, transaction(epoch), str(epoch))
        sink.commit(handle, lambda: None)
    assert sink.published_after(transaction(2), handle) is None
    kafka.drop(progress)
    lost = StagedKafkaSink(replace(sink._settings))
    lost.attach(tmp_path, spark)
    with pytest.raises(AnalysisError, match="has no epoch of this query, but epoch 1 was published: the topic was emp"):
        lost.published_after(transaction(2), handle)
    kafka.topic(progress, partitions=17, cleanup_policy="compact")
    with pytest.raises(AnalysisError, match="has no epoch of this query, but epoch 1 was published"):
        lost.published_after(transaction(2), handle)
    goes_on = StagedKafkaSink(replace(sink._settings, repeats=True))
    goes_on.attach(tmp_path, spark)
    assert goes_on.published_after(transaction(2), handle) is None


def test_the_first_epoch_is_not_published_again_by_the_markers_of_another_topic(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    progress, other = (kafka.topic(f"progress-{uuid.uuid4().hex}", 17, cleanup_policy="compact") for _ in range(2))
    sink = sink_of(spark, kafka, tmp_path, topic=kafka.topic(), progressTopic=progress)
    handle = prepared(spark, sink, transaction(1), "a")
    for name, message in [(other, f'"{other}" is not "{progress}"'), (progress, "does not exist, but rows were dec")]:
        again = StagedKafkaSink(replace(sink._settings, progress=name))
        again.attach(tmp_path, spark)
        if name == progress:
            assert again.published_after(transaction(1), handle) is None
            kafka.drop(progress)
        with pytest.raises(AnalysisError, match=message):
            again.published_after(transaction(1), handle)
    # It has the right name then, and lacks nothing that the handle calls published.
    kafka.topic(progress, 17, cleanup_policy="compact")
    with pytest.raises(AnalysisError, match="was deleted and created again since rows were decided"):
        again.published_after(transaction(1), handle)
    # A query that runs goes on with the new one, which has the markers then.
    sink.commit(handle, lambda: None)
    assert again.published_after(transaction(1), handle) is None
    goes_on = StagedKafkaSink(replace(sink._settings, progress=other, repeats=True))
    goes_on.attach(tmp_path, spark)
    assert goes_on.published_after(transaction(1), handle) is None


def test_a_backup_is_noticed_and_continued_from_only_if_allowed(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = kafka.topic()
    sink = sink_of(spark, kafka, tmp_path, topic=topic)
    handles = [prepared(spark, sink, transaction(epoch), str(epoch)) for epoch in (1, 2)]
    for handle in handles:
        sink.commit(handle, lambda: None)
    assert "epoch 2 was published" in str(sink.published_after(transaction(1), handles[0]))
    again = StagedKafkaSink(replace(sink._settings, repeats=True))
    again.check(spark.createDataFrame([], RECORDS).schema)
    again.attach(tmp_path / "backup", spark)
    assert again.published_after(transaction(1), None) is None
    again.create()
    again.commit(prepared(spark, again, transaction(2, takeover=1), "again"), lambda: None)
    assert read(kafka, topic) == [b"1", b"2", b"again"]


def test_the_home_of_the_other_way_is_refused(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    sink = sink_of(spark, kafka, tmp_path, topic=kafka.topic())
    handle = prepared(spark, sink, transaction(1), "a")
    with pytest.raises(AnalysisError, match="written with commit=prepared"):
        sink.published_after(transaction(1), {"way": "kafka", "transactions": []})
    given = {f"kafka.{name}": value for name, value in kafka.client().items()}
    other = KafkaSink(KafkaSettings.of(Options({**given, "topic": "out"})))
    with pytest.raises(AnalysisError, match="written with commit=staged"):
        other.published_after(transaction(1), handle)
    with pytest.raises(AnalysisError, match="staged is for processingGuarantee=exactly-once"):
        StagedSettings.of(Options({**given, "processingGuarantee": "at-least-once"}))


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        ("value string, topic string", ("a", None), "topic is null in a row"),
        ("value string, topic string", ("a", "not-there"), "topic 'not-there', where rows go, does not exist"),
        ("value string, topic string", ("a", "not a name"), "topic 'not a name', where rows go, does not exist"),
        ("value string, topic string", ("a", "__transaction_state"), "does not exist, or is the brokers' own"),
        ("value string, partition int", ("a", 7), "has 7, and topic 't[0-9a-f]+' has the partitions 0 to 0"),
        ("value string, partition int", ("a", -1), "has -1, and topic"),
        (
            "value string, headers array<struct<key: string, value: binary>>",
            ("a", [(None, b"x")]),
            r"in 1 rows of the epoch a header has no key, .*F.filter",
        ),
        ("key string, value string", (None, "a"), "is compacted and takes no row without a key, and 1 rows"),
        ("key string, value string", ("k", "x" * 1_000_000), r"has 1000001 bytes, and librdkafka takes 1000000"),
        ("key string, value string", ("k", "x" * 30_000), r"has 30001 bytes, and topic \S+ takes 20000"),
    ],
)
def test_rows_that_brokers_refuse_are_refused_before_the_decision(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path, schema: str, row: tuple[Any, ...], message: str
) -> None:
    config = {"cleanup_policy": "compact"} if row[0] is None else {}
    config |= {"max_message_bytes": "20000"} if len(str(row[1])) == 30_000 else {}
    topic = kafka.topic(**config)
    options = {} if "topic" in schema else {"topic": topic}
    sink = sink_of(spark, kafka, tmp_path, schema, **options)
    with pytest.raises(SinkError, match=message):
        sink.prepare(spark.createDataFrame([row], schema), transaction(1))
    assert read(kafka, topic) == []


def test_every_part_of_a_record_arrives_and_a_header_that_would_be_cut_off_is_refused(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    one, other = kafka.topic(partitions=3), kafka.topic()
    schema = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    sink = sink_of(spark, kafka, tmp_path, schema)
    rows = [
        (b"\0a", "v", one, 2, [("h\0i", b"1"), ("h", None)]),
        (None, None, other, None, None),
        (b"", "", other, 0, []),
    ]
    records = spark.createDataFrame(rows, schema).coalesce(1)
    advice = r"in 1 rows of the epoch a header's key has the character NUL, .*with (F.transform\(.*\))\.$"
    with pytest.raises(SinkError, match=advice) as refused:
        sink.prepare(records, transaction(1))
    said = re.search(advice, str(refused.value))
    assert said is not None
    handle = sink.prepare(records.withColumn("headers", eval(said[1], {"F": F})), transaction(2))  # noqa: S307 - our own
    assert handle is not None
    sink.commit(handle, lambda: None)
    found = [
        [(m.key(), m.value(), m.partition(), m.headers()) for m in committed(kafka, topic)] for topic in (one, other)
    ]
    assert found == [
        [(b"\0a", b"v", 2, [("hi", b"1"), ("h", None)])],
        [(None, None, 0, None), (b"", b"", 0, None)],
    ]


def test_rows_are_checked_with_the_topic_as_it_is_now(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    topic, schema = kafka.topic(max_message_bytes="1000"), "value string, partition int"
    sink = sink_of(spark, kafka, tmp_path, schema, topic=topic)
    for epoch, row in enumerate([("a", 0), ("b", 1), ("c" * 2000, 1)], 1):
        handle = sink.prepare(spark.createDataFrame([row], schema), transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        kafka.grow(topic, 2)
        kafka.configure(topic, max_message_bytes="5000")
    assert len(read(kafka, topic)) == 3
    kafka.drop(topic)
    again = StagedKafkaSink(sink._settings)
    again.attach(tmp_path, spark)
    with pytest.raises(SinkError, match=f"topic '{topic}', where rows go, does not exist"):
        again.prepare(spark.createDataFrame([("d",)], "value string"), transaction(4))


def test_each_topic_has_its_own_limits(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    small, large, keyed = kafka.topic(max_message_bytes="1000"), kafka.topic(), kafka.topic(cleanup_policy="compact")
    schema = "key string, value string, topic string"
    sink = sink_of(spark, kafka, tmp_path, schema)
    rows = [("k", "s", small), (None, "l" * 5000, large), ("k", "c", keyed)]
    handle = sink.prepare(spark.createDataFrame(rows, schema), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    assert [len(read(kafka, topic)) for topic in (small, large, keyed)] == [1, 1, 1]
    for epoch, wrong, message in [
        (2, ("k", "s" * 1000, small), f"largest row has 1001 bytes, and topic '{small}' takes 1000"),
        (3, (None, "c", keyed), f"topic '{keyed}' is compacted and takes no row without a key, and 1 rows"),
    ]:
        with pytest.raises(SinkError, match=message):
            sink.prepare(spark.createDataFrame([*rows, wrong], schema), transaction(epoch))


def test_a_marker_names_the_topics_of_earlier_epochs_that_are_still_there(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    small, large, progress = kafka.topic(max_message_bytes="1000"), kafka.topic(), f"progress-{uuid.uuid4().hex}"
    schema = "value string, topic string"
    given = {"schema": schema, "progressTopic": progress}
    sink = sink_of(spark, kafka, tmp_path, **given)

    def publish(sink: StagedKafkaSink, epoch: int, *topics: str) -> set[str]:
        # Of a size that only one of the topics takes: the limits of the others are none of this epoch's.
        rows = spark.createDataFrame([("l" * 5000 if topics == (large,) else "s", each) for each in topics], schema)
        handle = sink.prepare(rows, transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        newest = [each for each in committed(kafka, progress) if b'"part"' not in each.key()][-1]
        assert json.loads(newest.value())["epoch"] == epoch
        return set(json.loads(newest.value())["ends"])

    assert publish(sink, 1, small, large) == {small, large}
    assert publish(sink, 2, large) == {small, large}
    # A driver that starts again looks for what the last one left where that one wrote, and reads it in the marker.
    again = sink_of(spark, kafka, tmp_path, **given)
    assert publish(again, 3, large) == {small, large}
    handle = again.prepare(spark.createDataFrame([("d", large)], schema), transaction(4))
    assert handle is not None
    # After the decision: it must not keep the epoch from being published.
    kafka.drop(small)
    again.commit(handle, lambda: None)
    assert publish(again, 5, large) == {large}


class FastClock(Producer):
    """Rows have the time of a machine whose clock is a day ahead; brokers, who end transactions, have the right one."""

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], **more: Any) -> int:
        for message in messages:
            self.produce(topic, timestamp=int((time.time() + 86_400) * 1_000), **message, **more)
        return len(messages)


# Not a topic that takes no record of a millisecond ago: it also refuses the end of the transaction, which brokers that
# are slow write once and never again.
@pytest.mark.crash
def test_a_clock_that_the_topic_does_not_take_is_named_and_the_rows_wait(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic(message_timestamp_after_max_ms="60000")
    sink = sink_of(spark, kafka, tmp_path, topic=topic)
    handle = prepared(spark, sink, transaction(1), "a")
    monkeypatch.setattr(publishing.confluent_kafka, "Producer", FastClock)
    # Rows from Arrow's memory have no time of their own.
    monkeypatch.setattr(producing, "library", lambda: None)
    with pytest.raises(SinkError, match=r"INVALID_TIMESTAMP.*Compare this machine's clock with the brokers'"):
        sink.commit(handle, lambda: None)
    kafka.configure(topic, message_timestamp_after_max_ms=str(2**62))
    sink.commit(handle, lambda: None)
    assert read(kafka, topic) == [b"a"]


def test_what_a_broker_refuses_after_the_decision_is_published_once_it_takes_it(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = kafka.topic()
    sink = sink_of(spark, kafka, tmp_path, topic=topic)
    handle = sink.prepare(spark.createDataFrame([("k", "1"), (None, "2")], RECORDS), transaction(1))
    assert handle is not None
    kafka.configure(topic, cleanup_policy="compact")
    with pytest.raises(SinkError, match=r"INVALID_RECORD.*set the topic's cleanup.policy to delete"):
        sink.commit(handle, lambda: None)
    assert read(kafka, topic) == []
    kafka.configure(topic, cleanup_policy="delete")
    sink.commit(handle, lambda: None)
    assert read(kafka, topic) == [b"1", b"2"]


@pytest.mark.crash
def test_without_a_right_to_a_topic_the_start_names_the_command_that_gives_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    guards = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        # The brokers' default: who only asks for a topic by its name creates it, without any of its settings.
        "auto.create.topics.enable": "true",
    }
    with KafkaServer(settings=guards) as server:
        topic, admin = server.topic(), server.admin()
        # The broker itself creates topics for the first transaction.
        sink_of(spark, server, tmp_path, topic=topic)
        progress = server.topic("progress-given", partitions=17, cleanup_policy="compact")

        def allow(name: str, *operations: str, **where: Any) -> None:
            where = {"restype": ResourceType.TOPIC, "resource_pattern_type": ResourcePatternType.LITERAL} | where
            of = {"principal": "User:ANONYMOUS", "host": "*", "permission_type": AclPermissionType.ALLOW}
            made = [AclBinding(name=name, operation=AclOperation[each.upper()], **where, **of) for each in operations]
            known = len(acls_of(admin))
            for answer in admin.create_acls(made).values():
                answer.result(30)
            # The broker has them a moment after the controller.
            server.wait(lambda: len(acls_of(admin)) == known + len(made), "the rules")

        # Where there is a rule, what no rule allows is denied.
        allow("kafka-cluster", "Alter", "Cluster_Action", "Idempotent_Write", "Describe", restype=ResourceType.BROKER)
        allow("progress-", "Describe", resource_pattern_type=ResourcePatternType.PREFIXED)
        with pytest.raises(AnalysisError, match=r"cannot be created: .*AUTHORIZATION_FAILED.*kafka-topics.sh --create"):
            sink_of(spark, server, tmp_path, topic=topic)
        allow(topic, "Describe")
        for name, who in [(topic, "may not write to topic"), (progress, "needs Read and Write on")]:
            with pytest.raises(AnalysisError, match=rf"{who} .{name}.*Allow it: kafka-acls.sh --add") as refused:
                sink_of(spark, server, tmp_path, topic=topic, progressTopic=progress)
            _, command = str(refused.value).split("kafka-acls.sh")
            assert command.endswith(f" --topic {name}")
            allow(name, *re.findall(r"--operation (\w+)", command))
        sink = sink_of(spark, server, tmp_path, topic=topic, progressTopic=progress)
        sink.commit(prepared(spark, sink, transaction(1), "a"), lambda: None)
        shut, by_row = server.topic(), "value string, topic string"
        allow(shut, "Describe")
        sink = sink_of(spark, server, tmp_path, by_row, progressTopic=progress)
        with pytest.raises(SinkError, match=f"may not write to topic '{shut}'.*Allow it: kafka-acls.sh --add"):
            sink.prepare(spark.createDataFrame([("a", shut)], by_row), transaction(2))


def acls_of(admin: Any) -> list[Any]:
    of_all = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return list(admin.describe_acls(of_all).result(30))


@pytest.mark.crash
def test_brokers_that_want_a_token_get_it_from_driver_and_tasks(
    spark: SparkSession, kafka_secure: KafkaServer, tmp_path: Path
) -> None:
    topic = kafka_secure.topic(partitions=2)
    given = {f"kafka.{name}": value for name, value in kafka_secure.by_oauth().items()}
    sink = sink_of(spark, kafka_secure, tmp_path, few=0, topic=topic, **given)
    sink.commit(prepared(spark, sink, transaction(1), "a", "b"), lambda: None)
    assert read(kafka_secure, topic) == [b"a", b"b"]


def test_the_handle_holds_no_way_to_connect(spark: SparkSession, kafka_secure: KafkaServer, tmp_path: Path) -> None:
    sink = sink_of(spark, kafka_secure, tmp_path, topic=kafka_secure.topic())
    handle = prepared(spark, sink, transaction(1), "a")
    assert json.loads(json.dumps(handle)) == handle
    for secret in ("127.0.0.1", kafka_secure.client()["sasl.password"]):
        assert secret not in f"{handle}{sink._settings!r}"
