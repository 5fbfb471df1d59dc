"""Beside a connector for Spark, on the line that it is for: tables that it makes, keeps in order and reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkjet.spark_line import LINE
from tests.servers.fixtures import available
from tests.servers.iceberg import library
from tests.servers.programs import NoProgramError, jars
from tests.versions.connectors import CONNECTOR

pytestmark = pytest.mark.crash


# With two queries in a row, of which each epoch has drivers of its own.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [
    pytest.param("delta", marks=pytest.mark.skipif(LINE != (4, 2), reason="the connector is for Spark 4.2")),
    pytest.param("iceberg", marks=pytest.mark.skipif(LINE != (4, 1), reason="the connector is for Spark 4.1")),
])  # fmt: skip
def test_beside_a_connector(tmp_path: Path, name: str) -> None:
    available(library if name == "iceberg" else lambda: [jars(CONNECTOR)], NoProgramError)
    command = [sys.executable, "-m", "tests.versions.connectors", name, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
