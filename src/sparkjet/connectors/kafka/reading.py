"""Reading one range of a partition from a consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sparkjet.connectors.kafka.admin import ATTEMPT, PAUSE, REFUSALS, SECOND_LOOK
from sparkjet.errors import SourceError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
    from sparkjet.connectors.kafka.consumers import CachedConsumer


_GONE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
_TRANSIENT = (
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
    KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
    KafkaError._TRANSPORT,  # noqa: SLF001 - as above
)
_MOST_RECORDS, _FIRST_RECORDS, _MOST_BYTES = 4_000, 1_000, 8 << 20
_SILENT = 5.0
"""Seconds without records after which the client of earlier tasks is no longer relied on."""
# Short, as consume() waits for all the messages it asks for, but offsets of transaction markers never yield one.
_WAIT = 0.05


@dataclass(frozen=True)
class Range:
    """The records of a partition from offset ``start`` (inclusive) to ``end`` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"


class Reading:
    """Reads the messages of a range from a consumer, in an executor."""

    def __init__(self, consumer: CachedConsumer, wanted: Range, settings: KafkaSourceSettings) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._settings = settings
        self._position = 0
        self._resume_at(wanted.start)

    def messages(self) -> Iterator[list[Any]]:
        """The messages, in non-empty lists."""
        end, size, heard = self._wanted.end, _FIRST_RECORDS, time.monotonic()
        while self._position < end:
            received = self._consumer.client.consume(min(size, end - self._position), _WAIT)
            found: list[Any] = [message for message in received if message.error() is None]
            reached = found[-1].offset() + 1 if found else self._position
            # Set first: if records are gone, reading resumes after those that have arrived.
            self._position = reached
            if len(found) < len(received):
                self._handle_errors(received)
            if not found:
                if self._position < end:
                    self._check(heard + self._settings.patience)
                    if time.monotonic() > heard + _SILENT and self._consumer.renew():
                        self._resume_at(self._position)
                continue
            self._consumer.trouble = None
            if reached > end:
                found = [message for message in found if message.offset() < end]
            if found:
                size = _sized(found[0])
                yield found
            # Only now: the caller may take longer with the messages than the timeout for brokers.
            heard = time.monotonic()

    def _handle_errors(self, received: Sequence[Any]) -> None:
        """Handle the errors and end-of-partition events among the messages."""
        for message in received:
            error = message.error()
            if error is None:
                continue
            code = error.code()
            if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                # There are no more records up to here.
                self._position = max(self._position, min(message.offset(), self._wanted.end))
            elif code in _GONE:
                self._skip(error)
            elif code in _TRANSIENT or error.retriable():
                self._consumer.hear(error)
            else:
                raise SourceError(self._explained(error))

    def _skip(self, error: KafkaError) -> None:
        """Resume at the next existing record; skips lost records only with ``failOnDataLoss=false``."""
        left = self._left()
        if left is not None and left[0] <= self._position < left[1]:
            # The broker did not know its partition yet: nothing is lost.
            self._consumer.hear(error)
            self._resume_at(self._position)
            return
        if self._settings.fail_on_data_loss:
            raise SourceError(
                f"sparkjet-kafka: of {self._wanted}, the record at {self._position} is gone: expired, or the topic was "
                f"deleted ({self._settings.shown(error.str())}). Nothing was skipped. To continue without it: "
                'option("failOnDataLoss", "false").'
            )
        # Never below the position: after a broker has lost its newest records, others would be read twice.
        resumed = self._wanted.end
        if left is not None and self._position < left[0]:
            resumed = min(left[0], self._wanted.end)
        logger.warning(
            "sparkjet-kafka: of %s, %d to %d are gone and are skipped", self._wanted, self._position, resumed
        )
        self._resume_at(resumed)

    def _left(self) -> tuple[int, int] | None:
        """The partition's first and end offset; None if the cluster, checked twice, does not have it."""
        deadline = time.monotonic() + self._settings.patience
        pause, missed, partition = threading.Event(), False, self._wanted.partition
        while True:
            try:
                # All topics: without a reachable broker, librdkafka reports a topic requested by name as unknown.
                listed = self._consumer.client.list_topics(timeout=ATTEMPT).topics.get(self._wanted.topic)
                if listed is not None and listed.error is not None:
                    self._consumer.hear(listed.error)
                elif listed is not None and partition in listed.partitions:
                    asked = TopicPartition(self._wanted.topic, partition)
                    return self._consumer.client.get_watermark_offsets(asked, ATTEMPT)
                elif missed:
                    return None
                else:
                    # A cluster that has just started may not list everything.
                    missed = True
                    pause.wait(SECOND_LOOK)
                    continue
            except KafkaException as failure:
                self._consumer.hear(failure.args[0])
            self._check(deadline)
            pause.wait(PAUSE)

    def _check(self, deadline: float) -> None:
        """Raise errors that do not resolve by waiting, or have not until the deadline."""
        trouble = self._consumer.trouble
        if time.monotonic() > deadline or (trouble is not None and trouble.code() in REFUSALS):
            raise SourceError(self._explained(trouble))

    def _resume_at(self, position: int) -> None:
        self._position = position
        self._consumer.assign(self._wanted.topic, self._wanted.partition, position)

    def _explained(self, error: KafkaError | None) -> str:
        settings = self._settings
        what = "no records arrived" if error is None else settings.shown(error.str())
        hint = f"Waited for {settings.patience:g} seconds at most (kafkaConsumer.pollTimeoutMs)"
        if error is not None and error.code() in REFUSALS:
            hint = f"Waiting does not resolve this: {REFUSALS[error.code()]}"
        return (
            f"sparkjet-kafka: reading {self._wanted} from {settings.client['bootstrap.servers']} stopped at "
            f"{self._position}: {what}. {hint}."
        )


def _sized(message: Any) -> int:
    """How many messages of this size to request per call, bounded by bytes that a worker can hold twice."""
    return max(1, min(_MOST_RECORDS, _MOST_BYTES // max(1, len(message))))
