"""The consumers of executors: their errors when brokers are down or refuse, and that none is leaked."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet.connectors.kafka import consumers
from tests.parameters import mostly_crash
from tests.sources.feed import between, read, reader, send, values

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


# One of them in `make test-crash`.
@pytest.mark.parametrize("strict", mostly_crash(["true", "false"], quick=(), crash={"true"}))
def test_a_broker_that_is_killed_is_named_waited_for_and_nothing_is_skipped(kafka: KafkaServer, strict: str) -> None:
    short = kafka.topic()
    send(kafka, short, b"1", b"2")
    hasty = reader(kafka, kafkaConsumer__pollTimeoutMs="3000", subscribe=short, failOnDataLoss=strict)
    patient = reader(kafka, subscribe=short, failOnDataLoss=strict)
    start = {short: {"0": 0}}
    # The driver's.
    _, end = read(patient)
    assert end == {short: {"0": 2}}
    topic, count = kafka.topic(), 20_000
    send(kafka, topic, *[b"%01000d" % number for number in range(count)])
    # Little is fetched ahead: the rest must come from the restarted broker.
    small = {"kafka_fetch__message__max__bytes": "50000", "kafka_queued__min__messages": "100"}
    source = reader(kafka, subscribe=topic, failOnDataLoss=strict, **small)
    [partition] = source.partitions({topic: {"0": 0}}, {topic: {"0": count}})
    batches = source.read(partition)
    found = [next(batches)]
    with ThreadPoolExecutor() as beside:
        kafka.kill()
        try:
            with pytest.raises(
                sj.SourceError, match=r"stopped at 0: .*Connection refused.*Waited for 3 seconds at most"
            ):
                between(hasty, start, end)
            within, before = beside.submit(list, batches), beside.submit(between, patient, start, end)
        finally:
            # On this thread: the broker dies with the thread that has started it.
            kafka.start()
        found += within.result()
        assert values(before.result()) == [b"1", b"2"]
    send(kafka, short, b"3")
    assert values(read(patient, end)[0]) == [b"3"]
    assert [number for batch in found for number in batch.column("offset").to_pylist()] == list(range(count))
    assert [int(value) for batch in found for value in batch.column("value").to_pylist()] == list(range(count))


@pytest.mark.long
def test_a_topic_that_was_created_again_is_read_by_a_worker_that_knows_a_later_leader(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    # Each election, also one that is lost by a broker that is late, is an epoch of the leader.
    kafka.restart()
    source = reader(kafka, subscribe=topic, failOnDataLoss="false")
    for message in (b"old", b"new"):
        send(kafka, topic, message)
        assert values(between(source, {topic: {"0": 0}}, {topic: {"0": 1}})) == [message]
        kafka.drop(topic)
        kafka.topic(topic)


def test_a_wrong_password_ends_a_task_at_once(kafka_secure: KafkaServer) -> None:
    topic = kafka_secure.topic()
    send(kafka_secure, topic, b"1")
    # A day: the test would not end if the source waited for it.
    given = {"kafka_sasl__password": "hunter2-wrong", "kafkaConsumer__pollTimeoutMs": "86400000"}
    wrong = reader(kafka_secure, subscribe=topic, **given)
    with pytest.raises(
        sj.SourceError, match=r"uthentication.*Waiting does not resolve.*kafka\.sasl\.password"
    ) as caught:
        between(wrong, {topic: {"0": 0}}, {topic: {"0": 1}})
    assert "hunter2" not in str(caught.value)


def test_a_consumer_is_kept_while_it_works_and_at_most_one(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1", b"2")
    start, end = {topic: {"0": 0}}, {topic: {"0": 2}}

    def used(**given: str) -> consumers.CachedConsumer:
        assert values(between(reader(kafka, subscribe=topic, **given), start, end)) == [b"1", b"2"]
        [kept] = consumers._cached
        return kept

    first = used()
    assert used() is first
    second = used(kafka_client__id="other")
    assert second is not first
    # Closed, including its threads and connections.
    with pytest.raises(RuntimeError, match="closed"):
        first.client.unassign()
    # A reader that stops early does no harm.
    source = reader(kafka, subscribe=topic, kafka_client__id="other")
    batches = source.read(source.partitions(start, end)[0])
    next(batches)
    assert not consumers._cached
    batches.close()  # type: ignore[attr-defined]
    assert consumers._cached == [second]


def test_garbage_is_not_collected_while_a_range_is_read_and_is_afterwards(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1")
    source = reader(kafka, subscribe=topic, kafkaConsumer__pollTimeoutMs="500")
    # The second record is not there: reading goes on until it fails.
    batches = source.read(source.partitions({topic: {"0": 0}}, {topic: {"0": 2}})[0])
    assert gc.isenabled()
    next(batches)
    assert not gc.isenabled()
    with pytest.raises(sj.SourceError):
        next(batches)
    assert gc.isenabled()


def test_after_an_error_the_next_attempt_has_a_new_consumer(kafka: KafkaServer) -> None:
    topic = kafka.topic()
    send(kafka, topic, b"1")
    source = reader(kafka, subscribe=topic, kafkaConsumer__pollTimeoutMs="500")
    assert values(between(source, {topic: {"0": 0}}, {topic: {"0": 1}})) == [b"1"]
    [before] = consumers._cached
    # Records that are not there (yet), although the driver has seen every record of a range.
    with pytest.raises(sj.SourceError, match="stopped at 1: no records arrived"):
        between(source, {topic: {"0": 0}}, {topic: {"0": 2}})
    assert not consumers._cached
    with pytest.raises(RuntimeError, match="closed"):
        before.client.unassign()
