"""Queries into Delta tables and files at once through Spark: drivers killed at the phases of an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.connectors.delta.reading import table_at
from tests.crash.farm import ZOMBIE, Crash, Farm
from tests.crash.tables import Tables, every_crash
from tests.servers.delta import kernel

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

JOBS = ("delta", "rows-delta", "upserts-delta")
SERVERS = ()


def some_crashes() -> list[Crash]:
    """Between a version and the end of its commit; before the decision in `test_iceberg.py`."""
    return [
        Crash(EpochPhase.COMMITTING, "python", "rows-delta"),
        Crash(EpochPhase.COMMITTING, ZOMBIE, "delta"),
    ]


class DeltaTables(Tables):
    """See :class:`Tables`."""

    name, seed, jars, marks = "delta", 2020, staticmethod(kernel), "_sparkjet"

    def read(self, table: Path) -> pa.Table:
        return table_at(table)


def suite(root: Path) -> DeltaTables:
    return DeltaTables(root, some_crashes())


@pytest.mark.parametrize("name", [each.name for each in some_crashes()])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == ""


@pytest.mark.long
def test_every_crash_loses_and_repeats_nothing(tmp_path: Path) -> None:
    tables = DeltaTables(tmp_path / "tables", every_crash(JOBS))
    Farm(tmp_path, [tables]).crash()
    assert tables.verdicts == dict.fromkeys(tables.verdicts, "")
