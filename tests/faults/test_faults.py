"""One query into files, PostgreSQL and Kafka at once, through rounds of random faults from printed seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.plan import Plan
from tests.faults.rounds import run, shown

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

SEEDS = (237, 246, 64)
"""Rounds that together kill the driver and both servers, fill the disk, make it read-only and set the clock."""
ROUNDS, TRIAL = 200, 10
"""The long run: rounds in all, and rounds per query."""


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_three_rounds_lose_and_repeat_nothing(root: Path, postgres: PostgresServer, kafka: KafkaServer) -> None:
    # No executor of its own is among what they kill.
    run(root, postgres, kafka, SEEDS, print, master="local[2]")


def test_the_three_rounds_meet_every_kind_of_fault_that_ci_has_time_for() -> None:
    met = {fault.kind for seed in SEEDS for fault in Plan.of(seed).faults}
    assert met >= {
        "driver killed",
        "postgres killed",
        "kafka killed",
        "disk full",
        "disk read-only",
        "clock stepped",
    }


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(0, ROUNDS, TRIAL))
def test_many_rounds_lose_and_repeat_nothing(
    root: Path, postgres: PostgresServer, kafka: KafkaServer, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), shown(TRIAL) as tell:
        run(root, postgres, kafka, range(first, first + TRIAL), tell)
