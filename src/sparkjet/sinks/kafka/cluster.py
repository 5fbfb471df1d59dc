"""A cluster: the few things about transactions that are asked of its brokers, by any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import tenacity
from typing_extensions import Self

from sparkjet.sinks.kafka import partition_requests, requests
from sparkjet.sinks.kafka.connection import BrokerError, Connection, RefusedError

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.access import Access
    from sparkjet.sinks.kafka.partition_requests import OpenIn
    from sparkjet.sinks.kafka.requests import Described, Listed, Metadata, Node, Request, TopicPartition

T = TypeVar("T")
OPEN = "Ongoing"
"""State of a transaction that somebody has to end."""
COMMITTED, ABORTED = "CompleteCommit", "CompleteAbort"
COMPLETED = (COMMITTED, ABORTED)
"""States of a transaction that its coordinator is done with."""
COMMITS = ("PrepareCommit", COMMITTED)
"""States of a transaction that is committed, whether or not its partitions know it yet."""
PATIENCE = 10.0
"""Seconds to wait for a coordinator that is moving or busy."""

UNKNOWN_TOPIC, NO_LEADER = 3, 5
INVALID_TIMEOUT = 50
SHORTEST = 1
"""Milliseconds of a timeout that every broker allows, whatever its transaction.max.timeout.ms; more may be refused."""
_PASSING = {
    7: "a request between brokers took too long",
    13: "a broker has lost a connection",
    14: "coordinator is loading",
    15: "no coordinator",
    16: "coordinator has moved",
    51: "still being ended",
}
_NAMES = {
    # Not passing, as for Java's client: a bug or a full log. Commits are tried again by the engine whatever the error.
    -1: "UNKNOWN_SERVER_ERROR, see the broker's log",
    UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    NO_LEADER: "LEADER_NOT_AVAILABLE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    35: "UNSUPPORTED_VERSION",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    90: "PRODUCER_FENCED",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
}


def named(error: int) -> str:
    """Kafka's name of an error."""
    return _NAMES.get(error, _PASSING.get(error, f"error {error}"))


class Cluster:
    """Connections to the brokers of one cluster, opened when they are needed; a context manager that closes them.

    Every method may raise :class:`BrokerError`; asking again is then right, as all that is asked may be repeated.

    Args:
        access: How to connect.
        patience: Seconds to wait for brokers that are away, moving or busy.
    """

    def __init__(self, access: Access, patience: float = PATIENCE) -> None:
        self._access = access
        self._patience = patience
        self._connections: dict[Node, Connection] = {}
        self._coordinators: dict[str, Node] = {}
        # In the order in which they were learned.
        self._learned: dict[Node, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def metadata(self, topics: Sequence[str] = ()) -> Metadata:
        """The cluster's id, its brokers, and topics by name; a missing topic is not created."""
        return self._patiently(lambda: self._metadata(topics))

    def open_transactions(self, prefix: str, states: Sequence[str] = (OPEN,)) -> list[str]:
        """Transactional ids that begin with exactly ``prefix`` and have an open transaction, in their order."""
        found = self._patiently(lambda: self._listed(states))
        return sorted({listed.name for listed in found if listed.name.startswith(prefix)})

    def ended_by(self, producers: Sequence[int]) -> dict[int, Listed]:
        """Transactions of some producers that their coordinators call completed, by producer."""
        return {listed.producer: listed for listed in self._patiently(lambda: self._listed(COMPLETED, producers))}

    def open_in(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[OpenIn]]:
        """Transactions that are open as far as these partitions know; without those whose leader has not said it."""
        return self._patiently(lambda: self._open_in(partitions))

    def write_marker(self, opened: OpenIn, *, commits: bool) -> int:
        """End a transaction in one partition, for a coordinator that has forgotten to; the error's code."""
        request = partition_requests.write_marker(opened, commits=commits)

        def ask() -> int:
            node = self._leaders([opened.where]).get(opened.where)
            return NO_LEADER if node is None else self._ask(node, request)

        return self._patiently(ask)

    def describe(self, name: str) -> Described:
        """What its coordinator knows of a transactional id."""
        request = requests.describe_transactions([name])
        return self._at_coordinator(name, request, lambda described: described[0].error)[0]

    def commit(self, name: str, producer: int, epoch: int) -> int:
        """Commit a transaction; the error's code, 0 if it is committed, now or before."""
        return self._at_coordinator(name, requests.commit_transaction(name, producer, epoch), int)

    def roll_back(self, name: str, timeout: int = SHORTEST) -> int:
        """End what is open under a transactional id and shut its producer out; the error's code.

        Not by EndTxn: after that a living producer could still write to another partition, and commit it.

        Args:
            name: The transactional id.
            timeout: Milliseconds that a transaction may be open which nobody will begin.
        """
        return self._at_coordinator(name, requests.init_producer(name, timeout), int)

    def _listed(self, states: Sequence[str], producers: Sequence[int] = ()) -> list[Listed]:
        found: list[Listed] = []
        # Each broker lists what it coordinates.
        for node in self._metadata().nodes.values():
            error, listed = self._ask(node, requests.list_transactions(states, producers))
            _check(error)
            found += listed
        return found

    def _open_in(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[OpenIn]]:
        led: dict[Node, list[TopicPartition]] = {}
        for where, node in self._leaders(partitions).items():
            led.setdefault(node, []).append(where)
        answers = [self._ask(node, partition_requests.describe_producers(ours)) for node, ours in led.items()]
        return {where: opened for answer in answers for where, opened in answer.items()}

    def _leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Node]:
        """The brokers that lead these partitions; without those that have none, or were deleted."""
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
                message = f"no coordinator for {name!r}: {named(error)}"
                raise RefusedError(message)
            self._coordinators[name] = node
            self._learned[node] = None
        return self._coordinators[name]

    def _ask_any(self, request: Request[T]) -> T:
        """The answer of the first server that is there."""
        failed: list[str] = []
        # Connected ones first: otherwise each look-up would wait anew for a server that is away.
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
    if error in _PASSING:
        message = f"the broker is not ready: {named(error)}"
        raise BrokerError(message)
