"""A consumer of the queues of ActiveMQ Artemis: one connection, over STOMP."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from sparkjet.connectors.artemis.messages import message_of
from sparkjet.connectors.artemis.stomp import RefusedError, StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.sources.acknowledging.arrived import Arrived
from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message

if TYPE_CHECKING:
    from sparkjet.connectors.artemis.source_settings import ArtemisSettings

_QUEUE = "queue"
_SILENCES, _LOOKS = 3, 10.0
_MANAGEMENT = "activemq.management"
_REPLIES = "sparkjet.replies."
_ANSWERS_WITHIN = 60.0
_HELD, _GIVEN, _SCHEDULED, _CONSUMERS = "messageCount", "deliveringCount", "scheduledCount", "consumerCount"
"""Attributes of a queue: its messages, those not available, and its readers."""
_NODE = "nodeID"
_ME = "replies"
_OPERATION, _SETTINGS = "_AMQ_OperationName", "getAddressSettingsAsJSON"


class _Settings(msgspec.Struct, frozen=True):
    """Settings of an address; the broker reports only those that somebody has set, the others have these defaults."""

    attempts: int = msgspec.field(default=10, name="maxDeliveryAttempts")
    dead_letters: str | None = msgspec.field(default=None, name="deadLetterAddress")
    creates: bool = msgspec.field(default=True, name="autoCreateQueues")
    removes: bool = msgspec.field(default=True, name="autoDeleteQueues")


class Counts(NamedTuple):
    """The counts of a queue.

    Attributes:
        ready: Number of messages not delivered to any client.
        given: Number of messages delivered, and not acknowledged.
        consumers: Number of its readers.
    """

    ready: int
    given: int
    consumers: int


class MissingQueueError(Exception):
    """There is currently no queue of this name."""


class Management:
    """Queries the broker's management, over a connection that has other uses too.

    Args:
        connection: The connection; its user must be allowed to send to the management's address.
        queues: Names of queues, or ``address::queue``.

    Raises:
        SourceError: The user lacks permission.
    """

    def __init__(self, connection: StompConnection, queues: Sequence[str]) -> None:
        self._connection = connection
        self._queues = queues
        self._replies = f"{_REPLIES}{uuid4().hex}"
        headers = {"id": _ME, "destination": self._replies, "subscription-type": "MULTICAST", "ack": "auto"}
        try:
            connection.confirm([Frame("SUBSCRIBE", headers)])
            # With a receipt: the broker closes the connection of a user without permission, and says why.
            connection.confirm([self._asked_settings(number) for number in range(len(queues))])
            answers = self._answers(len(queues))
        except RefusedError as error:
            message = (
                "this user may not ask how many messages a queue holds, which is how sparkjet knows that it has read "
                f'all: {error}. Allow it "manage" of {_MANAGEMENT}, and "createAddress", "createNonDurableQueue" and '
                f'"consume" of {_REPLIES}#.'
            )
            raise SourceError(message) from error
        self._settings = {
            queue: msgspec.json.decode(answers[f"{number} {_SETTINGS}"], type=known(_Settings))
            for number, queue in enumerate(queues)
        }

    @property
    def lasting(self) -> Sequence[str]:
        """The queues that the broker does not create automatically for a reader, and remove when empty."""
        every = self._settings.items()
        return [queue for queue, settings in every if not (settings.creates and settings.removes)]

    def counts(self, queues: Sequence[str] | None = None) -> Mapping[str, Counts]:
        """The counts of queues, by default all."""
        numbers = [number for number, queue in enumerate(self._queues) if queues is None or queue in queues]
        asked = [(number, name) for number in numbers for name in (_HELD, _GIVEN, _SCHEDULED, _CONSUMERS)]
        self._connection.send([self._question(*each) for each in asked])
        answers = self._answers(len(asked))
        counts = {}
        for number in numbers:
            held, given, scheduled, consumers = (
                answers[f"{number} {name}"] for name in (_HELD, _GIVEN, _SCHEDULED, _CONSUMERS)
            )
            counts[self._queues[number]] = Counts(max(held - given - scheduled, 0), given, consumers)
        return counts

    def node(self) -> str:
        """The id of the broker's journal, which a backup takes over with it."""
        self._connection.send([self._asked("broker", f"0 {_NODE}", {"_AMQ_Attribute": _NODE})])
        return str(self._answers(1)[f"0 {_NODE}"])

    def given_up(self) -> Mapping[str, int]:
        """The queues whose messages the broker drops, each with the number of deliveries after which it does."""
        every = self._settings.items()
        return {queue: each.attempts for queue, each in every if each.attempts > 0 and not each.dead_letters}

    def _question(self, number: int, attribute: str) -> Frame:
        _, _, name = self._queues[number].rpartition("::")
        return self._asked(f"queue.{name}", f"{number} {attribute}", {"_AMQ_Attribute": attribute})

    def _asked_settings(self, number: int) -> Frame:
        address = msgspec.json.encode([self._queues[number].partition("::")[0]])
        return self._asked("broker", f"{number} {_SETTINGS}", {_OPERATION: _SETTINGS}, address)

    def _asked(self, resource: str, name: str, what: Mapping[str, str], body: bytes = b"") -> Frame:
        headers = {
            "destination": _MANAGEMENT,
            "_AMQ_ResourceName": resource,
            "reply-to": self._replies,
            "correlation-id": name,
        }
        return Frame("SEND", {**headers, **what}, body)

    def _answers(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        until = time.monotonic() + _ANSWERS_WITHIN
        while len(found) < count:
            for frame in self._connection.messages(_ME, until - time.monotonic()):
                asked = frame.headers["correlation-id"]
                if frame.headers.get("_AMQ_OperationSucceeded") != "true":
                    raise MissingQueueError(self._queues[int(asked.split()[0])])
                [found[asked]] = msgspec.json.decode(frame.body, type=list[Any])
            if time.monotonic() > until:
                raise TimeoutError(f"the broker's management has not answered within {_ANSWERS_WITHIN:.0f} s")
        return found


class ArtemisSource(AcknowledgingSource):
    """Reads queues; messages are acknowledged one by one.

    STOMP can acknowledge all messages up to one at once. That would include any that the broker could not deliver, such
    as a StreamMessage, which STOMP does not know: they would be gone without having been seen.
    """

    def __init__(self, settings: ArtemisSettings) -> None:
        self._settings = settings
        self._connection: StompConnection | None = None
        self._management: Management | None = None
        self._arrived = Arrived[str]()
        self._received: deque[str] = deque()
        # The broker's names for them, in a dead letter.
        self._named = {queue.rpartition("::")[2]: queue for queue in settings.queues}
        self._node = ""
        self._opened = self._alone = False

    @property
    def queues(self) -> Sequence[str]:
        """The queues in the option."""
        return self._settings.queues

    @property
    def broker(self) -> str:
        """The id of its journal."""
        return self._node

    @property
    def notices_within(self) -> float:
        """The broker ends a connection that is silent for the agreed time, or for as much longer as it likes."""
        return _SILENCES * self._settings.address.heartbeat + _LOOKS

    def open(self) -> None:
        """Connect and subscribe; a queue that has never existed is an error, and is not created.

        An exception is one that the broker creates automatically, and removes when empty: it then has no messages.
        """
        self.close()
        self._arrived.clear()
        self._received.clear()
        with self._judged():
            self._connection = StompConnection(self._settings.address)
            self._management = Management(self._connection, self.queues)
            # The others may have been removed because all their messages were read.
            self._management.counts(self._management.lasting)
            self._node = self._management.node()
            self._refuse(self._management.given_up())
            self._connection.confirm([self._subscription(number) for number in range(len(self.queues))])
        self._opened = True

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Messages that have arrived; heartbeats are sent in the meantime."""
        assert self._connection is not None  # noqa: S101 - opened first
        with self._judged():
            self._take(self._connection, 0 if self._arrived and most else seconds)
        taken = self._arrived.take(most)
        self._received.extend(ack for ack, _ in taken)
        return [message for _, message in taken]

    def acknowledge(self, count: int) -> None:
        """Acknowledge each, and wait until the broker has the last one on disk."""
        assert self._connection is not None  # noqa: S101 - opened first
        frames = [Frame("ACK", {"id": self._received.popleft()}) for _ in range(count)]
        with self._judged():
            self._connection.confirm(frames)

    def ready(self) -> Mapping[str, int]:
        """The messages held by each queue, plus those that have arrived here without being received."""
        assert self._connection is not None  # noqa: S101 - opened first
        assert self._management is not None  # noqa: S101 - as above
        with self._judged():
            found = self._management.counts()
            # Messages that came with the responses are delivered, so these do not count them.
            self._take(self._connection, 0)
        here = len(self._arrived) + len(self._received)
        # A queue lets go of a consumer first, and gets its messages back later.
        self._alone = all(each.consumers == 1 for each in found.values()) and here == sum(
            each.given for each in found.values()
        )
        counts = Counter({queue: each.ready for queue, each in found.items()})
        counts.update(message.queue for message in self._arrived)
        return counts

    @property
    def alone(self) -> bool:
        """Whether each queue had only this consumer, and all that it has delivered is here."""
        return self._alone

    def close(self) -> None:
        """End the connection; the broker redelivers what was not acknowledged."""
        connection, self._connection, self._management = self._connection, None, None
        if connection is not None:
            connection.close()

    def _take(self, connection: StompConnection, seconds: float) -> None:
        for frame in connection.messages(_QUEUE, seconds):
            queue = self.queues[int(frame.headers["subscription"].removeprefix(f"{_QUEUE}/"))]
            message = message_of(frame, queue, self._settings.id_property)
            if message.origin is not None:
                message = message._replace(origin=self._named.get(message.origin, message.origin))
            # Not the header ack: a property of that name, which a producer may set, hides it.
            self._arrived.append(frame.headers["message-id"], message)

    def _subscription(self, number: int) -> Frame:
        headers = {
            "id": f"{_QUEUE}/{number}",
            "destination": self.queues[number],
            "subscription-type": "ANYCAST",
            "ack": "client-individual",
            "consumer-window-size": str(self._settings.window),
        }
        return Frame("SUBSCRIBE", headers)

    def _refuse(self, given_up: Mapping[str, int]) -> None:
        for queue, most in given_up.items():
            message = (
                f"the broker drops messages of queue {queue!r} after {most} deliveries, and counts those too that were "
                "only sent ahead on a connection that was lost. Set max-delivery-attempts to -1 in its "
                "address-settings, or a dead-letter-address, from which somebody brings them back."
            )
            raise SourceError(message)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Distinguish errors that may be retried from those that may not."""
        try:
            yield
        except OSError as error:
            raise ConnectionLostError(f"{self._settings.address}: {error}") from error
        except MissingQueueError as error:
            # If it existed before: it may have been deleted, or its broker has changed.
            if self._opened:
                raise ConnectionLostError(f"queue {str(error)!r} no longer exists") from error
            message = f"queue {str(error)!r} does not exist at {self._settings.address}: create it first"
            raise SourceError(message) from error
        except RefusedError as error:
            if self._opened:
                raise ConnectionLostError(str(error)) from error
            message = f"{self._settings.address} refuses user {self._settings.address.user!r}: {error}"
            raise SourceError(message) from error
