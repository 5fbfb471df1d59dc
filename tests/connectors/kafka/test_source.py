"""The Kafka source against a real broker: every option, and all kinds of offsets without a row."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import sparkjet as sj
from sparkjet.connectors.kafka.records import _headers
from tests.sources.feed import between, read, reader, send, transaction, values

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

T0 = 1_700_000_000_000


def test_a_message_comes_with_all_that_it_has(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    headers = [("a", b"1"), ("a", None)]
    send(kafka, topic, b"v", key=b"k", partition=1, timestamp=T0, headers=headers)
    send(kafka, topic, None, key=b"k", partition=1, timestamp=T0 + 1)
    rows, end = read(reader(kafka, subscribe=topic, includeHeaders="true"))
    assert end == {topic: {"0": 0, "1": 2}}
    at = dt.datetime.fromtimestamp(T0 / 1000, dt.timezone.utc)
    row = {"key": b"k", "value": b"v", "topic": topic, "partition": 1, "offset": 0, "timestamp": at, "timestampType": 0}
    assert rows == [
        {**row, "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]},
        {**row, "value": None, "offset": 1, "timestamp": at + dt.timedelta(milliseconds=1), "headers": None},
    ]
    plain, _ = read(reader(kafka, subscribe=topic))
    assert plain[0] == row


def test_a_record_that_cannot_be_read_is_named_and_so_is_the_way_on(kafka: KafkaServer) -> None:
    topic = kafka.topic(message_timestamp_after_max_ms=str(2**63 - 1))
    longest = 2**63 // 1000
    send(kafka, topic, b"before", timestamp=longest)
    send(kafka, topic, b"poison", timestamp=longest + 1)
    send(kafka, topic, b"behind")
    source, start, end = reader(kafka, subscribe=topic), {topic: {"0": 0}}, {topic: {"0": 3}}
    message = rf"the record of {topic}-0 at 1 has the time {longest + 1} ms.*delete the records before 2 .*failOnData"
    with pytest.raises(sj.SourceError, match=message):
        between(source, start, end)
    admin = kafka.admin()
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)
    goes_on = reader(kafka, subscribe=topic, failOnDataLoss="false")
    assert values(between(goes_on, start, end)) == [b"behind"]


def test_a_header_that_the_client_cannot_read_is_named() -> None:
    class OfAnotherClient:
        topic, partition, offset = (lambda _: "t"), (lambda _: 3), (lambda _: 7)

        def headers(self) -> list[tuple[str, bytes]]:
            raise SystemError

    with pytest.raises(sj.SourceError, match=r"the record of t-3 at 7 has a header whose key is not UTF-8.*before 8"):
        _headers(OfAnotherClient())


def test_a_broker_may_set_the_time_itself(kafka: KafkaServer) -> None:
    topic = kafka.topic(message_timestamp_type="LogAppendTime")
    send(kafka, topic, b"v")
    rows, _ = read(reader(kafka, subscribe=topic))
    assert [row["timestampType"] for row in rows] == [1]


def test_it_begins_where_the_option_says(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    for number in range(4):
        send(kafka, topic, b"%d" % number, timestamp=T0 + number * 1000)
    assert reader(kafka, subscribe=topic, startingOffsets="earliest").initialOffset() == {topic: {"0": 0, "1": 0}}
    assert reader(kafka, subscribe=topic, startingOffsets="latest").initialOffset() == {topic: {"0": 4, "1": 0}}
    own = json.dumps({topic: {"0": 3, "1": -1}})
    assert values(read(reader(kafka, subscribe=topic, startingOffsets=own))[0]) == [b"3"]
    words = json.dumps({topic: {"0": -2, "1": -1}})
    assert reader(kafka, subscribe=topic, startingOffsets=words).initialOffset() == {topic: {"0": 0, "1": 0}}
    time = str(T0 + 1001)
    late = {"startingTimestamp": time, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(reader(kafka, subscribe=topic, **late))[0]) == [b"2", b"3"]
    by_time = json.dumps({topic: {"0": T0 + 3000}})
    one = json.dumps({topic: [0]})
    assert values(read(reader(kafka, assign=one, startingOffsetsByTimestamp=by_time))[0]) == [b"3"]


@pytest.mark.parametrize(
    "way",
    [
        {"startingOffsets": "latest"},
        # The same end, by other words.
        pytest.param({"startingOffsets": '{"%s": {"0": -1, "1": 0}}'}, marks=pytest.mark.long),
        {"startingTimestamp": str(T0 + 500), "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_nothing_is_lost_where_the_first_batch_is_run_again_and_began_at_an_end(
    kafka: KafkaServer, way: dict[str, str]
) -> None:
    topic = kafka.topic(partitions=2)
    given = {name: text.replace("%s", topic) for name, text in way.items()}
    send(kafka, topic, b"before", timestamp=T0)
    first = reader(kafka, subscribe=topic, **given)
    start = first.initialOffset()
    send(kafka, topic, b"1", timestamp=T0)
    planned = first.latestOffset(start, ReadAllAvailable())
    send(kafka, topic, b"2", timestamp=T0)
    # Spark stores only where the batch ends, and asks a new process where it began: by now, further on.
    again = reader(kafka, subscribe=topic, **given)
    rows = between(again, again.initialOffset(), planned)
    assert values(rows + read(again, planned)[0]) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"startingOffsets": '{"%s": {"0": 9, "1": 0}}'}, "startingOffsets has 9 for .*-0, which has 0 to 1"),
        ({"startingOffsets": '{"%s": {"0": 0}}'}, "startingOffsets lacks .*-1"),
        ({"startingOffsets": '{"%s": {"0": 0, "1": 0, "2": 0}}'}, "names .*-2, which is not read"),
        ({"startingTimestamp": str(T0)}, "-1 has no record at or after 1700000000000. .*Strategy"),
    ],
)
def test_a_start_that_is_not_there_is_refused(kafka: KafkaServer, given: dict[str, str], error: str) -> None:
    topic = kafka.topic(partitions=2)
    send(kafka, topic, b"1")
    given = {name: text.replace("%s", topic) for name, text in given.items()}
    with pytest.raises(sj.AnalysisError, match=error):
        reader(kafka, subscribe=topic, **given).initialOffset()


def test_a_home_without_records_is_named(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    with pytest.raises(sj.AnalysisError, match=r"subscribe names nowhere-.*, which the cluster does not have"):
        reader(kafka, subscribe=f"{topic},nowhere-{topic}").initialOffset()
    with pytest.raises(sj.AnalysisError, match=f"assign names {topic}-7"):
        reader(kafka, assign=json.dumps({topic: [0, 7]})).initialOffset()


def test_new_partitions_and_topics_are_found(kafka: KafkaServer) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    first = kafka.topic(f"{prefix}-a")
    source = reader(kafka, subscribePattern=f"{prefix}-.", startingOffsets="latest")
    start = source.initialOffset()
    assert start == {first: {"0": 0}}
    kafka.grow(first, 2)
    second = kafka.topic(f"{prefix}-b")
    kafka.topic(f"{prefix}-other")
    send(kafka, first, b"1", partition=1)
    send(kafka, second, b"2")
    # Whatever the start: a new partition is read from its beginning, which is in the offsets first.
    assert read(source, start) == ([], {first: {"0": 0, "1": 0}, second: {"0": 0}})
    rows, end = read(source, {first: {"0": 0, "1": 0}, second: {"0": 0}})
    assert values(rows) == [b"1", b"2"]
    assert end == {first: {"0": 0, "1": 1}, second: {"0": 1}}
    assert source.reportLatestOffset() == end


def test_a_batch_is_limited_and_every_partition_gets_its_share(kafka: KafkaServer) -> None:
    topic = kafka.topic(partitions=2)
    send(kafka, topic, *[b"a"] * 30)
    send(kafka, topic, *[b"b"] * 10, partition=1)
    source = reader(kafka, subscribe=topic, maxOffsetsPerTrigger="20")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    rows, end = read(source, limit=limit)
    assert end == {topic: {"0": 15, "1": 5}}
    assert len(rows) == 20
    rest, end = read(source, end)
    assert len(rest) == 20
    assert read(source, end) == ([], end)
    assert reader(kafka, subscribe=topic).getDefaultReadLimit() == ReadAllAvailable()


def test_with_available_now_it_reads_what_there_was(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1", b"2")
    source = reader(kafka, subscribe=topic)
    source.prepareForTriggerAvailableNow()
    kafka.grow(topic, 2)
    send(kafka, topic, b"3")
    send(kafka, topic, b"4", partition=1)
    rows, end = read(source, {topic: {"0": 0}})
    assert values(rows) == [b"1", b"2"]
    assert end == {topic: {"0": 2}}
    # A restart that is already further does not go back.
    assert source.latestOffset({topic: {"0": 3}}, ReadAllAvailable()) == {topic: {"0": 3}}


def test_only_what_was_committed_is_read(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"plain")
    aborted = transaction(kafka, f"{topic}-aborted")
    aborted.produce(topic, b"aborted", partition=0)
    assert aborted.flush(30) == 0
    aborted.abort_transaction(30)
    committed = transaction(kafka, f"{topic}-committed")
    committed.produce(topic, b"committed", partition=0)
    committed.commit_transaction(30)
    opened = transaction(kafka, f"{topic}-open")
    opened.produce(topic, b"open", partition=0)
    assert opened.flush(30) == 0
    send(kafka, topic, b"behind")
    source = reader(kafka, subscribe=topic)
    start = {topic: {"0": 0}}
    kafka.wait(lambda: source.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 5}}, "the marks")
    rows, end = read(source)
    assert values(rows) == [b"plain", b"committed"]
    # The commit marker is the last offset of the range, and the open transaction ends it.
    assert end == {topic: {"0": 5}}
    assert source.reportLatestOffset() == {topic: {"0": 7}}
    assert read(source, end) == ([], end)
    # librdkafka takes it so, and its end is not behind the open transaction either.
    shouted = reader(kafka, subscribe=topic, kafka_isolation__level=" READ_COMMITTED", startingOffsets="latest")
    assert shouted.initialOffset() == {topic: {"0": 5}}
    dirty = reader(kafka, subscribe=topic, kafka_isolation__level="read_uncommitted")
    assert len(values(read(dirty)[0])) == 5
    assert source.latestOffset(read(dirty)[1], ReadAllAvailable()) == {topic: {"0": 7}}
    opened.commit_transaction(30)
    kafka.wait(lambda: source.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 8}}, "the commit")
    assert values(read(source, end)[0]) == [b"open", b"behind"]


@pytest.mark.crash
def test_ranges_within_gaps_come_to_their_end(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    for number in range(6):
        each = transaction(kafka, f"{topic}-{number}")
        each.produce(topic, b"%d" % number, partition=0)
        # Otherwise the aborted records would never have been sent.
        assert each.flush(30) == 0
        (each.abort_transaction if number % 2 else each.commit_transaction)(30)
    source = reader(kafka, subscribe=topic)
    kafka.wait(lambda: source.reportLatestOffset() == {topic: {"0": 12}}, "the marks")
    whole = between(source, {topic: {"0": 0}}, {topic: {"0": 12}})
    assert values(whole) == [b"0", b"2", b"4"]
    for first in range(12):
        for last in range(first, 12):
            part = between(source, {topic: {"0": first}}, {topic: {"0": last}})
            assert part == [row for row in whole if first <= row["offset"] < last]


@pytest.mark.crash
def test_compacted_records_are_not_lost(kafka: KafkaServer) -> None:
    topic = kafka.topic(
        cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1"
    )
    send(kafka, topic, *[b"%d" % number for number in range(50)], key=b"same")
    send(kafka, topic, b"other", key=b"other")
    source = reader(kafka, subscribe=topic)

    def compacted() -> bool:
        # A segment is closed by the next write.
        send(kafka, topic, b"again", key=b"filler")
        return len(between(source, {topic: {"0": 0}}, {topic: {"0": 51}})) < 51

    kafka.wait(compacted, "compaction")
    rows = between(source, {topic: {"0": 0}}, {topic: {"0": 51}})
    assert values(rows)[-2:] == [b"49", b"other"]
    assert [row["offset"] for row in rows][-2:] == [49, 50]


def test_expired_offsets_are_refused_or_skipped(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, *[b"%d" % number for number in range(10)])
    start, admin = {topic: {"0": 2}}, kafka.admin()
    admin.delete_records([TopicPartition(topic, 0, 6)])
    strict = reader(kafka, subscribe=topic)
    kafka.wait(lambda: strict.initialOffset() == {topic: {"0": 6}}, "the records to go")
    with pytest.raises(sj.SourceError, match=rf"{topic}-0 from 2 to 10, the record at 2 is gone.*failOnDataLoss"):
        read(strict, start)
    lenient = reader(kafka, subscribe=topic, failOnDataLoss="false")
    assert values(read(lenient, start)[0]) == [b"6", b"7", b"8", b"9"]
    assert between(lenient, start, {topic: {"0": 5}}) == []


def test_a_deleted_topic_is_refused_or_left_out(kafka: KafkaServer) -> None:
    kept, gone = kafka.topic(), kafka.topic()
    send(kafka, kept, b"1")
    send(kafka, gone, b"2", b"3")
    start = {kept: {"0": 0}, gone: {"0": 1}}
    strict, lenient = (reader(kafka, subscribe=f"{kept},{gone}", failOnDataLoss=flag) for flag in ("true", "false"))
    kafka.drop(gone)
    with pytest.raises(sj.SourceError, match=f"{gone}-0 is no longer in the cluster.*failOnDataLoss"):
        read(strict, start)
    rows, end = read(lenient, start)
    assert values(rows) == [b"1"]
    assert end == {kept: {"0": 1}, gone: {"0": 1}}
    kafka.topic(gone)
    with pytest.raises(sj.SourceError, match=f"{gone}-0 ends at 0, but was read up to 1"):
        read(strict, start)


def test_large_messages_come_in_small_batches(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, *[b"%05d" % number * 20_000 for number in range(150)])
    source = reader(kafka, subscribe=topic)
    [partition] = source.partitions({topic: {"0": 0}}, {topic: {"0": 150}})
    batches = list(source.read(partition))
    assert sum(batch.num_rows for batch in batches) == 150
    assert max(batch.nbytes for batch in batches) < 32 << 20


@pytest.mark.crash
def test_a_broker_before_its_upgrade_is_finished(kafka_old: KafkaServer) -> None:
    topic = kafka_old.topic()
    committed = transaction(kafka_old, topic)
    committed.produce(topic, b"1", partition=0)
    committed.commit_transaction(30)
    source = reader(kafka_old, subscribe=topic)
    # The coordinator answers a commit before the partitions have their marks.
    kafka_old.wait(lambda: source.reportLatestOffset() == {topic: {"0": 2}}, "the mark")
    rows, end = read(source)
    assert values(rows) == [b"1"]
    assert end == {topic: {"0": 2}}


@pytest.mark.crash
def test_over_tls_with_a_password_that_is_never_shown(kafka_secure: KafkaServer) -> None:
    topic = kafka_secure.topic()
    send(kafka_secure, topic, b"1")
    source = reader(kafka_secure, subscribe=topic)
    assert values(read(source)[0]) == [b"1"]
    password = kafka_secure.client()["sasl.password"]
    assert password not in repr(source._settings)
    given = {"subscribe": topic, "kafka_sasl__password": "hunter2-wrong", "kafkaConsumer__pollTimeoutMs": "20000"}
    wrong = reader(kafka_secure, **given)
    with pytest.raises(sj.SourceError, match=r"uthentication.*kafka\.sasl\.password") as caught:
        wrong.initialOffset()
    assert "hunter2" not in str(caught.value)
