"""Queries into Iceberg tables and files at once through Spark: drivers killed at the phases of an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sparkjet import EpochPhase
from tests.connectors.iceberg.reading import IcebergReader
from tests.crash.farm import Crash, Farm
from tests.crash.tables import Tables, every_crash
from tests.servers.iceberg import library

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

JOBS = ("iceberg", "rows-iceberg", "upserts-iceberg")
SERVERS = ("iceberg",)


def some_crashes() -> list[Crash]:
    """Before the decision, and between a snapshot and the end of its commit; zombies in `test_delta.py`.

    The contract of sinks has drivers that slept for epochs, for both.
    """
    return [
        Crash(EpochPhase.PREPARE, "jvm", "iceberg"),
        Crash(EpochPhase.COMMITTING, "both", "rows-iceberg"),
    ]


class IcebergTables(Tables):
    """See :class:`Tables`."""

    name, seed, jars, marks = "iceberg", 2041, staticmethod(library), "data/_sparkjet"

    def __init__(self, root: Path, session: SparkSession, crashes: list[Crash]) -> None:
        super().__init__(root, crashes)
        self._session = session

    def read(self, table: Path) -> pa.Table:
        reader = IcebergReader(self._session, table)
        # Its files alone, where rows were replaced, have those too.
        return reader.table() if reader.deletes_nothing() else pa.Table.from_pylist(reader.rows())


def suite(root: Path, session: SparkSession) -> IcebergTables:
    return IcebergTables(root, session, some_crashes())


@pytest.mark.parametrize("name", [each.name for each in some_crashes()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(iceberg: SparkSession, tmp_path: Path) -> None:
    tables = IcebergTables(tmp_path / "tables", iceberg, every_crash(JOBS))
    Farm(tmp_path, [tables]).crash()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")
