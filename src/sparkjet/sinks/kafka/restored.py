"""A home that was restored from a backup: what Kafka has of epochs that its snapshots do not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.sinks.kafka.cluster import COMMITS
from sparkjet.sinks.naming import Found, prefix_of

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.cluster import Cluster
    from sparkjet.sinks.protocol import Handle, TransactionId

WAY_OUT = (
    "Bring the newest snapshots back, and nothing is lost or repeated. To go on from these all the same, set "
    'option("onRestoredBackup", "continue"), and leave it set until the brokers have forgotten those transactions '
    "(transactional.id.expiration.ms, 7 days by default): the epochs in between are then written to the topic once "
    "more, and its readers have to drop what they have seen."
)


def later(cluster: Cluster, newest: TransactionId, handle: Handle | None) -> list[str]:
    """Transactional ids under which something was committed after a record, which changes nothing.

    A commit comes after its record. So these are of a record that is missing here:

    - of a later takeover than the newest record, or of the same one and a later epoch, or a pool that was begun later;
    - of the pool that the last handle used, if its producer or epoch is another one than the handle knows.

    Args:
        cluster: The brokers.
        newest: Takeover and epoch of the newest record.
        handle: The last one that a record named.
    """
    listed = cluster.open_transactions(prefix_of(newest.query, newest.sink), COMMITS)
    found = [Found(name) for name in listed if Found.is_ours(name)]
    after = [each.gid for each in found if (each.takeover, each.epoch) > (newest.takeover, newest.epoch)]
    if after or handle is None or handle.get("takeover") != newest.takeover or "pool" not in handle:
        return after
    slots = handle["transactions"]
    known = {**handle["pool"], **{slot["id"]: [slot["producer"], slot["epoch"]] for slot in slots}}
    pools = {Found(name).pool for name in known}
    for each in found:
        if each.is_pooled and each.pool in pools:
            described = cluster.describe(each.gid)
            if described.state in COMMITS and [described.producer, described.epoch] != known.get(each.gid):
                after.append(each.gid)
    return after


def said(found: Sequence[str], newest: TransactionId) -> str:
    """What was found, as a part of a sentence."""
    latest = max((Found(name) for name in found), key=lambda each: (each.takeover, each.epoch))
    epoch = max(latest.epoch, newest.epoch + 1) if latest.takeover == newest.takeover else latest.epoch
    more = "" if len(found) == 1 else f" and {len(found) - 1} more"
    return f"committed epoch {epoch} or a later one ({latest.gid!r}{more})"
