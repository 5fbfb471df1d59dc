"""Feeds: events from a seed, one file per batch, so that the feed fixes the batches."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import duckdb

Event = dict[str, Any]
"""A row of a feed by column name; times are microseconds since the epoch."""

SECOND = 1_000_000
SCHEMA = "id long, sub string, key string, ts long, n long, d double"
_START = 1_700_000_000 * SECOND
_KEYS = ("x", "y", "z", None)
_ADVANCE = 60 * SECOND
_AHEAD = {"a": 40 * SECOND, "b": 0, "c": -40 * SECOND}


def skewed_feed(seed: int, rows: int = 40) -> Iterator[list[Event]]:
    """Three substreams of which ``a`` is far ahead and ``c`` far behind, with late rows and rows without a time.

    It is endless. ``c`` is missing in the first batch: a query without a list of substreams finds its first rows late.
    Doubles are multiples of a quarter, so that their sums are exact in any order.
    """
    chance = random.Random(f"skewed-{seed}")
    for number in count():
        batch = []
        for index in range(rows):
            sub = chance.choices("abc", (6, 3, 2 if number else 0))[0]
            # One in twenty belongs to windows that closed long ago.
            age = chance.randrange(200, 600) if chance.random() < 0.05 else chance.randrange(-20, 90)
            time = _START + number * _ADVANCE + _AHEAD[sub] - age * SECOND + chance.randrange(SECOND)
            batch.append(
                {
                    "id": number * rows + index,
                    "sub": sub,
                    "key": chance.choice(_KEYS),
                    "ts": None if chance.random() < 0.04 else time,
                    "n": chance.randrange(-50, 100),
                    "d": chance.randrange(400) / 4,
                }
            )
        yield batch


def skewed_batches(seed: int, batches: int, rows: int = 40) -> list[list[Event]]:
    """The first of :func:`skewed_feed`."""
    return list(islice(skewed_feed(seed, rows), batches))


def write_skewed(directory: Path, seed: int, first: int, upto: int) -> None:
    """Add the files of some batches; the file source takes them in the order of their modification times."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, batch in list(enumerate(skewed_batches(seed, upto)))[first:]:
        # Under another name first: a running query must never see half a file.
        hidden = directory / f".{number:05d}.json"
        hidden.write_text("".join(f"{json.dumps(event)}\n" for event in batch))
        os.utime(hidden, (1_600_000_000 + number,) * 2)
        hidden.rename(directory / f"{number:05d}.json")


def read_events(file: Path, time: str) -> list[Event]:
    """The rows of a feed's file, JSON or Parquet."""
    if file.suffix == ".json":
        return [json.loads(line) for line in file.read_text().splitlines()]
    with duckdb.connect() as db:
        found = db.execute(f'SELECT * REPLACE (epoch_us("{time}") AS "{time}") FROM read_parquet(?)', [str(file)])
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
