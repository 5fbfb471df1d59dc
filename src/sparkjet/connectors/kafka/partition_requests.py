"""Requests to a partition's leader: list the transactions that are open there, and end one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sparkjet.connectors.kafka.requests import Request, TopicPartition
from sparkjet.connectors.kafka.wire import Decoder, Encoder


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that is open in a partition; ``coordinator`` is the coordinator's epoch."""

    where: TopicPartition
    producer: int
    epoch: int
    coordinator: int


def describe_producers(partitions: Sequence[TopicPartition]) -> Request[dict[TopicPartition, list[OpenTransaction]]]:
    """Asks a leader for the transactions that are open in its partitions; omits partitions it does not lead."""
    body = Encoder()
    body.compact_array(partitions, partial(_where, body)).no_tags()
    return Request("DescribeProducers", 61, 0, body.encoded(), _producers, is_flexible=True)


def write_marker(opened: OpenTransaction, *, commits: bool) -> Request[int]:
    """Has a partition's leader write a transaction's end marker, as the coordinator does; returns the error code."""
    body = Encoder()

    def marker(each: OpenTransaction) -> None:
        body.int64(each.producer).int16(each.epoch).int8(commits)
        body.compact_array([each.where], partial(_where, body)).int32(each.coordinator).no_tags()

    body.compact_array([opened], marker).no_tags()
    return Request("WriteTxnMarkers", 27, 1, body.encoded(), _marked, is_flexible=True)


def _where(body: Encoder, where: TopicPartition) -> None:
    body.compact_string(where[0]).compact_array([where[1]], body.int32).no_tags()


def _producers(answer: Decoder) -> dict[TopicPartition, list[OpenTransaction]]:
    answer.int32()
    topics = answer.compact_array(partial(_topic_producers, answer))
    # Nothing is known about a partition that has moved to another leader, or that this user may not read.
    return {where: opened for topic in topics for where, error, opened in topic if not error}


def _topic_producers(answer: Decoder) -> list[tuple[TopicPartition, int, list[OpenTransaction]]]:
    name = answer.compact_string() or ""
    found = answer.compact_array(partial(_partition_producers, answer, name))
    answer.skip_tags()
    return found


def _partition_producers(answer: Decoder, topic: str) -> tuple[TopicPartition, int, list[OpenTransaction]]:
    where = topic, answer.int32()
    error = answer.int16()
    answer.compact_string()
    found = answer.compact_array(partial(_producer, answer, where))
    answer.skip_tags()
    return where, error, [opened for opened in found if opened is not None]


def _producer(answer: Decoder, where: TopicPartition) -> OpenTransaction | None:
    producer, epoch = answer.int64(), answer.int32()
    # Last sequence number and timestamp.
    answer.int32()
    answer.int64()
    coordinator, begins = answer.int32(), answer.int64()
    answer.skip_tags()
    return OpenTransaction(where, producer, epoch, coordinator) if begins >= 0 else None


def _marked(answer: Decoder) -> int:
    errors = answer.compact_array(partial(_marked_topics, answer))
    return next((error for each in errors for error in each if error), 0)


def _marked_topics(answer: Decoder) -> list[int]:
    answer.int64()
    errors = answer.compact_array(partial(_marked_partitions, answer))
    answer.skip_tags()
    return [error for each in errors for error in each]


def _marked_partitions(answer: Decoder) -> list[int]:
    answer.compact_string()
    errors = answer.compact_array(partial(_marked_partition, answer))
    answer.skip_tags()
    return errors


def _marked_partition(answer: Decoder) -> int:
    answer.int32()
    error = answer.int16()
    answer.skip_tags()
    return error
