"""Settings of the RabbitMQ sink, from the options of ``writeStream``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkjet.connectors.rabbitmq.connection import connection_of
from sparkjet.connectors.rabbitmq.options import CONFIRM_TIMEOUT, EXCHANGE, ROUTING_KEY

if TYPE_CHECKING:
    import pika

    from sparkjet.options import Options


@dataclass(frozen=True)
class RabbitSinkSettings:
    """The parsed options.

    Attributes:
        exchange: The option ``exchange``; ``""`` is the default exchange.
        routing_key: The option ``routingKey``.
        patience: Seconds within which the broker must confirm a message.
        connection: How pika connects; includes the password and is never shown.
    """

    exchange: str | None
    routing_key: str | None
    patience: float
    connection: pika.ConnectionParameters = field(repr=False)

    @staticmethod
    def of(options: Options) -> RabbitSinkSettings:
        """The settings in some options; does not connect."""
        return RabbitSinkSettings(
            options[EXCHANGE],
            options[ROUTING_KEY],
            options[CONFIRM_TIMEOUT] / 1000,
            connection_of(options),
        )
