"""Tables that somebody changes between the files of an epoch and its version: what does not fit is not added."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable as TheirTable
from deltalake import write_deltalake
from pyspark.sql.types import LongType, StringType, StructType

from sparkjet.connectors.delta.kernel import DeltaTable, Version
from sparkjet.connectors.delta.sink import DeltaSink, _unfit
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import Handle
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, RUN, transaction
from sparkjet.time.writer_progress import WriterProgress
from tests.connectors.delta.reading import rows_of
from tests.connectors.delta.test_delta import sink_of, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT, NUMBER = StringType(), LongType()
SCHEMA = StructType().add("k", TEXT).add("n", NUMBER)


@dataclass
class Table:
    """Takes whatever is added."""

    added: list[Any] = field(default_factory=list)

    def append(self, version: Version, files: list[Any], *_: object, **__: object) -> bool:
        del version
        self.added += files
        return True


def version(schema: StructType = SCHEMA, *partition_by: str, **properties: str) -> Version:
    return Version(1, schema, partition_by, properties, (), None, None)


def prepared(place: Path) -> tuple[DeltaSink, Handle]:
    """A sink, and an epoch of it for a table of ``SCHEMA``."""
    (place / "folder").mkdir()
    (place / "folder" / "part-0.parquet").write_bytes(b"x")
    sink = DeltaSink(PosixDirectory(place), cast("Any", None))
    sink._schema = StructType().add("K", TEXT).add("n", NUMBER)
    sink._map(version())
    progress = WriterProgress(query=QUERY, output="results", epoch=1, watermark=None, rows=1)
    handle = {
        "directory": str(place),
        "query": QUERY,
        "sink": "results",
        "folder": "folder",
        "epoch": 1,
        "rows": 1,
        "files": [["folder/part-0.parquet", 1]],
        "schema": sink._as_written().jsonValue(),
        "partition_by": [],
        "required": [],
        "progress": msgspec.to_builtins(progress),
        "run": RUN,
        "since": transaction(1).since,
    }
    return sink, handle


CHANGES = [
    (version(StructType().add("k", TEXT).add("n", TEXT)), "'n' is bigint, and in .* it is string"),
    (version(StructType().add("k", TEXT)), "has no column 'n'"),
    (version(StructType().add("K", TEXT).add("n", NUMBER)), "columns or partitions are others"),
    (version(StructType().add("k", TEXT).add("n", NUMBER, nullable=False)), "columns or partitions are others"),
    (version(SCHEMA, "k"), "columns or partitions are others"),
    (version(SCHEMA, **{"delta.constraints.positive": "n > 0"}), "has the constraint"),
]


@pytest.mark.parametrize(("now", "why"), CHANGES)
def test_files_that_a_changed_table_does_not_take_are_not_added(tmp_path: Path, now: Version, why: str) -> None:
    sink, handle = prepared(tmp_path)
    table = Table()
    with pytest.raises(SinkError, match=f"was changed after epoch 1 .*{why}"):
        sink._append(cast("DeltaTable", table), now, [handle])
    assert table.added == []


def test_files_are_added_to_a_table_with_a_new_column(tmp_path: Path) -> None:
    sink, handle = prepared(tmp_path)
    table = Table()
    assert sink._append(cast("DeltaTable", table), version(StructType([*SCHEMA.fields]).add("more", TEXT)), [handle])
    assert [each.name for each in table.added] == ["folder/part-0.parquet"]


def test_an_epoch_with_a_collation_may_be_looked_at_again(tmp_path: Path) -> None:
    _, handle = prepared(tmp_path)
    collated = StructType().add("k", StringType("UTF8_LCASE")).add("n", NUMBER)
    handle = {**handle, "schema": collated.jsonValue()}
    before = json.dumps(handle)
    for _ in range(2):
        assert _unfit(version(collated), handle, "/t") is None
    # It is written into later records, too.
    assert json.dumps(handle) == before


def test_no_epoch_is_decided_for_a_table_that_others_have_changed(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(delta, tmp_path, rows)
    written(delta, sink, rows)
    write_deltalake(tmp_path, pa.table({"k": ["other"], "n": [9], "more": [1]}), mode="append", schema_mode="merge")
    # It has more columns, and takes the files.
    for epoch in (2, 3):
        written(delta, sink, rows, epoch)
    TheirTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(SinkError, match=r"was changed while the query was running\. .* has the constraint"):
        sink.prepare(rows, transaction(4, run=RUN))
    TheirTable(tmp_path).alter.drop_constraint("positive")
    written(delta, sink, rows, 5)
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [1, 1, 1, 1, 9]
    shutil.rmtree(tmp_path / "_delta_log")
    with pytest.raises(SinkError, match=r"There is no longer a Delta table .*\. Nothing of the epoch is decided"):
        sink.prepare(rows, transaction(6, run=RUN))
