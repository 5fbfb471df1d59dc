"""Ends of transactions as the partitions know them, and those that a coordinator has forgotten to tell."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.sinks.kafka.cluster import COMMITTED, named

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.cluster import Cluster
    from sparkjet.sinks.kafka.partition_requests import OpenIn
    from sparkjet.sinks.kafka.requests import TopicPartition

logger = logging.getLogger("sparkjet")

_ARRIVING = 0.5
"""Seconds that an end may take from its coordinator to the partitions; as a rule it takes a few milliseconds."""


@dataclass(frozen=True)
class MarkerState:
    """What the leaders of some partitions say.

    Attributes:
        is_told: Whether every one of them has answered, and knows the end of each transaction that was asked about.
        is_clear: Whether every one of them has answered, and has no open transaction of anybody.
    """

    is_told: bool
    is_clear: bool


def rewrite_lost_markers(
    cluster: Cluster, partitions: Sequence[TopicPartition], prefix: str, ended: Collection[int] = ()
) -> MarkerState:
    """End transactions of ours that are over for their coordinators, but still open in these partitions.

    A coordinator that starts again may lack a partition's leader for a moment, take the partition for deleted, and note
    a transaction as complete that the partition never hears of ("likely deleted already", Kafka 4.3.1): readers
    of committed records would be held back there for ever, and the next transaction of the same producer would join it.

    Args:
        cluster: The brokers.
        partitions: Where to look.
        prefix: What the transactional ids begin with.
        ended: Producers whose transactions were ended a moment ago.
    """
    looking = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_ARRIVING),
        wait=tenacity.wait_exponential(0.002, 0.05),
        retry=tenacity.retry_if_result(lambda found: not ended_in(found).isdisjoint(ended)),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )

    def ended_in(found: dict[TopicPartition, list[OpenIn]]) -> set[int]:
        return {each.producer for opened in found.values() for each in opened}

    found = looking(lambda: cluster.open_in(partitions)) if partitions else {}
    opened = [each for several in found.values() for each in several]
    left = _tell(cluster, opened, prefix) if opened else []
    answered = len(found) == len(partitions)
    return MarkerState(answered and {each.producer for each in left}.isdisjoint(ended), answered and not left)


def _tell(cluster: Cluster, opened: Sequence[OpenIn], prefix: str) -> list[OpenIn]:
    """Tell partitions about transactions that are complete; those that are still open there."""
    ended = cluster.ended_by(sorted({each.producer for each in opened}))
    ours = {producer: listed for producer, listed in ended.items() if listed.name.startswith(prefix)}
    if not ours:
        return list(opened)
    again = cluster.open_in(sorted({each.where for each in opened}))
    left = []
    for each in opened:
        # Only what was open before its coordinator was asked, and is: its producer may have begun another one since.
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
    return left
