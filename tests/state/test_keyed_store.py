"""The keyed store equals a dict, whatever is put, deleted, due, merged and restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.state import DELETED, NEVER, KeyedStore, Segment, SegmentStatistics
from sparkjet.state.keyed_rows import Touched, is_due
from sparkjet.time import MAX
from tests.in_plan import in_plan
from tests.laws import RANDOM_RUNS, law, only_examples
from tests.parameters import mostly_crash, mostly_long
from tests.state.stored import read_back
from tests.state.touching import touched_by
from tests.windows.session_run import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, int]
"""A value, and how long after the watermark it is due."""

KEYS = ["a", "b", None, "c"]
PARTITIONS = 2


@dataclass(frozen=True)
class Kind:
    """A way to use the store."""

    versioned: bool
    deletable: bool

    def store(self) -> KeyedStore:
        """A new one."""
        return KeyedStore(["key"], ["value"], PARTITIONS, versioned=self.versioned, deletable=self.deletable)


REPLACED, ADDED, DELETABLE = Kind(True, False), Kind(False, False), Kind(True, True)
KINDS = {"replaced": REPLACED, "added": ADDED, "deletable": DELETABLE}
SOME_KINDS = mostly_crash(
    KINDS.values(), quick={REPLACED}, name=lambda kind: next(k for k, v in KINDS.items() if v is kind)
)


@dataclass(frozen=True)
class Epoch:
    """The value put under each key (None is a deletion), how far the watermark moves, whether there is a restart."""

    puts: dict[str | None, list[Row]]
    step: int
    restarts: bool = False


@dataclass
class Model:
    """The expected content of the store: the rows of each key, as value and due."""

    kind: Kind
    watermark: int = 0
    rows: dict[str | None, list[Row]] = field(default_factory=dict)

    def due(self, watermark: int) -> set[str | None]:
        """Keys with rows that are due."""
        return {key for key, rows in self.rows.items() if any(due < watermark for _, due in rows)}

    def put(self, epoch: Epoch) -> dict[str | None, list[Row]]:
        """The rows that an epoch writes, which are all of the touched keys unless rows are added."""
        self.watermark += epoch.step
        written = {key: [(value, self.watermark + due) for value, due in rows] for key, rows in epoch.puts.items()}
        if self.kind is DELETABLE:
            # Like timers: they may be set back, and when one is due the key is written anew.
            written = {key: [] for key in self.due(self.watermark)} | written
        else:
            written = {key: rows for key, rows in written.items() if rows}
        if self.kind is REPLACED:
            latest = {key: max(due for _, due in rows) for key, rows in self.rows.items()}
            written = {k: [(v, max(due, latest.get(k, due))) for v, due in rows] for k, rows in written.items()}
        for key, rows in written.items():
            self.rows[key] = (self.rows.get(key, []) if self.kind is ADDED else []) + rows
        alive = {key: [row for row in rows if row[1] >= self.watermark] for key, rows in self.rows.items()}
        self.rows = {key: rows for key, rows in alive.items() if rows}
        return written


puts = st.dictionaries(
    st.sampled_from(KEYS), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 30)), max_size=2), max_size=3
)
epochs = st.lists(st.builds(Epoch, puts, st.integers(0, 15), st.booleans()), min_size=3, max_size=9)
EXAMPLE = [
    Epoch({"a": [(1, 10), (2, 30)], "b": [(3, 5)], None: [(4, 7)]}, 0),
    Epoch({"a": [(5, 20)], "b": []}, 3, restarts=True),
    Epoch({}, 5),
    Epoch({"c": [(7, 2)], None: []}, 0),
    Epoch({"b": [(8, 1)], "a": []}, 1),
    Epoch({"c": [(6, 30)]}, 0),
]


def checkpointed(rows: DataFrame) -> DataFrame:
    """Rows that are persisted once read, as a store takes them."""
    return rows.localCheckpoint(eager=False)


class StoreRun:
    """Puts epochs into a store as an operator does, and compares all that it says with the model."""

    def __init__(self, session: SparkSession, kind: Kind, home: Callable[[], Path]) -> None:
        self._session = session
        self._home = home
        self.model = Model(kind)
        self.store = kind.store()

    def feed(self, epoch: Epoch) -> None:
        """One epoch."""
        model, store = self.model, self.store
        arrived = self._rows({key: [(0, 0)] for key in epoch.puts})
        watermark = model.watermark + epoch.step
        due = model.due(watermark)
        assert not due or store.has_due(watermark)
        if not (epoch.puts or store.has_due(watermark)):
            assert model.put(epoch) == {}
            store.advance(watermark)
        else:
            found = touched_by(arrived, store, watermark).stored
            assert (found is None) == (not store.segments)
            read = [] if found is None else found.withColumn("is_due", F.expr(is_due(watermark))).collect()
            touched = [(row.key, row.value, row.due) for row in read if row.key in {*epoch.puts, *due}]
            assert _sorted(touched) == self._expected({key: model.rows.get(key, []) for key in {*epoch.puts, *due}})
            assert {row.key for row in read if row.is_due} == due
            assert all(row.fresh == (row.key in epoch.puts) for row in read)
            written = model.put(epoch)
            _, own = store.add(checkpointed(store.stamped(self._rows(written))), store.summary("sum(value)"), watermark)
            assert own == [sum(value for rows in written.values() for value, _ in rows)]
        store.release()
        if epoch.restarts:
            self.restart()
        self.check()

    def check(self) -> None:
        """The live rows are those of the model."""
        live = self.store.live()
        rows = [] if live is None else [(row.key, row.value, row.due) for row in live.collect()]
        assert _sorted(rows) == self._expected(self.model.rows)
        assert self.store.closed == self.model.watermark
        assert self.store.highest == max((each.statistics.high for each in self.store.segments), default=None)

    def restart(self) -> None:
        """Continue with a new store that reads a snapshot of this one."""
        before, self.store = self.store, self.model.kind.store()
        self.store.restore(
            read_back(self._session, before.segments, self.store.partitioned, self._home()), before.closed
        )
        before.restore([], None)
        before.release()

    def _rows(self, rows: dict[str | None, list[Row]]) -> DataFrame:
        listed = [(key, value, due, False) for key, pairs in rows.items() for value, due in pairs]
        listed += [(key, 0, NEVER, True) for key, pairs in rows.items() if not pairs]
        frame = in_plan(self._session, listed, f"key string, value long, due long, {DELETED} boolean")
        return self.store.partitioned(frame)

    def _expected(self, rows: dict[str | None, list[Row]]) -> list[tuple[str | None, int, int]]:
        return _sorted([(key, *row) for key, each in rows.items() for row in each])


def _sorted(rows: list[tuple[str | None, int, int]]) -> list[tuple[str | None, int, int]]:
    return sorted(rows, key=repr)


def persisted(session: SparkSession) -> int:
    """How many tables are persisted."""
    return len(session.sparkContext._jsc.getPersistentRDDs())


def check(session: SparkSession, kind: Kind, fed: list[Epoch], home: Callable[[], Path]) -> None:
    """Feed some epochs, then let everything be due or deleted."""
    run = StoreRun(session, kind, home)
    for epoch in fed:
        run.feed(epoch)
    if kind is DELETABLE:
        run.feed(Epoch({key: [] for key in run.model.rows}, 0))
    else:
        run.store.advance(MAX)
    assert run.store.segments == []


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return session_of(spark)


@pytest.mark.parametrize("kind", SOME_KINDS)
@example(fed=EXAMPLE)
@only_examples()
@given(fed=epochs)
def test_the_store_equals_a_dict(
    session: SparkSession, kind: Kind, fed: list[Epoch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(session, kind, fed, lambda: tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("times", RANDOM_RUNS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_the_store_equals_a_dict_over_random_runs(
    session: SparkSession, kind: Kind, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(4 * times)
    @given(fed=epochs)
    def holds(fed: list[Epoch]) -> None:
        check(session, kind, fed, lambda: tmp_path_factory.mktemp("store"))

    holds()


@pytest.mark.parametrize("kind", mostly_long(KINDS, often={"deletable"}))
def test_what_is_obsolete_leaves_the_memory(session: SparkSession, kind: Kind) -> None:
    store = kind.store()
    watermark = 0
    for epoch in range(12):
        rows = session.range(4).selectExpr(
            "concat('k', id) AS key", "id AS value", f"id + {watermark + 20}L AS due", f"false AS {DELETED}"
        )
        arrived = store.partitioned(rows)
        watermark += 10
        store.add(checkpointed(store.stamped(arrived)), store.summary(), watermark)
        store.discard(Segment(arrived, SegmentStatistics(4, 0, 0)))
        store.release()
        assert len(store.segments) <= 5, epoch
        assert sum(segment.statistics.rows for segment in store.segments) <= 20, epoch
    before = persisted(session)
    held = len(store.segments)
    store.advance(MAX)
    store.release()
    assert persisted(session) == before - held


def test_a_deletion_hides_older_rows_until_it_is_merged_with_them(session: SparkSession) -> None:
    store = DELETABLE.store()

    def put(rows: str) -> list[int]:
        listed = session.sql(f"SELECT key, 0L AS value, {NEVER}L AS due, deleted FROM VALUES {rows} AS t(key, deleted)")
        store.add(checkpointed(store.stamped(store.partitioned(listed))), store.summary(), 0)
        return [segment.statistics.rows for segment in store.segments]

    def live() -> set[str]:
        rows = store.live()
        return set() if rows is None else {row.key for row in rows.collect()}

    assert put(", ".join(f"('{key}', false)" for key in range(30))) == [30]
    assert [put(f"('{key}', true), ('{30 + key}', false)") for key in range(4)][-1] == [30, 2, 2, 2, 2]
    # The merged rows are not the oldest: what they delete is below them.
    assert put("('4', true), ('34', false)") == [30, 10]
    assert live() == {str(key) for key in range(5, 35)}
    # Nothing more is put, and nothing but deletions would be left.
    assert put(", ".join(f"('{key}', true)" for key in range(5, 34))) == [1]
    assert live() == {"34"}
    assert put("('34', true)") == []


def test_one_job_fills_what_the_rows_are_derived_from(session: SparkSession) -> None:
    store = ADDED.store()
    found = store.partitioned(session.sql("SELECT 'a' AS key, 1L AS value, 5L AS due, 'long' AS payload"))
    table = found.withColumn("more", F.col("value") + 1).localCheckpoint(eager=False)
    jobs = session.sparkContext.statusTracker()
    session.sparkContext.setJobGroup("one", "one")
    _, own = store.add(checkpointed(store.stamped(table)), store.summary("count(1)"), 0)
    session.sparkContext._jsc.clearJobGroup()
    ran = [jobs.getJobInfo(job) for job in jobs.getJobIdsForGroup("one")]
    stages = [[jobs.getStageInfo(stage) for stage in job.stageIds] for job in ran if job is not None]
    assert len(stages) == 1, stages
    assert own == [1]
    # Its inputs are freed, and it can be read all the same.
    store.discard(Segment(found, SegmentStatistics(1, 0, 0)))
    store.release()
    assert [tuple(row) for row in table.select("key", "payload", "more").collect()] == [("a", "long", 2)]
    live = store.live()
    assert live is not None
    store.discard(Segment(table, SegmentStatistics(1, 0, 0)))
    store.release()
    assert [(row.key, row.value, row.due) for row in live.collect()] == [("a", 1, 5)]


# Seven of ten epochs are not written whole where they may be.
@pytest.mark.parametrize("may_be_whole", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_store_that_is_written_whole_equals_a_dict_as_well(
    session: SparkSession, tmp_path: Path, may_be_whole: bool
) -> None:
    """Values are added up by key, and a key dies when it has not come for three epochs."""
    store, sums, wholes = REPLACED.store(), dict[str, tuple[int, int]](), []
    for number, keys in enumerate(["abcde", "a", "abcfgh", "bc", "", "g", "abcdefghij", "a", "b", "xyz"]):
        watermark, due = 2 * number, 2 * number + 5
        rows = store.partitioned(in_plan(session, [(key, 1, due) for key in keys], "key string, value long, due long"))
        arrived = [Segment(rows, SegmentStatistics(len(keys), due, due))] if keys else []
        whole = may_be_whole and store.is_small(arrived)
        touched = store.touched([each.rows for each in arrived], watermark, partial(_added, store), whole=whole)
        _, (written,) = store.add(touched, store.summary("count(1)"), watermark, whole=whole)
        everything = len(sums.keys() | set(keys))
        needed = len({key for key, (_, last) in sums.items() if last < watermark} | set(keys))
        # Keys of which only a replaced row is due are found too.
        assert everything == written if whole else needed <= written <= everything
        sums |= {key: (sums.get(key, (0, 0))[0] + 1, due) for key in keys}
        sums = {key: (value, last) for key, (value, last) in sums.items() if last >= watermark}
        live = store.live()
        assert live is not None
        assert {row.key: (row.value, row.due) for row in live.collect()} == sums
        store.discard(Segment(rows, SegmentStatistics(0, 0, 0)))
        store.release()
        wholes.append(whole)
        assert not whole or len(store.segments) == 1
        if number in {1, 6}:
            # Of a table that is not the store's own it cannot know whether it has one version of each key.
            before, store = store, REPLACED.store()
            restored = read_back(session, before.segments, store.partitioned, tmp_path / f"{number}")
            store.restore(restored, before.closed)
            before.restore([], None)
            before.release()
    assert wholes == [may_be_whole and number in {0, 2, 6} for number in range(10)]


def _added(store: KeyedStore, touched: Touched) -> DataFrame:
    rows = [
        each.select("key_hash", "key", "value", "due") for each in (touched.arrived, touched.stored) if each is not None
    ]
    sums = (
        reduce(DataFrame.union, rows)
        .groupBy("key_hash", "key")
        .agg(F.sum("value").alias("value"), F.max("due").alias("due"))
    )
    return store.stamped(sums, version=touched.version)


def test_keys_that_a_collation_holds_equal_are_one_key(session: SparkSession) -> None:
    store = REPLACED.store()
    for value, key in enumerate(("A", "a")):
        row = session.sql(f"SELECT '{key}' COLLATE UTF8_LCASE AS key, {value}L AS value, 9L AS due")
        store.add(checkpointed(store.stamped(store.partitioned(row))), store.summary(), 0)
    live = store.live()
    assert live is not None
    assert [row.value for row in live.collect()] == [1]
