"""Rows that brokers refuse, found before the decision: after it, they would fail the query at every start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError
from pyspark.sql import functions as F

from sparkjet.connectors.kafka.producing import CUT_OFF, NAME, NAMELESS, NAMES
from sparkjet.connectors.kafka.progress_topic import topic_setting
from sparkjet.connectors.kafka.rights import allowing, described, missing
from sparkjet.errors import RefusedRowsError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.connectors.kafka.progress_topic import ProgressTopic
    from sparkjet.connectors.kafka.staged_settings import StagedSettings

_OVERHEAD = 100
"""Overhead of a batch of one record in bytes, without key, value and headers; an upper bound."""
_OF_MESSAGE = 36
"""Bytes that librdkafka counts in addition to key, value and headers."""
_OF_HEADER = 12
"""Overhead of a header in bytes, without its key and value; an upper bound."""
_OF_MARKER, _OF_END = 1000, 21
"""Maximum size of an epoch's marker in bytes, without the offsets in it, and of each offset."""
_NONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION})
"""Codes of a topic that does not exist for this user, or whose name Kafka does not accept."""


@dataclass(frozen=True)
class Topic:
    """A topic, as described by the brokers.

    Attributes:
        partitions: Number of partitions.
        compacted: Whether it refuses rows without a key.
        largest: Its max.message.bytes; None if this user may not read it.
        writable: Whether this user may write to it.
        replicas: Number of replicas of its partitions.
        made: Its id: a different one if it was deleted and recreated.
    """

    partitions: int
    compacted: bool
    largest: int | None
    writable: bool
    replicas: int
    made: str


def describe(admin: Any, names: Iterable[str], patience: float) -> dict[str, Topic]:
    """The topics that exist and that clients may write to at all."""
    found = {}
    for name in names:
        if not NAME.fullmatch(name):
            # Clients would cut the name off at a NUL, and find another topic.
            continue
        try:
            topic = described(admin, name, patience)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in _NONE:
                continue
            raise
        if topic.is_internal:
            # Brokers write there, and refuse everyone else: decided rows would never be taken.
            continue
        policy = topic_setting(admin, name, "cleanup.policy", patience) or ""
        largest = topic_setting(admin, name, "max.message.bytes", patience)
        found[name] = Topic(
            len(topic.partitions),
            "compact" in policy.split(","),
            None if largest is None else int(largest),
            not missing(topic, ("Write",)),
            max(len(each.replicas) for each in topic.partitions),
            str(topic.topic_id),
        )
    return found


def sizes(rows: DataFrame) -> dict[str, Column]:
    """The properties of rows for which brokers may refuse them, as aggregates by name."""
    names = rows.columns
    found = {"keyless": F.count_if(F.col("key").isNull())} if "key" in names else {}
    size = sum((F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value") if name in names), F.lit(0))
    if "headers" in names:
        of_each = F.transform(
            "headers",
            lambda each: (
                F.coalesce(F.octet_length(each["key"]) + F.lit(_OF_HEADER), F.lit(0))
                + F.coalesce(F.octet_length(each["value"]), F.lit(0))
            ),
        )
        size += F.coalesce(F.aggregate(of_each, F.lit(0), lambda total, each: total + each), F.lit(0))
        found["nameless"] = F.count_if(F.exists("headers", lambda each: each.isNotNull() & each["key"].isNull()))
        found["cut_off"] = F.count_if(F.exists("headers", lambda each: each["key"].contains("\0")))
    return {"record": F.max(size), **found}


def measures(rows: DataFrame, topic: str | None) -> dict[str, Column]:
    """The aggregates to observe on rows that go to the outbox, by name."""
    names = rows.columns
    if "topic" not in names and "partition" not in names:
        return sizes(rows)
    to = F.col("topic") if "topic" in names else F.lit(topic)
    number = F.col("partition") if "partition" in names else F.lit(None).cast("int")
    return {**sizes(rows), "targets": F.collect_set(F.struct(to.alias("topic"), number.alias("partition")))}


def by_topic(rows: DataFrame) -> dict[str, Mapping[str, Any]]:
    """The sizes for each topic separately, which takes another job."""
    measured = rows.groupBy("topic").agg(*(column.alias(name) for name, column in sizes(rows).items()))
    return {row["topic"]: row.asDict() for row in measured.collect()}


def check_epoch(
    found: Mapping[str, Any],
    topics: Mapping[str, Topic],
    progress: ProgressTopic,
    settings: StagedSettings,
    each: Callable[[], Mapping[str, Mapping[str, Any]]],
) -> None:
    """Refuse to decide on rows if brokers would refuse any of them."""
    check_targets(found, topics, progress.name)
    check_ends(topics, settings.takes if progress.largest is None else min(settings.takes, progress.largest))
    limits = partial(check_rows, largest=settings.takes, compresses=settings.compresses)
    try:
        for name, topic in topics.items():
            limits(found, name, topic)
    except SinkError:
        if len(topics) == 1:
            raise
        # Over all topics, one may have the largest row, and another one the lowest limit.
        of_each = each()
        for name, topic in topics.items():
            limits(of_each[name], name, topic)


def check_targets(found: Mapping[str, Any], topics: Mapping[str, Topic], progress: str | None = None) -> None:
    """Refuse to decide on rows whose topics or partitions cannot be written to."""
    if progress in topics:
        # Each publisher would take the rows for the marker of another one, and give up.
        message = f"Kafka: topic {progress!r} has the markers of this output, and takes no rows. Name another topic."
        raise RefusedRowsError(message)
    for target in found.get("targets") or ():
        name, number = target["topic"], target["partition"]
        if name is None:
            message = "Kafka: the column topic is null in a row. Give each row its topic, or use the option topic."
            raise RefusedRowsError(message)
        if name not in topics:
            message = (
                f"Kafka: topic {name!r}, where rows go, does not exist, or is the brokers' own. Create it, or name "
                f"another one: {NAMES}."
            )
            raise RefusedRowsError(message)
        if number is not None and not 0 <= number < topics[name].partitions:
            message = (
                f"Kafka: the column partition has {number}, and topic {name!r} has the partitions 0 to "
                f"{topics[name].partitions - 1}. Add partitions to the topic, or leave the column null."
            )
            raise RefusedRowsError(message)
    for name, each in topics.items():
        if not each.writable:
            raise SinkError(f"Kafka: this user may not write to topic {name!r}. Allow it: {allowing(name, ('Write',))}")


def check_ends(topics: Mapping[str, Topic], largest: int) -> None:
    """Refuse topics that have more partitions than the marker of an epoch can name."""
    count = sum(each.partitions for each in topics.values())
    needed = _OF_MARKER + _OF_END * count + sum(map(len, topics))
    if needed > largest:
        message = (
            f"Kafka: the topics of the rows have {count} partitions, whose offsets make a marker of up to {needed} "
            f"bytes, and {largest} are taken. Raise the option kafka.message.max.bytes and the progress topic's "
            "max.message.bytes; or use fewer partitions."
        )
        raise SinkError(message)


def check_rows(found: Mapping[str, Any], name: str, topic: Topic, largest: int, *, compresses: bool) -> None:
    """Refuse to decide on rows that a topic, or librdkafka, would not take."""
    for measured, refused in (("nameless", NAMELESS), ("cut_off", CUT_OFF)):
        if found.get(measured):
            raise RefusedRowsError(f"Kafka: in {found[measured]} rows of the epoch {refused}")
    if topic.compacted and found.get("keyless", 1):
        message = (
            f"Kafka: topic {name!r} is compacted and takes no row without a key, and {found.get('keyless', 'all')} "
            "rows of the epoch have none. Give each row a column key that is not null, or set the topic's "
            "cleanup.policy to delete."
        )
        raise RefusedRowsError(message)
    if topic.largest is not None and not compresses and (found["record"] or 0) + _OVERHEAD > topic.largest:
        message = (
            f"Kafka: the largest row has {found['record']} bytes, and topic {name!r} takes {topic.largest} with "
            "what is added (MSG_SIZE_TOO_LARGE). Raise the topic's max.message.bytes, and kafka.message.max.bytes."
        )
        raise RefusedRowsError(message)
    if (found["record"] or 0) + _OF_MESSAGE > largest:
        message = (
            f"Kafka: the largest row has {found['record']} bytes, and librdkafka takes {largest} with what is added "
            "(MSG_SIZE_TOO_LARGE). Raise the option kafka.message.max.bytes and the topic's max.message.bytes."
        )
        raise RefusedRowsError(message)
