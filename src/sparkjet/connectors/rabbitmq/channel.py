"""A RabbitMQ channel whose events are handled when its only thread asks: pika's fast connection, used in turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pika
from pika.exceptions import ChannelClosedByClient, ConnectionClosedByClient

from sparkjet.connectors.rabbitmq.connection import abandon, cause
from sparkjet.connectors.rabbitmq.deliveries import Accept
from sparkjet.connectors.rabbitmq.frames import TolerantConnection

if TYPE_CHECKING:
    from pika.channel import Channel

_CLOSES_WITHIN = 10.0
"""Seconds that a broker has to end a connection."""


class RabbitChannel:
    """A connection with one channel; between two calls nothing happens, not even heartbeats.

    pika's ``BlockingConnection`` does the same, but takes a quarter longer per message.

    Args:
        parameters: How to connect.

    Attributes:
        channel: The channel; requests to it are sent by the next call here.

    Raises:
        Exception: From the constructor and from every method except :meth:`close`: what has ended the connection or the
            channel, as reported by pika.
    """

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self._failure: BaseException | None = None
        self._is_waiting = self._is_ended = False
        self._opened: Channel | None = None
        self._connection = TolerantConnection(
            parameters, lambda connection: connection.channel(on_open_callback=self._open), self._end, self._end
        )
        self._loop = self._connection.ioloop
        try:
            self.channel = self._awaited()
        except BaseException:
            self.close()
            raise

    def ask(self, request: Callable[[Callable[[Any], None]], object]) -> Any:
        """Make a request, and return the broker's response."""
        answers: list[Any] = []

        def answered(frame: Any) -> None:
            answers.append(frame)
            self._loop.stop()

        self._check()
        request(answered)
        while not answers:
            self._run()
        return answers[0]

    def wait(self, seconds: float) -> None:
        """Handle events for this long, or until :meth:`wake`."""
        self._check()
        timeout = self._loop.call_later(seconds, self._loop.stop)
        self._is_waiting = True
        try:
            self._run()
        finally:
            self._is_waiting = False
            self._loop.remove_timeout(timeout)

    def wake(self) -> None:
        """Have :meth:`wait` return; from a callback of the channel."""
        if self._is_waiting:
            # Once: it costs a system call.
            self._is_waiting = False
            self._loop.stop()

    def consume(self, queue: str, consumer: str, accept: Accept) -> None:
        """Begin a consumer, whose tag was never used on this connection; ``accept`` must not call this channel."""

        def delivered(_: Channel, method: Any, properties: Any, body: bytes) -> None:
            accept(method, properties, body)

        # They may come with the answer.
        self._connection.deliveries.consumers[consumer] = accept
        self.ask(lambda answered: self.channel.basic_consume(queue, delivered, False, False, consumer, None, answered))

    def cancel(self, consumer: str) -> None:
        """End a consumer; what the broker has delivered to it until it answers arrives as before."""

        def request(answered: Callable[[Any], None]) -> None:
            self.channel.basic_cancel(consumer, answered)
            # Otherwise pika puts back what is under way, and the broker counts that as a delivery.
            self.channel._cancelled.discard(consumer)  # noqa: SLF001 - see above

        self.ask(request)

    def close(self) -> None:
        """End the connection; call it only once."""
        if self._connection.is_open:
            self._connection.close()
        if self._connection.is_closing:
            self._loop.call_later(_CLOSES_WITHIN, lambda: abandon(self._connection))
            while not self._is_ended:
                self._loop.start()
        self._loop.close()

    def _awaited(self) -> Channel:
        while self._opened is None:
            self._run()
        return self._opened

    def _run(self) -> None:
        self._loop.start()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _open(self, channel: Channel) -> None:
        self._opened = channel
        channel.add_on_close_callback(self._close)
        self._loop.stop()

    def _close(self, _: Channel, reason: BaseException) -> None:
        if not isinstance(reason, ChannelClosedByClient):
            self._failure = self._failure or reason
        self._loop.stop()

    def _end(self, _: object, reason: BaseException) -> None:
        self._is_ended = True
        if not isinstance(reason, ConnectionClosedByClient):
            self._failure = self._failure or cause(reason)
        self._loop.stop()
