"""Places of a query: what is looked at of directories and platforms before anything is created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import sparkjet as sj
from sparkjet.api.places import Places
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.connectors.iceberg.library import PathTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError
from sparkjet.storage.posix_directory import PosixDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def places(table: Path, home: Path, name: str = "delta", session: Any = None) -> Places:
    """Of a query into a table."""
    place = PosixDirectory(table)
    sink = DeltaSink(place, session) if name == "delta" else IcebergSink(PathTable(session, place), session)
    outputs = [SimpleNamespace(sink=sink, format=name)]
    plan = cast("Any", SimpleNamespace(source=SimpleNamespace(sparkSession=session), outputs=outputs))
    return Places(plan, PosixDirectory(home), has_own_home=True)


@pytest.mark.parametrize("name", ["t", "t/home", "link/home"])
def test_a_home_among_the_files_of_a_delta_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(AnalysisError, match=r"checkpointLocation: .* is in the table .*, where VACUUM removes"):
        places(tmp_path / "t", tmp_path / name).check_home()


def test_a_home_among_the_files_of_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"is in the table .*, where remove_orphan_files removes"):
        places(tmp_path / "t", tmp_path / "t" / "home", "iceberg").check_home()


@pytest.mark.parametrize("name", ["t/_checkpoints/q", "t2/home", "home"])
def test_other_homes_are_not(tmp_path: Path, name: str) -> None:
    places(tmp_path / "t", tmp_path / name).check_home()


def test_a_delta_table_is_one_of_the_places_that_tasks_write_into(tmp_path: Path) -> None:
    started = places(tmp_path / "t", tmp_path / "home")
    assert tmp_path / "t" in started.all
    assert started._output_paths == {tmp_path / "t": "path"}


def on(version: str, **settings: str) -> Any:
    """A session with settings, whose names have _ for dots."""
    pairs = [(name.replace("_", "."), value) for name, value in settings.items()]

    class Context:
        def __init__(self) -> None:
            self.version = version

        def getConf(self) -> Any:
            return SimpleNamespace(getAll=lambda: pairs)

    return SimpleNamespace(sparkContext=Context())


def test_a_home_that_goes_with_the_application_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yarn = on("4.3.0", spark_master="yarn")
    places(tmp_path / "t", tmp_path / "home", session=yarn).check_platform()
    monkeypatch.setenv("LOCAL_DIRS", f"/elsewhere,{tmp_path}")
    with pytest.raises(AnalysisError, match=r"checkpointLocation: .*/home is in YARN's directory .* hdfs://"):
        places(tmp_path / "t", tmp_path / "home", session=yarn).check_platform()
    # One of its own is refused elsewhere: executors do not share it.
    replace(places(tmp_path / "t", tmp_path / "home", session=yarn), has_own_home=False).check_platform()


def test_a_start_warns_of_what_was_never_tried(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema("ts timestamp").json(str(tmp_path / "in"))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    writer = sj.stream(rows).writeStream.format("noop").option("checkpointLocation", tmp_path / "home")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert "a build of Spark by Databricks" in caplog.text
