"""``python -m sparkjet txns``: lists prepared transactions and settles them by the record only."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.cli import main
from tests.protocol.conftest import orders
from tests.protocol.driver import Orders
from tests.protocol.processes import Process

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

__all__ = ["orders"]
pytestmark = pytest.mark.crash


def listed(server: PostgresServer, dsn: str) -> int:
    query = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"
    return int(server.psql(dsn, query)[0][0])


def rows(server: PostgresServer, dsn: str) -> int:
    return len(server.psql(dsn, "SELECT n FROM out"))


def test_what_the_record_decides_is_settled_and_the_rest_is_left(
    postgres: PostgresServer, orders: Orders, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["txns", str(orders.home), "--dsn", orders.dsn]
    with Process(replace(orders, stop_at="manifest", stop_in=2)) as driver:
        driver.reached()
        assert main([*arguments, "--settle"]) == 0
        assert "open " in capsys.readouterr().out
        # Beside a running driver: what it is about to decide is left to it.
        assert listed(postgres, orders.dsn) == 2
        driver.kill()
    with Process(replace(orders, stop_at="decided", stop_in=2)) as successor:
        successor.reached()
        successor.kill()
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("decided ") == 2
    assert (listed(postgres, orders.dsn), rows(postgres, orders.dsn)) == (2, 10)
    assert main([*arguments, "--settle"]) == 0
    assert "committed 2, rolled back 0, left 0" in capsys.readouterr().out
    assert (listed(postgres, orders.dsn), rows(postgres, orders.dsn)) == (0, 20)


def test_orphans_are_rolled_back(postgres: PostgresServer, orders: Orders, capsys: pytest.CaptureFixture[str]) -> None:
    with Process(replace(orders, stop_at="manifest", stop_in=2, late_task=True)) as driver:
        driver.reached()
        driver.go_on()
        assert driver.ended() is None
    with Process(replace(orders, epochs=5, stop_in=5, stop_at="settled", late_task=True)) as driver:
        driver.reached()
        driver.kill()
    assert main(["txns", str(orders.home), "--dsn", orders.dsn, "--settle"]) == 0
    assert listed(postgres, orders.dsn) == 0
    assert f"query {orders.query}, epoch 5: " in capsys.readouterr().out


def test_a_home_without_records_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txns", str(tmp_path)]) == 1
    assert "contains no record of a query" in capsys.readouterr().err


def test_a_password_in_a_wrong_dsn_is_not_repeated(orders: Orders, capsys: pytest.CaptureFixture[str]) -> None:
    with Process(orders) as driver:
        assert driver.ended() is None
    assert main(["txns", str(orders.home), "--dsn", "host=127.0.0.1 never-shown"]) == 1
    assert "never-shown" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "cannot be read: not UTF-8"),
        (b"", '"kafka.properties": kafka.bootstrap.servers names no broker. Give it as "host:port'),
        (b"bootstrap.servers=h:1\nsecurity.protocol=TLS", 'kafka.security.protocol: "TLS" is not one of'),
        # Right, and so the checkpoint is next; also with the prefix that options have.
        (b"# brokers\nbootstrap.servers = h:1\n", "contains no record of a query"),
        (b"kafka.bootstrap.servers = h:1\n", "contains no record of a query"),
    ],
)
def test_wrong_properties_are_named_with_their_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: bytes | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if lines is not None:
        Path("kafka.properties").write_bytes(lines)
    assert main(["txns", str(tmp_path), "--kafka", "kafka.properties"]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "start: " not in said


def test_one_server_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txns", str(tmp_path), "--dsn", "host=h", "--kafka", "kafka.properties"]) == 2
    assert "--dsn and --kafka exclude each other" in capsys.readouterr().err


def test_only_postgres_refuses_what_is_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txns", str(tmp_path), "--kafka", "kafka.properties", "--refused", "file"]) == 1
    assert "--refused: this is for rows that a table in PostgreSQL refuses: pass --dsn" in capsys.readouterr().err


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkjet", "txns", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Give its checkpointLocation" in done.stderr
