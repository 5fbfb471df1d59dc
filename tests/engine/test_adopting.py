"""A query begins behind a stopped one of Spark's, each row once; what cannot be continued is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import sparkjet as sj
from sparkjet.api.writer import settings_of
from sparkjet.cli.commands import run
from sparkjet.engine.adopted_sources import unlike
from sparkjet.engine.adopting import NOTE, Adoption, lists_of
from sparkjet.engine.exporting import check_exported, export_checkpoint
from sparkjet.engine.phases import EpochPhase
from sparkjet.engine.spark_checkpoint import SparkCheckpoint
from sparkjet.plan.planning import plan_of
from sparkjet.plan.spark_sources import ReadSource
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.record import (
    EpochKind,
    History,
    PreparedTransaction,
    Record,
    RollingSettings,
    SavedStage,
    SparkPosition,
)
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows
from tests.snapshots.records import NO_WATERMARKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.plan.plan import Plan

pytestmark = pytest.mark.spark

LISTED = "spark.sql.streaming.fileSink.log.compactInterval"
COMPACTION = "spark.sql.streaming.fileSource.log.compactInterval"


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


class Life:
    """A query of Spark's own over files: batches 0 to 3 are done, batch 4 is planned; the log was compacted."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.feed = spark, place, Feed(place / "in")
        self.seen: list[int] = []

    def of_spark(self, checkpoint: Path, *, dies: bool = False) -> None:
        def write(batch: DataFrame, number: int) -> None:
            if dies and number > 3:
                raise Killed
            self.seen += [row.id for row in batch.collect()]

        writer = self.feed.read(self.spark).writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()

    def run(self, place: Path, dies: EpochPhase | None = None, **options: Any) -> None:
        def listener(phase: EpochPhase, _: int) -> None:
            if phase is dies:
                raise Killed

        writer = sj.stream(self.feed.read(self.spark)).select("id").writeStream.format("files")
        usual = {"path": place / "out", "checkpointLocation": place / "home", "adopt": place / "old"}
        writer.options(**{**usual, **options})
        writer.onEpochPhase(listener).trigger(availableNow=True).start().awaitTermination()


@pytest.fixture(scope="module")
def life(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Life:
    life = Life(spark, tmp_path_factory.mktemp("life"))
    for _ in range(5):
        life.feed.add(*rows([1, 2], k="x"))
    spark.conf.set(COMPACTION, 2)
    try:
        with pytest.raises(StreamingQueryException):
            life.of_spark(life.place / "old", dies=True)
    finally:
        spark.conf.unset(COMPACTION)
    assert life.seen == [*range(8)]
    life.feed.add(*rows([3], k="x"))
    return life


@pytest.fixture
def place(life: Life, tmp_path: Path) -> Path:
    """A place with a copy of the checkpoint that the query has left."""
    shutil.copytree(life.place / "old", tmp_path / "old")
    return tmp_path


def plan(life: Life) -> Plan:
    """A query without outputs in directories of Spark's."""
    writer = sj.stream(life.feed.read(life.spark)).select("id").writeStream.format("noop")
    return plan_of([settings_of(writer).output("results")])


def found(place: Path) -> list[int]:
    return sorted(row.id for row in sj.read_files(place / "out").collect())


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_it_begins_after_the_last_finished_batch_and_fences_the_old_query(life: Life, place: Path) -> None:
    before = contents(place / "old")
    assert {"offsets/4", "sources/0/3.compact", "sources/0/4"} <= before.keys()
    assert "commits/4" not in before
    life.run(place)
    assert found(place) == [8, 9, 10]
    # All that was there is as it was, and the one new file keeps Spark's query from running.
    after = contents(place / "old")
    assert {name: after.pop(name) for name in before} == before
    assert after.keys() == {"commits/4"}
    with pytest.raises(StreamingQueryException, match=NOTE):
        life.of_spark(place / "old")
    # The option may stay, even when the checkpoint is gone.
    shutil.rmtree(place / "old")
    life.run(place)
    assert found(place) == [8, 9, 10]


@pytest.mark.parametrize("dies", [None, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMIT])
def test_killed_in_its_first_epoch_it_has_each_row_once(
    life: Life, place: Path, monkeypatch: pytest.MonkeyPatch, dies: EpochPhase | None
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if dies is None:
            # Between the fence and the first record.
            patch.setattr(RecordLog, "append", killed)
        with pytest.raises(Killed):
            life.run(place, dies)
    life.run(place)
    assert found(place) == [8, 9, 10]


def test_nobody_else_may_adopt_it_and_no_query_that_has_begun(life: Life, place: Path) -> None:
    life.run(place)
    with pytest.raises(sj.AnalysisError, match=r"old\" was adopted by the query of \".*/home\" already"):
        life.run(place, checkpointLocation=place / "other")
    assert not (place / "other" / "snapshots" / "log").exists()
    shutil.copytree(life.place / "old", place / "older")
    with pytest.raises(sj.AnalysisError, match=r"older\" is another checkpoint than \".*/old\", with which this query"):
        life.run(place, adopt=place / "older")
    life.run(place, checkpointLocation=place / "second", path=place / "second-out", adopt=None)
    with pytest.raises(sj.AnalysisError, match=r"second\" has records, up to epoch \d, and has not begun with"):
        life.run(place, checkpointLocation=place / "second", path=place / "second-out")


def test_a_batch_that_spark_writes_in_between_is_not_lost(life: Life, place: Path) -> None:
    """The put of the note fails: nothing is fenced, and no record is written."""
    (place / "home" / "snapshots").mkdir(parents=True)
    adoption = Adoption("old", PosixDirectory(place / "old"), PosixDirectory(place / "home"))
    with pytest.MonkeyPatch.context() as patch:
        put = PosixDirectory.put

        def late(directory: PosixDirectory, name: str, content: bytes) -> bool:
            (place / "old" / "commits" / name).write_text('v1\n{"nextBatchWatermarkMs":0}')
            return put(directory, name, content)

        patch.setattr(PosixDirectory, "put", late)
        with pytest.raises(sj.AnalysisError, match="got commits/4 while this query started: Spark's query is running"):
            adoption.take(plan(life), DirectoryStore(place / "home" / "snapshots"), "000000-run")


def test_it_is_exported_and_spark_goes_on(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export is killed in the middle; then back again."""
    life, new, home = Life(spark, tmp_path), PosixDirectory(tmp_path / "new"), PosixDirectory(tmp_path / "home")
    for _ in range(2):
        life.feed.add(*rows([1], k="x"))
    life.run(tmp_path, adopt=None)
    assert found(tmp_path) == [0, 1]

    def killed(*_: object) -> None:
        raise Killed

    def killed_at_the_end(directory: PosixDirectory, names: Iterable[str]) -> None:
        if str(directory).endswith("offsets"):
            raise Killed
        remove_files(directory, names)

    remove_files = PosixDirectory.remove_files
    for what, dies in [
        ((PosixDirectory, "remove_files"), killed),
        ((RecordLog, "append"), killed),
        ((SparkCheckpoint, "rebuild"), killed),
        ((PosixDirectory, "remove_files"), killed_at_the_end),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(*what, dies)
            with pytest.raises(Killed):
                export_checkpoint(home, new, after=0)
        # Spark misses the metadata first, where there is none.
        with pytest.raises(PySparkException, match=r"This checkpoint is not complete: sparkjet|MISSING_METADATA"):
            life.of_spark(tmp_path / "new")
    with pytest.raises(sj.RecoveryError, match=r"home\" was exported to \".*/new\", from where a query of Spark's"):
        life.run(tmp_path, adopt=None)
    with pytest.raises(sj.RecoveryError, match=r"home\" was exported to \".*/new\" already"):
        export_checkpoint(home, PosixDirectory(tmp_path / "newer"))
    assert run(["export-checkpoint", str(tmp_path / "home"), str(tmp_path / "new")]) == 0
    with pytest.raises(sj.AnalysisError, match=r"new\" has files: \".*/home\" was exported there, and it is complete"):
        export_checkpoint(home, new)
    life.feed.add(*rows([2], k="x"))
    life.of_spark(tmp_path / "new")
    assert life.seen == [2]
    life.feed.add(*rows([3], k="x"))
    life.run(tmp_path, adopt=tmp_path / "new", checkpointLocation=tmp_path / "again", path=tmp_path / "then")
    assert [row.id for row in sj.read_files(tmp_path / "then").collect()] == [3]


POSITION = SparkPosition(1, {"offsets/1": "v1\n{}\n5"}, {})


@pytest.mark.parametrize(
    ("has", "told"),
    [
        ({"spark": None}, "has read nothing yet"),
        ({"stages": {"stage0": SavedStage(RollingSettings(), None, [], {}, {})}}, r"has state of operators \(stage0\)"),
        ({"transactions": [PreparedTransaction("results", {})]}, "has decided epoch 7, and does not say that it is"),
        ({"history": History(2, 2, "seam")}, "has begun with a history"),
        ({"unsaid": {"sources": [["", "", "sparkjet-rabbitmq q"]]}}, "reads sparkjet-rabbitmq, whose position"),
    ],
)
def test_what_spark_cannot_continue_is_not_exported(tmp_path: Path, has: dict[str, Any], told: str) -> None:
    home, store = PosixDirectory(tmp_path / "home"), DirectoryStore(tmp_path / "home" / "snapshots")
    record = Record(EpochKind.BATCH, "q", 3, "r", 7, {}, 0, NO_WATERMARKS, {}, {}, POSITION, [])
    store.open("checkpointLocation")
    RecordLog(store).append(0, msgspec.structs.replace(record, **has))
    before = contents(tmp_path)
    with pytest.raises(sj.RecoveryError, match=rf"export-checkpoint: \".*home\" {told}"):
        export_checkpoint(home, PosixDirectory(tmp_path / "new"))
    assert contents(tmp_path) == before


def _remove(name: str) -> Callable[[Path], None]:
    return lambda old: shutil.rmtree(old / name) if (old / name).is_dir() else (old / name).unlink()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(old: Path) -> None:
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text(text)

    return write


OPERATOR = 'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},"stateStoreInfo":[]}'


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_write("state/0/_metadata/metadata", OPERATOR), r"has state of operators, .*: stateStoreSave \(0\)\. Start"),
        (_write("state/1/0/1.delta", ""), r"has state of operators, .*: operator 1\. Start"),
        (_remove("metadata"), "is not the checkpoint of a Spark query: it has no metadata"),
        (_remove("commits"), "has no batch that is done"),
        (_remove("offsets/3"), "is damaged: offsets/3: No such file"),
        (_remove("offsets/2"), "is damaged: offsets/2: No such file"),
        (_write("offsets/3", ""), "is damaged: offsets/3: its first line is not a version"),
        (_write("offsets/3", "v1\n{}\n{half"), "is damaged: offsets/3: Expecting property name"),
        (_write("offsets/3", "v7\n{}\n-"), "is damaged: offsets/3: Spark's offset log has version 'v7'"),
        (_write("offsets/6", "v1\n{}\n-"), r"has planned batch 6, and 3 is the last .*asyncProgressTrackingEnabled"),
        (
            _write("offsets/4", "This checkpoint is not complete: …"),
            "is damaged: offsets/4: it says: This checkpoint is",
        ),
        (_write("sources/0/3.compact", ""), r"is damaged: sources/0/3\.compact: its first line is not a version"),
        (_write("sources/0/extra", ""), r"is damaged: .* a source keeps sources/0/extra"),
        (_write("offsets/3", "v1\n{}\n1\n2"), r"has offsets of 2 sources \(0, 1\), and the query reads 1 \(0\)"),
        (_write("offsets/3", 'v1\n{}\n{"t":{"0":5}}'), r"has the offset \{\"t\": \{\"0\": 5\}\} for source 0, .* json"),
        (_write("sources/0/4", 'v1\n{"path":"file:///in2/0.json"}'), "has read file:///in2/0.json for source 0, which"),
    ],
)
def test_what_cannot_be_continued_is_refused_and_nothing_changed(
    life: Life, place: Path, change: Callable[[Path], None], told: str
) -> None:
    change(place / "old")
    before = contents(place)
    with pytest.raises(sj.AnalysisError, match=rf"^\[SPARKJET_ANALYSIS\] adopt: \".*old\" {told}"):
        life.run(place)
    assert contents(place) == before


def test_a_query_that_runs_here_is_not_adopted(life: Life, place: Path) -> None:
    (place / "old" / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":0}')
    writer = life.feed.read(life.spark).writeStream.format("noop").trigger(processingTime="1 hour")
    query = writer.option("checkpointLocation", str(place / "old")).start()
    try:
        with pytest.raises(sj.AnalysisError, match="belongs to a query that runs in this application"):
            life.run(place)
    finally:
        query.stop()


class Listed:
    """A query of Spark's own that writes files: its readers follow the list in ``_spark_metadata``."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.feed, self.count = spark, place, Feed(place / "in"), 0
        self.seen: list[int] = []

    def add(self) -> None:
        self.feed.add(*rows([1], k=f"k {self.count % 2}"))
        self.count += 1

    def of_spark(self, checkpoint: str = "old", out: str = "out") -> None:
        writer = self.feed.read(self.spark).select("id", "k").writeStream.partitionBy("k").format("parquet")
        query = writer.option("checkpointLocation", str(self.place / checkpoint)).trigger(availableNow=True)
        query.start(str(self.place / out)).awaitTermination()

    def run(self, dies: Callable[[EpochPhase, int], None] = lambda *_: None, **options: Any) -> None:
        usual = {"path": self.place / "out", "checkpointLocation": self.place / "home", "adopt": self.place / "old"}
        writer = sj.stream(self.feed.read(self.spark)).select("id", "k").writeStream.partitionBy("k").format("parquet")
        writer.options(**{**usual, **options}).onEpochPhase(dies)
        writer.trigger(availableNow=True).start().awaitTermination()

    def check(self) -> None:
        """Readers of Spark's, of batches and of a stream, see each row once, and so does ours."""
        out = str(self.place / "out")
        assert sorted(row.id for row in self.spark.read.parquet(out).collect()) == [*range(self.count)]
        stream = self.spark.readStream.schema("id long, k string").parquet(out).writeStream.trigger(availableNow=True)
        stream.foreachBatch(lambda batch, _: self.seen.extend(row.id for row in batch.collect()))
        stream.option("checkpointLocation", str(self.place / "read")).start().awaitTermination()
        assert sorted(self.seen) == [*range(self.count)]


def test_a_directory_of_sparks_file_sink_is_taken_over_and_given_back(spark: SparkSession, tmp_path: Path) -> None:
    """Over two compactions of the list."""
    case = Listed(spark, tmp_path)
    spark.conf.set(LISTED, 3)
    try:
        for _ in range(2):
            case.add()
            case.of_spark()
        case.check()
        with pytest.raises(sj.AnalysisError, match=r"was written by Spark's own streaming.* or adopt the checkpoint"):
            case.run(adopt=None)
        shutil.copytree(tmp_path / "out", tmp_path / "other")
        listed = tmp_path / "other" / "_spark_metadata"
        shutil.copy(listed / "1", listed / "2.compact")
        with pytest.raises(sj.AnalysisError, match=r'old" is at batch 1, and ".*other" has batch 2 of a query'):
            case.run(path=tmp_path / "other")
        case.add()
        case.run()
        case.check()
        # The list is ours by what the home keeps; another directory's is not.
        # A copy of the home knows it as well.
        copy_newest(PosixDirectory(tmp_path / "home"), PosixDirectory(tmp_path / "copy"))
        shutil.rmtree(tmp_path / "home")
        (tmp_path / "copy").rename(tmp_path / "home")
        case.run(adopt=None)
        with pytest.raises(sj.AnalysisError, match="was written by Spark's own streaming"):
            case.run(path=tmp_path / "other")

        for _ in range(3):
            case.add()
            case.run()
        case.check()
        names = {path.name for path in (tmp_path / "out" / "_spark_metadata").iterdir() if path.name[0] != "."}
        assert names == {"2.compact", "3", "4", "5.compact"}
        both = sj.read_files(tmp_path / "out")
        assert sorted(row.id for row in both.collect()) == [*range(case.count)]
        assert run(["export-checkpoint", str(tmp_path / "home"), str(tmp_path / "new")]) == 0
        case.add()
        case.of_spark("new")
        case.check()
    finally:
        spark.conf.unset(LISTED)


def test_topics_that_changed_places_are_reported() -> None:
    kafka, end = ReadSource("kafka", None), {"a": {"0": 5}}
    assert unlike("0", end, kafka, "a, b") == unlike("0", end, kafka, None) == ""
    assert unlike("0", end, kafka, "b").startswith("has read a for source 0, and the query reads b")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_planned_batch_is_done_if_the_list_has_it(spark: SparkSession, tmp_path: Path, *, is_there: bool) -> None:
    """Killed behind the claim as well: the entry that closes the batch is not taken for Spark's."""
    case = Listed(spark, tmp_path)
    for _ in range(2):
        case.add()
        case.of_spark()
    (tmp_path / "old" / "commits" / "1").unlink()
    if not is_there:
        (tmp_path / "out" / "_spark_metadata" / "1").unlink()
    with pytest.MonkeyPatch.context() as patch:

        def killed(*_: object) -> None:
            raise Killed

        patch.setattr(RecordLog, "append", killed)
        with pytest.raises(Killed):
            case.run()
    case.run()
    case.check()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("1", "", r"_spark_metadata/1 is damaged: not enough values"),
        ("1", 'v1\n{"path":"file:/a', "_spark_metadata/1 is damaged: Unterminated"),
        ("1", "v2", "_spark_metadata/1 has version 'v2', and v1 is what"),
        ("0", None, "_spark_metadata has no entry 0, and later ones"),
    ],
)
def test_a_list_that_is_damaged_is_refused_before_anything_is_fenced(
    life: Life, place: Path, name: str, text: str | None, told: str
) -> None:
    listed = place / "out" / "_spark_metadata"
    listed.mkdir(parents=True)
    for number in range(4):
        (listed / str(number)).write_text("v1")
    if text is None:
        (listed / name).unlink()
    else:
        (listed / name).write_text(text)
    before = contents(place)
    with pytest.raises(sj.AnalysisError, match=rf"path: .*{told}"):
        life.run(place)
    assert contents(place) == before


@pytest.mark.parametrize(("name", "read"), [("adopted.json", lists_of), ("exported.json", check_exported)])
def test_a_damaged_file_of_a_home_is_named(tmp_path: Path, name: str, read: Callable[[PosixDirectory], object]) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / name).write_text("{half")
    with pytest.raises(sj.RecoveryError, match=rf"/snapshots/{name} cannot be read: .* Restore it from a copy of"):
        read(PosixDirectory(tmp_path))


def test_a_wrong_interval_is_named_before_anything_is_fenced(life: Life, place: Path) -> None:
    """A commit that has been decided with it would never come to an end."""
    (place / "out" / "_spark_metadata").mkdir(parents=True)
    for number in range(4):
        (place / "out" / "_spark_metadata" / str(number)).write_text("v1")
    before = contents(place)
    life.spark.conf.set(LISTED, 0)
    try:
        with pytest.raises(sj.AnalysisError, match=rf"{LISTED} is 0, and .* Set it to 1 or more"):
            life.run(place)
    finally:
        life.spark.conf.unset(LISTED)
    assert contents(place) == before
    life.run(place)
    assert found(place) == [8, 9, 10]


def test_the_home_is_a_separate_place(life: Life, place: Path) -> None:
    with pytest.raises(sj.AnalysisError, match=r"adopt: the checkpointLocation \".*\" is Spark's checkpoint, or in it"):
        life.run(place, checkpointLocation=place / "old" / "home")
    writer = sj.stream(life.feed.read(life.spark)).select("id").writeStream.format("noop")
    with pytest.raises(sj.AnalysisError, match="adopt: without option"):
        writer.option("adopt", place / "old").start()


def test_rows_of_a_rate_are_counted_on(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=3, numPartitions=1).load()
    seen: list[int] = []

    def write(batch: DataFrame, _: int) -> None:
        seen.extend(row.value for row in batch.collect())

    old = source.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "old"))
    old.trigger(availableNow=True).start().awaitTermination()
    writer = sj.stream(source).writeStream.foreachBatch(write)
    writer.options(checkpointLocation=tmp_path / "home", adopt=tmp_path / "old").trigger(availableNow=True)
    writer.start().awaitTermination()
    assert sorted(seen) == [*range(6)]


class Remote(PosixDirectory):
    """A directory that is not below a path of this machine."""

    @property
    def path(self) -> None:
        return None


def test_a_checkpoint_elsewhere_is_read_by_a_copy(life: Life, place: Path) -> None:
    found = []
    for number, kind in enumerate((PosixDirectory, Remote)):
        home = place / f"home{number}"
        store = DirectoryStore(home / "snapshots")
        store.open("checkpointLocation")
        (place / "old" / "commits" / "4").unlink(missing_ok=True)
        adoption = Adoption("old", kind(place / "old"), PosixDirectory(home))
        position = adoption.take(plan(life), store, "000000-run").position
        found.append((position, {name: store.read_blob(blob) for name, blob in position.sources.items()}))
    assert found[0] == found[1]
    assert found[0][1].keys() == {"sources/0/3.compact", "sources/0/4"}
