"""End markers that a killed coordinator has never written, where a producer has several transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.cluster import COMMITTED, COMPLETED, ENDING, STATES, Cluster, error_name
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.requests import OpenTransaction, TopicPartition, TransactionDescription


_LOOK = 0.02
"""Seconds between two looks at a coordinator that is ending a transaction."""
ANSWERS = 10.0
"""Seconds that brokers may take to know after a restart; they never tell a user who may not read a partition or id."""


def write_lost_ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], prefix: str, patience: float, answers: float = ANSWERS
) -> bool:
    """End transactions that are complete for their coordinator but still open in a partition, and fence their ids.

    :mod:`sparkjet.connectors.kafka.markers` explains how that comes about. Call it before anything else initializes
    these ids: after that, their coordinator no longer knows how the transaction ended.
    """
    began = time.monotonic()
    while True:
        found = cluster.open_in(partitions)
        opened = [each for several in found.values() for each in several]
        listed = cluster.listed_by(sorted({each.producer for each in opened}), STATES)
        ours = {each.name: each.state for each in listed if each.name.startswith(prefix)}
        waited = time.monotonic() - began
        # A coordinator that has just started lists nothing until it has read the state that it is responsible for.
        all_known = len(found) == len(partitions) and {each.producer for each in opened} <= {
            each.producer for each in listed
        }
        is_ending = any(state in ENDING for state in ours.values())
        if not (is_ending and waited < patience) and (all_known or waited >= answers):
            break
        time.sleep(_LOOK)
    for name in sorted(name for name, state in ours.items() if state in COMPLETED):
        _write(cluster, name, opened)
    return all_known


def _write(cluster: Cluster, name: str, opened: Sequence[OpenTransaction]) -> None:
    described = cluster.describe(name)
    lost = [each for each in opened if _is_of(each, described)]
    # A transaction that has ended since then is not lost: the coordinator was writing its end marker.
    still = cluster.open_in(sorted({each.where for each in lost})) if lost else {}
    lost = [each for each in lost if each in still.get(each.where, ())]
    if not lost or cluster.fence(name):
        return
    fenced = cluster.describe(name)
    if (fenced.producer, fenced.epoch) != (described.producer, described.epoch + 1):
        # Another publisher has initialized the id in between: the open transaction may be that publisher's.
        return
    for each in lost:
        # The fenced producer may have been about to begin another transaction, which this end marker would have ended.
        error = cluster.write_marker(each, commits=described.state == COMMITTED)
        said, where = f"{name!r} is {described.state}", f"{each.where[0]}-{each.where[1]}"
        if error:
            logger.error(
                "Kafka holds back readers of %s: %s, but the coordinator's end is missing on the partition, and this "
                "user may not write it (%s). Allow it ClusterAction on the cluster.",
                where,
                said,
                error_name(error),
            )
        else:
            logger.warning(
                "%s, but the coordinator's end was missing on the partition %s and held readers back; wrote it",
                said,
                where,
            )


def _is_of(opened: OpenTransaction, described: TransactionDescription) -> bool:
    """Whether it is the last transaction of an id, and it is known how that transaction ended."""
    if described.state not in COMPLETED or opened.producer != described.producer:
        return False
    # A fenced or timed-out producer is rolled back with the producer's next epoch.
    return opened.epoch == described.epoch or (described.state != COMMITTED and opened.epoch == described.epoch - 1)
