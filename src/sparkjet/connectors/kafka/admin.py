"""The Kafka cluster: its topics, and the first and last offsets of their partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from sparkjet.connectors.kafka.positions import TopicPartition
from sparkjet.connectors.kafka.starting import EARLIEST, LATEST
from sparkjet.errors import SourceError

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings

_T = TypeVar("_T")

REFUSALS = {
    KafkaError._AUTHENTICATION: "see kafka.sasl.username and kafka.sasl.password",  # noqa: SLF001 - its public name
    KafkaError._SSL: "see kafka.security.protocol and kafka.ssl.ca.location",  # noqa: SLF001 - as above
    KafkaError.SASL_AUTHENTICATION_FAILED: "see kafka.sasl.username and kafka.sasl.password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "see kafka.sasl.mechanism",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "its user may not describe or read the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "its user may not ask for that",
}
"""Errors that do not resolve by waiting, and where to look."""
ATTEMPT = 2.0
"""Timeout of a request, in seconds."""
PAUSE = 0.2
"""Seconds between retries."""
SECOND_LOOK = 1.0
"""Seconds before a missing topic or offset is checked again: a starting cluster may not list everything."""


class Cluster:
    """Requests to a cluster, on the driver; each blocks, and is retried until ``patience`` has passed.

    Raises:
        SourceError: From every method, if the cluster does not answer, or refuses; names the option to check.
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings
        self._trouble: KafkaError | None = None
        # AdminClient accepts a consumer's properties and ignores them.
        configuration: dict[str, Any] = {**settings.client, "error_cb": self._on_error}
        self._admin = AdminClient(configuration)

    def topics(self) -> dict[str, list[int]]:
        """The partitions of every topic that is visible to this user."""

        def listed() -> dict[str, list[int]]:
            # Lists all topics: a request by name might create a missing one.
            found = self._admin.list_topics(timeout=ATTEMPT).topics
            return {name: sorted(topic.partitions) for name, topic in found.items() if topic.error is None}

        return self._asked(listed)

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The end of each partition."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation_level=level)

    def resolved(self, wanted: dict[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        """The offsets, with EARLIEST and LATEST replaced by the partition's first offset or its end."""
        first = [each for each, offset in wanted.items() if offset == EARLIEST]
        last = [each for each, offset in wanted.items() if offset == LATEST]
        return {**wanted, **self.begins(first), **self.ends(last, committed=committed)}

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def offsets_at(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time (milliseconds) in each partition; None if there is no such record."""
        specs = {each: OffsetSpec.for_timestamp(time) for each, time in times.items()}
        return {each: None if offset < 0 else offset for each, offset in self._offsets(specs).items()}

    def _offsets(self, specs: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, int]:
        def listed() -> dict[TopicPartition, int]:
            asked = {ClientPartition(*each): spec for each, spec in specs.items()}
            answers = self._admin.list_offsets(asked, request_timeout=ATTEMPT, **options)
            return {(each.topic, each.partition): answer.result().offset for each, answer in answers.items()}

        return self._asked(listed) if specs else {}

    def _asked(self, question: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._settings.patience
        pause = threading.Event()
        while True:
            self._trouble = None
            try:
                return question()
            except KafkaException as failure:
                # The callback has the reason for a missing response; the exception is only a timeout.
                self._admin.poll(0)
                heard: KafkaError | None = self._trouble
                error = heard if heard is not None else failure.args[0]
                if error.code() in REFUSALS or time.monotonic() >= deadline:
                    raise SourceError(self._explained(error)) from None
            pause.wait(PAUSE)

    def _explained(self, error: KafkaError) -> str:
        servers = self._settings.client["bootstrap.servers"]
        hint = REFUSALS.get(error.code(), "see kafka.bootstrap.servers, and whether the brokers run")
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            hint = "deleted since it was listed?"
        return f"sparkjet-kafka: {servers}: {self._settings.shown(error.str())} ({hint})"

    def _on_error(self, error: KafkaError) -> None:
        if self._trouble is None or error.code() in REFUSALS:
            self._trouble = error
