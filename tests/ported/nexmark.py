"""Persons, auctions and bids as Nexmark has them, made of a seed, and the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from random import Random
from typing import Any

Row = tuple[Any, ...]

PERSON = (
    "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp, "
    "extra string, partition int"
)
AUCTION = (
    "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp, "
    "expires timestamp, seller long, category long, extra string, partition int"
)
BID = (
    "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string, partition int"
)

LAG = 4
"""Seconds that a row may be behind others of its partition, as in Nexmark's tables."""

_START = datetime(2026, 1, 1, 12)
_CITIES = [("Portland", "OR"), ("Boise", "ID"), ("Palo Alto", "CA"), ("Seattle", "WA"), ("Phoenix", "AZ")]
_CATEGORIES = range(10, 13)
_PARTITIONS = 2


@dataclass(frozen=True)
class Nexmark:
    """What happens in five minutes.

    Attributes:
        seed: Of everything.
        people: Number of persons.
        items: Number of auctions.
        bids_of_each: Number of bids for an auction, on average.
    """

    seed: int = 17
    people: int = 20
    items: int = 40
    bids_of_each: int = 6

    @cached_property
    def persons(self) -> list[Row]:
        """Rows of :data:`PERSON`."""
        random, rows = Random(self.seed), []
        for number, second in enumerate(_times(random, self.people, 0.0, 240.0)):
            city, state = random.choice(_CITIES)
            card = " ".join(str(random.randrange(1000, 10000)) for _ in range(4))
            row = (number, f"person {number}", f"{number}@example.com", card, city, state, at(second), "")
            rows.append((*row, number % _PARTITIONS))
        return rows

    @cached_property
    def auctions(self) -> list[Row]:
        """Rows of :data:`AUCTION`: of persons that exist, or will."""
        random, rows = Random(self.seed + 1), []
        for number, second in enumerate(_times(random, self.items, 0.0, 240.0)):
            expires = second + random.choice([10, 20, 40, 60])
            prices = random.randrange(100, 1000), random.randrange(1000, 10_000)
            row = (1000 + number, f"item {number}", f"as new, {number}", *prices, at(second), at(expires))
            # Of somebody who comes about now.
            seller = min(self.people - 1, max(0, int(second / 240 * self.people) + random.randrange(-3, 4)))
            rows.append((*row, seller, random.choice(_CATEGORIES), "", number % _PARTITIONS))
        return rows

    @cached_property
    def bids(self) -> list[Row]:
        """Rows of :data:`BID`: some before their auction, some after it, no two of an auction with one price."""
        random, rows = Random(self.seed + 2), []
        prices = random.sample(range(100, 2_000_000), self.items * self.bids_of_each)
        for number, (amount, second) in enumerate(zip(prices, _times(random, len(prices), 0.0, 300.0), strict=True)):
            # Of auctions that begin about now.
            auction = min(self.items - 1, max(0, int(second / 240 * self.items) + random.randrange(-9, 3)))
            bidder, channel = random.randrange(self.people), random.choice(["Apple", "Google", "Baidu"])
            row = (1000 + auction, bidder, amount, channel, f"https://example.com/{auction}", at(second), "")
            rows.append((*row, number % _PARTITIONS))
        return rows


def at(second: float) -> str:
    """A time after 12 o'clock, as JSON has it."""
    return (_START + timedelta(seconds=second)).isoformat(sep=" ", timespec="milliseconds")


def arriving(rows: Sequence[Row], time: int, count: int = 3, *, lagging: bool = False) -> list[list[Row]]:
    """The rows in batches, as they arrive: out of order by up to :data:`LAG` seconds.

    Args:
        rows: The rows; the last column is the partition.
        time: The place of the event time.
        count: Number of batches.
        lagging: Whether partition 1 arrives so late that each row of it is in the next batch but one.
    """
    random = Random(len(rows))
    order = sorted((datetime.fromisoformat(row[time]) + timedelta(seconds=random.random() * LAG), row) for row in rows)
    size = -(-len(rows) // count)
    batches: list[list[Row]] = [[] for _ in range(count + 2 * lagging)]
    for place, (_, row) in enumerate(order):
        batches[place // size + (2 if lagging and row[-1] == 1 else 0)].append(row)
    return batches


def _times(random: Random, count: int, first: float, last: float) -> list[float]:
    """So many times in order, no two of which are the same."""
    return [each / 1000 for each in sorted(random.sample(range(int(first * 1000), int(last * 1000)), count))]
