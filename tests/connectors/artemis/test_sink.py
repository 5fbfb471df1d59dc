"""The Artemis sink against a real broker: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkjet.connectors.artemis.columns import MOST_BESIDE_LONG, MOST_HEADERS
from sparkjet.connectors.artemis.markers import PREFIX, Marker, Markers, queue_of
from sparkjet.connectors.artemis.sink import ArtemisSink
from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import QUERY, SinkContract, SinkUnderTest, transaction
from tests.servers.artemis import CLERK, PASSWORD, USER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.artemis import ArtemisServer

MARKERS = queue_of(QUERY, "results")


def settings(server: ArtemisServer, **options: object) -> ArtemisSinkSettings:
    given = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
    return ArtemisSinkSettings.of(Options({name: str(value) for name, value in {**given, **options}.items()}))


def sink_of(spark: SparkSession, server: ArtemisServer, outbox: Path, schema: str, **options: object) -> ArtemisSink:
    sink = ArtemisSink(settings(server, **options))
    sink.attach(outbox, spark)
    sink.check(spark.createDataFrame([], schema).schema)
    return sink


def bodies(server: ArtemisServer, queue: str) -> list[str]:
    with server.client() as client:
        return [frame.body.decode() for frame in client.read(queue, server.count(queue))]


@pytest.fixture(autouse=True)
def _no_markers(artemis: ArtemisServer) -> None:
    # Each test is its own query, though all have one name.
    artemis.forget(MARKERS)


class TestArtemis(SinkContract):
    """In CI, what is the broker's; the whole contract is kept in `test_outbox.py`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    def rows(self, spark: SparkSession, *numbers: int) -> DataFrame:
        rows = [(json.dumps([f"k{n}", n]),) for n in numbers]
        return spark.createDataFrame(rows, "body string").repartition(2)

    # A condition that holds for these rows.
    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(self.rows(spark, 1).where("false"), transaction(1)) is None
        assert target.dangling() == 0

    @pytest.fixture
    def target(self, spark: SparkSession, artemis: ArtemisServer, tmp_path: Path) -> SinkUnderTest:
        queue = artemis.queue()
        # Several transactions an epoch.
        sink = sink_of(spark, artemis, tmp_path, "body string", queue=queue, maxMessagesPerTransaction=3)

        def read() -> list[tuple[str, int]]:
            return [tuple(json.loads(body)) for body in bodies(artemis, queue)]

        def dangling() -> int:
            boxes = (tmp_path / "results").glob("0*") if (tmp_path / "results").exists() else ()
            return sum(1 for _ in boxes)

        return SinkUnderTest(sink, read, dangling, lambda rows: rows.withColumn("body", F.lit("a\0b")))


def test_a_message_is_what_its_columns_say(spark: SparkSession, artemis: ArtemisServer, tmp_path: Path) -> None:
    queue = artemis.queue()
    schema = "body string, correlation_id string, reply_to string, type string, properties map<string,string>"
    sink = sink_of(spark, artemis, tmp_path, schema, queue=queue)
    row = ("hellö", "c", "answers", "order", {"number": "7:8\n", "none": None})
    handle = sink.prepare(spark.createDataFrame([row], schema), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with artemis.client() as client:
        (frame,) = client.read(queue, 1)
        (listed,) = json.loads(str(client.ask(f"queue.{queue}", operation="listMessagesAsJSON", parameters=[""])))
    assert frame.body == "hellö".encode()
    told = ("correlation-id", "reply-to", "type", "number", "persistent")
    assert [frame.headers[name] for name in told] == ["c", "answers", "order", "7:8\n", "true"]
    assert "none" not in frame.headers
    # JMS's TextMessage.
    assert listed["type"] == 3


def test_bytes_are_a_bytes_message_and_a_topic_has_many_readers(
    spark: SparkSession, artemis: ArtemisServer, tmp_path: Path
) -> None:
    topic = artemis.queue() + ".topic"
    subscriptions = [f"{topic}::{topic}.{number}" for number in range(2)]
    with artemis.client() as client:
        for each in subscriptions:
            client.read(each, 0, routing="MULTICAST")
    sink = sink_of(spark, artemis, tmp_path, "body binary", topic=topic)
    handle = sink.prepare(spark.createDataFrame([(b"\0\xff",)], "body binary"), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with artemis.client() as client:
        for each in subscriptions:
            name = each.partition("::")[2]
            (listed,) = json.loads(str(client.ask(f"queue.{name}", operation="listMessagesAsJSON", parameters=[""])))
            # JMS's BytesMessage.
            assert listed["type"] == 4
            assert [frame.body for frame in client.read(each, 1, routing="MULTICAST")] == [b"\0\xff"]


def test_what_the_broker_would_refuse_is_not_decided(
    spark: SparkSession, artemis: ArtemisServer, tmp_path: Path
) -> None:
    sink = sink_of(spark, artemis, tmp_path, "body string", queue=artemis.queue())
    rows = spark.createDataFrame([("a\0",), ("b",), ("c\0",)], "body string")
    with pytest.raises(RefusedRowsError, match="column 'body' has the character NUL, in 2 rows"):
        sink.prepare(rows, transaction(1))


def test_an_epoch_whose_outbox_is_lost_has_arrived_if_the_broker_says_so(
    spark: SparkSession, artemis: ArtemisServer, tmp_path: Path
) -> None:
    queue = artemis.queue()
    sink = sink_of(spark, artemis, tmp_path, "body string", queue=queue)
    rows = spark.createDataFrame([(f"{number}",) for number in range(4)], "body string")
    first, second, third = (sink.prepare(rows, transaction(epoch)) for epoch in (1, 2, 3))
    assert first is not None
    assert second is not None
    assert third is not None
    # The driver dies after the broker's COMMIT, and the outbox's directory and marks are lost with it.
    box = tmp_path / "results"
    shutil.copytree(box, tmp_path / "saved")
    sink.commit(first, lambda: None)
    shutil.rmtree(box)
    sink.commit(first, lambda: None)
    with pytest.raises(LostTransactionError, match=r"Epoch 2 .* 4 rows"):
        sink.commit(second, lambda: None)
    shutil.rmtree(box)
    shutil.copytree(tmp_path / "saved", box)
    with pytest.raises(LostTransactionError, match=f"with 5 rows for '{queue}', but the outbox has 4"):
        sink.commit(second | {"rows": 5}, lambda: None)
    for handle in (first, second, third):
        sink.commit(handle, lambda: None)
    assert sorted(bodies(artemis, queue)) == sorted(["0", "1", "2", "3"] * 3)


def test_a_restored_backup_is_noticed(spark: SparkSession, artemis: ArtemisServer, tmp_path: Path) -> None:
    sink = sink_of(spark, artemis, tmp_path / "first", "body string", queue=artemis.queue())
    for epoch in (1, 2, 3):
        handle = sink.prepare(spark.createDataFrame([("a",)], "body string"), transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
    # The outbox is of the backup as well.
    sink.attach(tmp_path / "second", spark)
    found = sink.published_after(transaction(2), None)
    assert found is not None
    assert re.search(rf"{re.escape(MARKERS)} in Artemis says that epoch 3 was published.*delete the address", found)
    assert sink.published_after(transaction(3), None) is None
    artemis.forget(MARKERS)
    assert sink.published_after(transaction(2), None) is None
    # The same attempt at the same epoch: the broker must not take it for the old one.
    handle = sink.prepare(spark.createDataFrame([("again",)], "body string"), transaction(3))
    assert handle is not None
    sink.commit(handle, lambda: None)
    assert bodies(artemis, handle["destination"])[-1] == "again"


def test_a_start_leaves_nothing_behind(spark: SparkSession, artemis: ArtemisServer, tmp_path: Path) -> None:
    queue = artemis.queue()
    sink_of(spark, artemis, tmp_path, "body string", queue=queue)
    with artemis.client() as client:
        counts = [client.ask(f"queue.{name}", "messageCount") for name in client.ask("broker", "queueNames")
                  if name.startswith(f"{PREFIX}probe")]  # fmt: skip
    assert set(counts) <= {0}
    assert artemis.count(queue) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"password": "s3cret"}, "password is invalid"),
        ({"port": 1}, "Connection refused"),
        ({"queue": "closed.q", "user": CLERK, "password": CLERK}, '"send" there'),
    ],
)
def test_a_start_that_cannot_work_is_refused(
    artemis: ArtemisServer, spark: SparkSession, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message) as raised:
        sink_of(spark, artemis, tmp_path, "body string", **{"queue": artemis.queue(), **options})
    assert "s3cret" not in str(raised.value)


def test_a_broker_that_detects_no_duplicates_is_refused(
    artemis: ArtemisServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Markers.frame

    def forgetful(self: Markers, marker: Marker, transaction: str) -> Frame:
        # As a broker with an id-cache-size of 0 reads it.
        frame = plain(self, marker, transaction)
        return frame._replace(headers={name: value for name, value in frame.headers.items() if name != "_AMQ_DUPL_ID"})

    monkeypatch.setattr(Markers, "frame", forgetful)
    with pytest.raises(AnalysisError, match="does not detect duplicates"):
        sink_of(spark, artemis, tmp_path, "body string", queue=artemis.queue())


def test_headers_that_the_broker_could_not_store_are_found_before_the_decision(
    spark: SparkSession, tmp_path: Path, artemis: ArtemisServer
) -> None:
    queue, schema = artemis.queue(), "body string, properties map<string,string>"
    sink = sink_of(spark, artemis, tmp_path, schema, queue=queue)
    for attempt, (body, most) in enumerate([(3_000_000, MOST_BESIDE_LONG), (50_000, MOST_HEADERS)]):
        # The name has one character, each property counts as eight more, and the broker takes this one for two.
        value = f"concat(repeat('x', 1 + {{}}), repeat('😀', {(most - 10) // 2}))"
        selected = f"SELECT repeat('b', {body}) AS body, map('p', {value}) AS properties"
        with pytest.raises(SinkError, match=f"headers and properties have more than {most} characters.*, in 1 rows"):
            sink.prepare(spark.sql(selected.format(1)), transaction(1 + attempt))
        sink.abort(transaction(1 + attempt))
        handle = sink.prepare(spark.sql(selected.format(0)), transaction(1 + attempt, attempt=1))
        assert handle is not None
        sink.commit(handle, lambda: None)
    assert artemis.count(queue) == 2
