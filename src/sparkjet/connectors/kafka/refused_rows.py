"""Rows that brokers refuse: found before the decision, after which they would fail the query at every start."""

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
"""Bytes of a batch of one record beside key, value and headers, and more."""
_OF_MESSAGE = 36
"""Bytes that librdkafka counts beside key, value and headers."""
_OF_HEADER = 12
"""Bytes of a header beside its key and value, at most."""
_OF_MARKER, _OF_END = 1000, 21
"""Bytes of an epoch's marker without the offsets that it names, and of each offset, at most."""
_NONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION})
"""Codes of a topic that is not there for this user, or whose name Kafka does not take."""


@dataclass(frozen=True)
class Topic:
    """What brokers say of a topic.

    Attributes:
        partitions: How many it has.
        compacted: Whether it takes no row without a key.
        largest: Its max.message.bytes; None where this user may not read it.
        writable: Whether this user may write to it.
        replicas: How many replicas its partitions have.
        made: Its id: another one if it was deleted and created again.
    """

    partitions: int
    compacted: bool
    largest: int | None
    writable: bool
    replicas: int
    made: str


def describe(admin: Any, names: Iterable[str], patience: float) -> dict[str, Topic]:
    """The topics that exist and may be written to by clients at all."""
    found = {}
    for name in names:
        if not NAME.fullmatch(name):
            # At a NUL, clients would cut it off, and find another topic.
            continue
        try:
            topic = described(admin, name, patience)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in _NONE:
                continue
            raise
        if topic.is_internal:
            # Brokers write there, and refuse everyone else: rows that were decided would never be taken.
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
    """What brokers may refuse of any row, as aggregates by name."""
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
    """What to observe of rows on their way to the outbox, by name."""
    names = rows.columns
    if "topic" not in names and "partition" not in names:
        return sizes(rows)
    to = F.col("topic") if "topic" in names else F.lit(topic)
    number = F.col("partition") if "partition" in names else F.lit(None).cast("int")
    return {**sizes(rows), "targets": F.collect_set(F.struct(to.alias("topic"), number.alias("partition")))}


def by_topic(rows: DataFrame) -> dict[str, Mapping[str, Any]]:
    """The same of each topic, which takes a job of its own."""
    measured = rows.groupBy("topic").agg(*(column.alias(name) for name, column in sizes(rows).items()))
    return {row["topic"]: row.asDict() for row in measured.collect()}


def check_epoch(
    found: Mapping[str, Any],
    topics: Mapping[str, Topic],
    progress: ProgressTopic,
    settings: StagedSettings,
    each: Callable[[], Mapping[str, Mapping[str, Any]]],
) -> None:
    """Refuse to decide on rows of which brokers would refuse any."""
    check_targets(found, topics, progress.name)
    check_ends(topics, settings.takes if progress.largest is None else min(settings.takes, progress.largest))
    limits = partial(check_rows, largest=settings.takes, compresses=settings.compresses)
    try:
        for name, topic in topics.items():
            limits(found, name, topic)
    except SinkError:
        if len(topics) == 1:
            raise
        # Of all topics together one has the largest row, and perhaps another one the lowest limit.
        of_each = each()
        for name, topic in topics.items():
            limits(of_each[name], name, topic)


def check_targets(found: Mapping[str, Any], topics: Mapping[str, Topic], progress: str | None = None) -> None:
    """Refuse to decide on rows for topics and partitions that they cannot be written to."""
    if progress in topics:
        # Each publisher would take the rows for another one's marker, and give up.
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
            message = f"Kafka: this user may not write to topic {name!r}. Allow it: {allowing(name, ('Write',))}"
            raise SinkError(message)


def check_ends(topics: Mapping[str, Topic], largest: int) -> None:
    """Refuse topics of more partitions than the marker of an epoch can name."""
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
            message = f"Kafka: in {found[measured]} rows of the epoch {refused}"
            raise RefusedRowsError(message)
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
