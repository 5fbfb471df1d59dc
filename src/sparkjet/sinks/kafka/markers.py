"""Ends of transactions that a coordinator has forgotten to tell a partition, and that are told there by us."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.sinks.kafka.cluster import COMMITTED, named

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.cluster import Cluster
    from sparkjet.sinks.kafka.requests import TopicPartition

logger = logging.getLogger("sparkjet")


def tell_forgotten(cluster: Cluster, partitions: Sequence[TopicPartition], prefix: str) -> None:
    """End transactions of ours that are over for their coordinators, but still open in these partitions.

    A coordinator that starts again may lack a partition's leader for a moment, take the partition for deleted, and note
    a transaction as complete that the partition never hears of ("likely deleted already", Kafka 4.3.1): readers
    of committed records would be held back there for ever. An end that is told twice does no harm: no producer of
    ours has a second transaction.

    Args:
        cluster: The brokers.
        partitions: Where to look.
        prefix: What the transactional ids begin with.
    """
    opened = cluster.open_in(partitions) if partitions else []
    if not opened:
        return
    ended = cluster.ended_by(sorted({each.producer for each in opened}))
    if not any(listed.name.startswith(prefix) for listed in ended.values()):
        return
    # Once more: most have just been told.
    for each in cluster.open_in(partitions):
        listed = ended.get(each.producer)
        if listed is None or not listed.name.startswith(prefix):
            continue
        topic, number = each.where
        error = cluster.write_marker(each, commits=listed.state == COMMITTED)
        if error:
            logger.error(
                "Kafka holds readers of %s-%d back: %r is %s, but the partition was not told, and we may not (%s). "
                "Allow this user ClusterAction on the cluster; the next epoch tries again.",
                topic,
                number,
                listed.name,
                listed.state,
                named(error),
            )
        else:
            logger.warning(
                "%s-%d had not been told that %r is %s, which held readers back; told it",
                topic,
                number,
                listed.name,
                listed.state,
            )
