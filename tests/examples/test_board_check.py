"""The check of the board must find whatever is wrong with a run."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.board_check import differences
from examples.flights_feed import AIRPORTS

BEGIN = datetime(2026, 1, 5, tzinfo=timezone.utc)
TEN = timedelta(minutes=10)
SCHEMA = pa.schema(
    [
        ("since", pa.timestamp("us", "UTC")),
        ("origin", pa.string()),
        ("departures", pa.int64()),
        ("delay", pa.int64()),
        ("other", pa.int64()),
    ]
)


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, Path, list[dict[str, Any]]]:
    """Feed, late rows and board of a run as it should be, computed in the plainest way."""
    feed, late = tmp_path / "feed", tmp_path / "late"
    flights = [
        {"id": n, "origin": AIRPORTS[n % len(AIRPORTS)], "delay": n % 50, "scheduled": BEGIN + n * timedelta(minutes=3)}
        for n in range(10 * len(AIRPORTS))
    ]
    nowhere = {"id": -1, "origin": AIRPORTS[0], "delay": 1, "scheduled": None}
    for directory, rows in ((feed, [*flights, nowhere]), (late, [{"id": 7}])):
        directory.mkdir()
        pq.write_table(pa.Table.from_pylist(rows), directory / "part-0.parquet")
    hours: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for flight in flights:
        bucket = flight["scheduled"] - (flight["scheduled"] - BEGIN) % TEN
        for number in range(6) if flight["id"] != 7 else ():
            hours[bucket - number * TEN, flight["origin"]].append(flight["delay"])
    board = [
        {"since": since, "origin": origin, "departures": len(delays), "delay": sum(delays)}
        for (since, origin), delays in hours.items()
    ]
    return feed, late, board


def told(run: tuple[Path, Path, list[dict[str, Any]]], board: list[dict[str, Any]]) -> list[str]:
    return differences(run[0], run[1], pa.Table.from_pylist(board, SCHEMA))


def test_a_board_that_is_right_has_no_differences(run: tuple[Path, Path, list[dict[str, Any]]]) -> None:
    assert told(run, run[2]) == []


def test_faults_are_reported(run: tuple[Path, Path, list[dict[str, Any]]]) -> None:
    first, *others = run[2]
    assert told(run, others)[0].startswith("1 rows of the board are missing, or different, e.g. (")
    assert told(run, [first, *run[2]]) == ["1 rows of the board are there more than once"]
    wrong = {**first, "delay": first["delay"] + 1}
    assert [each.partition(",")[0] for each in told(run, [wrong, *others])] == [
        "1 rows of the board are missing",
        "1 rows of the board are not to be there",
    ]
    gone = [row for row in run[2] if row["origin"] != AIRPORTS[0]]
    assert told(run, gone)[-1].startswith("the board has other airports than ")
