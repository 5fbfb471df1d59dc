"""The two-phase protocol with Kafka, without Spark: manifests, commits, orphans and expired transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import COMMITS, OPEN, PATIENCE, Cluster, connected, error_name
from sparkjet.connectors.kafka.markers import MarkerState, rewrite_lost_markers
from sparkjet.connectors.kafka.restored import committed_after
from sparkjet.errors import CopiedHomeError, LostTransactionError, SinkError
from sparkjet.query_log import logger
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.naming import ListedTransaction, prefix_of
from sparkjet.sinks.protocol import Handle, TransactionId

OLDEST = 0.8
"""Fraction of its timeout after which a transaction is too old to decide: the rest is for decision and commit."""
_ENDED = {47, 48, 49, 90, 105}
"""Errors of a commit whose transaction may have ended already: its producer or epoch is not the current one."""


@dataclass(frozen=True)
class KafkaTransactions:
    """Transactions of one cluster. Every method may run in any process and repeatedly; only drivers end transactions.

    Attributes:
        access: How to connect.
        continues: Whether lost rows are logged instead of raised.
        patience: Seconds to wait for brokers that are unreachable, moving or busy.
    """

    access: Access
    continues: bool = False
    patience: float = PATIENCE

    def fix(self, transaction: TransactionId, prepared: Sequence[tuple[str, int]]) -> Handle | None:
        """Fix which transactions belong to the epoch; None if there were no rows.

        Call it when every task has succeeded.
        """
        if not prepared:
            return None
        return self.handle_of(transaction, prepared)

    def handle_of(self, transaction: TransactionId, prepared: Sequence[tuple[str, int]]) -> Handle:
        """The handle of an epoch with these transactions, if any."""
        with connected(self.access, self.patience) as cluster:
            manifest = [self._prepared(cluster, name, rows) for name, rows in sorted(prepared)]
            return {
                "query": transaction.query,
                "sink": transaction.sink,
                "epoch": transaction.epoch,
                "takeover": transaction.takeover,
                **origin(transaction),
                "way": "kafka",
                "cluster": cluster.metadata().cluster,
                "rows": sum(rows for _, rows in prepared),
                "transactions": manifest,
            }

    def commit(self, handle: Handle, between: Callable[[], None]) -> MarkerState:
        """Commit every transaction; those that were committed before are left as they are."""
        lost: list[tuple[dict[str, Any], str]] = []
        with connected(self.access, self.patience) as cluster:
            for prepared in handle["transactions"]:
                why = self._commit(cluster, handle, prepared)
                if why is not None:
                    lost.append((prepared, why))
                between()
            written = {(topic, number) for prepared in handle["transactions"] for topic, number in prepared["written"]}
            producers = {prepared["producer"] for prepared in handle["transactions"]}
            seen = rewrite_lost_markers(cluster, sorted(written), prefix_of(handle["query"]), producers)
        if not lost:
            return seen
        message = _lost(handle, lost)
        if not self.continues:
            raise LostTransactionError(message)
        logger.error("%s Continuing, because onLostTransaction=continue.", message)
        return MarkerState(all_ended=False, none_open=False)

    def check_copies(self, handle: Handle) -> None:
        """Refuse to continue if another copy of the home has published."""
        with connected(self.access, self.patience) as cluster:
            committed = self._found(cluster, prefix_of(handle["query"], handle["sink"]), COMMITS)
        try:
            for each in committed:
                check_run(handle, each.epoch, each.run, f"Kafka ({each.gid!r})")
        except CopiedHomeError as error:
            # A start compares takeovers first: after some of them, it no longer notices those epochs.
            message = f"{error} A query that went on from a backup needs onRestoredBackup=continue until they expire."
            raise CopiedHomeError(message) from error

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Abort the transactions that drivers before ``takeover`` opened for a query, except for those in ``keep``."""
        decided = {prepared["id"] for handle in keep for prepared in handle.get("transactions", ())}
        with connected(self.access, self.patience) as cluster:
            for found in self._found(cluster, prefix_of(query)):
                if found.takeover < takeover and found.gid not in decided:
                    _abort(cluster, found.gid)

    def abort_open(self, prefix: str, takeover: int, keep: Collection[str] = ()) -> int:
        """Abort open transactions of one sink or epoch, which would hold consumers back; returns the number aborted."""
        with connected(self.access, self.patience) as cluster:
            found = [each for each in self._found(cluster, prefix) if each.takeover <= takeover]
            orphans = [each.gid for each in found if each.gid not in keep]
            for name in orphans:
                _abort(cluster, name)
        return len(orphans)

    def abort(self, names: Sequence[str]) -> None:
        """Abort transactions by their ids; those that have ended are left alone."""
        with connected(self.access, self.patience) as cluster:
            for name in names:
                _abort(cluster, name)

    def open_of(self, query: str) -> list[ListedTransaction]:
        """Open transactions of a query, with their start times."""
        with connected(self.access, self.patience) as cluster:
            return [
                replace(found, since=datetime.fromtimestamp(cluster.describe(found.gid).began / 1000, timezone.utc))
                for found in self._found(cluster, prefix_of(query))
            ]

    def published_after(self, newest: TransactionId, handle: Handle | None) -> list[str]:
        """Ids that were committed after a record; see :func:`sparkjet.connectors.kafka.restored.committed_after`."""
        with connected(self.access, self.patience) as cluster:
            return committed_after(cluster, newest, handle)

    def _prepared(self, cluster: Cluster, name: str, rows: int) -> dict[str, Any]:
        described = cluster.describe(name)
        if described.error or described.state != OPEN:
            message = (
                f"Kafka: transaction {name!r} should be open, but is "
                f"{described.state or error_name(described.error)}: it took longer than "
                f"kafka.transaction.timeout.ms={described.timeout}, or another process ended it. Nothing of the epoch "
                "is published; start the query again, with a longer timeout or shorter epochs."
            )
            raise SinkError(message)
        return {
            "id": name,
            "rows": rows,
            "producer": described.producer,
            "epoch": described.epoch,
            "timeout": described.timeout,
            "written": [list(where) for where in described.written],
        }

    def _commit(self, cluster: Cluster, handle: Handle, prepared: dict[str, Any]) -> str | None:
        """Commit one transaction; returns why it is lost, None if it is committed."""
        error = cluster.commit(prepared["id"], prepared["producer"], prepared["epoch"])
        if not error:
            _warn_of_age(handle, prepared, time.time())
            return None
        if error not in _ENDED:
            raise SinkError(f"Kafka: {prepared['id']!r} cannot be committed: {error_name(error)}.")
        described = cluster.describe(prepared["id"])
        # An id is reused only after its transaction was committed: whatever its producer's epoch is now, this one was.
        if described.state in COMMITS and described.producer == prepared["producer"]:
            return None
        here = cluster.metadata().cluster
        if here != handle["cluster"]:
            message = (
                f"Kafka: the rows of epoch {handle['epoch']} wait in cluster {handle['cluster']!r}, but the options "
                f"lead to {here!r}. Point kafka.bootstrap.servers at the former again, so that they are published."
            )
            raise SinkError(message)
        if described.error:
            return f"the brokers do not know it ({error_name(described.error)}), so it may or may not be committed"
        if described.state == OPEN:
            return "another producer uses its id"
        return (
            f"it was aborted ({described.state}), after its timeout of {prepared['timeout']} ms or by another process"
        )

    def _found(self, cluster: Cluster, prefix: str, states: Sequence[str] = (OPEN,)) -> list[ListedTransaction]:
        listed = cluster.open_transactions(prefix, states)
        return [ListedTransaction(name) for name in listed if ListedTransaction.is_ours(name)]


def _abort(cluster: Cluster, name: str) -> None:
    error = cluster.fence(name)
    if error:
        raise SinkError(f"Kafka: {name!r} cannot be aborted: {error_name(error)}.")


def check_alive(handle: Handle, now: float) -> None:
    """Refuse to decide on transactions that brokers may abort before they are committed."""
    for prepared in handle["transactions"]:
        age, timeout = _age(handle, now), prepared["timeout"]
        if age > OLDEST * timeout:
            message = (
                f"Kafka: epoch {handle['epoch']} is not published: its transaction {prepared['id']!r} has been open "
                f"for {age / 1000:.0f} s, and after kafka.transaction.timeout.ms={timeout} brokers abort it, perhaps "
                "before its commit. The next start runs the epoch again; raise kafka.transaction.timeout.ms (and the "
                "brokers' transaction.max.timeout.ms), or make epochs shorter."
            )
            raise SinkError(message)


def _age(handle: Handle, now: float) -> float:
    """The milliseconds for which a transaction has been open, at most.

    Only by the driver's clock. Those of the brokers may be off by a day: a driver whose clock is ahead would never
    decide, and one whose clock is behind would decide on transactions that they have dropped.
    """
    prepared: int = handle["prepared"]
    return 1000 * now - prepared


def _warn_of_age(handle: Handle, prepared: dict[str, Any], now: float) -> None:
    age, timeout = _age(handle, now), prepared["timeout"]
    # A transaction older than its timeout was committed earlier: a start repeats the last commit, however old it is.
    if timeout < 2 * age <= 2 * timeout:
        logger.warning(
            "the rows of epoch %s waited %.0f s for their commit; after %.0f s the brokers would have aborted them. "
            "Raise kafka.transaction.timeout.ms (and the brokers' transaction.max.timeout.ms), or keep stops shorter.",
            handle["epoch"],
            age / 1000,
            timeout / 1000,
        )


def _lost(handle: Handle, lost: Sequence[tuple[dict[str, Any], str]]) -> str:
    rows, total = (sum(each["rows"] for each in some) for some in ([one for one, _ in lost], handle["transactions"]))
    named = "; ".join(f"{each['id']!r}: {why}" for each, why in lost)
    return (
        f"Epoch {handle['epoch']} was decided, but {rows} of its {total} rows for {handle['sink']!r} are lost: "
        f'{named}. Continue without them with option("onLostTransaction", "continue"), or rerun the query '
        "from its input with another checkpointLocation. To prevent this, make kafka.transaction.timeout.ms longer "
        "than any stop."
    )
