"""State that executors hold is not read again; state that they have lost is read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as F

from sparkjet.engine import stage_state
from sparkjet.engine.context import configure
from sparkjet.engine.stage_state import Loading, StageState
from sparkjet.errors import RecoveryError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.store import Delta
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.stateful.deduplication import Deduplication
from tests.persisted import lose_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
KEYS = 200


class Counting(DirectoryStore):
    """A store that remembers which files were read."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.files: list[str] = []

    def read_delta(self, session: SparkSession, delta: Delta) -> DataFrame:
        self.files += delta.files
        return super().read_delta(session, delta)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    configure(session, PARTITIONS)
    return session


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    store = Counting(tmp_path / "home")
    store.open("checkpointLocation")
    return store


def operator() -> Deduplication:
    return Deduplication(None, ["key"], PARTITIONS)


def saved(session: SparkSession, store: Counting) -> tuple[Delta, Segment]:
    """A segment of some keys, and its delta."""
    kept = operator()
    rows = session.range(KEYS).select(F.col("id").alias("key"), F.lit(2**62).alias("due"))
    segment = Segment(kept.partitioned(rows), SegmentStatistics(KEYS, 2**62, 2**62))
    state = StageState(kept, PARTITIONS)
    kept.restore([segment], None)
    state.save("000000-000000001-0-stage", store)
    (delta,) = state.snapshot().deltas
    return delta, state.recorded[delta.name]


def keys(segment: Segment) -> list[int]:
    return sorted(row.key for row in segment.partials.collect())


@pytest.mark.parametrize("small", [False, True])
def test_only_what_was_lost_is_read(
    session: SparkSession, store: Counting, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(stage_state, "FEW", KEYS if small else 10)
    delta, segment = saved(session, store)
    assert len(delta.files) == (1 if small else PARTITIONS)
    loading = Loading(operator(), session, store)
    assert loading.segment(delta, segment) is segment
    assert (loading.read, loading.kept, store.files) == (0, PARTITIONS, [])
    lose_partitions(session, segment.rows.table, [1, 2])
    found = loading.segment(delta, segment)
    assert keys(found) == list(range(KEYS))
    assert (loading.read, loading.kept) == (2, 2 * PARTITIONS - 2)
    assert store.files == (delta.files if small else delta.files[1:3])
    # And once more: what was put together may lose something too.
    lose_partitions(session, found.rows.table, [2, 3])
    assert keys(loading.segment(delta, found)) == list(range(KEYS))
    assert loading.read == 4


def test_what_is_lost_altogether_or_was_never_held_is_read_as_a_whole(session: SparkSession, store: Counting) -> None:
    delta, segment = saved(session, store)
    lose_partitions(session, segment.rows.table, range(PARTITIONS))
    for held in (segment, None):
        loading = Loading(operator(), session, store)
        assert keys(loading.segment(delta, held)) == list(range(KEYS))
        assert (loading.read, loading.kept) == (PARTITIONS, 0)


def test_files_that_do_not_hold_what_they_are_said_to_are_all_read(
    session: SparkSession, store: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an older version had partitioned the state in another way."""
    monkeypatch.setattr(stage_state, "FEW", 10)
    delta, segment = saved(session, store)
    delta = msgspec.structs.replace(delta, files=delta.files[1:] + delta.files[:1])
    renamed = {file: f"part-{number:05d}-moved{file[10:]}" for number, file in enumerate(delta.files)}
    place = tmp_path / "home" / "state" / delta.name
    for file, name in renamed.items():
        (place / file).rename(place / name)
    delta = msgspec.structs.replace(delta, files=list(renamed.values()))
    lose_partitions(session, segment.rows.table, [1])
    loading = Loading(operator(), session, store)
    assert keys(loading.segment(delta, segment)) == list(range(KEYS))
    assert loading.read == PARTITIONS


def test_a_delta_that_lacks_entries_is_refused(session: SparkSession, store: Counting) -> None:
    delta, segment = saved(session, store)
    short = msgspec.structs.replace(delta, rows=KEYS + 1)
    lose_partitions(session, segment.rows.table, [1])
    with pytest.raises(RecoveryError, match=f"should hold {KEYS + 1} entries, but {KEYS} were found"):
        Loading(operator(), session, store).segment(short, segment)
