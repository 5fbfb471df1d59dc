"""Settings of the ActiveMQ Artemis sink, from the options of ``writeStream``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.connectors.artemis.options import MOST_MESSAGES, QUEUE, TOPIC
from sparkjet.connectors.artemis.stomp_options import address_of
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.connectors.artemis.stomp import StompAddress
    from sparkjet.options import Options

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
"""Artemis's names for the routing of a queue and of a topic."""


@dataclass(frozen=True)
class ArtemisSinkSettings:
    """The parsed options.

    Attributes:
        address: How to connect.
        destination: The queue or the topic.
        routing: Whether it is a queue or a topic.
        most: Maximum number of messages in a broker transaction.
    """

    address: StompAddress
    destination: str
    routing: str
    most: int

    @staticmethod
    def of(options: Options) -> ArtemisSinkSettings:
        """The settings in some options; does not connect."""
        queue, topic = options[QUEUE], options[TOPIC]
        destination = queue or topic
        if destination is None or (queue and topic):
            message = 'option: format("artemis") needs option("queue", "…") or option("topic", "…"), one of the two.'
            raise AnalysisError(message)
        return ArtemisSinkSettings(
            address_of(options),
            destination,
            ANYCAST if queue else MULTICAST,
            options[MOST_MESSAGES],
        )
