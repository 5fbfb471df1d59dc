"""Which parts of an Iceberg table grow with its epochs, and which do not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.connectors.iceberg.reading import IcebergReader
from tests.connectors.iceberg.test_iceberg import expire, numbers, prepared, sink_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Handle

EPOCHS = 300
KEPT = 5
MERGED = 100
"""Manifests that Iceberg merges into one by default."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("every", [1, 20])
def test_hundreds_of_epochs(iceberg: SparkSession, tmp_path: Path, every: int) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n").coalesce(1)
    sink = sink_of(iceberg, tmp_path, rows, "k")
    update = sink.table._load().updateProperties()
    update.set("write.metadata.delete-after-commit.enabled", "true")
    update.set("write.metadata.previous-versions-max", str(KEPT)).commit()
    took: list[float] = []
    waiting: list[Handle] = []
    for epoch in range(1, EPOCHS + 1):
        began = time.monotonic()
        waiting.append(prepared(sink, rows, epoch))
        if len(waiting) == every:
            sink.commit_all(waiting, lambda: None)
            waiting.clear()
        took.append(time.monotonic() - began)
    version = IcebergReader(iceberg, tmp_path).version
    manifests = version.base.currentSnapshot().allManifests(version.java.io())
    metadata = tmp_path / "metadata"
    newest = max(metadata.glob("v*.json"), key=lambda path: path.stat().st_mtime)
    sizes = f"{newest.stat().st_size >> 10} KB of metadata, {len(manifests)} manifests"
    quarter = EPOCHS // 4
    print(f"\n{sizes}, {sum(took[:quarter]) / quarter:.2f} to {sum(took[-quarter:]) / quarter:.2f} s an epoch")  # noqa: T201 - figures
    assert len(manifests) <= MERGED
    assert len([*metadata.glob("v*.json")]) == KEPT + 1
    # What the snapshots name, and no manifest that was merged away: a list for each, and as many for their files.
    commits = EPOCHS // every
    merged = commits // MERGED + 1
    assert len([*metadata.glob("snap-*.avro")]) == commits
    assert commits - merged <= len([*metadata.glob("*-m*.avro")]) <= commits + merged
    # Nothing that says that files wait to be added, and a directory for those of each epoch.
    assert [path for path in (tmp_path / "data" / "_sparkjet").rglob("*") if path.is_file()] == []
    assert len([*(tmp_path / "data").glob("_sparkjet-*")]) == EPOCHS
    assert numbers(iceberg, tmp_path) == [1] * EPOCHS
    expire(sink)
    assert len([*metadata.glob("snap-*.avro")]) == 1
    assert numbers(iceberg, tmp_path) == [1] * EPOCHS
