"""The broker's management information on queues: how many messages they hold, and when it gives one up."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from sparkjet.connectors.artemis.stomp import RefusedError, StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import SourceError
from sparkjet.known_types import known

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
                "this user may not ask how many messages a queue holds, by which sparkjet knows that it has read all: "
                f'{error}. Allow it "manage" of {_MANAGEMENT}, and "createAddress", "createNonDurableQueue" and '
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
                message = f"the broker's management has not answered within {_ANSWERS_WITHIN:.0f} s"
                raise TimeoutError(message)
        return found
