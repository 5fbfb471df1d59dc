"""The file sink when its directory changes between prepare and commit."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.errors import LostTransactionError
from sparkjet.sinks.files import FilesSink
from sparkjet.testing.sink_contract import QUERY, SCHEMA, transaction
from tests.mounts import bound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Handle, TransactionId


def prepared(spark: SparkSession, directory: Path, of: TransactionId, *numbers: int) -> Handle:
    sink = FilesSink(directory)
    sink.create()
    rows = spark.createDataFrame([(f"k{n}", n) for n in numbers], SCHEMA).repartition(2)
    handle = sink.prepare(rows, of)
    assert handle is not None
    return handle


def commit(sink: FilesSink, handle: Handle) -> None:
    sink.create()
    sink.commit(handle, lambda: None)


def found(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(row[0] for row in spark.read.schema(SCHEMA).parquet(str(directory)).select("n").collect())


def staged(directory: Path) -> list[str]:
    return [path.name for path in directory.glob(f"_sparkjet/{QUERY}/*/staging/*")]


def test_what_was_decided_is_published_where_it_lies_though_the_path_has_changed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    handle = prepared(spark, old, transaction(1), 1, 2)
    sink = FilesSink(new)
    with caplog.at_level(logging.WARNING, "sparkjet"):
        commit(sink, handle)
    assert (found(spark, old), staged(old), list(new.glob("part-*"))) == ([1, 2], [], [])
    assert f"while path was {old}: its rows are published there, not in {new}" in caplog.text
    commit(sink, handle)
    assert found(spark, old) == [1, 2]


def test_orphans_are_removed_beside_decided_transactions_which_stay(spark: SparkSession, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    decided = prepared(spark, old, transaction(1), 1)
    prepared(spark, old, transaction(2), 2)
    prepared(spark, new, transaction(2), 3)
    (new / "_sparkjet" / QUERY / "results" / "staging" / ".nfs00000001").mkdir()
    sink = FilesSink(new)
    sink.abort_orphans(QUERY, 1, [decided])
    assert (staged(old), staged(new)) == ([decided["staging"]], [".nfs00000001"])
    commit(sink, decided)
    assert found(spark, old) == [1]


def test_a_directory_that_was_moved_gets_the_rows_where_it_is_now(spark: SparkSession, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    handle = prepared(spark, old, transaction(1), 1, 2)
    old.rename(new)
    old.mkdir()
    commit(FilesSink(new), handle)
    assert (found(spark, new), list(old.iterdir())) == ([1, 2], [])


@pytest.mark.parametrize("recreated", [True, False])
def test_an_old_directory_that_was_deleted_is_a_loss_that_names_both(
    spark: SparkSession, tmp_path: Path, *, recreated: bool
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    handle = prepared(spark, old, transaction(1), 1)
    shutil.rmtree(old)
    if recreated:
        FilesSink(old).create()
    with pytest.raises(LostTransactionError, match=f"Epoch 1 was decided.*{new}.*{old}"):
        commit(FilesSink(new), handle)
    assert not list(tmp_path.glob("*/part-*"))


@pytest.mark.parametrize("published", ["old", "new"])
def test_what_either_manifest_has_is_published(spark: SparkSession, tmp_path: Path, published: str) -> None:
    handle = prepared(spark, tmp_path / "old", transaction(1), 1)
    commit(FilesSink(tmp_path / "old"), handle)
    if published == "new":
        (tmp_path / "old").rename(tmp_path / "new")
    for path in tmp_path.glob("*/part-*"):
        path.unlink()
    commit(FilesSink(tmp_path / "new"), handle)
    assert not list(tmp_path.glob("*/part-*"))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """One directory under two paths between which files cannot be renamed."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with bound(first, second):
        yield first, second


@pytest.mark.parametrize("half", [True, False])
def test_the_same_share_under_another_path_just_goes_on(
    spark: SparkSession, mounted: tuple[Path, Path], caplog: pytest.LogCaptureFixture, *, half: bool
) -> None:
    first, second = (path / "out" for path in mounted)
    handle = prepared(spark, first, transaction(1), 1, 2, 3, 4)
    assert len(handle["files"]) == 2
    if half:
        name, published = handle["files"][0]
        (first / "_sparkjet" / QUERY / "results" / "staging" / handle["staging"] / name).rename(first / published)
    with caplog.at_level(logging.WARNING, "sparkjet"):
        commit(FilesSink(second), handle)
    assert (found(spark, first), found(spark, second), staged(second)) == ([1, 2, 3, 4], [1, 2, 3, 4], [])
    assert caplog.text == ""


def test_an_attempt_is_undone_at_once_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    failed, other = transaction(2), transaction(2, attempt=1)
    prepared(spark, tmp_path, failed, 1)
    handle = prepared(spark, tmp_path, other, 2)
    sink = FilesSink(tmp_path)
    for _ in range(2):
        sink.abort(failed)
        assert staged(tmp_path) == [str(other)]
    commit(sink, handle)
    assert found(spark, tmp_path) == [2]


def test_epochs_later_than_the_record_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    sink = FilesSink(tmp_path / "out")
    assert sink.published_after(transaction(0), None) is None
    handles: list[dict[str, Any]] = []
    for epoch in (3, 5):
        handles.append(prepared(spark, tmp_path / "out", transaction(epoch), epoch))
        commit(sink, handles[-1])
    assert sink.published_after(transaction(5), handles[-1]) is None
    assert sink.published_after(transaction(6), handles[-1]) is None
    said = sink.published_after(transaction(3), handles[0])
    assert isinstance(said, str)
    assert said.startswith(f"the manifest of {tmp_path / 'out'} has epoch 5. Restore the newest copy of the home")
    assert "epochs from 4 on" in said
    assert FilesSink(tmp_path / "other").published_after(transaction(3), handles[0]) is None


@pytest.mark.parametrize("last", [7, 8])
def test_a_path_that_is_changed_back_has_epochs_of_before_the_backup_that_the_query_went_on_from(
    spark: SparkSession, tmp_path: Path, last: int
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    before = transaction(last, run="aaaaaaaa")
    commit(FilesSink(old), prepared(spark, old, before, 1))
    decided = prepared(spark, new, transaction(8, takeover=1, run="bbbbbbbb", since=3), 2)
    commit(FilesSink(old), decided)
    assert (found(spark, old), found(spark, new)) == ([1], [2])
    commit(FilesSink(old), decided)
    assert (found(spark, old), found(spark, new), staged(new)) == ([1], [2], [])
