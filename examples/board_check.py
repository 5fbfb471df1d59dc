"""The second opinion of the board: DuckDB computes the same from the same files, in one go and without any stream."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

from examples.flights_feed import AIRPORTS

_EXPECTED = """
    WITH accepted AS (
             SELECT origin, delay, scheduled FROM read_parquet($feed)
             WHERE scheduled IS NOT NULL AND id NOT IN (SELECT unnest($late::BIGINT[]))),
         starts AS (SELECT origin, delay, time_bucket(INTERVAL 10 MINUTE, scheduled) AS bucket FROM accepted)
    SELECT bucket - to_minutes(10 * number::INT) AS since, origin, count(*) AS departures, sum(delay)::BIGINT AS delay
    FROM starts, range(6) AS steps(number) GROUP BY ALL
"""


def differences(feed: Path, late: Path, board: pa.Table) -> list[str]:
    """What is wrong with the rows of the board, in words; nothing if each is as DuckDB computes it."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        dropped = [id_ for (id_,) in db.execute("SELECT id FROM read_parquet(?)", [_files(late)]).fetchall()]
        db.register("board", board.select(["since", "origin", "departures", "delay"]))
        parameters = {"feed": _files(feed), "late": dropped}
        expected = set(db.execute(_EXPECTED, parameters).fetchall())
        found = db.execute("SELECT since, origin, departures, delay FROM board").fetchall()
    problems = []
    if len(found) != len(set(found)):
        problems.append(f"{len(found) - len(set(found))} rows of the board are there more than once")
    for rows, told in ((expected - {*found}, "missing, or different"), ({*found} - expected, "not to be there")):
        if rows:
            problems.append(f"{len(rows)} rows of the board are {told}, e.g. {min(rows)}")
    if {origin for _, origin, *_ in found} != set(AIRPORTS):
        problems.append(f"the board has other airports than {', '.join(AIRPORTS)}")
    return problems


def _files(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.rglob("*.parquet"))]
