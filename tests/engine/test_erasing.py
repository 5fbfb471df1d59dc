"""Erasures: what a query keeps of a key is gone, bytes and all, and the query goes on as if it had never read it."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import sparkjet as sj
from sparkjet.catalyst.sought_rows import Sought
from sparkjet.cli import main
from sparkjet.engine.erasing import HomeErasure
from sparkjet.errors import AnalysisError, RecoveryError, StorageError
from sparkjet.sinks.erased_files import FilesErasure
from sparkjet.sinks.files import FilesSink
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.pins import Pins
from sparkjet.snapshots.record import PreparedTransaction
from sparkjet.snapshots.record_log import RecordLog, newest_record
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import transaction
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.snapshots.record import Record

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.interpreted, pytest.mark.crash]

ANNA = "anna-4711"
WINDOWS, SESSIONS, KEYS, PAIRS, VISITS, TOTALS = (f"stage{number}" for number in range(6))
OPERATORS = WINDOWS, SESSIONS, KEYS, PAIRS, VISITS, TOTALS


class Visits(StatefulProcessor):
    """Counts rows, and forgets a key with its third."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        before = self.count.get()[0] if self.count.exists() else 0
        total = before + sum(1 for _ in rows)
        if total == 3:
            self.count.clear()
        else:
            self.count.update((total,))
        yield Row(k=key[0], n=total)

    def close(self) -> None:
        pass


def writers(spark: SparkSession, feed: Feed, place: Path) -> list[Any]:
    """An operator of each kind, and late rows."""
    events = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").alias("e")
    others = events.select(F.col("ts").alias("at"), F.col("j").alias("number"), "v")
    near = F.expr("j = number AND at BETWEEN ts AND ts + INTERVAL 1 MINUTE")
    streams = [
        events.groupBy(sj.window("ts", "20 seconds", "10 seconds"), "k").agg(F.sum("v").alias("sum")),
        events.groupBy("k", F.session_window("ts", "7 seconds")).count(),
        events.dropDuplicates(["k", "j"]),
        events.select("ts", "k", "j").join(others, near),
        events.groupBy("k").transformWithState(Visits(), "k string, n long", "append", "None"),
    ]
    rolling = events.groupBy("j").agg(F.sum("v").alias("sum")).writeStream.outputMode("update")
    written: list[Any] = [
        each.writeStream.format("files").option("path", place / f"out{number}") for number, each in enumerate(streams)
    ]
    written.append(rolling.format("noop"))
    written[0] = written[0].option("lateRowsPath", place / "late")
    return [each.trigger(availableNow=True) for each in written]


def first(*names: str) -> list[dict[str, Any]]:
    each = {
        ANNA: rows([12, 24], k=ANNA, j=1, v=1),
        "ben": rows([2, 30], k="ben", j=2, v=2),
    }
    return [row for name in names for row in each[name]]


def second(*names: str) -> list[dict[str, Any]]:
    """Of each a row that is late, too."""
    each = {name: [*rows([28], k=name, j=3, v=4), *rows([-20], k=name, j=3, v=8)] for name in names}
    return [row for name in names for row in each[name]]


THIRD = [*rows([33, 34], k=ANNA, j=1, v=16), *rows([35, 90], k="ben", j=2, v=32)]


def run(spark: SparkSession, feed: Feed, place: Path, pin: str | None = None) -> None:
    """Run what has been fed; of two epochs the first is pinned."""

    def pinned(phase: sj.EpochPhase, epoch: int) -> None:
        if pin is not None and phase is sj.EpochPhase.COMMIT and epoch == 1:
            Pins(DirectoryStore(place / "home" / "snapshots")).put(pin, 0)

    one, *others = writers(spark, feed, place)
    query = sj.start(one.onEpochPhase(pinned), *others, checkpointLocation=str(place / "home"))
    query.awaitTermination()


def fed(place: Path, *names: str) -> Feed:
    feed = Feed(place / "in")
    feed.add(*first(*names))
    feed.add(*second(*names))
    return feed


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query that has ended two epochs, of which the first is pinned."""
    place = tmp_path_factory.mktemp("erasing")
    run(spark, fed(place, ANNA, "ben"), place, "first")
    return place


@pytest.fixture
def place(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(original, tmp_path / "place")


def everything(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}


def with_anna(place: Path) -> set[str]:
    """Files below a place that have her name, in their bytes or compressed."""
    found = set()
    for name, content in everything(place).items():
        values = "" if not name.endswith(".parquet") else str(pq.ParquetFile(place / name).read().to_pydict())
        if ANNA.encode() in content or ANNA in values:
            found.add(name)
    return found


def state(place: Path, *names: str, pin: str | None = None) -> dict[str, list[str]]:
    read = {name: sj.read_state(place / "home", name, pin=pin).drop("watermark").collect() for name in names}
    return {name: lines(each) for name, each in read.items()}


def without_anna(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: [row for row in each if ANNA not in row] for name, each in found.items()}


def lines(rows: Iterable[Row]) -> list[str]:
    return sorted(map(str, rows))


def test_nothing_stays_of_a_key_and_everything_of_the_others(spark: SparkSession, place: Path) -> None:
    before, pinned = state(place, *OPERATORS), state(place, WINDOWS, pin="first")
    late = sj.read_files(place / "late").where("k = 'ben'").collect()
    assert {name.partition("/")[0] for name in with_anna(place)} >= {"home", "late"}
    told = sj.erase(place / "home", {"k": ANNA}, rows=[place / "late"])
    by_place = {(each.place, each.operator): (each.rows, each.why) for each in told.places}
    for where in ("state", "pin first"):
        assert by_place[where, TOTALS] == (None, "no column k")
        assert by_place[where, PAIRS][1] == "right side: no column k"
        assert all((by_place[where, name][0] or 0) > 0 for name in OPERATORS if name != TOTALS)
    assert by_place[str(place / "late"), ""][0] == len(late)
    # Where Spark is in its sources, too.
    assert with_anna(place / "home") == with_anna(place / "late") == set()
    assert state(place, *OPERATORS) == without_anna(before)
    assert state(place, WINDOWS, pin="first") == without_anna(pinned)
    assert lines(sj.read_files(place / "late").collect()) == lines(late) != []
    assert lines(spark.read.parquet(str(place / "late")).collect()) == lines(late)


def test_a_pinned_record_is_erased_by_the_names_that_it_has(place: Path) -> None:
    """Aliases may change at any start, and records share deltas: here the right side's ``number`` was ``j`` before."""
    pins = Pins(DirectoryStore(place / "home" / "snapshots"))
    slot = pins.get("first").slot
    record = pins.record(slot)
    left, (time, number, value) = record.shown[PAIRS].sides
    shown = msgspec.structs.replace(record.shown[PAIRS], sides=[left, [time, {**number, "name": "j"}, value]])
    pins.revise(slot, msgspec.structs.replace(record, shown={**record.shown, PAIRS: shown}), 0)
    before = sj.read_state(place / "home", PAIRS, pin="first", joinSide="right").collect()
    told = sj.erase(place / "home", {"j": 2})
    why = {each.place: each.why for each in told.places if each.operator == PAIRS}
    assert why == {"state": "right side: no column j", "pin first": ""}
    after = sj.read_state(place / "home", PAIRS, pin="first", joinSide="right").collect()
    assert lines(after) == lines(row for row in before if row.j != 2) != lines(before)


@pytest.mark.long
def test_the_query_goes_on_as_if_it_had_not_read_the_key(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for names in ((ANNA, "ben"), ("ben",)):
        place = tmp_path / str(len(names))
        feed = fed(place, *names)
        run(spark, feed, place)
        sj.erase(place / "home", {"k": ANNA})
        seen = [lines(_results(place, number)) for number in range(5)]
        feed.add(*THIRD)
        run(spark, feed, place)
        found.append([_more(lines(_results(place, number)), before) for number, before in enumerate(seen)])
    assert found[0] == found[1]
    assert all(found[0])


def _results(place: Path, number: int) -> list[Row]:
    return sj.read_files(place / f"out{number}").drop("id").collect()


def _more(after: list[str], before: list[str]) -> list[str]:
    left = list(after)
    for each in before:
        left.remove(each)
    return left


def keys_of(spark: SparkSession, place: Path, *batches: list[dict[str, Any]]) -> sj.StreamingQuery:
    """A query that keeps keys of rows, one epoch a batch, of which the first is pinned."""
    feed = Feed(place / "in")
    for batch in batches:
        feed.add(*batch)
    events = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").dropDuplicates(["k", "j"])
    writer = events.writeStream.format("noop").option("checkpointLocation", place / "home")

    def pinned(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.COMMIT and epoch == 1:
            Pins(DirectoryStore(place / "home" / "snapshots")).put("first", 0)

    query = writer.onEpochPhase(pinned).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def stored(home: Path) -> dict[str | None, list[str]]:
    """The keys of the stored rows that the pinned record and the newest one name, all of which must be there."""
    found: dict[str | None, list[str]] = {}
    pins = Pins(DirectoryStore(home / "snapshots"))
    records = {"first": pins.record(pins.get("first").slot), None: newest_record(PosixDirectory(home), "stored")[1]}
    for pin, record in records.items():
        found[pin] = []
        for delta in record.stages["stage0"].deltas:
            place = home / "snapshots" / "state" / delta.name
            columns = [pq.ParquetFile(place / file).read().columns for file in delta.files]
            keys = [str(key) for each in columns for key in each[0].to_pylist()]
            assert len(keys) == delta.rows
            found[pin] += keys
        found[pin].sort()
    return found


class Killed(BaseException):
    """A process that is no more."""


CHANGING = "put", "revise", "remove", "trim", "write_delta"


@pytest.mark.crash
def test_an_erasure_that_is_killed_anywhere_leaves_whole_records_and_is_made_up_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_of(spark, tmp_path, rows([1], k=ANNA, j=1) + rows([2], k="ben", j=1), rows([3], k=ANNA, j=2))
    before = stored(tmp_path / "home")
    assert before == {"first": [ANNA, "ben"], None: [ANNA, ANNA, "ben"]}
    after = {"first": ["ben"], None: ["ben"]}
    left, steps = 0, 0

    def dying(name: str, call: Any) -> Any:
        def step(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(name)
            return call(*given)

        return step

    for number in range(99):
        home = shutil.copytree(tmp_path / "home", tmp_path / f"home{number}")
        left = number
        with monkeypatch.context() as patched:
            for name in CHANGING:
                patched.setattr(DirectoryStore, name, dying(name, getattr(DirectoryStore, name)))
            try:
                sj.erase(home, {"k": ANNA})
            except Killed:
                steps += 1
            else:
                break
        assert all(each in (before[pin], after[pin]) for pin, each in stored(home).items())
        sj.erase(home, {"k": ANNA})
        assert stored(home) == after
        assert with_anna(home) == set()
    # Two segments, a pin, the record, and what goes.
    assert steps > len(CHANGING)
    assert stored(home) == after
    assert sj.erase(home, {"k": ANNA}).rows == 0
    assert [row.k for row in sj.read_state(home, pin="first").collect()] == ["ben"]


def test_copies_of_a_home_get_the_newest_record_and_their_pins_lose_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    keys_of(spark, tmp_path, rows([1], k=ANNA, j=1) + rows([2], k="ben", j=1), rows([3], k=ANNA, j=2))
    home, copy = tmp_path / "home", tmp_path / "copy"
    copy_newest(PosixDirectory(home), PosixDirectory(copy))
    Pins(DirectoryStore(copy / "snapshots")).put("mine", 0)
    untouched = everything(tmp_path)
    looked = sj.erase(home, {"k": ANNA}, copies=[copy], dry_run=True)
    assert everything(tmp_path) == untouched
    told = sj.erase(home, {"k": ANNA}, copies=[copy])
    assert (told.places, told.left) == (looked.places, looked.left)
    assert [(each.place, each.rows) for each in told.places] == [
        ("state", 2),
        ("pin first", 1),
        (f"{copy}: state", 2),
        (f"{copy}: pin mine", 2),
    ]
    assert with_anna(home) == with_anna(copy) == set()
    for pin in ("mine", None):
        assert [row.k for row in sj.read_state(copy, pin=pin).collect()] == ["ben"]
    assert copy_newest(PosixDirectory(home), PosixDirectory(copy))[2] == 0


def test_what_is_pinned_or_erased_in_between_is_erased_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = rows([2], k="ben", j=1) + rows([2], k="carl", j=1)
    keys_of(spark, tmp_path, rows([1, 2], k=ANNA, j=1) + both, rows([3], k=ANNA, j=2))
    home, append = tmp_path / "home", RecordLog.append
    other = HomeErasure(spark, PosixDirectory(home), Sought({"k": "carl"}))
    slow = HomeErasure(spark, PosixDirectory(home), Sought({"k": "carl"}))

    def meanwhile(log: RecordLog, slot: int, record: Record) -> None:
        monkeypatch.setattr(RecordLog, "append", append)
        Pins(DirectoryStore(home / "snapshots")).put("second", 0)
        # It has read the pins as they were, and loses the slot.
        with pytest.raises(RecoveryError, match="it is being erased from elsewhere"):
            other._erase_pins()
        append(log, slot, record)

    monkeypatch.setattr(RecordLog, "append", meanwhile)
    told = sj.erase(home, {"k": ANNA})
    assert [(each.place, each.rows) for each in told.places] == [("state", 2), ("pin first", 1), ("pin second", 2)]
    assert with_anna(home) == set()
    with pytest.raises(RecoveryError, match="it is being erased from elsewhere"):
        slow.erase()
    # Had it looked for the newest record just before that was written.
    assert [slow._log.pins.revise(slot, record, 0) for slot, (_, record) in slow._pinned.items()] == [False]
    for pin in ("first", "second", None):
        assert lines(row.k for row in sj.read_state(home, pin=pin).collect()) == ["ben", "carl"]


def test_of_two_erasures_at_once_the_first_one_replaces_nothing_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_of(spark, tmp_path, rows([1], k=ANNA, j=1) + rows([2], k="ben", j=1) + rows([2], k="carl", j=1))
    home, late, replace = tmp_path / "home", tmp_path / "late", PosixDirectory.replace
    sink = FilesSink(late)
    sink.create()
    for epoch in (1, 2):
        table = spark.createDataFrame([(ANNA,), ("ben",), ("carl",)], "k string").coalesce(1)
        sink.commit(sink.prepare(table, transaction(epoch)), lambda: None)

    def second(directory: PosixDirectory, source: str, target: str) -> None:
        """The second one, which has read a file, and replaces it when the first one has done what it can."""
        monkeypatch.setattr(PosixDirectory, "replace", replace)
        query, check = first.record.query, first.check_newest
        for go_on in (
            lambda: files.erase(query, check),
            lambda: files._rewrite(target, f"_sparkjet/q/late/staging/000000-erased-{target}/0", check),
        ):
            with pytest.raises(RecoveryError, match="it is being erased from elsewhere"):
                go_on()
        replace(directory, source, target)

    first = HomeErasure(spark, PosixDirectory(home), Sought({"k": ANNA}))
    files = FilesErasure(spark, PosixDirectory(late), Sought({"k": ANNA}))
    first.erase()
    monkeypatch.setattr(PosixDirectory, "replace", second)
    told = sj.erase(home, {"k": "ben"}, rows=[late])
    assert [(each.place, each.rows) for each in told.places][-1] == (str(late), 2)
    assert lines(row.k for row in sj.read_files(late).collect()) == sorted(2 * [ANNA, "carl"])


def test_what_cannot_be_erased_is_refused_before_anything_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_of(spark, tmp_path, rows([1], k=ANNA, j=1) + rows([2], k="ben", j=1))
    home, untouched = tmp_path / "home", everything(tmp_path / "home")
    wrong: Any = {"k": 7}
    for key, said in (
        (wrong, "stage0 (state): k is string, and 7 is not a value of that type"),
        ({"j": "1"}, 'stage0 (state): j is int, and "1" is not a value of that type'),
        ({"j": True}, "j is int, and True is not a value"),
        ({"j": 2**40}, "j is int, and 1099511627776 is not a value"),
        ({}, "name a column and its value at least"),
        ({"k": None}, "a null identifies nobody"),
    ):
        with pytest.raises(AnalysisError, match=re.escape(said)):
            sj.erase(home, key)
    for given in ({"rows": str(home)}, {"copies": home}):
        with pytest.raises(AnalysisError, match="is one place: give a list"):
            sj.erase(home, {"k": ANNA}, **given)
    nameless: Any
    for nameless in (ANNA, {1: ANNA}):
        with pytest.raises(AnalysisError, match="does not name a column"):
            sj.erase(home, nameless)
    with pytest.raises(AnalysisError, match="has no manifest: no sparkjet query has published an epoch there"):
        sj.erase(home, {"k": ANNA}, rows=[tmp_path / "in"])
    with pytest.raises(RecoveryError, match="contains no record of a query"):
        sj.erase(home, {"k": ANNA}, copies=[tmp_path / "in"])
    # Erased from by itself, it is no copy: the newest record would not get there.
    copy_newest(PosixDirectory(home), PosixDirectory(tmp_path / "copy"))
    sj.erase(tmp_path / "copy", {"k": "nobody"})
    with pytest.raises(AnalysisError, match=r"has record \d+, and the home has records up to \d+ only"):
        sj.erase(home, {"k": ANNA}, copies=[tmp_path / "copy"])
    assert everything(home) == untouched
    told = sj.erase(home, {"k": ANNA, "v": 1})
    assert [(each.operator, each.rows, each.why) for each in told.places][:1] == [("stage0", None, "not all of k, v")]

    append = DirectoryStore.put

    def full(store: DirectoryStore, slot: int, content: bytes) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(slot))

    monkeypatch.setattr(DirectoryStore, "put", full)
    with pytest.raises(StorageError, match=r"cannot be read or written to: .*No space left on device.*erase again"):
        sj.erase(home, {"k": ANNA})

    def second_driver(store: DirectoryStore, slot: int, content: bytes) -> bool:
        append(store, slot, store.read(slot - 1).replace(b'"run":"', b'"run":"other-'))
        return append(store, slot, content)

    monkeypatch.setattr(DirectoryStore, "put", second_driver)
    with pytest.raises(RecoveryError, match=r"has changed since record \d+ was read: a driver runs the query, or"):
        sj.erase(home, {"k": ANNA})
    monkeypatch.undo()
    assert lines(row.k for row in sj.read_state(home).collect()) == [ANNA, "ben"]


ROW = """
    named_struct('id', 7, 'at.home', named_struct('k', 'anna')) AS user, 'x' AS `user.name`, 'small' AS k, 'large' AS K,
    date'0001-01-01' AS day, timestamp'0001-01-01 00:00:00' AS ts, timestamp_ntz'1500-01-01 00:00:00' AS ntz,
    cast('1000000000000000000000000000000' AS decimal(38, 0)) AS large, 9007199254740992D AS double,
    16777216F AS float, x'00ff' AS bytes, INTERVAL 1 DAY AS day_time
"""


@pytest.mark.parametrize(
    ("key", "is_found"),
    [
        ({"user.id": 7, "user.at.home.k": "anna"}, True),
        ({"user.name": "x"}, True),
        ({"USER.ID": 7, "DAY": dt.date(1, 1, 1)}, True),
        ({"user.none": 7}, None),
        ({"k": "large"}, False),
        ({"K": "large"}, True),
        ({"day": dt.date(1, 1, 2)}, False),
        ({"ts": dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc), "ntz": dt.datetime(1500, 1, 1)}, True),
        ({"large": 10**30, "bytes": bytearray(b"\x00\xff"), "day_time": dt.timedelta(1)}, True),
        ({"double": 2**53, "float": 2.0**24}, True),
    ],
)
def test_a_value_is_sought_as_what_it_is(spark: SparkSession, key: dict[str, Any], is_found: bool | None) -> None:
    rows = spark.sql(f"SELECT {ROW}").toDF(*(f"c{number}" for number in range(12)))
    fields = spark.sql(f"SELECT {ROW}").schema
    found = Sought(key).within(spark, fields, rows.columns, "here")
    assert (None if found is None else rows.select(found).collect()[0][0]) is is_found


@pytest.mark.parametrize(
    ("key", "is_text"),
    [
        ({"double": 2**53 + 1}, False),
        ({"double": "9007199254740993"}, True),
        ({"float": 2**24 + 1}, False),
        ({"double": 10**400}, False),
        ({"double": "1" * 400}, True),
        ({"large": 10**39}, False),
        ({"day": "12345678-01-01"}, True),
        ({"user": "anna"}, True),
        ({"k": "\ud800"}, False),
    ],
)
def test_a_value_that_would_be_another_in_its_column_is_refused(
    spark: SparkSession, key: dict[str, Any], is_text: bool
) -> None:
    rows = spark.sql(f"SELECT {ROW}")
    with pytest.raises(AnalysisError, match=f"here: {next(iter(key))} is .* is not a value of that type"):
        Sought(key, is_text).within(spark, rows.schema, rows.columns, "here")


def test_a_name_of_several_columns_is_refused(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS one, 2 AS two, 3 AS three").toDF("id.N", "ID.n", "x")
    with pytest.raises(AnalysisError, match=r"here: id\.n may be one of 2 columns\. Write it in its own case"):
        Sought({"id.n": 1}).within(spark, rows.schema, ["one", "two", "three"], "here")


@pytest.mark.parametrize("year", ["0000", "+12345"])
def test_years_that_python_does_not_have_are_sought(spark: SparkSession, year: str) -> None:
    rows = spark.sql(f"SELECT date'{year}-01-01' AS day")
    found = Sought({"day": f"{year}-01-01"}, is_text=True).within(spark, rows.schema, rows.columns, "here")
    assert found is not None
    assert rows.where(found).count() == 1


def test_the_command_prints_what_was_found_where(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys_of(spark, tmp_path, rows([1, 2], k=ANNA, j=1) + rows([2], k=ANNA, j=2))
    home = str(tmp_path / "home")
    assert main(["erase", home, "--key", f"k={ANNA}", "--key", "j=1", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for said in ("stage0 (duplicates)", "pin first", "there are 2 stored rows", "not erased: sources: "):
        assert said in printed
    assert main(["erase", home, "--key", "j=1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 2
    assert [each["place"] for each in told["places"]] == ["state", "pin first"]
    assert [row.j for row in sj.read_state(home).collect()] == [2]
    assert main(["erase", home, "--key", "j=one", "--json"]) == 1
    assert 'j is int, and "one" is not a value' in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main(["erase", home, "--key", "j"]) == 1
    assert "is not COLUMN=VALUE" in capsys.readouterr().err


def test_rows_that_are_decided_are_published_first_and_names_of_substreams_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2], k=ANNA, j=1))
    delivered: list[Any] = []

    def die(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.DECIDE:
            raise Killed

    def writer() -> Any:
        events = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds", by="k").dropDuplicates(["k", "j"])
        writer = events.writeStream.foreachBatch(lambda batch, epoch: delivered.extend(batch.collect()))
        return writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True)

    with pytest.raises(Killed):
        writer().onEpochPhase(die).start().awaitTermination()
    with pytest.raises(AnalysisError, match=r"epoch 1 of .* is decided, and its rows for results wait in the outbox"):
        sj.erase(tmp_path / "home", {"k": ANNA})
    writer().start().awaitTermination()
    assert len(delivered) == 1
    assert any(f'the substream "{ANNA}"' in each for each in sj.erase(tmp_path / "home", {"k": ANNA}).left)
    assert not any((tmp_path / "home" / "snapshots" / "outbox").rglob("*.parquet"))


def test_the_report_says_what_records_keep(spark: SparkSession, tmp_path: Path) -> None:
    keys_of(spark, tmp_path, rows([1], k="ben", j=1))
    pins = Pins(DirectoryStore(tmp_path / "home" / "snapshots"))
    slot, fork = pins.get("first").slot, sj.fork(str(tmp_path / "home"), at="first", to=str(tmp_path / "fork"))
    record = pins.record(slot)
    files = [["part-0", "k=Ann%20A/part-0"]]
    pins.revise(
        slot,
        msgspec.structs.replace(
            record,
            stages={name: msgspec.structs.replace(each, late={"Ann A": 1}) for name, each in record.stages.items()},
            transactions=[PreparedTransaction("results", {"files": files, "staging": "0"})],
        ),
        0,
    )
    left = sj.erase(tmp_path / "home", {"k": "Ann A"}, dry_run=True).left
    for told in ('the name of the substream "Ann A"', "names of files in k=Ann A", "in records since the first pin"):
        assert any(told in each for each in left)
    assert not any("outputs of this fork" in each for each in left)
    left = sj.erase(fork.home, {"k": "Ann A"}, dry_run=True).left
    assert any("outputs of this fork" in each for each in left)
    assert not any("Ann A" in each or "pin" in each for each in left)
