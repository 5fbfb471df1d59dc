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

SEEDS = (237, 246)
"""Rounds that together kill both servers, make the disk read-only and set the clock. Drivers are killed in
`tests/crash`, and disks filled in `engine/test_full_disk.py`."""
ROUNDS, TRIAL = 200, 10
"""The long run: rounds in all, and rounds per query."""


@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_two_rounds_lose_and_repeat_nothing(root: Path, postgres: PostgresServer, kafka: KafkaServer) -> None:
    # No executor of its own is among what they kill.
    run(root, postgres, kafka, SEEDS, print, master="local[2]")


def test_the_rounds_meet_every_kind_of_fault_that_ci_has_nowhere_else() -> None:
    met = {fault.kind for seed in SEEDS for fault in Plan.of(seed).faults}
    assert met >= {"postgres killed", "kafka killed", "disk read-only", "clock stepped"}


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(0, ROUNDS, TRIAL))
def test_many_rounds_lose_and_repeat_nothing(
    root: Path, postgres: PostgresServer, kafka: KafkaServer, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), shown(TRIAL) as tell:
        run(root, postgres, kafka, range(first, first + TRIAL), tell)
