"""The Kafka sink: the checks before the start, and Spark's part of an epoch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import tenacity

from sparkjet.connectors.kafka import native, producing
from sparkjet.connectors.kafka.cluster import (
    INVALID_TIMEOUT,
    NO_LEADER,
    PATIENCE,
    UNKNOWN_TOPIC,
    Cluster,
    error_name,
    unusable,
)
from sparkjet.connectors.kafka.columns import check_columns, records
from sparkjet.connectors.kafka.connection import BrokerError
from sparkjet.connectors.kafka.epoch_markers import EpochMarkers
from sparkjet.connectors.kafka.options import PACKAGES
from sparkjet.connectors.kafka.pool import TaskResult, TransactionPool
from sparkjet.connectors.kafka.producer_settings import TIMEOUT
from sparkjet.connectors.kafka.producing import KafkaWriter
from sparkjet.connectors.kafka.restored import REMEDY, finding
from sparkjet.connectors.kafka.transactions import KafkaTransactions, check_alive
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.query_log import logger
from sparkjet.sinks.attempt import THREAD, is_first
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId, Unknown
from sparkjet.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.connectors.kafka.producer_settings import KafkaSettings


_TRANSIENT = (UNKNOWN_TOPIC, NO_LEADER)
"""Errors of a topic that has only just been created."""
_SETTLING = 3.0
"""Seconds after which they are final: brokers learn of a new topic within a few hundred milliseconds."""
_LOOKS = 60.0
"""Seconds between two looks for copies of the home: brokers list all existing transactional ids."""
PROBE = "sparkjet/probe"
"""Transactional id that every start initializes, so that missing permissions are found before the query starts."""


class KafkaSink:
    """Writes the rows of each epoch as records of a topic, exactly once or, if so configured, at least once.

    *Exactly once*: each task writes into its own transaction and leaves it open; the record decides; the driver
    commits, as any other process could. *At least once*: rows are on the brokers before the record is written.

    Args:
        settings: The parsed options.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._transactions = KafkaTransactions(settings.access, settings.continues)
        self._pool = TransactionPool(self._transactions)
        self._looked = "", 0.0
        self._pace = Pace(settings.progress_interval)
        self._markers: EpochMarkers | None = None
        if settings.progress is not None:
            self._markers = EpochMarkers(settings.progress, settings.producer, settings.client, PATIENCE)
        # If the clock were set during an epoch, its transactions would seem hours older or younger than they are.
        self._since = time.time() - time.monotonic()
        self.guarantee = settings.guarantee
        self.packages = PACKAGES

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; creates no topic, and leaves nothing behind except the probe's transactional id."""
        settings = self._settings
        check_columns(schema, settings.topic)
        try:
            with Cluster(settings.access) as cluster:
                self._check_topic(cluster)
                if settings.topic is not None and "key" not in schema.fieldNames():
                    _check_policy(cluster, settings.topic)
                if self.guarantee is Guarantee.EXACTLY_ONCE:
                    self._check_transactions(cluster)
        except BrokerError as error:
            raise unusable(error) from error
        if self._markers is not None:
            self._markers.check(settings.topic)

    def create(self) -> None:
        """See :meth:`Creating.create`: the progress topic."""
        if self._markers is not None:
            self._markers.create(self._settings.topic)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; with at-least-once it publishes, and there is nothing to commit."""
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            self._written(rows, None)
            return None
        began, prepared = time.monotonic(), int(1000 * self._now())
        prefix = self._pool.begin(transaction)
        try:
            handle = self._pool.fix(self._written(rows, prefix), speculates=_speculates(rows))
            if handle is not None:
                # None of its transactions was opened earlier.
                self._finish(handle, transaction, prepared)
        except BaseException:
            # Best effort: consumers would wait for the transactions of the other tasks. The next start aborts them too.
            with contextlib.suppress(SinkError):
                self._pool.abort(transaction)
            raise
        taken = 1000 * (time.monotonic() - began)
        if 2 * taken > self._settings.timeout:
            logger.warning(
                "epoch %s took %.0f s to write; after kafka.%s=%s the brokers abort what is not committed. Raise it, "
                "or make epochs shorter.",
                transaction.epoch,
                taken / 1000,
                TIMEOUT,
                self._settings.timeout,
            )
        return handle

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, at intervals, if the watermark has changed."""
        return self._pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`: a marker alone, after everything in the topic."""
        handle = self._pool.without_rows(transaction)
        self._finish(handle, transaction, int(1000 * self._now()))
        return handle

    def _finish(self, handle: Handle, transaction: TransactionId, prepared: int) -> None:
        """Complete the handle of an epoch whose rows are written."""
        handle["prepared"] = prepared
        if self._settings.repeats:
            # The start that commits it may no longer have the option, and must not take other runs' commits for a
            # copy's.
            handle["run"] = ""
        if self._markers is not None:
            topics = [topic for each in handle["transactions"] for topic, _ in each["written"]]
            given = [] if self._settings.topic is None else [self._settings.topic]
            handle["told"] = self._markers.described(transaction, [*given, *topics])
            self._pace.note(transaction)

    def check_alive(self, handle: Handle) -> None:
        """See :meth:`Expiring.check_alive`."""
        check_alive(handle, self._now())

    def _now(self) -> float:
        return self._since + time.monotonic()

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; looks once a minute for other copies of the home, which asks every broker."""
        _check_way(handle)
        run, now = handle.get("run"), time.monotonic()
        # Commits made after the backup from which the query continued also belong to other runs.
        if run and not self._settings.repeats and (run != self._looked[0] or now > self._looked[1] + _LOOKS):
            self._transactions.check_copies(handle)
            self._looked = run, now
        self._pool.commit(handle, between)
        if "told" in handle:
            self._teller(handle["told"]["progress"]).write(handle)

    def _teller(self, name: str) -> EpochMarkers:
        """The markers in a progress topic, which may differ from that of the option, as it may have changed since."""
        if self._markers is None or self._settings.progress != name:
            return EpochMarkers(name, self._settings.producer, self._settings.client, PATIENCE)
        return self._markers

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._pool.abort(transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`; ids that have expired on the brokers prove nothing."""
        if handle is not None:
            _check_way(handle)
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return Unknown.UNKNOWN
        found = self._transactions.published_after(newest, handle)
        if not found:
            return None
        if self._settings.repeats:
            logger.warning("Kafka has %s. Continuing, because onRestoredBackup=continue.", finding(found, newest))
            return None
        return f"Kafka has {finding(found, newest)}. {REMEDY}"

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            self._transactions.abort_orphans(query, takeover, keep)
            return
        # Left by an exactly-once run. Brokers that do not support or allow transactions have none.
        with contextlib.suppress(SinkError):
            self._transactions.abort_orphans(query, takeover, keep)

    def _check_topic(self, cluster: Cluster) -> None:
        names = [] if self._settings.topic is None else [self._settings.topic]
        settling = tenacity.Retrying(
            stop=tenacity.stop_after_delay(_SETTLING),
            wait=tenacity.wait_fixed(0.1),
            retry=tenacity.retry_if_result(lambda found: any(topic.error in _TRANSIENT for topic in found)),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        for topic in settling(lambda: cluster.metadata(names).topics):
            if topic.error:
                message = (
                    f'topic: "{topic.name}" does not exist, has no leader or is not visible to this user '
                    f"({error_name(topic.error)}). Create it first, with the partitions and replicas that it needs."
                )
                raise AnalysisError(message)

    def _check_transactions(self, cluster: Cluster) -> None:
        error = cluster.fence(PROBE, self._settings.timeout)
        if error == INVALID_TIMEOUT:
            message = (
                f"kafka.{TIMEOUT}={self._settings.timeout} is more than the brokers allow. Lower it, or raise their "
                "transaction.max.timeout.ms: a query that is down for longer than this, between decision and commit, "
                "loses rows."
            )
            raise AnalysisError(message)
        if error:
            message = (
                f"kafka: this user may not use transactions ({error_name(error)}). Allow ids that begin with sparkjet/."
            )
            raise AnalysisError(message)
        # With a broker that cannot list transactions, orphans would stay open.
        cluster.open_transactions(PROBE)

    def _written(self, rows: DataFrame, prefix: str | None) -> list[TaskResult]:
        encoded = records(rows, self._settings.topic).coalesce(self._settings.writers)
        task = KafkaWriter(self._settings.producer, prefix, self._settings.topic).task
        pooled = prefix is not None
        # With at-least-once, rows are on the brokers already: finding the refused ones would write rows many times.
        of_rows = producing.RefusedRowError if pooled else None
        answered = run_tasks(
            encoded, task, (native, producing), producing.ProduceError, PACKAGES, of_rows=of_rows, pooled=pooled
        )
        if not pooled:
            return []
        return [
            TaskResult(row["id"], row["rows"], is_first(row[THREAD], row["task"], row["attempt"])) for row in answered
        ]


def _check_way(handle: Handle) -> None:
    if "transactions" not in handle:
        message = (
            "commit: this home was written with commit=staged, the default. Go on without the options commit and "
            "processingGuarantee; or start from scratch with another checkpointLocation."
        )
        raise AnalysisError(message)


def _check_policy(cluster: Cluster, topic: str) -> None:
    """Refuse rows without keys if the topic does; a null in a key column is left for the brokers to refuse."""
    policy = cluster.topic_setting(topic, "cleanup.policy") or ""
    if "compact" in policy.split(","):
        message = (
            f'topic: "{topic}" has cleanup.policy={policy} and takes no row without a key, but the result has no '
            'column key. Add one, e.g. withColumn("key", F.col("sym")), or set the topic\'s cleanup.policy to delete.'
        )
        raise AnalysisError(message)


def _speculates(rows: DataFrame) -> bool:
    """Whether Spark may run a second attempt of a slow task in parallel."""
    return (rows.sparkSession.conf.get("spark.speculation", "false") or "").lower() == "true"
