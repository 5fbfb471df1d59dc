"""What Delta tables may demand of their writers: done by Kernel with our files, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, Field, Schema

from sparkjet.errors import AnalysisError
from sparkjet.sinks.delta.sink import DeltaSink
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, transaction

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
READERS = ["deletionVectors", "v2Checkpoint"]
WRITERS = [*READERS, "rowTracking", "domainMetadata", "changeDataFeed", "inCommitTimestamp", "appendOnly"]


def table_with(path: Path, writers: list[str], settings: dict[str, str]) -> list[dict[str, Any]]:
    """A table of somebody else's, which demands what these features are."""
    DeltaTable.create(path, Schema([Field("k", "string"), Field("n", "long")]))
    first = path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= settings
        if "commitInfo" in line:
            line["commitInfo"]["inCommitTimestamp"] = line["commitInfo"]["timestamp"]
        if "protocol" in line:
            readers = [each for each in READERS if each in writers]
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            line["protocol"] |= {"readerFeatures": readers, "writerFeatures": writers}
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


def test_a_feature_that_nobody_knows_is_refused_before_the_start(delta: SparkSession, tmp_path: Path) -> None:
    table_with(tmp_path, ["appendOnly", "foldedFiles"], {})
    with pytest.raises(AnalysisError, match=r"Delta's table .*foldedFiles"):
        DeltaSink(PosixDirectory(tmp_path), delta).check(delta.sql("SELECT 'a' AS k, 1L AS n").schema)
