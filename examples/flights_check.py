"""The second opinion: DuckDB computes the same from the same files, in one go and without any stream.

Nothing here uses sparkjet or Spark; the output is read as any reader of Parquet would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import duckdb

from examples.flights_feed import AIRPORTS

STEP = timedelta(minutes=10)
_EXAMPLES = 3


@dataclass
class Verdict:
    """What the comparison found.

    Attributes:
        rows: Result rows.
        equal: Result rows that are as DuckDB computes them.
        duplicates: Result rows and delivered flights that are there more than once.
        lost: Flights and rows that should be there and are not.
        delivered: Flights of each airport in the feed.
        late: Flights of each airport that came too late.
        cancelled: Flights of each airport without event time.
        problems: Every check that failed, in words.
    """

    rows: int = 0
    equal: int = 0
    duplicates: int = 0
    lost: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check(feed: Path, out: Path, late: Path, lag: timedelta) -> Verdict:
    """Compare the results and the dropped flights of a run with its feed.

    Every flight of the feed must be in exactly one of three sets: without event time, late, or accepted. The first
    two are delivered as rows with the flight's unique id; the third is what is left, and the results must be those
    of a batch computation over exactly it. Which flights may be late at all is computed by :func:`replay`.
    """
    verdict = Verdict()
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        _load(db, "feed", feed)
        _load(db, "late", late)
        _load(db, "results", out)
        verdict.delivered = _by_airport(db, "SELECT origin, count(*) FROM feed GROUP BY ALL")
        _check_dropped(db, verdict, replay(feed, lag))
        _check_results(db, verdict)
    return verdict


def replay(feed: Path, lag: timedelta) -> set[int]:
    """The ids of the flights that are late, found by going through the feed flight by flight.

    Each airport's clock is its highest scheduled time so far, the watermark is the slowest airport's clock less the
    lag, and a ten-minute frame is closed when the watermark has passed its end. A batch is judged by the watermark
    that the batches before it have left.
    """
    late: set[int] = set()
    clocks: dict[str, int] = {}
    step, allowed = (duration // timedelta(microseconds=1) for duration in (STEP, lag))
    with duckdb.connect() as db:
        for file in sorted(feed.glob("*.parquet")):
            closed = min(clocks.values()) - allowed if clocks.keys() == set(AIRPORTS) else None
            rows = db.read_parquet(str(file)).project("id, origin, epoch_us(scheduled)").fetchall()
            for flight, origin, scheduled in rows:
                if scheduled is None:
                    continue
                if closed is not None and scheduled - scheduled % step + step <= closed:
                    late.add(flight)
                clocks[origin] = max(clocks.get(origin, scheduled), scheduled)
    return late


def _check_dropped(db: duckdb.DuckDBPyConnection, verdict: Verdict, expected_late: set[int]) -> None:
    """Late flights and cancelled ones: each delivered once, unchanged, and for the right reason."""
    reasons = "SELECT origin, count(DISTINCT id) FROM late WHERE _reason = ? GROUP BY ALL"
    verdict.late = _by_airport(db, reasons, "late")
    verdict.cancelled = _by_airport(db, reasons, "null_timestamp")
    (again,) = _row(db, "SELECT count(*) - count(DISTINCT id) FROM late")
    (foreign,) = _row(
        db,
        "SELECT count(*) FROM (SELECT id, origin, carrier, flight, dest, epoch_us(scheduled), delay FROM late "
        "EXCEPT SELECT id, origin, carrier, flight, dest, epoch_us(scheduled), delay FROM feed)",
    )
    (lost,) = _row(
        db,
        "SELECT count(*) FROM feed WHERE scheduled IS NULL AND id NOT IN (SELECT id FROM late WHERE scheduled IS NULL)",
    )
    (mistaken,) = _row(db, "SELECT count(*) FROM late WHERE (_reason = 'null_timestamp') <> (scheduled IS NULL)")
    found_late = {flight for (flight,) in db.execute("SELECT id FROM late WHERE _reason = 'late'").fetchall()}
    verdict.duplicates += again
    verdict.lost += lost
    for number, what in [
        (again, "late or cancelled flights were delivered more than once"),
        (foreign, "delivered late or cancelled flights differ from those of the feed"),
        (lost, "cancelled flights were not delivered"),
        (mistaken, "dropped flights have the wrong reason"),
        (len(found_late - expected_late), "flights were called late that a replay of the feed finds in time"),
        (len(expected_late - found_late), "flights were not called late that a replay of the feed finds too late"),
    ]:
        if number:
            verdict.problems.append(f"{number} {what}")


def _check_results(db: duckdb.DuckDBPyConnection, verdict: Verdict) -> None:
    """The results, row by row."""
    db.execute(_EXPECTED)
    db.execute(_COMPARED)
    verdict.rows, again = _row(db, "SELECT count(*), count(*) - count(DISTINCT (origin, carrier, upto)) FROM found")
    missing, unexpected, differing, verdict.equal = _row(
        db,
        "SELECT count(*) FILTER (verdict = 'missing'), count(*) FILTER (verdict = 'unexpected'), "
        "count(*) FILTER (verdict = 'differing'), count(*) FILTER (verdict = 'equal') FROM compared",
    )
    verdict.duplicates += again
    verdict.lost += missing
    for number, kind, what in [
        (again, None, "result rows are there more than once"),
        (missing, "missing", "result rows are missing"),
        (unexpected, "unexpected", "result rows should not be there"),
        (differing, "differing", "result rows have wrong values"),
    ]:
        if number:
            some = db.execute(
                "SELECT * FROM compared WHERE verdict = ? ORDER BY ALL LIMIT ?", [kind, _EXAMPLES]
            ).fetchall()
            verdict.problems.append(f"{number} {what}" + "".join(f"\n    {row}" for row in some))


def _load(db: duckdb.DuckDBPyConnection, table: str, directory: Path) -> None:
    db.read_parquet(f"{directory}/*.parquet").create(table)


def _by_airport(db: duckdb.DuckDBPyConnection, query: str, *values: str) -> dict[str, int]:
    found = dict(db.execute(query, list(values)).fetchall())
    return {airport: found.get(airport, 0) for airport in AIRPORTS}


def _row(db: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row: tuple[int, ...] | None = db.execute(query).fetchone()
    assert row is not None  # noqa: S101 - aggregates without groups have one row
    return row


# An hour holds six frames of ten minutes, so a flight is in six windows: those that end at the end of its frame and
# at the five steps after it. Frames are cut from 1970-01-01 00:00 UTC on; New York is whole hours away from UTC, so
# they begin at whole ten minutes there too.
_EXPECTED = """
    CREATE TABLE expected AS
    WITH accepted AS (SELECT * FROM feed WHERE scheduled IS NOT NULL AND id NOT IN (SELECT id FROM late)),
         placed AS (
             SELECT *, (epoch_us(scheduled) // 600_000_000 + 1 + unnest(range(6))) * 600_000_000 AS upto FROM accepted)
    SELECT origin, carrier, upto, count(*) AS departures, avg(delay) AS mean_delay, max(delay) AS worst_delay,
           quantile_disc(delay, 0.95) AS p95_delay
    FROM placed GROUP BY ALL
"""
_COMPARED = """
    CREATE TABLE found AS
    SELECT origin, carrier, epoch_us("window"."end") AS upto, epoch_us("window".start) AS since, departures, mean_delay,
           worst_delay, p95_delay
    FROM results;
    CREATE TABLE compared AS
    SELECT origin, carrier, make_timestamp(upto) AS window_end,
           {'departures': f.departures, 'mean': f.mean_delay, 'worst': f.worst_delay, 'p95': f.p95_delay} AS found,
           {'departures': e.departures, 'mean': e.mean_delay, 'worst': e.worst_delay, 'p95': e.p95_delay} AS expected,
           CASE WHEN f.departures IS NULL THEN 'missing'
                WHEN e.departures IS NULL THEN 'unexpected'
                WHEN f.departures = e.departures AND f.worst_delay = e.worst_delay AND f.p95_delay = e.p95_delay
                     AND abs(f.mean_delay - e.mean_delay) <= 1e-9 * greatest(1, abs(e.mean_delay))
                     AND f.since = upto - 3_600_000_000 THEN 'equal'
                ELSE 'differing' END AS verdict
    FROM found f FULL JOIN expected e USING (origin, carrier, upto)
"""
