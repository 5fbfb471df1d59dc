"""A publisher: one connection that sends messages and waits until the broker has confirmed each of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.exceptions import ChannelClosedByBroker

from sparkjet.connectors.rabbitmq.connection import abandon, explain
from sparkjet.errors import SinkError

if TYPE_CHECKING:
    from pika.channel import Channel

_MESSAGES = 2_000
_BYTES = 8 << 20
"""The window: no more than this is sent before what was sent is confirmed."""


class Message(NamedTuple):
    """A message and its destination."""

    exchange: str
    routing_key: str
    body: bytes
    properties: pika.BasicProperties

    def __str__(self) -> str:
        return f"{self.properties.message_id!r} (exchange {self.exchange!r}, routing key {self.routing_key!r})"


def publish(connection: pika.ConnectionParameters, messages: Iterator[Message], patience: float) -> None:
    """Publish messages in order; returns once every one is confirmed, and the connection is closed."""
    _Publishing(connection, messages, patience).run()


class _Publishing:
    """The state of one call; everything happens in its thread, in callbacks of pika's loop."""

    def __init__(self, connection: pika.ConnectionParameters, messages: Iterator[Message], patience: float) -> None:
        self._parameters = copy.copy(connection)
        self._parameters.stack_timeout = min(self._parameters.stack_timeout, patience)
        self._messages = messages
        self._patience = patience
        self._heard = time.monotonic()
        self._sent = 0
        self._unconfirmed: dict[int, Message] = {}
        self._bytes = 0
        self._blocked: str | None = None
        self._is_complete = False
        self._failure: Exception | None = None
        self._channel: Channel
        self._connection = pika.SelectConnection(self._parameters, self._opened, self._ended, self._ended)
        self._connection.add_on_connection_blocked_callback(self._was_blocked)
        self._connection.add_on_connection_unblocked_callback(self._was_unblocked)

    def run(self) -> None:
        """Publish everything; raises the failure, if any."""
        loop = self._connection.ioloop
        try:
            loop.start()
        finally:
            loop.close()
        if self._failure is not None:
            raise self._failure

    def _opened(self, connection: pika.SelectConnection) -> None:
        self._heard = time.monotonic()
        self._watch()
        connection.channel(on_open_callback=self._opened_channel)

    def _opened_channel(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._closed_channel)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _: self._send())

    def _send(self) -> None:
        try:
            while len(self._unconfirmed) < _MESSAGES and self._bytes < _BYTES:
                message = next(self._messages, None)
                if message is None:
                    break
                self._sent += 1
                self._unconfirmed[self._sent] = message
                self._bytes += len(message.body)
                exchange, key, body, properties = message
                # Otherwise messages that no queue takes would be confirmed, and lost.
                self._channel.basic_publish(exchange, key, body, properties, mandatory=True)
        except Exception as error:  # noqa: BLE001 - raised again by run(), once the connection is closed
            self._fail(error)
            return
        if not self._unconfirmed:
            self._is_complete = True
            self._connection.close()

    def _answered(self, frame: Any) -> None:
        """Handle the broker's response to one message, or to all up to one."""
        tag, multiple = frame.method.delivery_tag, frame.method.multiple
        tags = list(takewhile(lambda each: each <= tag, self._unconfirmed)) if multiple else [tag]
        answered = [self._unconfirmed.pop(each) for each in tags]
        self._bytes -= sum(len(message.body) for message in answered)
        self._heard = time.monotonic()
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._fail(
                f"the broker does not take message {answered[0]}: a queue is full or out of order. Have it emptied, "
                "raise its limit, or repair it"
            )
        if self._failure is None:
            self._send()

    def _returned(self, _: Channel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        message = Message(method.exchange, method.routing_key, body, properties)
        self._fail(
            f"no queue takes message {message}: {method.reply_text}. Declare a queue of that name, or bind one to the "
            "exchange, with an alternate exchange if all keys are to go somewhere"
        )

    def _closed_channel(self, _: Channel, reason: Exception) -> None:
        if isinstance(reason, ChannelClosedByBroker):
            self._fail(f"the broker refuses: {reason.reply_text}")

    def _was_blocked(self, _: Any, frame: Any) -> None:
        self._blocked = frame.method.reason

    def _was_unblocked(self, *_: Any) -> None:
        self._blocked = None

    def _watch(self) -> None:
        """End a connection that hears nothing: a quorum queue without its majority responds to everything but messages.

        A broker short of memory or disk stops reading, and does not even learn that the connection is to be closed.
        """
        left = self._heard + self._patience - time.monotonic()
        if left > 0:
            self._connection.ioloop.call_later(left, self._watch)
            return
        if not self._is_complete and self._failure is None:
            cause = "" if self._blocked is None else f"; it has blocked publishers: {self._blocked}"
            self._failure = self._error(
                f"the broker has confirmed nothing for {self._patience:g} s{cause}. Repair it, or raise "
                "confirmTimeoutMs"
            )
        abandon(self._connection)

    def _ended(self, _: Any, reason: BaseException) -> None:
        """Note that the connection is closed, or could not be opened."""
        if not self._is_complete and self._failure is None:
            self._failure = self._error(explain(self._parameters, reason))
        self._connection.ioloop.stop()

    def _fail(self, reason: Exception | str) -> None:
        """Note the first failure, and close the connection."""
        if self._failure is None:
            self._failure = self._error(reason) if isinstance(reason, str) else reason
        if not (self._connection.is_closing or self._connection.is_closed):
            self._connection.close()

    def _error(self, text: str) -> SinkError:
        return SinkError(f"rabbitmq: {text}. What was not confirmed is published again, with the same message ids.")
