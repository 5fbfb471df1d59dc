"""Features that Delta tables demand of their writers: done by Kernel with our files, or refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable, Field, Schema
from pyarrow import parquet

from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, transaction
from tests.connectors.delta.reading import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version",
    "delta.enableChangeDataFeed": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.appendOnly": "true",
}
READERS = ["deletionVectors", "v2Checkpoint", "columnMapping", "typeWidening", "timestampNtz", "vacuumProtocolCheck"]
WRITERS = [
    "deletionVectors",
    "v2Checkpoint",
    "rowTracking",
    "domainMetadata",
    "changeDataFeed",
    "inCommitTimestamp",
    "appendOnly",
]


def table_with(
    path: Path, writers: Sequence[str], settings: Mapping[str, str], fields: Sequence[dict[str, Any]] = (), by: str = ""
) -> list[dict[str, Any]]:
    """A table of somebody else's, which demands what these features are; its columns are k and n, or those given."""
    DeltaTable.create(path, Schema([Field("k", "string"), Field("n", "long")]))
    first = path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= settings
            if fields:
                line["metaData"] |= {"schemaString": json.dumps({"type": "struct", "fields": [*fields]})}
            line["metaData"]["partitionColumns"] = [by] if by else []
        if "commitInfo" in line:
            line["commitInfo"]["inCommitTimestamp"] = line["commitInfo"]["timestamp"]
        if "protocol" in line:
            readers = [each for each in READERS if each in writers]
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            line["protocol"] |= {"readerFeatures": readers, "writerFeatures": [*writers]}
    # Times of commits are looked for in the first line.
    lines.sort(key=lambda line: "commitInfo" not in line)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_what_kernel_does_for_a_table_is_done(delta: SparkSession, tmp_path: Path) -> None:
    table_with(tmp_path, WRITERS, SETTINGS)
    rows = delta.sql("SELECT 'a' AS k, id AS n, 1 AS more FROM range(3)")
    sink = DeltaSink(PosixDirectory(tmp_path), delta, merge_schema=True)
    sink.check(rows.schema)
    sink.create()
    handles = [sink.prepare(rows, transaction(epoch, run=RUN)) for epoch in (1, 2)]
    sink.commit_all([handle for handle in handles if handle is not None], lambda: None)
    lines = [
        json.loads(line)
        for version in (1, 2)
        for line in (tmp_path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    ]
    added = [line["add"] for line in lines if "add" in line]
    counts = [json.loads(each["stats"])["numRecords"] for each in added]
    # Rows are numbered on.
    assert [each["baseRowId"] for each in added] == [sum(counts[:number]) for number in range(len(added))]
    assert {each["defaultRowCommitVersion"] for each in added} == {2}
    marks = [line["domainMetadata"]["configuration"] for line in lines if "domainMetadata" in line]
    assert [json.loads(mark)["rowIdHighWaterMark"] for mark in marks] == [5]
    times = [line["commitInfo"]["inCommitTimestamp"] for line in lines if "commitInfo" in line]
    assert times == sorted(set(times))
    assert all("commitInfo" in lines[number] for number in (0, 2))


def column(name: str, kind: Any = "long", number: int = 0, **metadata: Any) -> dict[str, Any]:
    """A column or a field of a table; with a number, under its own name in the files."""
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"} if number else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": {**mapped, **metadata}}


# What is done beside those above: features, properties, and what else is asked of column n.
WRITTEN: dict[str, tuple[list[str], dict[str, str], dict[str, Any]]] = {
    "defaults": (["allowColumnDefaults"], {}, {"CURRENT_DEFAULT": "7", "EXISTS_DEFAULT": "7"}),
    "widened types": (["typeWidening"], {"delta.enableTypeWidening": "true"}, {
        "delta.typeChanges": [{"toType": "long", "fromType": "integer"}],
    }),
    "clusters": (["clustering", "domainMetadata"], {}, {}),
    "no constraint that is there": (["checkConstraints", "generatedColumns", "identityColumns", "invariants"], {}, {}),
    "guarded checkpoints": (["vacuumProtocolCheck", "checkpointProtection"], {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_table_demands_is_written(delta: SparkSession, tmp_path: Path, name: str) -> None:
    features, settings, metadata = WRITTEN[name]
    table_with(tmp_path, features, settings, [column("k", "string"), column("n", **metadata)])
    sink = DeltaSink(PosixDirectory(tmp_path), delta)
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink.check(rows.schema)
    sink.create()
    handle = sink.prepare(rows, transaction(1, run=RUN))
    assert handle is not None
    sink.commit(handle, lambda: None)
    lines = (tmp_path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    [added] = [line["add"] for line in map(json.loads, lines) if "add" in line]
    assert json.loads(added["stats"])["maxValues"] == {"k": "a", "n": 1}


# What a writer would have to do: features, properties, what is asked of column n, and what is said.
REFUSED: dict[str, tuple[list[str], dict[str, str], dict[str, Any], str]] = {
    "check": (["checkConstraints"], {"delta.constraints.c": "n > 0"}, {}, r"has the constraint delta\.constraints\.c"),
    "generated": (["generatedColumns"], {}, {"delta.generationExpression": "1"}, "is generated from other columns"),
    "identity": (["identityColumns"], {}, {"delta.identity.start": 1, "delta.identity.step": 1}, "is an identity col"),
    "invariant": (
        ["invariants"],
        {},
        {"delta.invariants": '{"expression": {"expression": "n > 0"}}'},
        "has an invaria",
    ),
    "unknown": (["foldedFiles"], {}, {}, r"Delta's table .*foldedFiles"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_table_demands_is_refused_before_the_start(delta: SparkSession, tmp_path: Path, name: str) -> None:
    features, settings, metadata, message = REFUSED[name]
    table_with(tmp_path, ["appendOnly", *features], settings, [column("k", "string"), column("n", **metadata)])
    with pytest.raises(AnalysisError, match=message):
        DeltaSink(PosixDirectory(tmp_path), delta).check(delta.sql("SELECT 'a' AS k, 1L AS n").schema)


def struct(number: int) -> dict[str, Any]:
    return {"type": "struct", "fields": [column("x", number=number)]}


LIST = {"type": "array", "elementType": struct(6), "containsNull": True}
MAPPED = [column("day of", "string", 1), column("n", number=2), column("s", struct(4), 3), column("a", LIST, 5)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_have_the_names_and_ids_in_the_files_that_the_table_maps(
    delta: SparkSession, tmp_path: Path, mode: str
) -> None:
    settings = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "6"}
    lines = table_with(tmp_path, ["columnMapping"], settings, MAPPED, "day of")
    rows = delta.sql("SELECT 7L AS n, '1/2' AS `day of`, struct(8L AS x) AS s, array(struct(9L AS x)) AS a")
    sink = DeltaSink(PosixDirectory(tmp_path), delta)
    sink.check(rows.schema)
    sink.create()
    handles = [sink.prepare(rows, transaction(epoch, run=RUN)) for epoch in (1, 2)]
    first, second = (json.loads(json.dumps(handle)) for handle in handles)
    sink.commit(first, lambda: None)
    found = [json.loads(line) for line in (tmp_path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()]
    [added] = [line["add"] for line in found if "add" in line]
    assert added["partitionValues"] == {"c1": "1/2"}
    assert json.loads(added["stats"]) == {
        "numRecords": 1,
        "minValues": {"c2": 7, "c3": {"c4": 8}},
        "maxValues": {"c2": 7, "c3": {"c4": 8}},
        "nullCount": {"c2": 0, "c3": {"c4": 0}},
    }
    written = parquet.read_schema(tmp_path / unquote(added["path"]))
    assert [(each.name, each.metadata[b"PARQUET:field_id"]) for each in written] == [
        ("c2", b"2"),
        ("c3", b"3"),
        ("c5", b"5"),
    ]
    inner = written.field("c3").type.field(0), written.field("c5").type.value_type.field(0)
    assert [(each.name, each.metadata[b"PARQUET:field_id"]) for each in inner] == [("c4", b"4"), ("c6", b"6")]
    assert Counter(map(str, rows_of(tmp_path))) == {
        str({"day of": "1/2", "n": 7, "s": {"x": 8}, "a": [{"x": 9}]}): 1,
    }
    # Dropped, and added again: files of before have nothing for it.
    [line] = [line for line in lines if "metaData" in line]
    line["metaData"]["schemaString"] = line["metaData"]["schemaString"].replace('"c2"', '"c7"')
    (tmp_path / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(line) + "\n")
    with pytest.raises(SinkError, match=r"was changed after epoch 2 .* columns or partitions are others"):
        sink.commit(second, lambda: None)
    sink.commit(first, lambda: None)


def test_a_null_in_a_mapped_column_is_named_as_in_the_table(delta: SparkSession, tmp_path: Path) -> None:
    fields = [column("k", "string", 1), column("n", number=2) | {"nullable": False}]
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    table_with(tmp_path, ["columnMapping"], settings, fields)
    sink = DeltaSink(PosixDirectory(tmp_path), delta)
    rows = delta.sql("SELECT 'a' AS k, CAST(NULL AS BIGINT) AS n")
    sink.check(rows.schema)
    sink.create()
    with pytest.raises(SinkError, match="column 'n' has a null"):
        sink.prepare(rows, transaction(1, run=RUN))
