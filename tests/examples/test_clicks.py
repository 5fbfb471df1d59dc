"""The clicks job on the servers of the tests, its check, and what it says where it cannot run."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from examples import clicks
from examples.clicks_check import differences
from examples.clicks_feed import BEHIND, GAP, MORNING, Click, Visit, expected
from examples.clicks_servers import Servers, servers
from tests.servers.postgres import NoServerError
from tests.servers.programs import NoProgramError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

ONE, TWO = Visit("ann", 0, 60, 2, "/"), Visit("bob", 0, 0, 1, "/help")


@pytest.mark.crash
def test_every_visit_is_in_the_table_once(
    spark: SparkSession, kafka: KafkaServer, postgres: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    said = io.StringIO()
    running = Servers(kafka.bootstrap, dsn, lambda query: postgres.psql(dsn, query))
    assert clicks.job(spark, running, tmp_path / "checkpoint", Console(file=said)), said.getvalue()
    assert len(postgres.psql(dsn, "SELECT DISTINCT visitor FROM visits")) == 8
    # Rich wraps lines at the console's width.
    shown = " ".join(said.getvalue().split())
    assert "each once and equal to those computed from the clicks; no click was late" in shown


def test_the_partition_of_the_app_is_behind_all_along() -> None:
    given = clicks.clicks()
    newest = MORNING
    for click in given:
        if click.partition == 0:
            newest = click.time
        else:
            # Not once does it catch up: one watermark for both partitions would drop it.
            assert click.time <= newest - BEHIND + timedelta(hours=1)
    assert {click.partition for click in given} == {0, 1}


def test_a_pause_of_the_gap_ends_a_visit_and_a_shorter_one_does_not() -> None:
    times = [MORNING, MORNING + GAP, MORNING + 2 * GAP - timedelta(seconds=1)]
    begin = int(MORNING.timestamp())
    assert expected([Click(0, time, "ann", page) for time, page in zip(times, "abc", strict=True)]) == [
        Visit("ann", begin, begin, 1, "a"),
        Visit("ann", begin + 1800, begin + 3599, 2, "c"),
    ]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([ONE, TWO], []),
        ([ONE], ["1 visits are missing, e.g. Visit(visitor='bob'"]),
        ([ONE, TWO, ONE], ["1 visits should not be there, or not so often, e.g. Visit(visitor='ann'"]),
        ([ONE, TWO._replace(clicks=2)], ["1 visits should not be there", "1 visits are missing"]),
    ],
)
def test_wrong_rows_are_found(found: list[Visit], told: list[str]) -> None:
    problems = differences(found, [ONE, TWO])
    assert len(problems) == len(told)
    assert all(problem.startswith(start) for problem, start in zip(problems, told, strict=True))


@pytest.mark.parametrize(
    ("which", "error"),
    [
        ("postgres", NoServerError("no PostgreSQL server found: apt-get install postgresql")),
        ("kafka", NoProgramError("no mvn to start a Kafka broker with: apt-get install maven")),
    ],
)
def test_without_a_server_there_is_one_clear_message(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, which: str, error: Exception
) -> None:
    def missing() -> Path:
        raise error

    found = {"postgres": lambda: tmp_path, "kafka": lambda: tmp_path, which: missing}
    assert clicks.main(functools.partial(servers, **found)) == 1
    assert capsys.readouterr().err == f"clicks: {error}\n"


@pytest.mark.crash
@pytest.mark.long
def test_the_whole_job_leaves_nothing_behind(kafka: KafkaServer, postgres: PostgresServer) -> None:
    # The two fixtures only say whether this machine has servers; the job starts its own.
    root = Path(clicks.__file__).parents[1]
    # Not pytest's directory, which the database's user may not enter.
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        done = subprocess.run(
            [sys.executable, str(root / "examples" / "clicks.py")],
            env={**os.environ, "TMPDIR": home},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        # Java's own, of processes that were killed.
        left = [each.name for each in Path(home).iterdir() if not each.name.startswith("hsperfdata")]
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "no click was late" in done.stdout
    assert left == []
