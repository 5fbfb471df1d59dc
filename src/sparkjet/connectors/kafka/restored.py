"""A home restored from a backup: transactions in Kafka of epochs that are not in its snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.cluster import COMMITS
from sparkjet.sinks.naming import ListedTransaction, prefix_of

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.cluster import Cluster
    from sparkjet.sinks.protocol import Handle, TransactionId

REMEDY = (
    "Restore the newest copy of the home, and nothing is lost or repeated. To go on from this one all the same, set "
    'option("onRestoredBackup", "continue"), and leave it set until those transactions have expired on the brokers '
    "(transactional.id.expiration.ms, 7 days by default): the epochs in between are then written to the topic again, "
    "and its consumers must ignore what they have already seen."
)


def committed_after(cluster: Cluster, newest: TransactionId, handle: Handle | None) -> list[str]:
    """The transactional ids with a commit after a record; changes nothing.

    A commit follows its record, so for these the record is missing here:

    - ids of a later takeover than the newest record, or of the same one and a later epoch, or of a later pool;
    - ids of the same takeover by another run: of a copy of the home;
    - ids of the last handle's pool whose producer or epoch is not the one in the handle.
    """
    listed = cluster.open_transactions(prefix_of(newest.query, newest.sink), COMMITS)
    found = [ListedTransaction(name) for name in listed if ListedTransaction.is_ours(name)]
    after = [
        each.gid
        for each in found
        if (each.takeover, each.epoch) > (newest.takeover, newest.epoch)
        or (each.takeover == newest.takeover and each.run and newest.run and each.run != newest.run)
    ]
    if after or handle is None or handle.get("takeover") != newest.takeover or "pool" not in handle:
        return after
    prepared = handle["transactions"]
    known = {**handle["pool"], **{each["id"]: [each["producer"], each["epoch"]] for each in prepared}}
    pools = {ListedTransaction(name).pool for name in known}
    for each in found:
        if each.is_pooled and each.pool in pools:
            described = cluster.describe(each.gid)
            if described.state in COMMITS and [described.producer, described.epoch] != known.get(each.gid):
                after.append(each.gid)
    return after


def finding(found: Sequence[str], newest: TransactionId) -> str:
    """The finding as a clause for messages."""
    latest = max((ListedTransaction(name) for name in found), key=lambda each: (each.takeover, each.epoch))
    epoch = max(latest.epoch, newest.epoch + 1) if latest.takeover == newest.takeover else latest.epoch
    more = "" if len(found) == 1 else f" and {len(found) - 1} more"
    return f"committed epoch {epoch} or a later one ({latest.gid!r}{more})"
