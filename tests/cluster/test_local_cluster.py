"""Executors in separate processes: the same windows, and no row lost with an executor or the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
# Several drivers one after the other: on a busy machine more than the ten minutes of other tests.
pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]


def run(log: Path, *tasks: str) -> int:
    """Run the driver of this folder in a separate process, one task after the other; returns its exit status."""
    command = [sys.executable, "-m", "tests.cluster.driver", *tasks]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with log.open("ab") as output:
        status = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
        ).returncode
    if status not in {0, -signal.SIGKILL}:
        print(log.read_text()[-8000:])  # noqa: T201 - the only way to see why it failed
    return status


def fill(home: Path, batches: int = 6) -> None:
    """Batches of two substreams, one of them behind, with late rows and rows without a time."""
    feed = Feed(home / "in")
    for batch in range(batches):
        time = batch * 25
        feed.add(
            *rows([time, time + 3, time + 11], p="a", k="x", v=batch),
            *rows([time - 8, time - 6], p="b", k="y", v=2 * batch),
            *rows([time - 70], p="b", k="late", v=1),
            *rows([None], p="a", k="x", v=1),
        )


def output(home: Path) -> dict[str, list[str]]:
    """Result rows and late rows, as text."""
    with duckdb.connect() as db:
        return {
            folder: sorted(map(repr, db.read_parquet(f"{home / folder}/*.parquet").fetchall()))
            for folder in ("out", "late", "visits")
        }


def watermarks(home: Path) -> dict[str, Any]:
    """The policies' state in the newest record."""
    newest = RecordLog(DirectoryStore(home / "ck" / "snapshots")).newest()
    assert newest is not None
    return newest[1].watermarks


@pytest.mark.long
def test_the_contract_of_sinks_holds_in_postgres_and_no_row_is_lost_there(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """The suite with separate executors; then a query that loses one of them, and its driver."""
    homes = {fault: tmp_path / fault for fault in ("contract", "executor", "driver")}
    for name, home in homes.items():
        home.mkdir()
        fill(home)
        (home / "dsn").write_text(postgres.database(f"cluster_{name}"))
    log = tmp_path / "driver.log"
    assert run(log, f"contract={homes['contract']}", f"executor={homes['executor']}", f"driver={homes['driver']}") < 0
    assert "restoring it" in log.read_text()
    assert run(log, f"none={homes['driver']}") == 0
    for home in (homes["executor"], homes["driver"]):
        dsn = (home / "dsn").read_text()
        counted = "SELECT extract(epoch FROM start)::bigint, k, n FROM out ORDER BY 1, 2"
        with duckdb.connect() as db:
            query = 'SELECT epoch("window"."start")::bigint, k, n FROM read_parquet(?) ORDER BY 1, 2'
            files = db.execute(query, [f"{home}/out/*.parquet"]).fetchall()
        assert postgres.psql(dsn, counted) == [[str(value) for value in row] for row in files]
        assert len(files) > 10
        left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        assert postgres.psql(dsn, left) == []


@pytest.mark.long
def test_losing_an_executor_or_the_driver_changes_nothing(tmp_path: Path) -> None:
    """One driver checks the windows, runs undisturbed and loses an executor; a second one dies and is replaced."""
    homes = {fault: tmp_path / fault for fault in ("none", "executor", "driver")}
    for home in homes.values():
        home.mkdir()
        fill(home)
    log = tmp_path / "driver.log"
    assert run(log, "windows", f"none={homes['none']}", f"executor={homes['executor']}") == 0
    assert "restoring it" in log.read_text()
    assert run(log, f"driver={homes['driver']}") == -signal.SIGKILL
    # As a start leaves it that is killed while it looks whether the executors share the directory.
    (homes["driver"] / "ck" / "snapshots" / ".sparkjet-probe-0000dead").mkdir()
    assert run(log, f"none={homes['driver']}") == 0
    assert list(homes["driver"].rglob(".sparkjet-probe-*")) == []
    undisturbed = output(homes["none"])
    assert len(undisturbed["out"]) > 10
    assert len(undisturbed["late"]) >= 6
    assert output(homes["executor"]) == undisturbed
    assert output(homes["driver"]) == undisturbed
    # An epoch that is rerun in the same process reports nothing to a policy twice.
    assert watermarks(homes["executor"]) == watermarks(homes["none"])
