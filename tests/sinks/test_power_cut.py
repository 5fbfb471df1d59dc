"""A power failure after a phase loses nothing that the phase has made durable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.manifest import Manifest
from sparkjet.snapshots import DirectoryStore
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, SCHEMA, transaction
from tests.durable import recorded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], SCHEMA).selectExpr("k", "n", "n % 2 AS p")


def test_files_in_nested_partition_directories(
    rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FilesSink(tmp_path / "new" / "out", partition_by=("k", "p"))
    with recorded(tmp_path, monkeypatch) as cut:
        sink.create()
        assert cut.lost() == []
        handle = sink.prepare(rows, transaction(1))
        assert handle is not None
        assert len(handle["files"]) > 1
        # What the record is about to decide.
        assert cut.lost() == []
        sink.commit(handle, lambda: None)
        assert cut.lost() == []
        assert Manifest(sink.directory, QUERY, "results").contains(1)


def test_levels_that_a_crash_left_unsynced(rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FilesSink(tmp_path / "out", partition_by=("k", "p"))
    with recorded(tmp_path, monkeypatch) as cut:
        sink.create()
        handle = sink.prepare(rows, transaction(1))
        assert handle is not None
        for _, published in handle["files"]:
            (tmp_path / "out" / published).parent.mkdir(parents=True, exist_ok=True)
        assert cut.lost() != []
        sink.commit(handle, lambda: None)
        assert cut.lost() == []


def test_the_store(rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path / "new" / "home" / "snapshots")
    with recorded(tmp_path, monkeypatch) as cut:
        store.open("checkpointLocation")
        assert cut.lost() == []
        store.put(0, b"{}")
        store.put_blob("000000-1-source0", b"x")
        store.write_delta("000000-1-0", rows)
        assert cut.lost() == []


def test_what_a_delta_table_has_is_not_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Table:
        def version(self) -> int:
            return 1

    sink = DeltaSink(PosixDirectory(tmp_path), cast("Any", None))
    monkeypatch.setattr(sink, "_table", lambda _: Table())
    monkeypatch.setattr(sink, "_missing", lambda *_: ([], frozenset()))
    prepared = sink.directory.below(f"_sparkjet/{QUERY}/results/prepared")
    handle = {"directory": str(tmp_path), "query": QUERY, "sink": "results", "folder": "f", "epoch": 1, "run": ""}
    with recorded(tmp_path, monkeypatch) as cut:
        prepared.create()
        prepared.write("f", b"")
        sink.commit(handle, lambda: None)
        # A start would remove the files of the table with it.
        assert cut.brought_back() == []
        assert prepared.names() == []
