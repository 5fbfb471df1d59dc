"""The RabbitMQ sink: the checks before the start, and how an epoch is stored and published."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pika
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.connectors.rabbitmq.columns import check_columns, faults, stored
from sparkjet.connectors.rabbitmq.connection import FAILURES, explain
from sparkjet.connectors.rabbitmq.messages import messages_of
from sparkjet.connectors.rabbitmq.publisher import publish
from sparkjet.errors import AnalysisError, RefusedRowsError, SinkError
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.outbox_rows import batches_of
from sparkjet.storage.written import ROWS, metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
    from sparkjet.sinks.protocol import Handle, TransactionId
    from sparkjet.storage.directory import Directory


class RabbitSink(Outbox):
    """Publishes the rows of each epoch as messages, at least once, each with an id that does not change.

    Rows wait in the outbox and are published after the decision, in order, with publisher confirms. An interrupted
    publishing is repeated from the start of the epoch: a reader that drops duplicates by id sees each row once.

    Args:
        settings: The parsed options.
    """

    def __init__(self, settings: RabbitSinkSettings) -> None:
        super().__init__()
        self._settings = settings
        self._taken = ALWAYS_TAKEN

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; declares nothing, and publishes nothing."""
        check_columns(schema, self._settings)
        connection = self._settings.connection
        try:
            with closing(pika.BlockingConnection(connection)) as opened:
                channel = opened.channel()
                if self._settings.exchange:
                    channel.exchange_declare(self._settings.exchange, passive=True)
                elif self._is_one_queue(schema):
                    channel.queue_declare(self._settings.routing_key, passive=True)
        except ChannelClosedByBroker as error:
            message = (
                f'start: format("rabbitmq") has nowhere to publish to: {error.reply_text}. Declare it first, durable '
                "and with its bindings."
            )
            raise AnalysisError(message) from error
        except FAILURES as error:
            message = f'start: format("rabbitmq") cannot use its broker: {explain(connection, error)}'
            raise AnalysisError(message) from error

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; refuses what no broker would take."""
        encoded = stored(rows, self._settings)
        noticed, wrong = Observation(), list(faults(encoded.columns))
        counts = [F.count_if(condition).alias(f"fault{n}") for n, (_, _, condition) in enumerate(wrong)]
        counts += [F.count(F.lit(1)).alias(ROWS), F.max(F.octet_length("body")).alias("largest")]
        handle = super().prepare(encoded.observe(noticed, *counts), transaction)
        found = metrics(noticed, "messages of RabbitMQ", SinkError)
        for number, (name, fault, _) in enumerate(wrong):
            if found[f"fault{number}"]:
                message = (
                    f"rabbitmq: column {name!r} has {fault}, in {found[f'fault{number}']} rows of the epoch, which a "
                    "message cannot have. Filter or convert them."
                )
                raise RefusedRowsError(message)
        if (found["largest"] or 0) > self._taken:
            check_size(self._settings.connection, found["largest"])
            self._taken = found["largest"]
        # Not the epoch alone: with processingGuarantee=none it may run again with other rows, which are to be read.
        return None if handle is None else handle | {"ids": f"{transaction.query}-{transaction.sink}-{transaction}"}

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`; runs on the driver."""
        messages = messages_of(batches_of(entry, handle), handle["ids"])
        publish(self._settings.connection, messages, self._settings.patience)

    def _is_one_queue(self, schema: StructType) -> bool:
        """Whether all rows go to the default exchange, with one key."""
        is_default = self._settings.exchange == "" or "exchange" not in schema.fieldNames()
        return is_default and self._settings.routing_key is not None


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
