"""The Kafka sink: checks before the start, and Spark's part of an epoch."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tenacity

from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.kafka import producing
from sparkjet.sinks.kafka.cluster import INVALID_TIMEOUT, NO_LEADER, UNKNOWN_TOPIC, Cluster, named
from sparkjet.sinks.kafka.columns import check_columns, records
from sparkjet.sinks.kafka.connection import BrokerError
from sparkjet.sinks.kafka.producing import KafkaWriter
from sparkjet.sinks.kafka.settings import TIMEOUT
from sparkjet.sinks.kafka.transactions import KafkaTransactions, check_alive
from sparkjet.sinks.naming import prefix_of
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.sinks.kafka.settings import KafkaSettings

logger = logging.getLogger("sparkjet")

PACKAGES = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
"""What the executors need, by the name that is imported."""
_PASSING = (UNKNOWN_TOPIC, NO_LEADER)
"""What brokers say of a topic that was created a moment ago."""
_SETTLING = 3.0
"""Seconds after which it is none: brokers learn of a new topic within a few hundred milliseconds."""
PROBE = "sparkjet/probe"
"""Transactional id that every start asks for, to learn before it starts what would be refused after."""


class KafkaSink:
    """Rows of each epoch as records of a topic, exactly once or, where the query wants no more, at least once.

    *Exactly once*: each task writes into a transaction of its own and leaves it open; the record decides; the driver
    commits, which any other process could do too. *At least once*: rows are on the brokers before the record.

    Args:
        settings: What the options say.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._transactions = KafkaTransactions(settings.access, settings.continues)
        self.guarantee = settings.guarantee

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; creates no topic, and leaves nothing but the id of its probe."""
        settings = self._settings
        check_columns(schema, settings.topic)
        try:
            with Cluster(settings.access) as cluster:
                self._check_topic(cluster)
                if self.guarantee is Guarantee.EXACTLY_ONCE:
                    self._check_transactions(cluster)
        except BrokerError as error:
            message = (
                f'start: format("kafka") cannot use its brokers: {error}. Check kafka.bootstrap.servers and '
                "kafka.security.protocol; transactions need Kafka 3.0 or newer."
            )
            raise AnalysisError(message) from error

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; at least once it publishes, and there is nothing to commit."""
        began = time.monotonic()
        exactly = self.guarantee is Guarantee.EXACTLY_ONCE
        prefix = prefix_of(transaction.query, transaction.sink, transaction) if exactly else None
        try:
            slots = self._written(rows, KafkaWriter(self._settings.producer, prefix, self._settings.topic))
            if not exactly:
                return None
            handle = self._transactions.fix(transaction, slots)
        except BaseException:
            if exactly:
                # Best effort: readers would wait for what the other tasks have opened. The next start does it too.
                with contextlib.suppress(SinkError):
                    self._transactions.roll_back_attempt(transaction)
            raise
        taken = 1000 * (time.monotonic() - began)
        if 2 * taken > self._settings.timeout:
            logger.warning(
                "epoch %s took %.0f s to write; after kafka.%s=%s the brokers drop what is not committed. Raise it, "
                "or make epochs shorter.",
                transaction.epoch,
                taken / 1000,
                TIMEOUT,
                self._settings.timeout,
            )
        return handle

    def check_alive(self, handle: Handle) -> None:
        """Called right before the decision, after which nothing could be given up any more.

        Raises:
            SinkError: A transaction is so old that brokers may drop it before its commit; the epoch is to be run again.
        """
        check_alive(handle, time.time())

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        self._transactions.commit(handle, between)

    def roll_back_strays(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.roll_back_strays`."""
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            self._transactions.roll_back_strays(query, takeover, keep)
            return
        # Of a run that promised more. Brokers without transactions, or that forbid them, have none of ours.
        with contextlib.suppress(SinkError):
            self._transactions.roll_back_strays(query, takeover, keep)

    def _check_topic(self, cluster: Cluster) -> None:
        names = [] if self._settings.topic is None else [self._settings.topic]
        settling = tenacity.Retrying(
            stop=tenacity.stop_after_delay(_SETTLING),
            wait=tenacity.wait_fixed(0.1),
            retry=tenacity.retry_if_result(lambda found: any(topic.error in _PASSING for topic in found)),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        for topic in settling(lambda: cluster.metadata(names).topics):
            if topic.error:
                message = (
                    f'topic: "{topic.name}" is not there, not for this user or without a leader '
                    f"({named(topic.error)}). Create it first, with the partitions and replicas that it is to have."
                )
                raise AnalysisError(message)

    def _check_transactions(self, cluster: Cluster) -> None:
        error = cluster.roll_back(PROBE, self._settings.timeout)
        if error == INVALID_TIMEOUT:
            message = (
                f"kafka.{TIMEOUT}={self._settings.timeout} is more than the brokers allow. Lower it, or raise their "
                "transaction.max.timeout.ms: a query that is away for longer than this, between decision and commit, "
                "loses rows."
            )
            raise AnalysisError(message)
        if error:
            message = f"kafka: no transactions for this user ({named(error)}). Allow ids that begin with sparkjet/."
            raise AnalysisError(message)
        # A broker that cannot list them would leave strays open.
        cluster.open_transactions(PROBE)

    def _written(self, rows: DataFrame, writer: KafkaWriter) -> list[tuple[str, int]]:
        encoded = records(rows, self._settings.topic).coalesce(self._settings.writers)
        answered = run_tasks(encoded, writer.task, producing, producing.ProduceError, PACKAGES)
        return [(row["id"], row["rows"]) for row in answered]
