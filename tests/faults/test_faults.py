"""One query into files, PostgreSQL and Kafka at once, through rounds of random faults from printed seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.rounds import run, shown

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

ROUNDS, TRIAL = 200, 10
"""Rounds in all, and rounds per query."""


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("first", range(0, ROUNDS, TRIAL))
def test_many_rounds_lose_and_repeat_nothing(
    root: Path, postgres: PostgresServer, kafka: KafkaServer, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), shown(TRIAL) as tell:
        run(root, postgres, kafka, range(first, first + TRIAL), tell)
