"""Clicks of some users on a topic with two partitions, one of them hours behind, and the visits that they make."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

USERS = (("ann", "bob", "cat", "dan"), ("eve", "fay", "gus", "hal"))
"""By partition: those on the web, and those of an app that sends late."""
BEHIND = timedelta(hours=6)
"""How much older a click of the app is when it arrives, beside one of the web."""
GAP = timedelta(minutes=30)
"""The pause that ends a visit."""
MORNING = datetime(2026, 3, 2, tzinfo=timezone.utc)
PAGES = ("/", "/search", "/item", "/item", "/basket", "/help")


class Click(NamedTuple):
    """A click, and the partition in which it arrives."""

    partition: int
    time: datetime
    user: str
    page: str


class Visit(NamedTuple):
    """A row of the result; times are whole seconds since 1970."""

    visitor: str
    first_click: int
    last_click: int
    clicks: int
    exit: str


def clicks() -> list[Click]:
    """The clicks of a day in the order in which they arrive; always the same."""
    dice = random.Random(2026)  # noqa: S311 - not for secrecy
    found = [
        Click(partition, time - BEHIND * partition, user, dice.choice(PAGES))
        for partition, users in enumerate(USERS)
        for user in users
        for time in _times(dice)
    ]
    return sorted(found, key=lambda click: click.time + BEHIND * click.partition)


def _times(dice: random.Random) -> Iterator[datetime]:
    """A user's day: bursts of clicks, and pauses of which the shortest ends a visit only just."""
    time, evening = MORNING + timedelta(minutes=dice.randrange(120)), MORNING + timedelta(days=1)
    while time < evening:
        for _ in range(dice.randint(1, 30)):
            if time < evening:
                yield time
            time += timedelta(seconds=dice.randint(5, 600))
        time += max(GAP, timedelta(minutes=dice.randint(0, 120)))


def expected(given: list[Click]) -> list[Visit]:
    """The visits, computed naively: the clicks of each user in order, cut at every pause as long as the gap."""
    visits = []
    for user, ours in groupby(sorted(given, key=lambda click: (click.user, click.time)), key=lambda click: click.user):
        visit: list[Click] = []
        for click in ours:
            if visit and click.time - visit[-1].time >= GAP:
                visits.append(_visit(user, visit))
                visit = []
            visit.append(click)
        visits.append(_visit(user, visit))
    return visits


def _visit(user: str, clicked: list[Click]) -> Visit:
    first, last = clicked[0], clicked[-1]
    return Visit(user, int(first.time.timestamp()), int(last.time.timestamp()), len(clicked), last.page)


def produce(brokers: str, topic: str, given: list[Click]) -> None:
    """Make the topic and write the clicks, each with its own time and its user as the key.

    Raises:
        KafkaException: The topic exists, or the broker refuses the records.
    """
    # In a variable: a client that is collected takes its requests with it.
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, len(USERS), 1)])[topic].result()
    # Not idempotent, a batch that a new topic's leader refuses would be sent again behind its successors, out of order.
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for click in given:
        time = int(click.time.timestamp() * 1000)
        producer.produce(topic, click.page, click.user, partition=click.partition, timestamp=time)
    producer.flush()
