"""The check of the flights job must find whatever is wrong with a run."""

from __future__ import annotations

import shutil
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from examples.flights_check import Verdict, check, replay
from examples.flights_control import Places
from examples.flights_feed import AIRPORTS, TWO_DAYS, write_feed

LAG = timedelta(minutes=30)
MICROSECONDS = 1_000_000
STEP = 600 * MICROSECONDS


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as it should be, computed here in the plainest way."""
    places = Places(tmp_path_factory.mktemp("good"))
    write_feed(places.feed, TWO_DAYS)
    late = replay(places.feed, LAG)
    assert late
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.read_parquet(f"{places.feed}/*.parquet").create("feed")
        places.late.mkdir()
        db.execute("CREATE TABLE dropped AS SELECT * FROM feed WHERE scheduled IS NULL OR id IN ?", [list(late)])
        reason = "CASE WHEN scheduled IS NULL THEN 'null_timestamp' ELSE 'late' END AS _reason"
        db.table("dropped").project(f"*, {reason}").write_parquet(str(places.late / "part-0.parquet"))
        windows: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        flights = db.execute("SELECT id, origin, carrier, epoch_us(scheduled), delay FROM feed WHERE delay IS NOT NULL")
        for flight, origin, carrier, scheduled, delay in flights.fetchall():
            for end in range(scheduled - scheduled % STEP + STEP, scheduled + 6 * STEP + 1, STEP):
                if flight not in late:
                    assert end - 6 * STEP <= scheduled < end
                    windows[origin, carrier, end].append(delay)
        db.execute(
            'CREATE TABLE results ("window" STRUCT(start TIMESTAMPTZ, "end" TIMESTAMPTZ), origin TEXT, carrier TEXT, '
            "departures BIGINT, mean_delay DOUBLE, worst_delay INT, p95_delay INT)"
        )
        values = []
        for (origin, carrier, end), delays in windows.items():
            # The least delay that at least 95 % are at most as great as.
            p95 = next(d for d in sorted(delays) if sum(x <= d for x in delays) >= 0.95 * len(delays))
            values.append((end, origin, carrier, len(delays), sum(delays) / len(delays), max(delays), p95))
        columns = [list(column) for column in zip(*values, strict=True)]
        db.execute(
            """
            INSERT INTO results
            SELECT {'start': to_timestamp(upto / 1e6 - 3600), 'end': to_timestamp(upto / 1e6)}, * EXCLUDE upto
            FROM (SELECT unnest(?) AS upto, unnest(?), unnest(?), unnest(?), unnest(?), unnest(?), unnest(?))
            """,
            columns,
        )
        places.out.mkdir()
        db.table("results").write_parquet(str(places.out / "part-0.parquet"))
    return places.root


@pytest.fixture
def places(good: Path, tmp_path: Path) -> Places:
    """A copy of the good run, to be spoilt."""
    return Places(Path(shutil.copytree(good, tmp_path / "run")))


def verdict_of(places: Places) -> Verdict:
    return check(places.feed, places.out, places.late, LAG)


def spoil(directory: Path, query: str) -> None:
    """Replace the one file of a directory by what a query makes of its rows."""
    path = directory / "part-0.parquet"
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.read_parquet(str(path)).create("rows")
        db.sql(query).write_parquet(str(path))


def test_a_good_run_has_no_problems(places: Places) -> None:
    verdict = verdict_of(places)
    assert verdict.problems == []
    assert verdict.rows == verdict.equal > 1000
    assert verdict.duplicates == verdict.lost == 0
    assert list(verdict.delivered) == list(verdict.late) == list(verdict.cancelled) == list(AIRPORTS)
    assert verdict.late["LGA"] > 0


@pytest.mark.parametrize(
    ("query", "problem", "duplicates", "lost"),
    [
        ("FROM rows UNION ALL (FROM rows LIMIT 1)", "1 result rows are there more than once", 1, 0),
        ("FROM rows LIMIT (SELECT count(*) - 1 FROM rows)", "1 result rows are missing", 0, 1),
        ("SELECT * REPLACE (departures + 1 AS departures) FROM rows", "result rows have wrong values", 0, 0),
        ("SELECT * REPLACE (mean_delay + 1e-6 AS mean_delay) FROM rows", "result rows have wrong values", 0, 0),
        ("SELECT * REPLACE (worst_delay + 1 AS worst_delay) FROM rows", "result rows have wrong values", 0, 0),
        ("SELECT * REPLACE (p95_delay - 1 AS p95_delay) FROM rows", "result rows have wrong values", 0, 0),
        ("SELECT * REPLACE (NULL::INT AS p95_delay) FROM rows", "result rows have wrong values", 0, 0),
        (
            "FROM rows UNION ALL (SELECT * REPLACE ('XX' AS carrier) FROM rows LIMIT 1)",
            "1 result rows should not be there",
            0,
            0,
        ),
    ],
)
def test_wrong_results_are_found(places: Places, query: str, problem: str, duplicates: int, lost: int) -> None:
    spoil(places.out, query)
    verdict = verdict_of(places)
    assert problem in "\n".join(verdict.problems)
    assert (verdict.duplicates, verdict.lost) == (duplicates, lost)


def test_one_wrong_value_is_shown_with_the_right_one(places: Places) -> None:
    first = "(SELECT * REPLACE (12345 AS worst_delay) FROM rows LIMIT 1)"
    spoil(places.out, first + " UNION ALL (FROM rows OFFSET 1)")
    (problem,) = verdict_of(places).problems
    assert problem.startswith("1 result rows have wrong values\n")
    assert "12345" in problem
    assert verdict_of(places).equal == verdict_of(places).rows - 1


@pytest.mark.parametrize(
    ("query", "problem", "duplicates", "lost"),
    [
        ("FROM rows UNION ALL (FROM rows LIMIT 1)", "1 late or cancelled flights were delivered more than once", 1, 0),
        ("SELECT * REPLACE (carrier || 'X' AS carrier) FROM rows", "differ from those of the feed", 0, 0),
        ("SELECT * REPLACE ('late' AS _reason) FROM rows", "dropped flights have the wrong reason", 0, 0),
    ],
)
def test_wrongly_delivered_flights_are_found(
    places: Places, query: str, problem: str, duplicates: int, lost: int
) -> None:
    spoil(places.late, query)
    verdict = verdict_of(places)
    assert problem in "\n".join(verdict.problems)
    assert (verdict.duplicates, verdict.lost) == (duplicates, lost)


def test_lost_cancelled_flights_are_found(places: Places) -> None:
    spoil(places.late, "FROM rows WHERE scheduled IS NOT NULL")
    verdict = verdict_of(places)
    assert verdict.lost > 0
    assert f"{verdict.lost} cancelled flights were not delivered" in verdict.problems


def test_a_late_flight_that_is_neither_delivered_nor_counted_is_found(places: Places) -> None:
    spoil(places.late, "FROM rows WHERE id <> (SELECT min(id) FROM rows WHERE scheduled IS NOT NULL)")
    problems = "\n".join(verdict_of(places).problems)
    assert "1 flights were not called late that a replay of the feed finds too late" in problems
    assert "result rows" in problems


def test_nothing_is_won_by_calling_flights_late(places: Places) -> None:
    # A whole airline is called late, and the results agree with that: only the replay knows better.
    with duckdb.connect() as db:
        chosen = db.read_parquet(f"{places.feed}/*.parquet").filter("carrier = 'F9'").project("*, 'late' AS _reason")
        chosen.write_parquet(str(places.late / "part-1.parquet"))
    spoil(places.out, "FROM rows WHERE carrier <> 'F9'")
    (problem,) = verdict_of(places).problems
    assert "flights were called late that a replay of the feed finds in time" in problem


def test_with_a_lag_longer_than_any_delay_nothing_is_late(places: Places) -> None:
    assert replay(places.feed, timedelta(hours=30)) == set()
