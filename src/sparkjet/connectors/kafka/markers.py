"""End markers of transactions in the partitions, and markers that a coordinator has failed to write."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.connectors.kafka.cluster import COMMITTED, error_name
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.cluster import Cluster
    from sparkjet.connectors.kafka.requests import OpenTransaction, TopicPartition


_ARRIVING = 0.5
"""Seconds that a marker may take from its coordinator to the partitions; usually it takes a few milliseconds."""


@dataclass(frozen=True)
class MarkerState:
    """The answers of the leaders of some partitions.

    Attributes:
        all_ended: Whether all of them have answered, and have the end marker of each transaction in question.
        none_open: Whether all of them have answered, and have no open transaction of any producer.
    """

    all_ended: bool
    none_open: bool


def rewrite_lost_markers(
    cluster: Cluster, partitions: Sequence[TopicPartition], prefix: str, ended: Collection[int] = ()
) -> MarkerState:
    """End the query's transactions that are complete for their coordinators, but still open in these partitions.

    A restarting coordinator may not know a partition's leader for a moment, take the partition for deleted, and mark a
    transaction complete without writing its end marker there ("likely deleted already", Kafka 4.3.1). Such a hanging
    transaction would hold read_committed consumers back forever, and the producer's next transaction would join it.
    """
    looking = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_ARRIVING),
        wait=tenacity.wait_exponential(0.002, 0.05),
        retry=tenacity.retry_if_result(lambda found: not ended_in(found).isdisjoint(ended)),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )

    def ended_in(found: dict[TopicPartition, list[OpenTransaction]]) -> set[int]:
        return {each.producer for opened in found.values() for each in opened}

    found = looking(lambda: cluster.open_in(partitions)) if partitions else {}
    opened = [each for several in found.values() for each in several]
    left = _rewrite(cluster, opened, prefix) if opened else []
    answered = len(found) == len(partitions)
    return MarkerState(answered and {each.producer for each in left}.isdisjoint(ended), answered and not left)


def _rewrite(cluster: Cluster, opened: Sequence[OpenTransaction], prefix: str) -> list[OpenTransaction]:
    """Write the missing markers of complete transactions; returns the transactions that are still open."""
    ended = cluster.listed_by(sorted({each.producer for each in opened}))
    ours = {listed.producer: listed for listed in ended if listed.name.startswith(prefix)}
    if not ours:
        return list(opened)
    again = cluster.open_in(sorted({each.where for each in opened}))
    left = []
    for each in opened:
        # Only if it was open before its coordinator was asked, and still is: its producer may have begun another since.
        if each.where in again and each not in again[each.where]:
            continue
        listed = ours.get(each.producer) if each.where in again else None
        if listed is None:
            left.append(each)
            continue
        topic, number = each.where
        error = cluster.write_marker(each, commits=listed.state == COMMITTED)
        if error:
            left.append(each)
            logger.error(
                "Kafka holds back consumers of %s-%d: %r is %s, but the coordinator's end marker is missing on the "
                "partition, and this user may not write it (%s). Allow it ClusterAction on the cluster; the next epoch "
                "tries again.",
                topic,
                number,
                listed.name,
                listed.state,
                error_name(error),
            )
        else:
            logger.warning(
                "%r is %s, but the coordinator's end marker was missing on the partition %s-%d and held consumers "
                "back; rewrote it",
                listed.name,
                listed.state,
                topic,
                number,
            )
    return left
