"""The Kafka sink: checks before the start, and Spark's part of an epoch."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tenacity

from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.attempt import THREAD, is_first
from sparkjet.sinks.kafka import producing
from sparkjet.sinks.kafka.cluster import INVALID_TIMEOUT, NO_LEADER, UNKNOWN_TOPIC, Cluster, named
from sparkjet.sinks.kafka.columns import check_columns, records
from sparkjet.sinks.kafka.connection import BrokerError
from sparkjet.sinks.kafka.pool import Answer, TransactionPool
from sparkjet.sinks.kafka.producer_settings import TIMEOUT
from sparkjet.sinks.kafka.producing import KafkaWriter
from sparkjet.sinks.kafka.restored import WAY_OUT, said
from sparkjet.sinks.kafka.transactions import KafkaTransactions, check_alive
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.sinks.kafka.producer_settings import KafkaSettings

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
        self._pool = TransactionPool(self._transactions)
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
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            self._written(rows, None)
            return None
        began = time.monotonic()
        prefix = self._pool.begin(transaction)
        try:
            handle = self._pool.fix(self._written(rows, prefix), speculates=_speculates(rows))
        except BaseException:
            # Best effort: readers would wait for what the other tasks have opened. The next start does it too.
            with contextlib.suppress(SinkError):
                self._pool.abort(transaction)
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
        self._pool.commit(handle, between)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`.

        Raises:
            SinkError: Brokers cannot be reached; the next start rolls back what is open.
        """
        self._pool.abort(transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Remembering.published_after`; ids that the brokers have forgotten by now tell nothing."""
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return None
        found = self._transactions.published_after(newest, handle)
        if not found:
            return None
        if self._settings.repeats:
            logger.warning("Kafka has %s. Going on, as onRestoredBackup=continue says.", said(found, newest))
            return None
        return f"Kafka has {said(found, newest)}. {WAY_OUT}"

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            self._transactions.abort_orphans(query, takeover, keep)
            return
        # Of a run that promised more. Brokers without transactions, or that forbid them, have none of ours.
        with contextlib.suppress(SinkError):
            self._transactions.abort_orphans(query, takeover, keep)

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

    def _written(self, rows: DataFrame, prefix: str | None) -> list[Answer]:
        encoded = records(rows, self._settings.topic).coalesce(self._settings.writers)
        task = KafkaWriter(self._settings.producer, prefix, self._settings.topic).task
        pooled = prefix is not None
        answered = run_tasks(encoded, task, producing, producing.ProduceError, PACKAGES, pooled=pooled)
        if not pooled:
            return []
        return [Answer(row["id"], row["rows"], is_first(row[THREAD], row["task"], row["attempt"])) for row in answered]


def _speculates(rows: DataFrame) -> bool:
    """Whether Spark starts a task once more beside one that is slow."""
    return (rows.sparkSession.conf.get("spark.speculation", "false") or "").lower() == "true"
