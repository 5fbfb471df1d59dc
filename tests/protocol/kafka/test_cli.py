"""``python -m sparkjet txns --kafka``: lists open transactions and settles them by the record only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.cli import main
from tests.protocol.driver import Orders
from tests.protocol.kafka.checks import Driver, open_transactions, seen

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash


def properties(server: KafkaServer, directory: Path) -> str:
    file = directory / "kafka.properties"
    lines = ["# how to connect", *(f"{name} = {value}" for name, value in server.client().items())]
    file.write_text("\n".join(lines))
    return str(file)


def test_what_the_record_decides_is_settled_and_the_rest_is_left(
    kafka: KafkaServer, orders: Orders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["txns", str(orders.home), "--kafka", properties(kafka, tmp_path)]
    with Driver(replace(orders, stop_at="manifest", stop_in=2)) as driver:
        driver.reached()
        assert main([*arguments, "--settle"]) == 0
        assert "open  " in capsys.readouterr().out
        # Beside a running driver: what it is about to decide is left to it.
        assert len(open_transactions(orders)) == 2
        driver.kill()
    with Driver(replace(orders, stop_at="decided", stop_in=2)) as successor:
        successor.reached()
        successor.kill()
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("decided ") == 2
    assert (len(open_transactions(orders)), len(seen(kafka, orders))) == (2, 10)
    assert main([*arguments, "--settle"]) == 0
    assert "committed 2, rolled back 0, left 0" in capsys.readouterr().out
    assert (len(open_transactions(orders)), len(seen(kafka, orders))) == (0, 20)


def test_rows_that_wait_in_the_home_are_left_to_the_query(
    kafka: KafkaServer, staged: Orders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Driver(replace(staged, stop_at="decided", stop_in=2)) as driver:
        driver.reached()
        driver.kill()
    assert main(["txns", str(staged.home), "--kafka", properties(kafka, tmp_path), "--settle"]) == 0
    assert "epoch 2 of output 'results': its rows are in the home, and the next start" in capsys.readouterr().out
    assert len(seen(kafka, staged)) == 10


def test_orphans_are_aborted(
    kafka: KafkaServer, orders: Orders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Driver(replace(orders, stop_at="decided", stop_in=2, late_task=True)) as driver:
        driver.reached()
        driver.kill()
    assert main(["txns", str(orders.home), "--kafka", properties(kafka, tmp_path), "--settle"]) == 0
    assert "committed 2, rolled back 0, left 0" not in capsys.readouterr().out
    assert open_transactions(orders) == []


def test_unusable_arguments_are_named(
    kafka: KafkaServer, orders: Orders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Driver(replace(orders, epochs=1)) as driver:
        assert driver.ended() is None
    assert main(["txns", str(orders.home), "--kafka", str(tmp_path / "none")]) == 1
    (tmp_path / "empty").write_text("")
    assert main(["txns", str(orders.home), "--kafka", str(tmp_path / "empty")]) == 1
    said = capsys.readouterr().err
    assert "cannot be read: No such file" in said
    assert "kafka.bootstrap.servers" in said
