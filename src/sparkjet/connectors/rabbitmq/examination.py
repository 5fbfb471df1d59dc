"""Examination of a queue before it is read: the broker reveals its properties only by what it refuses."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pika
from pika.exceptions import ChannelClosedByBroker

from sparkjet.errors import SourceError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel


_ACCESS_REFUSED, _PRECONDITION_FAILED = 403, 406
_OTHER = re.compile(r"inequivalent arg '([^']+)' .* current is (?:the value )?'([^']*)'(?: of type '(\w+)')?")
_FLAGS = ("durable", "auto_delete")
"""Flags that are not arguments of a queue, but compared as if they were."""
_MOST_ARGUMENTS = 50
_LIMIT, _DEAD_LETTERS, _SINGLE = "x-delivery-limit", "x-dead-letter-exchange", "x-single-active-consumer"


class Examined(NamedTuple):
    """The properties of queues that only the examination reveals.

    Attributes:
        single: Those that give their messages to one consumer, and to the next one when that is gone.
        passing: Those that the broker deletes with their last consumer.
    """

    single: frozenset[str]
    passing: frozenset[str]

    def but_for(self, other: Examined, queues: Collection[str]) -> Examined:
        """The same with some queues as another examination has found them.

        >>> Examined(frozenset("a"), frozenset()).but_for(Examined(frozenset("b"), frozenset()), ["a", "b"])
        Examined(single=frozenset({'b'}), passing=frozenset())
        """
        return Examined(self.single.difference(queues) | other.single, self.passing.difference(queues) | other.passing)


def examine(connection: pika.ConnectionParameters, queues: Sequence[str]) -> Examined:
    """Refuse queues that would be read as empty, or whose messages would be dropped."""
    single, passing = set(), set()
    with closing(pika.BlockingConnection(connection)) as asked:
        for queue in queues:
            if _is_stream(asked.channel(), queue):
                message = (
                    f"queue {queue!r} is a stream, which does not keep a message until it is acknowledged. Bind a "
                    "quorum queue to the exchange by which messages get into the stream, and read that queue."
                )
                raise SourceError(message)
            arguments = _arguments(asked, queue)
            most = arguments.get(_LIMIT, -1)
            if most >= 0 and _DEAD_LETTERS not in arguments:
                message = (
                    f"the broker drops a message of queue {queue!r} after {most} deliveries ({_LIMIT}), and counts "
                    "those too that were only sent ahead on a connection that was lost. Declare it again without "
                    f"it, or with {_DEAD_LETTERS} as well (that of a policy cannot be seen), from whose queue somebody "
                    "brings messages back."
                )
                raise SourceError(message)
            if arguments.get(_SINGLE):
                single.add(queue)
            if arguments.get(_FLAGS[1]):
                passing.add(queue)
    return Examined(frozenset(single), frozenset(passing))


def _is_stream(channel: BlockingChannel, queue: str) -> bool:
    # Streams insist on it.
    channel.basic_qos(prefetch_count=1)
    try:
        # An argument only for streams: other queues refuse it, and deliver nothing.
        channel.basic_consume(queue, lambda *_: None, arguments={"x-stream-offset": "next"})
    except ChannelClosedByBroker as error:
        if error.reply_code != _PRECONDITION_FAILED:
            raise
        return False
    channel.close()
    return True


def _arguments(connection: pika.BlockingConnection, queue: str) -> dict[str, Any]:
    """The arguments and flags of a queue: declared with others, the broker names the first that differs."""
    flags, arguments = {"durable": True, "auto_delete": False}, dict[str, Any]()
    for _ in range(_MOST_ARGUMENTS):
        channel = connection.channel()
        try:
            channel.queue_declare(queue, arguments=arguments, **flags)
        except ChannelClosedByBroker as error:
            if error.reply_code not in {_ACCESS_REFUSED, _PRECONDITION_FAILED}:
                raise
            found = _OTHER.search(error.reply_text)
            name, value, kind = ("", "", "") if found is None else found.groups()
            if name in _FLAGS:
                flags[name] = value == "true"
            elif name and name not in arguments:
                arguments[name] = _value(value, kind)
            else:
                logger.warning(
                    "Whether the broker drops messages after some deliveries of queue %r, or gives all to one "
                    "consumer, is not known; it tells only users who may configure the queue: %s",
                    queue,
                    error.reply_text,
                )
                break
        else:
            channel.close()
            break
    return {**arguments, **flags}


def _value(text: str, kind: str) -> Any:
    if kind == "bool":
        return text == "true"
    return int(text) if kind != "longstr" and text.lstrip("-").isdecimal() else text
