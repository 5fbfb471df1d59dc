"""Settings of the ActiveMQ Artemis source, from the options of ``readStream``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkjet.connectors.artemis.format import ARTEMIS_CONNECTION_OPTIONS, SOURCE
from sparkjet.connectors.artemis.stomp import StompAddress
from sparkjet.connectors.artemis.stomp_options import address_of
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.acknowledging.reader import READER_OPTIONS, queue_names

ARTEMIS_OPTIONS: Mapping[str, str] = {
    "queues": "Queues, separated by commas, or address::queue; each is a substream.",
    **ARTEMIS_CONNECTION_OPTIONS,
    "idProperty": "Property in which producers identify a message, unlike any other; the broker's number by default.",
    "consumerWindowSize": "Bytes that the broker delivers of a queue before they are acknowledged (16777216).",
    **READER_OPTIONS,
}
"""Options of ``format("sparkjet-artemis")``."""


@dataclass(frozen=True)
class ArtemisSettings:
    """The parsed options.

    Attributes:
        queues: The queues to read.
        window: Bytes of a queue that the broker delivers before they are acknowledged.
        id_property: The property that identifies a message; None for the broker's number of it.
        address: How to connect.
    """

    queues: tuple[str, ...]
    window: int
    id_property: str | None
    address: StompAddress

    @staticmethod
    def of(given: Mapping[str, str]) -> ArtemisSettings:
        """The settings in the options of a reader; does not connect."""
        options = Options(given)
        options.only(list(ARTEMIS_OPTIONS), SOURCE.name)
        queues = queue_names(options, SOURCE.name)
        named: dict[str, str] = {}
        for queue in queues:
            other = named.setdefault(queue.rpartition("::")[2], queue)
            if other != queue:
                # What comes again through the other name would be another message.
                message = f"option: queues names one queue twice: {other!r} and {queue!r}."
                raise AnalysisError(message)
        return ArtemisSettings(
            queues,
            options.number("consumerWindowSize", default=1 << 24),
            options.get("idProperty"),
            address_of(options),
        )
