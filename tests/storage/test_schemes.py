"""A location's scheme decides where a directory lies, and one that cannot be opened is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.storage.hadoop_directory import HadoopDirectory
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def nowhere() -> SparkSession:
    pytest.fail("a local directory needs no session")


def test_a_bracket_is_not_an_address() -> None:
    assert directory_at("//[a]b", "path", nowhere) == PosixDirectory(Path("//[a]b"))


@pytest.mark.parametrize(
    "location", ["/data/home", "file:/data/home", "file:///data/home", "file://localhost/data/home"]
)
def test_a_path_is_posix_and_needs_no_session(location: str) -> None:
    directory = directory_at(location, "checkpointLocation", nowhere)
    assert directory == PosixDirectory(Path("/data/home"))
    assert directory.below("log").path == Path("/data/home/log")


def test_an_empty_location_is_refused() -> None:
    with pytest.raises(AnalysisError, match="checkpointLocation: the location is empty"):
        directory_at("", "checkpointLocation", nowhere)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("nosuch://host/home", r'checkpointLocation: .*"nosuch://host/home".*nosuch.*spark.hadoop.fs'),
        ("s3a://bucket/home", r"org.apache.hadoop:hadoop-aws .*spark.jars.packages"),
    ],
)
def test_what_hadoop_cannot_open_is_refused_with_a_way_out(spark: SparkSession, location: str, told: str) -> None:
    with pytest.raises(AnalysisError, match=told):
        directory_at(location, "checkpointLocation", lambda: spark)


def test_the_same_settings_share_a_client_and_others_have_their_own(spark: SparkSession) -> None:
    # Hadoop's own names for a local directory: no server is needed to open one.
    spark.conf.set("fs.viewfs.mounttable.here.link./x", "file:///tmp")
    first, second = (directory_at("viewfs://here/x", "path", lambda: spark) for _ in range(2))
    spark.conf.set("fs.some.setting", "changed")
    third = directory_at("viewfs://here/x", "path", lambda: spark)
    for name in ("fs.viewfs.mounttable.here.link./x", "fs.some.setting"):
        spark.conf.unset(name)
    assert isinstance(first, HadoopDirectory)
    assert isinstance(second, HadoopDirectory)
    assert isinstance(third, HadoopDirectory)
    assert first._system is second._system
    assert first._system is not third._system


def test_a_scheme_that_is_not_tested_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("fs.viewfs.mounttable.here.link./home", tmp_path.as_uri())
    directory = directory_at("viewfs://here/home", "checkpointLocation", lambda: spark)
    spark.conf.unset("fs.viewfs.mounttable.here.link./home")
    with pytest.raises(AnalysisError, match=r'checkpointLocation: .*"viewfs:|checkpointLocation: "viewfs:'):
        directory.check("checkpointLocation")
    assert list(tmp_path.iterdir()) == []


def test_without_a_session_functions_ask_for_one() -> None:
    """In its own process: another test's session would be the active one."""
    calls = ["switch('s3a://b/a', 's3a://b/c')", "fork('s3a://b/a', 'pin', 's3a://b/c')", "read_state('s3a://b/a')"]
    tries = [f"try: sj.{each}\nexcept sj.AnalysisError as e: print(e)" for each in [*calls, "erase('/a', {'k': 1})"]]
    code = "\n".join(["import sparkjet as sj", *tries])
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    asked = "this is reached through Spark, and there is no session. Give session=spark."
    expected = [f"[SPARKJET_ANALYSIS] {each}: {asked}" for each in ("switch", "fork", "read_state", "erase")]
    assert said.splitlines() == expected
