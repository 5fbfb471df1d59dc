"""Queries into Iceberg tables and files at once through Spark: drivers killed at the phases of an epoch."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.farm import FAULTS, SERVER, ZOMBIE, Crash, Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, difference
from tests.crash.readers import arrow_rows, listed, result_rows
from tests.servers.fixtures import available
from tests.servers.iceberg import library
from tests.servers.programs import NoProgramError
from tests.sinks.iceberg.reading import IcebergReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.crash.drivers import Query

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 2041
FILES = 4
JOBS = ("iceberg", "rows-iceberg")
SERVERS = ("iceberg",)


def some_crashes() -> list[Crash]:
    """Before and after the decision, and between a snapshot and the end of its commit."""
    return [
        Crash(EpochPhase.PREPARE, "jvm", "iceberg"),
        Crash(EpochPhase.COMMITTING, "both", "rows-iceberg"),
        Crash(EpochPhase.DECIDE, ZOMBIE, "rows-iceberg"),
        Crash(EpochPhase.COMMITTING, ZOMBIE, "iceberg"),
    ]


def every_crash() -> list[Crash]:
    faults = [fault for fault in FAULTS if fault != SERVER]
    return [Crash(step, fault, job) for step, fault, job in product(EpochPhase, faults, JOBS)]


class IcebergTables(Suite):
    """Each query has a table of its own."""

    def __init__(self, root: Path, session: SparkSession, crashes: list[Crash]) -> None:
        super().__init__(root, crashes)
        self._session = session

    def prepare(self) -> None:
        jars = [str(jar) for jar in available(library, NoProgramError)]
        for each in self.crashes:
            place = each.query(self.root).place
            place.root.mkdir()
            (place.root / "jars.json").write_text(json.dumps(jars))
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def judge(self, name: str, query: Query) -> None:
        place, rules = query.place, query.rules.rules
        check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
        rows = result_rows(listed(place.out), rules)
        found = arrow_rows(IcebergReader(self._session, place.root / "iceberg").table(), rules)
        assert found == rows, difference("the table", found, rows)
        left = [*(place.root / "iceberg" / "data" / "_sparkjet").glob("*/*/prepared/*")]
        assert left == [], f"prepared files are left: {left}"


def suite(root: Path, session: SparkSession) -> IcebergTables:
    return IcebergTables(root, session, some_crashes())


@pytest.mark.parametrize("name", [each.name for each in some_crashes()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(iceberg: SparkSession, tmp_path: Path) -> None:
    tables = IcebergTables(tmp_path / "tables", iceberg, every_crash())
    Farm(tmp_path, [tables]).crash()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")
