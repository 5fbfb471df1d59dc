"""The Kafka sink: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.errors import AnalysisError, CopiedHomeError, RefusedRowsError, SinkError
from sparkjet.options import Options
from sparkjet.sinks.protocol import TransactionId
from sparkjet.testing.sink_contract import QUERY, SinkContract, SinkUnderTest, transaction
from tests.protocol.kafka.checks import committed, held_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer

RECORDS = "key string, value string"


def settings_of(server: KafkaServer, **options: str) -> KafkaSettings:
    connected = {f"kafka.{name}": value for name, value in server.client().items()}
    return KafkaSettings.of(Options({**connected, "kafka.message.timeout.ms": "5000", **options}))


def sink_of(spark: SparkSession, server: KafkaServer, schema: str = RECORDS, **options: str) -> KafkaSink:
    sink = KafkaSink(settings_of(server, **options))
    sink.check(spark.createDataFrame([], schema).schema)
    return sink


def open_in(server: KafkaServer) -> list[str]:
    with Cluster(settings_of(server).access) as cluster:
        return cluster.open_transactions(f"sparkjet/{QUERY}/")


class Contract(SinkContract):
    def rows(self, spark: SparkSession, *numbers: int) -> DataFrame:
        rows = [(f"k{n}", json.dumps([f"k{n}", n])) for n in numbers]
        return spark.createDataFrame(rows, RECORDS).repartition(2)

    def under_test(self, spark: SparkSession, server: KafkaServer) -> SinkUnderTest:
        topic = server.topic(partitions=2)

        def read() -> list[tuple[str, int]]:
            return [tuple(json.loads(message.value())) for message in committed(server, topic)]

        sink = sink_of(spark, server, topic=topic)
        # Left by other tests with the same query.
        sink.abort_orphans(QUERY, 1000, [])
        large = F.repeat(F.lit("x"), F.lit(2_000_000))
        return SinkUnderTest(sink, read, lambda: len(open_in(server)), lambda rows: rows.withColumn("value", large))

    # A condition that holds for these rows.
    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(self.rows(spark, 1).where("false"), transaction(1)) is None
        assert target.dangling() == 0


class TestKafka(Contract):
    """The whole contract is kept by the way that is the default, in `test_staged.py`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_a_driver_that_was_itself_taken_over_rolls_back_nothing_of_its_successor",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, kafka: KafkaServer) -> SinkUnderTest:
        return self.under_test(spark, kafka)


@pytest.mark.long
class TestUpgradedBroker(Contract):
    """In CI, `protocol/kafka/test_cases.py` prepares, commits and recovers with it."""

    @pytest.fixture
    def target(self, spark: SparkSession, kafka_old: KafkaServer) -> SinkUnderTest:
        return self.under_test(spark, kafka_old)


@pytest.mark.long
class TestSecureBroker(Contract):
    """The same is true of this one."""

    @pytest.fixture
    def target(self, spark: SparkSession, kafka_secure: KafkaServer) -> SinkUnderTest:
        return self.under_test(spark, kafka_secure)


def publish(sink: KafkaSink, rows: DataFrame, epoch: int = 1) -> None:
    handle = sink.prepare(rows, transaction(epoch, takeover=int(uuid.uuid4().int % 900_000)))
    assert handle is not None
    sink.commit(handle, lambda: None)


def read(server: KafkaServer, topic: str) -> list[Any]:
    return [(m.key(), m.value(), m.partition(), m.headers()) for m in committed(server, topic)]


def test_every_part_of_a_record_arrives(spark: SparkSession, kafka: KafkaServer) -> None:
    one, other = kafka.topic(partitions=3), kafka.topic()
    schema = "key binary, value string, topic string, partition int, headers array<struct<key: string, value: binary>>"
    rows = [
        (b"\0a", "v", one, 2, [("h", b"1"), ("h", None)]),
        (None, None, other, None, None),
        (b"", "", other, 0, []),
    ]
    publish(sink_of(spark, kafka, schema), spark.createDataFrame(rows, schema).coalesce(1))
    assert read(kafka, one) == [(b"\0a", b"v", 2, [("h", b"1"), ("h", None)])]
    # A null value deletes a key from a compacted topic; an empty one does not.
    assert read(kafka, other) == [(None, None, 0, None), (b"", b"", 0, None)]


def test_rows_of_a_key_keep_their_order_and_their_partition_is_the_one_that_java_chooses(
    spark: SparkSession, kafka: KafkaServer
) -> None:
    topic = kafka.topic(partitions=8)
    rows = spark.range(50_000, numPartitions=1).selectExpr("string(id % 5) as key", "string(id) as value")
    publish(sink_of(spark, kafka, topic=topic), rows)
    found = read(kafka, topic)
    for key in range(5):
        mine = [(int(value), partition) for found_key, value, partition, _ in found if found_key == b"%d" % key]
        assert [value for value, _ in mine] == list(range(key, 50_000, 5))
        assert {partition for _, partition in mine} == {JAVA[key]}


JAVA = [4, 7, 0, 7, 1]
"""Utils.toPositive(Utils.murmur2(key)) % 8 of "0" to "4"."""


def test_early_and_shed_rows_say_so_in_headers(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic()
    schema = "value string, is_shed boolean, is_early boolean"
    publish(sink_of(spark, kafka, schema, topic=topic), spark.createDataFrame([("a", False, True)], schema))
    assert read(kafka, topic) == [(None, b"a", 0, [("is_early", b"true"), ("is_shed", b"false")])]


def test_at_least_once_is_there_when_prepare_returns(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic()
    sink = sink_of(spark, kafka, topic=topic, processingGuarantee="at-least-once")
    assert sink.guarantee.value == "at-least-once"
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], RECORDS)
    assert sink.prepare(rows, transaction(1)) is None
    assert {value for _, value, _, _ in read(kafka, topic)} == {b"1", b"2"}
    assert open_in(kafka) == []
    named = sink_of(spark, kafka, "value string, topic string", processingGuarantee="at-least-once")
    with pytest.raises(SinkError, match="topic is null in a row"):
        named.prepare(spark.createDataFrame([("a", None)], "value string, topic string"), transaction(2))
    stricter = sink_of(spark, kafka, topic=topic)
    assert stricter.prepare(rows, transaction(1)) is not None
    sink.abort_orphans(QUERY, 1, [])
    assert open_in(kafka) == []


def test_a_failed_attempt_leaves_nothing_that_readers_wait_for(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    sink = sink_of(spark, kafka, topic=topic)
    # Left by other tests with the same query.
    sink.abort_orphans(QUERY, 1000, [])
    access, prefix, others = settings_of(kafka, topic=topic).access, f"sparkjet/{QUERY}/", 11

    def spoiled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row is too large, once all others have begun: tasks that begin after a failed job wait for a start."""
        for batch in batches:
            if str(others) not in batch["key"].to_pylist():
                yield batch
                continue
            with Cluster(access) as cluster:
                deadline, pause = time.monotonic() + 60, threading.Event()
                while len(cluster.open_transactions(prefix)) < others:
                    assert time.monotonic() < deadline
                    pause.wait(0.1)
            yield batch.set_column(1, "value", pa.array(["x" * 2_000_000]))

    rows = spark.range(others + 1, numPartitions=others + 1).selectExpr("string(id) as key", "'a' as value")
    with pytest.raises(SinkError, match=r"MSG_SIZE_TOO_LARGE.*kafka.message.max.bytes"):
        sink.prepare(rows.mapInArrow(spoiled, rows.schema), transaction(1, takeover=4))
    assert open_in(kafka) == []
    assert held_back(kafka, topic) == 0


@pytest.mark.crash
def test_a_row_without_a_topic_is_refused(spark: SparkSession, kafka: KafkaServer) -> None:
    schema = "value string, topic string"
    # Otherwise the client looks for half a minute whether somebody creates the topic.
    sink = sink_of(spark, kafka, schema, **{"kafka.topic.metadata.propagation.max.ms": "1000"})
    # Left by other tests with the same query.
    sink.abort_orphans(QUERY, 1000, [])
    with pytest.raises(RefusedRowsError, match="topic is null"):
        sink.prepare(spark.createDataFrame([("a", None)], schema), transaction(1, takeover=5))
    with pytest.raises(SinkError, match=r"Create the topic|_MSG_TIMED_OUT"):
        sink.prepare(spark.createDataFrame([("a", "not-there")], schema), transaction(1, takeover=6))
    assert open_in(kafka) == []


@pytest.mark.crash
def test_the_handle_holds_no_way_to_connect(spark: SparkSession, kafka_secure: KafkaServer) -> None:
    sink = sink_of(spark, kafka_secure, topic=kafka_secure.topic())
    handle = sink.prepare(spark.createDataFrame([("a", "1")], RECORDS), transaction(1, takeover=7))
    assert handle is not None
    assert json.loads(json.dumps(handle)) == handle
    shown = f"{handle}{sink._settings!r}{sink._transactions!r}"
    for secret in ("127.0.0.1", kafka_secure.client()["sasl.password"]):
        assert secret not in str(handle)
    assert kafka_secure.client()["sasl.password"] not in shown
    sink.abort_orphans(QUERY, 1000, [])


@pytest.mark.crash
def test_another_cluster_is_not_taken_for_a_loss(
    spark: SparkSession, kafka: KafkaServer, kafka_secure: KafkaServer
) -> None:
    topic = kafka.topic()
    sink = sink_of(spark, kafka, topic=topic)
    handle = sink.prepare(spark.createDataFrame([("a", "1")], RECORDS), transaction(1, takeover=8))
    assert handle is not None
    elsewhere = KafkaSink(settings_of(kafka_secure, topic=topic))
    with pytest.raises(SinkError, match="wait in cluster"):
        elsewhere.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    assert len(read(kafka, topic)) == 1


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("key string, n long", {}, "needs a column value"),
        ("value string", {"topic": ""}, 'option."topic"'),
        ("value string", {"topic": "not-there"}, '"not-there" does not exist.*UNKNOWN_TOPIC'),
        ("value string, n long", {}, "'n' would be dropped"),
        ("value long", {}, "'value' has type bigint, but must have string or binary"),
        ("value string, partition long", {}, "'partition' has type bigint, but must have int"),
        ("value string, headers map<string, string>", {}, "'headers' has type map"),
        ("value string", {"kafka.transaction.timeout.ms": "900001"}, "more than the brokers allow"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_start(
    spark: SparkSession, kafka: KafkaServer, schema: str, options: dict[str, str], message: str
) -> None:
    chosen = {"topic": kafka.topic(), **options}
    with pytest.raises(AnalysisError, match=message):
        sink_of(spark, kafka, schema, **{name: value for name, value in chosen.items() if value})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kafka.sasl.password": "never-shown"}, "Check kafka.sasl.username and kafka.sasl.password"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "does not offer kafka.sasl.mechanism=PLAIN"),
        ({"kafka.ssl.ca.location": None}, "no TLS connection.*Check kafka.ssl.ca.location"),
    ],
)
def test_a_user_without_access_learns_it_before_the_start(
    spark: SparkSession, kafka_secure: KafkaServer, wrong: dict[str, str | None], message: str
) -> None:
    given = {f"kafka.{name}": value for name, value in kafka_secure.client().items()} | wrong
    settings = KafkaSettings.of(Options({"topic": "out", **{k: v for k, v in given.items() if v is not None}}))
    with pytest.raises(AnalysisError, match=message) as refused:
        KafkaSink(settings).check(spark.createDataFrame([], RECORDS).schema)
    assert "never-shown" not in str(refused.value)


@pytest.mark.crash
def test_a_broker_that_is_away_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing comes back within ten seconds either.
    monkeypatch.setattr(Cluster.__init__, "__defaults__", (0.5,))
    settings = KafkaSettings.of(Options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "out"}))
    with pytest.raises(AnalysisError, match=r"127\.0\.0\.1:1 cannot be reached"):
        KafkaSink(settings).check(spark.createDataFrame([], RECORDS).schema)


def test_ids_are_used_again_by_every_other_epoch(spark: SparkSession, kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    sink = sink_of(spark, kafka, topic=topic)
    # Left by other tests with the same query.
    sink.abort_orphans(QUERY, 1000, [])
    used = []
    for epoch in range(1, 5):
        rows = spark.createDataFrame([(str(n), str(epoch)) for n in range(4)], RECORDS).repartition(2)
        handle = sink.prepare(rows, transaction(epoch, takeover=9))
        assert handle is not None
        sink.commit(handle, lambda: None)
        used.append([slot["id"].rpartition("-")[2] for slot in handle["transactions"]])
    assert used == [["0/p00000", "0/p00001"], ["1/p00000", "1/p00001"]] * 2
    assert len(read(kafka, topic)) == 16


def test_the_newest_record_is_committed_again_and_a_backup_is_noticed(spark: SparkSession, kafka: KafkaServer) -> None:
    # A separate query: other tests have committed under later takeovers of the usual one.
    query, sink = str(uuid.uuid4()), sink_of(spark, kafka, topic=kafka.topic())

    def of(epoch: int, takeover: int = 1) -> TransactionId:
        return TransactionId(query, "results", takeover, epoch, 0)

    handles: list[Any] = []
    rows = spark.createDataFrame([("a", "1")], RECORDS)
    for epoch in range(1, 5):
        assert all(sink.published_after(of(epoch - 1), last) is None for last in handles[-1:])
        handles.append(sink.prepare(rows, of(epoch)))
        assert all(sink.published_after(of(epoch - 1), last) is None for last in handles[-2:-1])
        sink.commit(handles[-1], lambda: None)
        sink.commit(handles[-1], lambda: None)
    for epoch in range(1, 4):
        clause = sink.published_after(of(epoch), handles[epoch - 1])
        assert clause is not None
        assert clause.startswith(f"Kafka has committed epoch {epoch + 1} or a later one")
    assert sink.published_after(of(4), handles[3]) is None
    assert "epoch 1 or a later one" in (sink.published_after(of(5, takeover=0), None) or "")


@pytest.mark.long
def test_of_two_copies_of_a_home_the_second_publishes_nothing(spark: SparkSession, kafka: KafkaServer) -> None:
    topic, query = kafka.topic(), uuid.uuid4().hex
    of = [replace(transaction(1), query=query, run=run) for run in ("aaaaaaaa", "bbbbbbbb")]
    copies = [(sink_of(spark, kafka, topic=topic), each) for each in of]
    handles = [sink.prepare(spark.createDataFrame([("k", each.run)], RECORDS), each) for sink, each in copies]
    first, second = (handle for handle in handles if handle is not None)
    copies[0][0].commit(first, lambda: None)
    with pytest.raises(CopiedHomeError, match="another copy of this home is running"):
        copies[1][0].commit(second, lambda: None)
    assert [message.value() for message in committed(kafka, topic)] == [b"aaaaaaaa"]
