"""Launches: what is looked at of directories before anything is created."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkjet.api.launch import Launch
from sparkjet.clock import SystemClock
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.connectors.iceberg.library import PathTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError
from sparkjet.sinks.protocol import Guarantee
from sparkjet.storage.posix_directory import PosixDirectory


def launch(table: Path, home: Path, name: str = "delta") -> Launch:
    """Of a query into a table."""
    session, place = cast("Any", None), PosixDirectory(table)
    sink = DeltaSink(place, session) if name == "delta" else IcebergSink(PathTable(session, place), session)
    plan = cast("Any", SimpleNamespace(outputs=[SimpleNamespace(sink=sink, format=name)]))
    where = PosixDirectory(home)
    listener = cast("Any", lambda _: None)
    return Launch(plan, where, Guarantee.EXACTLY_ONCE, 1, False, {}, False, None, SystemClock(), listener)


@pytest.mark.parametrize("name", ["t", "t/home", "link/home"])
def test_a_home_among_the_files_of_a_delta_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(AnalysisError, match=r"checkpointLocation: .* is in the table .*, where VACUUM removes"):
        launch(tmp_path / "t", tmp_path / name)._check_home()


def test_a_home_among_the_files_of_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"is in the table .*, where remove_orphan_files removes"):
        launch(tmp_path / "t", tmp_path / "t" / "home", "iceberg")._check_home()


@pytest.mark.parametrize("name", ["t/_checkpoints/q", "t2/home", "home"])
def test_other_homes_are_not(tmp_path: Path, name: str) -> None:
    launch(tmp_path / "t", tmp_path / name)._check_home()


def test_a_delta_table_is_one_of_the_places_that_tasks_write_into(tmp_path: Path) -> None:
    started = launch(tmp_path / "t", tmp_path / "home")
    assert tmp_path / "t" in started.places
    assert started._output_paths == {tmp_path / "t": "path"}
