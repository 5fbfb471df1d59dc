"""The RabbitMQ sink: the contract of all sinks for a reader that drops by id, and what a start refuses."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pika
import pytest
from pyspark.sql import functions as F

from sparkjet.connectors.rabbitmq.sink import RabbitSink, check_size
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.options import Options
from sparkjet.sinks.protocol import Guarantee, Handle
from sparkjet.testing.sink_contract import QUERY, SinkContract, SinkUnderTest, crash_at, transaction
from tests.connectors.rabbitmq.messages import held, ready
from tests.faults.waiting import until
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.rabbitmq import RabbitServer

BODIES = "body string"
MANY = 30_000
"""Messages that take the broker more than a moment."""


def sink_of(spark: SparkSession, outbox: Path, port: int, schema: str = BODIES, **options: str) -> RabbitSink:
    sink = RabbitSink(RabbitSinkSettings.of(Options({"host": "127.0.0.1", "port": str(port), **options})))
    sink.attach(outbox, spark)
    sink.check(spark.createDataFrame([], schema).schema)
    return sink


def numbers(spark: SparkSession, *of: int) -> DataFrame:
    """A message for each number, over two partitions."""
    return spark.createDataFrame([(json.dumps([f"k{n}", n]),) for n in of], BODIES).repartition(2)


def decided(sink: RabbitSink, rows: DataFrame, epoch: int = 1, **of: int) -> Handle:
    handle = sink.prepare(rows, transaction(epoch, **of))
    assert handle is not None
    return handle


def ids_in(server: RabbitServer, queue: str) -> list[tuple[str, bytes]]:
    return [(properties.message_id, body) for properties, body in held(server, queue)]


class TestRabbit(SinkContract):
    """In CI, what is the broker's; the whole contract is kept in `test_outbox.py`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer) -> SinkUnderTest:
        queue = rabbitmq.queue()

        def read() -> list[tuple[str, int]]:
            first = dict(reversed(ids_in(rabbitmq, queue)))
            return [tuple(json.loads(body)) for body in first.values()]

        sink = sink_of(spark, tmp_path / "outbox", rabbitmq.port, routingKey=queue)
        return SinkUnderTest(
            sink,
            read,
            lambda: len(list((tmp_path / "outbox").glob("*/0*"))),
            lambda rows: rows.withColumn("body", F.lit(None).cast("string")),
        )

    def rows(self, spark: SparkSession, *of: int) -> DataFrame:
        return numbers(spark, *of)

    # A condition that holds for these rows.
    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(numbers(spark, 1).where("false"), transaction(1)) is None
        assert target.dangling() == 0


def test_it_is_published_at_least_once(spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer) -> None:
    sink = sink_of(spark, tmp_path, rabbitmq.port, routingKey=rabbitmq.queue())
    assert sink.guarantee is Guarantee.AT_LEAST_ONCE


def test_a_crash_between_publishing_and_the_mark_repeats_the_same_ids_with_the_same_rows(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    queue = rabbitmq.queue()
    first = sink_of(spark, tmp_path, rabbitmq.port, routingKey=queue)
    handle = decided(first, numbers(spark, *range(100)))
    with pytest.raises(Exception, match=r"^$"):
        first.commit(handle, crash_at(1))
    once = ids_in(rabbitmq, queue)
    assert len(dict(once)) == 100
    assert [each for each, _ in once] == [f"{QUERY}-results-{transaction(1)}-{number}" for number in range(100)]
    second = sink_of(spark, tmp_path, rabbitmq.port, routingKey=queue)
    second.commit(handle, lambda: None)
    assert ids_in(rabbitmq, queue) == once * 2


def test_an_epoch_that_is_run_again_with_other_rows_has_other_ids(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    """With processingGuarantee=none it is in no record; a reader that drops by id must not drop the new rows."""
    queue = rabbitmq.queue()
    sink = sink_of(spark, tmp_path, rabbitmq.port, routingKey=queue)
    sink.commit(decided(sink, numbers(spark, 1)), lambda: None)
    sink.commit(decided(sink, numbers(spark, 1, 2), attempt=1), lambda: None)
    sink.commit(decided(sink, numbers(spark, 3), takeover=1), lambda: None)
    found = ids_in(rabbitmq, queue)
    assert len(dict(found)) == len(found) == 4


@pytest.mark.crash
def test_a_connection_that_is_cut_in_the_middle_repeats_the_same_ids(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    queue = rabbitmq.queue()
    with TcpProxy(rabbitmq.port) as proxy:
        sink = sink_of(spark, tmp_path, proxy.port, routingKey=queue)
        handle = decided(sink, spark.range(MANY, numPartitions=3).selectExpr("string(id) as body"))

        def cut() -> None:
            until(lambda: ready(rabbitmq, queue)[0] > 0, "messages")
            proxy.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        with pytest.raises(SinkError, match="StreamLostError"):
            sink.commit(handle, lambda: None)
        cutting.join()
        sink.commit(handle, lambda: None)
    # Not in between: the broker may still have had to read what it was sent.
    found = Counter(ids_in(rabbitmq, queue))
    assert sorted(int(body) for _, body in found) == list(range(MANY))
    repeated = {each for each, times in found.items() if times == 2}
    assert 0 < len(repeated) < MANY
    assert {id_ for id_, _ in repeated} == {f"{QUERY}-results-{transaction(1)}-{n}" for n in range(len(repeated))}


def test_every_part_of_a_message_arrives(spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer) -> None:
    exchange, queue = f"t{uuid4().hex}", rabbitmq.queue()
    connection = rabbitmq.connection()
    connection.channel().exchange_declare(exchange, "topic", durable=True)
    connection.channel().queue_bind(queue, exchange, "orders.#")
    connection.close()
    schema = (
        "body binary, routing_key string, exchange string, message_id string, content_type string, "
        "correlation_id string, type string, timestamp timestamp, headers map<string, string>"
    )
    at = dt.datetime(2026, 1, 5, 10, 0, 0, 999_999, tzinfo=dt.timezone.utc)
    rows = [
        (b"\0a", "orders.new", exchange, "mine", "text/plain", "c", "order", at, {"a": "é", "b": None}),
        (b"", queue, "", None, None, None, None, None, None),
    ]
    sink = sink_of(spark, tmp_path, rabbitmq.port, schema)
    sink.commit(decided(sink, spark.createDataFrame(rows, schema).coalesce(1)), lambda: None)
    (first, body), (second, empty) = held(rabbitmq, queue)
    assert (body, first.message_id, first.content_type, first.correlation_id, first.type) == (
        b"\0a", "mine", "text/plain", "c", "order",
    )  # fmt: skip
    assert (first.timestamp, first.headers, first.delivery_mode) == (
        1_767_607_200, {"a": "é", "b": None}, 2,
    )  # fmt: skip
    assert (empty, second.message_id, second.headers) == (b"", f"{QUERY}-results-{transaction(1)}-1", None)


def test_the_options_are_those_with_which_the_rows_were_decided(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    old, new = rabbitmq.queue(), rabbitmq.queue()
    handle = decided(sink_of(spark, tmp_path, rabbitmq.port, routingKey=old), numbers(spark, 1))
    sink_of(spark, tmp_path, rabbitmq.port, routingKey=new).commit(handle, lambda: None)
    assert ready(rabbitmq, old, new) == [1, 0]


def test_what_a_start_refuses_is_found_before_it_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    for _ in range(2):
        with pytest.raises(AnalysisError, match=r"nowhere to publish to: NOT_FOUND - no queue 'none' .* Declare it fi"):
            sink_of(spark, tmp_path, rabbitmq.port, routingKey="none")
        with pytest.raises(AnalysisError, match="nowhere to publish to: NOT_FOUND - no exchange 'none'"):
            sink_of(spark, tmp_path, rabbitmq.port, exchange="none", routingKey="key")
    with pytest.raises(AnalysisError, match="needs a column body"):
        sink_of(spark, tmp_path, rabbitmq.port, "value string", routingKey="none")
    with pytest.raises(AnalysisError, match=r"cannot use its broker: 127\.0\.0\.1:1: AMQPConnectionError"):
        sink_of(spark, tmp_path, 1, routingKey="none")
    with pytest.raises(AnalysisError, match="user 'guest' may not connect") as raised:
        sink_of(spark, tmp_path, rabbitmq.port, routingKey="none", password="s3cret")
    assert "s3cret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_message_that_the_broker_does_not_take_is_found_before_the_decision(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    sink = sink_of(spark, tmp_path, rabbitmq.port, routingKey=(queue := rabbitmq.queue()))
    rows = spark.range(2).selectExpr("repeat(cast(id AS string), 2000000) AS body")
    sink.commit(decided(sink, rows), lambda: None)
    assert [len(body) for _, body in ids_in(rabbitmq, queue)] == [2_000_000] * 2
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silence = pika.ConnectionParameters(*silent.getsockname(), stack_timeout=0.5)
        with pytest.raises(
            SinkError, match=r"cannot be tried: .*: nothing that speaks AMQP has answered within 0\.5 s"
        ):
            check_size(silence, 1)
    # The broker's default limit is 128 MiB.
    with pytest.raises(
        RefusedRowsError, match=r"has 134217729 bytes, which the broker refuses: .*Raise max_message_size"
    ):
        check_size(pika.URLParameters(rabbitmq.uri), 134_217_729)


def test_where_rows_name_their_exchange_it_is_not_known_before_the_start(
    spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer
) -> None:
    sink = sink_of(spark, tmp_path, rabbitmq.port, "body string, exchange string", routingKey="key")
    rows = spark.createDataFrame([("b", "missing")], "body string, exchange string")
    with pytest.raises(SinkError, match="no exchange 'missing'"):
        sink.commit(decided(sink, rows), lambda: None)


def test_rows_that_are_gone_are_lost(spark: SparkSession, tmp_path: Path, rabbitmq: RabbitServer) -> None:
    sink = sink_of(spark, tmp_path, rabbitmq.port, routingKey=rabbitmq.queue())
    handle = decided(sink, numbers(spark, 1, 2))
    for file in (tmp_path / "results" / str(transaction(1))).glob("part-*"):
        file.unlink()
    with pytest.raises(LostTransactionError, match=r"Epoch 1 .* 2 rows"):
        sink.commit(handle, lambda: None)
