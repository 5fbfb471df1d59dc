"""Requests that end and describe transactions, each in the one version that is sent, with its response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from sparkjet.connectors.kafka.wire import Decoder, Encoder

T = TypeVar("T")
TopicPartition = tuple[str, int]
TRANSACTION = 1
"""Type of coordinator."""
_TOPIC = 2
"""Type of resource."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request and how to parse its response.

    Attributes:
        name: Name of the request, for messages.
        key: Its number in the protocol.
        version: The version that is sent.
        body: Its encoded fields.
        parse: Parses the response's fields.
        is_flexible: Whether the version has compact fields and tags, also in its header.
    """

    name: str
    key: int
    version: int
    body: bytes
    parse: Callable[[Decoder], T]
    is_flexible: bool = False


@dataclass(frozen=True)
class Node:
    """A broker's address."""

    host: str
    port: int


@dataclass(frozen=True)
class Topic:
    """A topic: its error code (0 for none), its name, and the leader's id by partition."""

    error: int
    name: str
    leaders: Mapping[int, int]


@dataclass(frozen=True)
class Metadata:
    """The live brokers by id, the id of their cluster, and the requested topics."""

    nodes: Mapping[int, Node]
    cluster: str
    topics: tuple[Topic, ...]


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it; ``began`` and ``timeout`` are in milliseconds.

    ``written`` are the partitions of an open transaction.
    """

    error: int
    name: str
    state: str
    timeout: int
    began: int
    producer: int
    epoch: int
    written: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id as a broker lists it."""

    name: str
    producer: int
    state: str


def metadata(topics: Sequence[str]) -> Request[Metadata]:
    """Asks for brokers and topics; unlike a producer's request, never creates a topic."""
    body = Encoder().int32(len(topics))
    for topic in topics:
        body.string(topic)
    return Request("Metadata", 3, 4, body.int8(0).encoded(), _metadata)


def topic_setting(topic: str, name: str) -> Request[tuple[int, str | None]]:
    """Asks for one setting of a topic: the error code, and the value."""
    body = Encoder().int32(1).int8(_TOPIC).string(topic).int32(1).string(name).int8(0)
    return Request("DescribeConfigs", 32, 1, body.encoded(), _setting)


def find_coordinator(name: str) -> Request[tuple[int, Node]]:
    """Asks for the coordinator of a transactional id."""
    return Request("FindCoordinator", 10, 1, Encoder().string(name).int8(TRANSACTION).encoded(), _coordinator)


def init_producer(name: str, timeout: int) -> Request[int]:
    """Aborts the transaction open under a transactional id, and fences its producer."""
    return Request("InitProducerId", 22, 1, Encoder().string(name).int32(timeout).encoded(), _error)


def commit_transaction(name: str, producer: int, epoch: int) -> Request[int]:
    """Commits; aborting is left to :func:`init_producer`, which also fences the producer.

    Never version 5: a broker whose transaction.version is 0 advertises it, rejects it, and the transaction hangs.
    """
    body = Encoder().string(name).int64(producer).int16(epoch).int8(1)
    return Request("EndTxn", 26, 2, body.encoded(), _error)


def describe_transactions(names: Sequence[str]) -> Request[list[TransactionDescription]]:
    """Asks a coordinator to describe transactional ids."""
    body = Encoder()
    body.compact_array(names, body.compact_string).no_tags()
    return Request("DescribeTransactions", 65, 0, body.encoded(), _described, is_flexible=True)


def list_transactions(
    states: Sequence[str], producers: Sequence[int] = ()
) -> Request[tuple[int, list[TransactionListing]]]:
    """Asks a broker for the ids that it coordinates, in some states, of some producers or of all."""
    body = Encoder()
    body.compact_array(states, body.compact_string).compact_array(producers, body.int64).no_tags()
    return Request("ListTransactions", 66, 0, body.encoded(), _listed, is_flexible=True)


def sasl_handshake(mechanism: str) -> Request[tuple[int, list[str | None]]]:
    """Announces the SASL mechanism."""
    parse = lambda answer: (answer.int16(), answer.array(answer.string))  # noqa: E731 - shorter than a function
    return Request("SaslHandshake", 17, 1, Encoder().string(mechanism).encoded(), parse)


def sasl_authenticate(sent: bytes) -> Request[tuple[int, bytes]]:
    """One step of authentication."""
    return Request("SaslAuthenticate", 36, 0, Encoder().data(sent).encoded(), _authenticated)


def _error(answer: Decoder) -> int:
    answer.int32()
    return answer.int16()


def _authenticated(answer: Decoder) -> tuple[int, bytes]:
    error = answer.int16()
    answer.string()
    return error, answer.data()


def _coordinator(answer: Decoder) -> tuple[int, Node]:
    error = _error(answer)
    answer.string()
    answer.int32()
    return error, Node(answer.string() or "", answer.int32())


def _metadata(answer: Decoder) -> Metadata:
    answer.int32()
    nodes = answer.array(partial(_node, answer))
    cluster = answer.string() or ""
    answer.int32()
    return Metadata(dict(nodes), cluster, tuple(answer.array(partial(_topic, answer))))


def _node(answer: Decoder) -> tuple[int, Node]:
    number = answer.int32()
    node = Node(answer.string() or "", answer.int32())
    answer.string()
    return number, node


def _topic(answer: Decoder) -> Topic:
    error, name = answer.int16(), answer.string() or ""
    answer.int8()
    return Topic(error, name, dict(answer.array(partial(_partition, answer))))


def _partition(answer: Decoder) -> tuple[int, int]:
    answer.int16()
    number, leader = answer.int32(), answer.int32()
    # Replicas, then in-sync replicas.
    answer.array(answer.int32)
    answer.array(answer.int32)
    return number, leader


def _setting(answer: Decoder) -> tuple[int, str | None]:
    answer.int32()
    # One topic was asked about, and one setting; a user who may not read it gets an error and no setting.
    error, values = next(iter(answer.array(partial(_resource, answer))), (0, []))
    return error, next(iter(values), None)


def _resource(answer: Decoder) -> tuple[int, list[str | None]]:
    error = answer.int16()
    answer.string()
    answer.int8()
    answer.string()
    return error, answer.array(partial(_value, answer))


def _value(answer: Decoder) -> str | None:
    answer.string()
    value = answer.string()
    # Read-only, source, sensitive, and synonyms, which are not asked for.
    answer.int8()
    answer.int8()
    answer.int8()
    answer.array(answer.string)
    return value


def _described(answer: Decoder) -> list[TransactionDescription]:
    answer.int32()
    return answer.compact_array(partial(_transaction, answer))


def _transaction(answer: Decoder) -> TransactionDescription:
    described = TransactionDescription(
        answer.int16(),
        answer.compact_string() or "",
        answer.compact_string() or "",
        answer.int32(),
        answer.int64(),
        answer.int64(),
        answer.int16(),
        tuple(where for topic in answer.compact_array(partial(_written, answer)) for where in topic),
    )
    answer.skip_tags()
    return described


def _written(answer: Decoder) -> list[TopicPartition]:
    name = answer.compact_string() or ""
    found = [(name, number) for number in answer.compact_array(answer.int32)]
    answer.skip_tags()
    return found


def _listed(answer: Decoder) -> tuple[int, list[TransactionListing]]:
    error = _error(answer)
    answer.compact_array(answer.compact_string)
    return error, answer.compact_array(partial(_name, answer))


def _name(answer: Decoder) -> TransactionListing:
    listed = TransactionListing(answer.compact_string() or "", answer.int64(), answer.compact_string() or "")
    answer.skip_tags()
    return listed


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
