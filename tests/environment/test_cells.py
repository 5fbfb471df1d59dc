"""Queries in strange environments: equal to Spark's batch, or refused before the decision with a way out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.environment.cells import Cell, alone, many, pairs
from tests.environment.destinations import Servers
from tests.environment.trial import Trial
from tests.parameters import mostly_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.grid.processes import MemberProcess
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

ALONE = list(alone())
DONE = itertools.count(1)


@pytest.fixture
def verdict(
    spark: SparkSession, postgres: PostgresServer, kafka: KafkaServer, grid_member: MemberProcess, tmp_path: Path
) -> Callable[[Cell], str]:
    """Tries a cell."""
    return lambda cell: Trial(cell, spark, tmp_path, Servers(postgres, kafka), grid_member).check()


@pytest.mark.parametrize("cell", mostly_long({str(cell): cell for cell in pairs()}, often=[*map(str, many())]))
def test_every_pair_of_what_can_be_strange(verdict: Callable[[Cell], str], cell: Cell) -> None:
    verdict(cell)


@pytest.mark.long
@pytest.mark.parametrize("cell", ALONE, ids=str)
def test_everything_strange_with_every_query_sink_and_home(
    verdict: Callable[[Cell], str], cell: Cell, capfd: pytest.CaptureFixture[str]
) -> None:
    found = verdict(cell)
    # This takes hours, and a run that is ended has said how far it came.
    with capfd.disabled():
        print(f"{next(DONE)}/{len(ALONE)} {cell}: {found}", flush=True)  # noqa: T201
