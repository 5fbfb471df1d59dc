"""Companies, loads and offers of a freight exchange, made of a seed, and the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from random import Random
from typing import Any

Row = tuple[Any, ...]

COMPANY = "id long, name string, town string, country string, joined timestamp, feed int"
LOAD = (
    "id long, company long, kind int, goods string, tons double, posted timestamp, closes timestamp, note string, "
    "feed int"
)
OFFER = "load long, carrier long, cents long, truck string, made timestamp, feed int"

LAG = 4
"""Seconds that a row may be behind others of its feed."""

KINDS = range(3)
"""Of loads: bulk, cooled, parcels."""

_START = datetime(2026, 1, 1, 6)
_TOWNS = [("Basel", "CH"), ("Lyon", "FR"), ("Turin", "IT"), ("Graz", "AT"), ("Ulm", "DE")]
_FEEDS = 2


@dataclass(frozen=True)
class Exchange:
    """The events of five minutes.

    Attributes:
        seed: Of everything.
        members: Number of companies.
        cargo: Number of loads.
        offers_of_each: Number of offers for a load, on average.
    """

    seed: int = 17
    members: int = 20
    cargo: int = 40
    offers_of_each: int = 6

    @cached_property
    def companies(self) -> list[Row]:
        """Rows of :data:`COMPANY`."""
        random = Random(self.seed)
        return [
            (number, f"company {number}", *random.choice(_TOWNS), at(second), number % _FEEDS)
            for number, second in enumerate(_times(random, self.members, 240.0))
        ]

    @cached_property
    def loads(self) -> list[Row]:
        """Rows of :data:`LOAD`: of companies that exist, or will."""
        random, rows = Random(self.seed + 1), []
        for number, second in enumerate(_times(random, self.cargo, 240.0)):
            closes = second + random.choice([10, 20, 40, 60])
            # Of a company that joins about now.
            company = _near(second / 240 * self.members + random.randrange(-3, 4), self.members)
            kind, tons = random.choice(KINDS), random.randrange(1, 240) / 8
            goods = (f"goods {number}", tons, at(second), at(closes), f"gate {number}")
            rows.append((1000 + number, company, kind, *goods, number % _FEEDS))
        return rows

    @cached_property
    def offers(self) -> list[Row]:
        """Rows of :data:`OFFER`: some before their load, some after it, no two of a load with one price."""
        random, rows = Random(self.seed + 2), []
        prices = random.sample(range(100, 2_000_000), self.cargo * self.offers_of_each)
        for number, (cents, second) in enumerate(zip(prices, _times(random, len(prices), 300.0), strict=True)):
            # For a load that is posted about now.
            load = _near(second / 240 * self.cargo + random.randrange(-9, 3), self.cargo)
            carrier, truck = random.randrange(self.members), random.choice(["flatbed", "tipper", "van"])
            rows.append((1000 + load, carrier, cents, truck, at(second), number % _FEEDS))
        return rows


def at(second: float) -> str:
    """A time after six o'clock, as JSON has it."""
    return (_START + timedelta(seconds=second)).isoformat(sep=" ", timespec="milliseconds")


def arriving(rows: Sequence[Row], time: int, count: int = 3, *, lagging: bool = False) -> list[list[Row]]:
    """The rows in batches, as they arrive: out of order by up to :data:`LAG` seconds.

    Args:
        rows: The rows; the last column is the feed.
        time: The place of the event time.
        count: Number of batches.
        lagging: Whether feed 1 arrives so late that each row of it is in the next batch but one.
    """
    random = Random(len(rows))
    order = sorted((datetime.fromisoformat(row[time]) + timedelta(seconds=random.random() * LAG), row) for row in rows)
    size = -(-len(rows) // count)
    batches: list[list[Row]] = [[] for _ in range(count + 2 * lagging)]
    for place, (_, row) in enumerate(order):
        batches[place // size + (2 if lagging and row[-1] == 1 else 0)].append(row)
    return batches


def _near(number: float, count: int) -> int:
    """The number of one of ``count``."""
    return min(count - 1, max(0, int(number)))


def _times(random: Random, count: int, last: float) -> list[float]:
    """The given number of times, ascending and distinct."""
    return [each / 1000 for each in sorted(random.sample(range(int(last * 1000)), count))]
