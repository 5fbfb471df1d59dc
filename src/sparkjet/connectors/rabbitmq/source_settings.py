"""Settings of the RabbitMQ source, from the options of ``readStream``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pika

from sparkjet.connectors.rabbitmq.connection import connection_of
from sparkjet.connectors.rabbitmq.options import INCLUDE_HEADERS, SOURCE_NAME, SOURCE_OPTIONS
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.acknowledging.reader import ReaderSettings
from sparkjet.sources.acknowledging.reader_options import queue_names

_MOST_UNACKNOWLEDGED = 65_535
"""AMQP's prefetch count has two bytes."""
_LONGEST_NAME = 255
"""Maximum length of a short string in AMQP, in bytes."""


@dataclass(frozen=True)
class RabbitSettings:
    """The parsed options.

    Attributes:
        queues: The queues to read.
        prefetch: Messages that each queue delivers before they are acknowledged.
        headers: The option ``includeHeaders``.
        connection: How pika connects; includes the password and is never shown.
    """

    queues: tuple[str, ...]
    prefetch: int
    headers: bool
    connection: pika.ConnectionParameters = field(repr=False)

    @staticmethod
    def of(given: Mapping[str, str]) -> RabbitSettings:
        """The settings in the options of a reader; does not connect."""
        options = Options(given)
        options.only(SOURCE_OPTIONS, SOURCE_NAME)
        queues = queue_names(options, SOURCE_NAME)
        for queue in queues:
            if len(queue.encode()) > _LONGEST_NAME:
                # A request for it would look like a broker that is away.
                message = f"option: queues names {queue!r}, but no queue's name has more than {_LONGEST_NAME} bytes."
                raise AnalysisError(message)
        most = ReaderSettings.of(options).limits.messages
        if not len(queues) <= most <= _MOST_UNACKNOWLEDGED * len(queues):
            message = (
                f"option: maxUnacknowledged={most} is for {len(queues)} queues, of which each may deliver 1 to "
                f"{_MOST_UNACKNOWLEDGED} messages."
            )
            raise AnalysisError(message)
        return RabbitSettings(queues, most // len(queues), options[INCLUDE_HEADERS], connection_of(options))
