"""Settings of the ActiveMQ Artemis source, from the options of ``readStream``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkjet.connectors.artemis.options import ID_PROPERTY, SOURCE_NAME, SOURCE_OPTIONS, WINDOW_SIZE
from sparkjet.connectors.artemis.stomp import StompAddress
from sparkjet.connectors.artemis.stomp_options import address_of
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.acknowledging.reader_options import queue_names


@dataclass(frozen=True)
class ArtemisSettings:
    """The parsed options.

    Attributes:
        queues: The queues to read.
        window: Bytes per queue that the broker delivers before they are acknowledged.
        id_property: The property that identifies a message; None for the broker's number.
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
        options.only(SOURCE_OPTIONS, SOURCE_NAME)
        queues = queue_names(options, SOURCE_NAME)
        named: dict[str, str] = {}
        for queue in queues:
            other = named.setdefault(queue.rpartition("::")[2], queue)
            if other != queue:
                # A redelivery through the other name would be a different message.
                raise AnalysisError(f"option: queues names one queue twice: {other!r} and {queue!r}.")
        return ArtemisSettings(
            queues,
            options[WINDOW_SIZE],
            options[ID_PROPERTY],
            address_of(options),
        )
