from __future__ import annotations

import zipfile
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from examples.flights_feed import (
    AIRPORTS,
    LGA_BEHIND,
    WHOLE_YEAR,
    NoFlightsError,
    Slices,
    flights_csv,
    utc,
    write_feed,
)

# The whole year, so that both changes of the clock are in it.
YEAR = Slices(days=365, backlog=2, live_days=1, live=3)


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("flights") / "feed"
    write_feed(directory, YEAR)
    return directory


@pytest.fixture
def db(feed: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.read_parquet(f"{feed}/*.parquet", filename=True, file_row_number=True).create("feed")
    return connection


def rows(db: duckdb.DuckDBPyConnection, query: str) -> list[Any]:
    return db.execute(query).fetchall()


def test_holds_every_flight_once(db: duckdb.DuckDBPyConnection) -> None:
    assert rows(db, "SELECT count(*), count(DISTINCT id), count(id) FROM feed") == [(336_776, 336_776, 336_776)]
    assert rows(db, "SELECT DISTINCT origin FROM feed ORDER BY 1") == [(airport,) for airport in AIRPORTS]


def test_cancelled_flights_have_neither_event_time_nor_delay(db: duckdb.DuckDBPyConnection) -> None:
    assert rows(db, "SELECT count(*) FROM feed WHERE (scheduled IS NULL) <> (delay IS NULL)") == [(0,)]
    assert rows(db, "SELECT count(*) FROM feed WHERE scheduled IS NULL") == [(8_255,)]


def test_scheduled_times_are_in_utc_as_the_data_sets_own_column_has_them(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with zipfile.ZipFile(flights_csv()) as archive:
        archive.extractall(tmp_path)
    db.execute(
        "CREATE TABLE csv AS SELECT row_number() OVER () AS id, origin, carrier, flight, dest, minute, time_hour "
        "FROM read_csv(?, nullstr = 'NA')",
        [str(tmp_path / "flights.csv")],
    )
    wrong = """
        SELECT * FROM feed JOIN csv USING (id)
        WHERE (feed.flight, feed.carrier, feed.origin, feed.dest) <> (csv.flight, csv.carrier, csv.origin, csv.dest)
           OR epoch(scheduled) <> epoch(time_hour) + minute * 60
    """
    assert rows(db, wrong) == []
    assert rows(db, "SELECT count(*) FROM feed JOIN csv USING (id)") == [(336_776,)]


def test_each_airport_delivers_in_the_order_of_actual_departure(db: duckdb.DuckDBPyConnection) -> None:
    disorder = """
        SELECT arrived, lag(arrived) OVER (PARTITION BY origin ORDER BY filename, file_row_number) AS before FROM feed
        QUALIFY arrived < before
    """
    assert rows(db, disorder) == []
    behind = "SELECT DISTINCT origin, epoch(arrived) - epoch(scheduled) - delay * 60 FROM feed WHERE delay IS NOT NULL"
    assert dict(rows(db, behind)) == {"EWR": 0, "JFK": 0, "LGA": LGA_BEHIND.total_seconds()}


def test_event_times_are_out_of_order_by_up_to_21_hours(db: duckdb.DuckDBPyConnection) -> None:
    assert rows(db, "SELECT max(delay) // 60, min(delay) < 0 FROM feed") == [(21, True)]


def test_files_are_slices_of_arrival_time(db: duckdb.DuckDBPyConnection) -> None:
    starts = YEAR.starts()
    found = rows(db, "SELECT min(arrived::TIMESTAMP), max(arrived::TIMESTAMP) FROM feed GROUP BY filename ORDER BY 1")
    assert len(found) == YEAR.files
    for (first, last), start, end in zip(found, starts, [*starts[1:], datetime(2014, 2, 1)], strict=True):
        assert start <= first <= last < end


def test_spark_will_take_the_files_in_their_order(feed: Path) -> None:
    modified = [path.stat().st_mtime for path in sorted(feed.iterdir())]
    assert len(modified) == YEAR.files
    assert all(before < after for before, after in pairwise(modified))


def test_slices_cover_the_time_without_gaps() -> None:
    starts = WHOLE_YEAR.starts()
    backlog, live = starts[: WHOLE_YEAR.backlog + 1], starts[WHOLE_YEAR.backlog :]
    assert len(starts) == WHOLE_YEAR.files
    assert starts[0] == datetime(2013, 1, 1)
    assert {round((b - a) / timedelta(hours=1)) for a, b in pairwise(live)} == {6}
    assert len({round((b - a) / timedelta(hours=1)) for a, b in pairwise(backlog)}) == 1


def test_a_live_batch_is_shorter_than_lga_is_behind() -> None:
    # Else Spark's own watermark would lose nothing, and the job would show nothing.
    assert timedelta(days=WHOLE_YEAR.live_days) / WHOLE_YEAR.live < LGA_BEHIND


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (datetime(2013, 1, 1, 5, 15), datetime(2013, 1, 1, 10, 15)),
        (datetime(2013, 7, 1, 23, 59), datetime(2013, 7, 2, 3, 59)),
        # Spring: 2:30 does not exist.
        (datetime(2013, 3, 10, 1, 59), datetime(2013, 3, 10, 6, 59)),
        (datetime(2013, 3, 10, 2, 30), datetime(2013, 3, 10, 7, 30)),
        (datetime(2013, 3, 10, 3, 0), datetime(2013, 3, 10, 7, 0)),
        # Autumn: 1:30 comes twice.
        (datetime(2013, 11, 3, 1, 30), datetime(2013, 11, 3, 5, 30)),
        (datetime(2013, 11, 3, 2, 0), datetime(2013, 11, 3, 7, 0)),
    ],
)
def test_wall_clock_times_of_new_york(local: datetime, expected: datetime) -> None:
    assert utc(local) == expected


def test_a_missing_package_is_named_with_its_remedy() -> None:
    with pytest.raises(NoFlightsError, match=r"no_such_flights with the data is not installed.*make setup.*network"):
        flights_csv("no_such_flights")


def test_a_feed_is_not_written_over_another(feed: Path) -> None:
    with pytest.raises(FileExistsError):
        write_feed(feed, YEAR)
