"""The probe: whether a broker takes messages of a size, asked without a message that anyone could read."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pika
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from sparkjet.connectors.rabbitmq.connection import FAILURES, explain
from sparkjet.errors import RefusedRowsError, SinkError

ALWAYS_TAKEN = 1 << 20
"""Bytes that each broker takes, unless its ``max_message_size`` has been lowered (16 or 128 MiB by default)."""
_PRECONDITION_FAILED = 406


def check_size(connection: pika.ConnectionParameters, size: int) -> None:
    """Refuse messages that the broker would refuse, before they are decided.

    A broker does not report its limit. It checks the size of a message first, and then looks for the queue, which does
    not exist.
    """
    try:
        with closing(pika.BlockingConnection(connection)) as opened:
            channel = opened.channel()
            channel.confirm_delivery()
            channel.basic_publish("", f"sparkjet-{uuid4().hex}", bytes(size), mandatory=True)
    except UnroutableError:
        return
    except ChannelClosedByBroker as error:
        # A user who may not write to the default exchange cannot find out.
        if error.reply_code == _PRECONDITION_FAILED:
            message = (
                f"rabbitmq: a message of the epoch has {size} bytes, which the broker refuses: {error.reply_text}. "
                "Raise max_message_size in its rabbitmq.conf, or make the bodies smaller."
            )
            raise RefusedRowsError(message) from error
    except FAILURES as error:
        message = f"rabbitmq: the size of the epoch's messages cannot be tried: {explain(connection, error)}"
        raise SinkError(message) from error
