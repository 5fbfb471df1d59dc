from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.programs import ARCHIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what a process has mapped")
def test_the_jvm_of_tests_maps_the_archive(spark: SparkSession) -> None:
    """Without it every JVM of a test run would need twice the CPU to start, and nothing else would say so."""
    jvm = spark._jvm
    assert jvm is not None
    archive = ARCHIVE[0].partition("=")[2]
    maps = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert archive in maps
