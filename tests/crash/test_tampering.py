"""Stores and checkpoints that were deleted, set back or damaged between two runs; and changed queries."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from sparkjet import EpochPhase, RecoveryError, read_files
from tests.crash.conftest import WHOLE
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import JOBS, Job, Place, skewed_query
from tests.crash.readers import fingerprints, listed, newest_checkpoint, newest_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = JOBS["sums"]


def runs_on(spark: SparkSession, place: Place, finished: Place) -> None:
    """The query continues as if nothing had happened."""
    SUMS.run(spark, place)
    check(place, SUMS, batches=WHOLE, closings=[WHOLE])
    same_epochs(place, finished, SUMS)
    rows = read_files(str(place.out)).collect()
    assert len(rows) == len(set(rows)) == spark.read.parquet(str(place.out)).count()


def refuses(spark: SparkSession, place: Place, match: str, job: Job = SUMS) -> None:
    """The start is refused and has changed nothing."""
    before = fingerprints(place.root)
    with pytest.raises(RecoveryError, match=match):
        job.run(spark, place)
    assert fingerprints(place.root) == before


def set_back(checkpoint: Path, logs: Sequence[str], batches: int = 3) -> None:
    """Delete the newest files of some of Spark's logs."""
    for log in logs:
        numbered = [path for path in (checkpoint / log).iterdir() if path.name.isdecimal()]
        for path in sorted(numbered, key=lambda path: int(path.name))[-batches:]:
            path.unlink()


def slots(place: Place) -> list[Path]:
    return sorted((place.home / "snapshots" / "log").iterdir())


def test_sparks_checkpoint_is_derived_and_may_be_deleted(
    spark: SparkSession, half_done: Place, finished: Place
) -> None:
    shutil.rmtree(half_done.home / "spark")
    runs_on(spark, half_done, finished)


@pytest.mark.parametrize(
    "logs", [("offsets", "commits", "sources/0"), pytest.param(("sources/0",), marks=pytest.mark.long)], ids="+".join
)
def test_sparks_checkpoint_set_back_is_rebuilt_and_nothing_applied_twice(
    spark: SparkSession, half_done: Place, finished: Place, logs: Sequence[str]
) -> None:
    set_back(newest_checkpoint(half_done), logs)
    runs_on(spark, half_done, finished)


@pytest.mark.long
@pytest.mark.parametrize("name", ["metadata", "offsets/3"])
def test_sparks_checkpoint_that_was_half_written_in_a_crash_is_rebuilt(
    spark: SparkSession, half_done: Place, finished: Place, name: str
) -> None:
    (newest_checkpoint(half_done) / name).write_text("")
    runs_on(spark, half_done, finished)


def test_a_store_that_is_gone_is_not_taken_for_a_new_query(spark: SparkSession, half_done: Place) -> None:
    shutil.rmtree(half_done.home / "snapshots" / "log")
    (half_done.home / "snapshots" / "log").mkdir()
    refuses(spark, half_done, r"spark.000000 has batch 3, but the home of this query has no record")


@pytest.mark.parametrize("removed", [2, pytest.param(3, marks=pytest.mark.long), 4])
def test_a_store_that_was_set_back_is_refused_and_both_are_named(
    spark: SparkSession, half_done: Place, removed: int
) -> None:
    # Including the last one, which belongs to no epoch: it notes that everything is settled.
    for slot in slots(half_done)[-removed - 1 :]:
        slot.unlink()
    batch = 3 - removed if removed < 4 else None
    refuses(
        spark,
        half_done,
        rf"spark.000000 has offsets of batch 3 and a commit of batch 3, but the newest record is of batch {batch}",
    )


def test_a_store_that_lost_only_a_takeover_is_refused(spark: SparkSession, half_done: Place) -> None:
    """Its number would be used twice, and with it names of deltas and transactions."""

    def fail(step: EpochPhase, epoch: int) -> None:
        raise OSError(f"{step} of {epoch}")

    with pytest.raises(OSError, match="of 5"):
        SUMS.writer(spark, half_done).onEpochPhase(fail).start().awaitTermination()
    slots(half_done)[-1].unlink()
    refuses(spark, half_done, r"spark.000001.*records are missing")


@pytest.mark.parametrize("damage", ["", "{", '{"kind": "epoch"}', "[1, 2]"])
def test_a_damaged_record_is_refused_by_its_slot(spark: SparkSession, half_done: Place, damage: str) -> None:
    slots(half_done)[-1].write_text(damage)
    refuses(spark, half_done, r"record 5 is not a record")


def test_a_checkpoint_of_another_query_is_refused(spark: SparkSession, half_done: Place) -> None:
    (newest_checkpoint(half_done) / "metadata").write_text(json.dumps({"id": "0000-other"}))
    refuses(spark, half_done, r"belongs to query 0000-other")


def _delta(place: Place) -> Path:
    (aggregation,) = newest_record(place).stages.values()
    delta = aggregation.deltas[0]
    return place.home / "snapshots" / "state" / delta.name / delta.files[0]


def _blob(place: Place) -> Path:
    spark_position = newest_record(place).spark
    assert spark_position is not None
    return place.home / "snapshots" / "blobs" / min(spark_position.sources.values())


@pytest.mark.parametrize("entry", [_delta, pytest.param(_blob, marks=pytest.mark.long)])
def test_a_missing_entry_is_named_and_can_be_brought_back(
    spark: SparkSession, half_done: Place, finished: Place, tmp_path: Path, entry: Callable[[Place], Path]
) -> None:
    path = entry(half_done)
    before = fingerprints(half_done.root)
    path.rename(tmp_path / path.name)
    with pytest.raises(RecoveryError, match=re.escape(str(path))):
        SUMS.run(spark, half_done)
    (tmp_path / path.name).rename(path)
    # Nothing has changed except for takeovers and the derived checkpoint.
    after = fingerprints(half_done.root)
    derived = re.compile(r"home/(snapshots/log|spark)/")
    assert {name: mark for name, mark in after.items() if not derived.match(name)} == {
        name: mark for name, mark in before.items() if not derived.match(name)
    }
    runs_on(spark, half_done, finished)


def test_a_delta_with_fewer_rows_than_recorded_is_refused(spark: SparkSession, half_done: Place) -> None:
    path = _delta(half_done)
    rows = spark.read.parquet(f"file:{path}").limit(1).coalesce(1)
    rows.write.parquet(f"file:{half_done.root}/shorter")
    shutil.copy(next((half_done.root / "shorter").glob("part-*")), path)
    with pytest.raises(RecoveryError, match=rf"{path.parent.name} should hold \d+ entries"):
        SUMS.run(spark, half_done)


def test_a_delta_with_a_flipped_bit_is_refused(spark: SparkSession, half_done: Place) -> None:
    path = _delta(half_done)
    column = parquet.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    # The end of the first column's last page: a value, which only a checksum protects.
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecoveryError, match=re.escape(path.parent.name)):
        SUMS.run(spark, half_done)


def _other_aggregate(spark: SparkSession, place: Place, rules: Any) -> Any:
    from pyspark.sql import functions as F

    return skewed_query(spark, place, rules, [F.count("*").alias("rows"), F.max("n").alias("total")])


@pytest.mark.parametrize(
    ("job", "match"),
    [
        (replace(SUMS, build=_other_aggregate), r"The query has changed (.|\n)*aggregate max.*null before the cut"),
        (replace(SUMS, rules=replace(SUMS.rules, keys=("key", "sub"))), r"key sub: none → string: refused"),
        (replace(SUMS, rules=replace(SUMS.rules, keys=())), r"key key: string → none: merged"),
    ],
    ids=["aggregate", "another key", "no key"],
)
def test_a_query_whose_state_would_not_fit_is_refused(
    spark: SparkSession, half_done: Place, job: Job, match: str
) -> None:
    refuses(spark, half_done, match, job)


# In CI, a start that is refused has changed nothing, and one that has failed is followed by a right one, above.
@pytest.mark.long
def test_a_refused_start_can_be_followed_by_a_right_one(spark: SparkSession, half_done: Place, finished: Place) -> None:
    refuses(spark, half_done, "key key", replace(SUMS, rules=replace(SUMS.rules, keys=())))
    runs_on(spark, half_done, finished)
    assert listed(half_done.out)
