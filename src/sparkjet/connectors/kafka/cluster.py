"""A cluster, and the requests about transactions that any process may send to its brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import tenacity
from confluent_kafka import KafkaError
from typing_extensions import Self

from sparkjet.connectors.kafka import requests
from sparkjet.connectors.kafka.connection import BrokerError, Connection, RefusedError
from sparkjet.errors import AnalysisError, SinkError

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.access import Access
    from sparkjet.connectors.kafka.requests import (
        Metadata,
        Node,
        OpenTransaction,
        Request,
        TopicPartition,
        TransactionDescription,
        TransactionListing,
    )

T = TypeVar("T")
OPEN = "Ongoing"
"""State of a transaction that has to be committed or aborted."""
COMMITTED, ABORTED = "CompleteCommit", "CompleteAbort"
COMPLETED = (COMMITTED, ABORTED)
"""States of a transaction that is complete for its coordinator."""
ENDING = ("PrepareCommit", "PrepareAbort")
"""States of a transaction whose end markers are being written."""
STATES = ("Empty", OPEN, *ENDING, *COMPLETED)
"""All states of transactions that brokers keep."""
COMMITS = ("PrepareCommit", COMMITTED)
"""States of a transaction that is committed, whether or not its partitions have the end marker yet."""
PATIENCE = 10.0
"""Seconds to wait for a coordinator that is moving or busy."""

UNKNOWN_TOPIC, NO_LEADER = 3, 5
INVALID_TIMEOUT = 50
SHORTEST = 1
"""A timeout in milliseconds that every broker allows, whatever its transaction.max.timeout.ms."""
_RETRIABLE = {
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
}
_UNNAMED = {
    # Not retriable, as for Java's client: a bug or a full log. The engine retries commits whatever the error.
    -1: "UNKNOWN_SERVER_ERROR, see the broker's log",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
}
"""Errors that librdkafka has no useful name for, as its clients never see them."""


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return _UNNAMED.get(code) or KafkaError(code).name()


class Cluster:
    """Connections to the brokers of one cluster, opened on demand; a context manager that closes them.

    Every method may raise :class:`BrokerError` and can then be called again, as all requests may be repeated.

    Args:
        access: How to connect.
        patience: Seconds to wait for brokers that are unreachable, moving or busy.
    """

    def __init__(self, access: Access, patience: float = PATIENCE) -> None:
        self._access = access
        self._patience = patience
        self._connections: dict[Node, Connection] = {}
        self._coordinators: dict[str, Node] = {}
        # In the order of their discovery.
        self._learned: dict[Node, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def metadata(self, topics: Sequence[str] = ()) -> Metadata:
        """The cluster's id, its brokers, and the named topics; a missing topic is not created."""
        return self._patiently(lambda: self._metadata(topics))

    def topic_setting(self, topic: str, name: str) -> str | None:
        """A setting of a topic; None if this user may not read it."""
        error, value = self._patiently(lambda: self._ask_any(requests.topic_setting(topic, name)))
        return None if error else value

    def open_transactions(self, prefix: str, states: Sequence[str] = (OPEN,)) -> list[str]:
        """Transactional ids that begin with exactly ``prefix`` and have an open transaction, sorted."""
        found = self._patiently(lambda: self._listed(states))
        return sorted({listed.name for listed in found if listed.name.startswith(prefix)})

    def listed_by(self, producers: Sequence[int], states: Sequence[str] = COMPLETED) -> list[TransactionListing]:
        """Transactions of some producers, in some states by their coordinators."""
        return self._patiently(lambda: self._listed(states, producers)) if producers else []

    def open_in(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[OpenTransaction]]:
        """Transactions that are open in these partitions; omits partitions whose leader has not answered."""
        return self._patiently(lambda: self._open_in(partitions))

    def write_marker(self, opened: OpenTransaction, *, commits: bool) -> int:
        """Write a transaction's end marker into a partition, in place of the coordinator; returns the error code."""
        request = requests.write_marker(opened, commits=commits)

        def ask() -> int:
            node = self._leaders([opened.where]).get(opened.where)
            return NO_LEADER if node is None else self._ask(node, request)

        return self._patiently(ask)

    def describe(self, name: str) -> TransactionDescription:
        """The description of a transactional id, from its coordinator."""
        request = requests.describe_transactions([name])
        return self._at_coordinator(name, request, lambda described: described[0].error)[0]

    def commit(self, name: str, producer: int, epoch: int) -> int:
        """Commit a transaction; returns the error code, 0 if it is committed, by this call or an earlier one."""
        return self._at_coordinator(name, requests.commit_transaction(name, producer, epoch), int)

    def fence(self, name: str, timeout: int = SHORTEST) -> int:
        """Abort the transaction open under a transactional id and fence its producer; returns the error code.

        Not with EndTxn: after that a live producer could still write to another partition, and commit it.
        """
        return self._at_coordinator(name, requests.init_producer(name, timeout), int)

    def _listed(self, states: Sequence[str], producers: Sequence[int] = ()) -> list[TransactionListing]:
        found: list[TransactionListing] = []
        # Each broker lists what it coordinates.
        for node in self._metadata().nodes.values():
            error, listed = self._ask(node, requests.list_transactions(states, producers))
            _check(error)
            found += listed
        return found

    def _open_in(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[OpenTransaction]]:
        led: dict[Node, list[TopicPartition]] = {}
        for where, node in self._leaders(partitions).items():
            led.setdefault(node, []).append(where)
        answers = [self._ask(node, requests.describe_producers(ours)) for node, ours in led.items()]
        return {where: opened for answer in answers for where, opened in answer.items()}

    def _leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Node]:
        """The leaders of these partitions; omits those that have none, or were deleted."""
        answer = self._metadata(sorted({topic for topic, _ in partitions}))
        known = {(topic.name, number): leader for topic in answer.topics for number, leader in topic.leaders.items()}
        return {where: answer.nodes[known[where]] for where in partitions if known.get(where) in answer.nodes}

    def _metadata(self, topics: Sequence[str] = ()) -> Metadata:
        answer = self._ask_any(requests.metadata(topics))
        self._learned.update(dict.fromkeys(answer.nodes.values()))
        return answer

    def _at_coordinator(self, name: str, request: Request[T], error_of: Callable[[T], int]) -> T:
        def ask() -> T:
            try:
                answer = self._ask(self._coordinator(name), request)
                _check(error_of(answer))
            except BrokerError:
                self._coordinators.pop(name, None)
                raise
            return answer

        return self._patiently(ask)

    def _coordinator(self, name: str) -> Node:
        if name not in self._coordinators:
            error, node = self._ask_any(requests.find_coordinator(name))
            _check(error)
            if error:
                raise RefusedError(f"no coordinator for {name!r}: {error_name(error)}")
            self._coordinators[name] = node
            self._learned[node] = None
        return self._coordinators[name]

    def _ask_any(self, request: Request[T]) -> T:
        """The answer of the first server that can be reached."""
        failed: list[str] = []
        # Connected ones first: otherwise each request would wait again for a server that is down.
        for server in dict.fromkeys((*self._connections, *self._access.servers, *self._learned)):
            try:
                return self._ask(server, request)
            except RefusedError:
                raise
            except BrokerError as error:
                failed.append(str(error))
        raise BrokerError("; ".join(failed))

    def _ask(self, node: Node, request: Request[T]) -> T:
        try:
            if node not in self._connections:
                self._connections[node] = Connection(node, self._access)
            return self._connections[node].ask(request)
        except BrokerError:
            if node in self._connections:
                self._connections.pop(node).close()
            raise

    def _patiently(self, ask: Callable[[], T]) -> T:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self._patience),
            wait=tenacity.wait_exponential(0.01, 0.5),
            retry=tenacity.retry_if_exception(lambda e: isinstance(e, BrokerError) and not isinstance(e, RefusedError)),
            reraise=True,
        )
        return retrying(ask)

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _check(error: int) -> None:
    if error in _RETRIABLE:
        raise BrokerError(f"the broker is not ready: {error_name(error)}")


@contextlib.contextmanager
def connected(access: Access, patience: float = PATIENCE) -> Iterator[Cluster]:
    """A cluster for a sink, whose error says that it cannot be reached."""
    try:
        with Cluster(access, patience) as cluster:
            yield cluster
    except BrokerError as error:
        message = f"Kafka: {error}. Check that the brokers run and that kafka.bootstrap.servers is right."
        raise SinkError(message) from error


def unusable(error: Exception) -> AnalysisError:
    """The refusal of a start whose brokers cannot be used."""
    return AnalysisError(
        f'start: format("kafka") cannot use its brokers: {error}. Check kafka.bootstrap.servers and '
        "kafka.security.protocol; transactions need Kafka 3.0 or newer."
    )
