"""Backfills: a table and then a stream are as one batch of both, wherever the query is killed."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import sparkjet as sj
from sparkjet.plan.backfill import Backfill, Seam
from sparkjet.plan.written import written_in
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]

SCHEMA = "ts timestamp, part int, offset long, v long"
UTC = dt.timezone.utc


class KilledError(Exception):
    """Raised by a listener where a driver is to end."""


def events(spark: SparkSession, part: int, first: int, last: int) -> DataFrame:
    """Events of a partition between two offsets; one a second, partition 1 two minutes behind."""
    time = f"timestamp_seconds(1000 + id - {120 * part})"
    return spark.range(first, last).selectExpr(f"{time} ts", f"{part} part", "id offset", "id % 7 v")


class Case:
    """A table with the older events of two partitions, and a stream that has the last of these and newer ones."""

    def __init__(self, spark: SparkSession, home: Path, *, write: bool = True) -> None:
        self.spark, self.home = spark, home
        self.old = events(spark, 0, 0, 300).union(events(spark, 1, 0, 250))
        self.new = events(spark, 0, 200, 400).union(events(spark, 1, 200, 420)).union(events(spark, 2, 0, 50))
        if not write:
            return
        self.old.coalesce(1).write.parquet(f"{home}/table")
        # In one batch, in no order of event time but that the lag allows.
        self.new.coalesce(1).write.parquet(f"{home}/new")

    def stream(self, cut: Any = ("part", "offset"), bucket: str = "2 minutes") -> sj.Stream:
        # As Spark has it, letters of names have no case.
        history = self.spark.read.schema(SCHEMA).parquet(f"{self.home}/table").withColumnRenamed("v", "V")
        live = self.spark.readStream.schema(SCHEMA).parquet(f"{self.home}/new")
        return sj.backfill(history, live, cut, "ts", bucket=bucket)

    def counts(self, cut: Any = ("part", "offset"), bucket: str = "2 minutes") -> StreamWriter:
        """Windows over the substreams of both."""
        stream = self.stream(cut, bucket).withWatermark("ts", "10 minutes", by="part", substreams=["0", "1"])
        windows = stream.groupBy(sj.window("ts", "1 minute", "20 seconds"), "part")
        found = windows.agg(F.sum("v").alias("v"), F.count("*").alias("n")).select(
            F.col("window.start").alias("start"), "part", "v", "n"
        )
        return self.written(found)

    def written(self, result: Any) -> StreamWriter:
        writer = result.writeStream.format("files").option("path", self.home / "out").trigger(availableNow=True)
        return writer.option("checkpointLocation", self.home / "query").option("closeWindowsAtEnd", True)

    def expected(self, rows: DataFrame) -> Counter[Any]:
        """The result of Spark's batch over all rows."""
        found = rows.groupBy(F.window("ts", "1 minute", "20 seconds"), "part")
        summed = found.agg(F.sum("v").alias("v"), F.count("*").alias("n"))
        return Counter(summed.select("window.start", "part", "v", "n").collect())

    @property
    def found(self) -> Counter[Any]:
        return Counter(sj.read_files(self.home / "out").select("start", "part", "v", "n").collect())

    @property
    def record(self) -> Any:
        newest = RecordLog(DirectoryStore(self.home / "query" / "snapshots")).newest()
        assert newest is not None
        return newest[1]


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path)


def run(writer: StreamWriter) -> None:
    writer.start().awaitTermination()


P = sj.EpochPhase
BEFORE = (P.BEGIN, P.AGGREGATE, P.ADVANCE, P.SAVE, P.PREPARE)
FEW = ((P.DECIDE, 1), (P.PREPARE, 4), (P.DECIDE, 5))
ALL = (
    *((phase, 1) for phase in BEFORE),
    *((P.DECIDE, 1), (P.COMMIT, 2), (P.CLEAN, 3)),
    *((phase, 4) for phase in (*BEFORE, P.DECIDE)),
    *((phase, 5) for phase in (*BEFORE, P.DECIDE)),
)


@pytest.mark.crash
@pytest.mark.parametrize("kills", [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.long)])
def test_history_and_stream_are_as_one_batch_killed_around_the_seam(
    case: Case, kills: tuple[tuple[sj.EpochPhase, int], ...]
) -> None:
    # 300 seconds and those that partition 1 is behind, in four buckets; the stream is epoch 5.
    left = list(kills)

    def listener(phase: sj.EpochPhase, epoch: int) -> None:
        if left and (phase, epoch) == left[0]:
            del left[0]
            raise KilledError

    for number in range(len(kills)):
        with pytest.raises(KilledError):
            run(case.counts().onEpochPhase(listener))
        assert len(left) == len(kills) - number - 1
    run(case.counts())
    assert case.record.history.is_read
    assert case.found == case.expected(case.old.union(case.new).distinct())


# In CI, the archive of test_commits_say_which_rows… goes on as well.
@pytest.mark.long
def test_rows_that_the_table_gets_later_are_read_from_the_stream(case: Case) -> None:
    def ends(phase: sj.EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (sj.EpochPhase.CLEAN, 2):
            raise KilledError

    with pytest.raises(KilledError):
        run(case.counts().onEpochPhase(ends))
    events(case.spark, 0, 300, 400).write.mode("append").parquet(f"{case.home}/table")
    run(case.counts())
    assert case.found == case.expected(case.old.union(case.new).distinct())


def test_a_time_cuts_without_offsets(case: Case) -> None:
    cut = dt.datetime.fromtimestamp(1000 + 100, UTC)
    run(case.counts(cut))
    seconds = F.unix_seconds("ts")
    rows = case.old.where(seconds < 1100).union(case.new.where(seconds >= 1100))
    assert case.found == case.expected(rows)


def test_without_windows_each_row_comes_once(case: Case) -> None:
    writer = case.stream(bucket="1 hour").select("part", "offset").writeStream.format("files")
    writer = writer.option("path", case.home / "out").option("checkpointLocation", case.home / "query")
    for _ in range(2):
        run(writer.trigger(availableNow=True))
    found = sj.read_files(case.home / "out")
    assert (found.count(), found.distinct().count()) == (870, 870)


def test_a_running_query_reads_history_first_and_can_be_stopped_in_it(case: Case) -> None:
    query = (
        case.counts(bucket="75 seconds").trigger(processingTime="0 seconds").option("closeWindowsAtEnd", False).start()
    )
    query.processAllAvailable()
    assert case.record.history.is_read
    assert case.record.spark is not None
    query.stop()
    assert query.exception() is None


def test_a_query_that_is_stopped_from_outside_reads_no_more_history(case: Case) -> None:
    reached = threading.Event()
    go_on = threading.Event()

    def listener(phase: sj.EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (P.CLEAN, 2):
            reached.set()
            go_on.wait(60)

    writer = case.counts().trigger(processingTime="0 seconds").option("closeWindowsAtEnd", False)
    query = writer.onEpochPhase(listener).start()
    assert reached.wait(60)
    threading.Thread(target=query._spark.stop).start()
    while query._spark.isActive:
        query.awaitTermination(0.01)
    go_on.set()
    assert query.awaitTermination(60)
    assert case.record.history.done == 2
    run(case.counts())
    assert case.found == case.expected(case.old.union(case.new).distinct())


def test_only_the_stream_that_was_given_a_history_has_one(case: Case) -> None:
    live = case.spark.readStream.schema(SCHEMA).parquet(f"{case.home}/new")
    history = case.spark.read.parquet(f"{case.home}/table")
    kept = [sj.backfill(history, live, ("part", "offset"), "ts") for _ in range(2)]
    for number, stream in enumerate((kept[0], sj.stream(live))):
        place = case.home / str(number)
        writer = stream.writeStream.format("files").option("path", place / "out").trigger(availableNow=True)
        run(writer.option("checkpointLocation", place / "query"))
    found = [sj.read_files(case.home / str(number) / "out").count() for number in range(2)]
    assert found == [870, case.new.count()]


def _without(case: Case) -> Any:
    live = case.spark.readStream.schema(SCHEMA).parquet(f"{case.home}/new")
    stream = sj.stream(live).withWatermark("ts", "10 minutes", by="part", substreams=["0", "1"])
    return (
        stream.groupBy(sj.window("ts", "1 minute", "20 seconds"), "part")
        .agg(F.sum("v").alias("v"), F.count("*").alias("n"))
        .select(F.col("window.start").alias("start"), "part", "v", "n")
    )


@pytest.mark.parametrize("begins_with", [True, False])
def test_a_query_keeps_the_history_that_it_has_begun_with(case: Case, begins_with: bool) -> None:
    first, then = case.counts(), case.written(_without(case))
    run(first if begins_with else then)
    said = "has begun with a history, of which 4 of 4 buckets" if begins_with else "without a history"
    with pytest.raises(sj.RecoveryError, match=said):
        (then if begins_with else first).start()
    if begins_with:
        with pytest.raises(sj.RecoveryError, match=r"cut is by a time, .* was found by part, offset"):
            case.counts(dt.datetime.fromtimestamp(1100, UTC)).start()


def test_what_cannot_be_a_backfill_is_refused(case: Case) -> None:
    spark = case.spark
    history, live = (
        spark.read.parquet(f"{case.home}/table"),
        spark.readStream.schema(SCHEMA).parquet(f"{case.home}/new"),
    )
    cut = ("part", "offset")

    def listed(rows: DataFrame) -> DataFrame:
        return rows.withColumn("v", F.array("v"))

    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: sj.backfill(history, history, cut, "ts"), "live is a batch DataFrame"),
        (lambda: sj.backfill(live, live, cut, "ts"), "history is not a batch DataFrame"),
        (lambda: sj.backfill(history.drop("v"), live, cut, "ts"), "the history has no column 'v'"),
        (lambda: sj.backfill(history.select("*", "v"), live, cut, "ts"), "the history has several columns 'v'"),
        (lambda: sj.backfill(history.withColumn("v", F.lit("x")), live, cut, "ts"), "of type string in the history"),
        (lambda: sj.backfill(history, live, cut, "time"), "eventTime: there is no column 'time'"),
        (lambda: sj.backfill(history, live, cut, "v"), "eventTime: the column 'v' is of type bigint"),
        (lambda: sj.backfill(history, live, ("part", "ts"), "ts"), "cut: the column 'ts' is of type timestamp"),
        (lambda: sj.backfill(history, live, "offset", "ts"), "cut: 'offset' is neither"),
        (lambda: sj.backfill(listed(history), listed(live), ("v", "offset"), "ts"), "'v' is of type array<bigint>"),
        (lambda: sj.backfill(history, live, dt.datetime(2026, 1, 1), "ts"), "has no time zone"),
        (lambda: sj.backfill(history, live, cut, "ts", bucket="0 s"), "bucket"),
        (lambda: sj.backfill(history, live, cut, "ts").union(sj.stream(live)), "union: one of the streams begins"),
    ]
    for make, said in wrong:
        with pytest.raises(sj.AnalysisError, match=said):
            make()
    # Columns with the names of Kafka's are not those that commits tell.
    records = spark.readStream.schema("topic string, partition int, offset long, ts timestamp, v string").json(
        f"{case.home}/new"
    )
    named = records.select(
        "ts", F.col("topic").alias("t"), F.col("partition").cast("string").alias("p"), F.col("offset").alias("o"), "v"
    ).where("v IS NOT NULL")
    table = sj.written("files", "x")
    sj.backfill(table, named, ("t", "p", "o"), "ts")
    sj.backfill(table, named, ("p", "o"), "ts")
    for names, found in (
        (("t", "o"), "topic, offset"),
        (("p", "t", "o"), "partition, topic"),
        (("v", "o"), "v, offset"),
    ):
        with pytest.raises(sj.AnalysisError, match=rf"by topic, partition, offset, and .* are {found}"):
            sj.backfill(table, named, names, "ts")
    with pytest.raises(sj.AnalysisError, match=r"k, o are computed, offset there"):
        sj.backfill(table, named.withColumn("k", F.upper("v")), ("k", "o"), "ts")


def test_rows_of_history_without_an_offset_are_refused(case: Case) -> None:
    case.old.limit(3).withColumn("offset", F.lit(None).cast("long")).write.mode("append").parquet(f"{case.home}/table")
    with pytest.raises(sj.AnalysisError, match="3 rows of the history have no offset in 'offset', or no substream"):
        case.counts().start()


def described(history: DataFrame, *arguments: Any, **more: Any) -> Backfill:
    return Backfill(history, {each.name: each.dataType for each in history.schema}, *arguments, **more)


def offsets_of(spark: SparkSession, *rows: tuple[Any, ...], kind: str = "string") -> DataFrame:
    """Rows of two columns that name a substream, and an offset."""
    return spark.createDataFrame([(None, *row) for row in rows], f"ts timestamp, a {kind}, b string, offset long")


def test_a_substream_of_the_stream_is_the_one_of_these_values(spark: SparkSession) -> None:
    names = [("a/b", "c"), ("a", "b/c"), ("a\\", "/b"), ("a\\/", "b"), ("a", "\\/b"), ("", "é"), ("é", "")]
    names += [(f"{number}", "x") for number in range(40)]
    last = {name: number for number, name in enumerate(names)}
    history = offsets_of(spark, *((*name, at) for name, at in last.items())).withColumn(
        "ts", F.timestamp_seconds("offset")
    )
    backfill = described(history, "ts", ("a", "b"), "offset")
    live = offsets_of(
        spark, *((*name, at + more) for name, at in last.items() for more in (0, 1)), ("new", "x", 0), (None, "c", 0)
    )
    found = {(row.a, row.b): row.offset for row in backfill.live(live, backfill.seam()).collect()}
    assert found == {**{name: at + 1 for name, at in last.items()}, ("new", "x"): 0, (None, "c"): 0}


def test_a_substream_may_be_named_by_bytes(spark: SparkSession) -> None:
    names = [b"\xff", b"\x80", b"a/b", b""]
    rows = [(name, "x", at) for at, name in enumerate(names)]
    history = offsets_of(spark, *rows, kind="binary").withColumn("ts", F.timestamp_seconds("offset"))
    backfill = described(history, "ts", ("a", "b"), "offset")
    assert backfill.live(offsets_of(spark, *rows, kind="binary"), backfill.seam()).count() == 0


def test_a_substream_is_the_same_in_another_time_zone(spark: SparkSession) -> None:
    # Both are 02:30 in Berlin, where clocks go back between them.
    times = [dt.datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    history = offsets_of(spark, (times[0], "x", 5), (times[1], "x", 9), kind="timestamp").withColumn("ts", F.col("a"))
    backfill = described(history, "ts", ("a", "b"), "offset")
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        seam = backfill.seam()
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        live = backfill.live(
            offsets_of(spark, (times[0], "x", 5), (times[0], "x", 6), (times[1], "x", 9), kind="timestamp"), seam
        )
        assert [row.offset for row in live.collect()] == [6]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_seam_belongs_to_the_columns_that_found_it() -> None:
    of: Any = None
    by_offsets, by_time = Seam({"x/": 1}, None, [], ["a", "offset"], "ts"), Seam(None, 5, [], [], "ts")
    by_commits, table = replace(by_offsets, version="q/results:-1:7"), written_in(of, "files", "x")
    others = [
        (
            by_offsets,
            Backfill(of, {}, "ts", cut=5),
            "cut is by a time, and where the history ends was found by a, offset",
        ),
        (by_offsets, Backfill(of, {}, "ts", ("b",), "offset"), "cut is by b, offset"),
        (by_offsets, Backfill(of, {}, "other", ("a",), "offset"), "eventTime is by other"),
        (by_time, Backfill(of, {}, "ts", ("a",), "offset"), "found by a time when the query began"),
        (Seam({"x/": 1}, None, []), Backfill(of, {}, "ts", cut=5), "found by offsets"),
        (by_commits, Backfill(of, {}, "ts", ("a",), "offset"), r"history is a DataFrame, and it was sj.written\(…\)"),
        (by_offsets, Backfill(table, {}, "ts", ("a",), "offset"), r"history is sj.written\(…\), and it was a DataFr"),
    ]
    for seam, backfill, said in others:
        with pytest.raises(sj.RecoveryError, match=said):
            backfill.check(seam, is_read=False)
    # By offsets, the event time has no meaning once history is read; by a time, another one is that of the first start.
    Backfill(of, {}, "other", ("a",), "offset").check(by_offsets, is_read=True)
    Backfill(of, {}, "ts", ("a",), "offset").check(by_commits, is_read=True)
    Backfill(of, {}, "ts", cut=6).check(by_time, is_read=False)
    with pytest.raises(sj.RecoveryError, match="eventTime is by other"):
        Backfill(of, {}, "other", cut=5).check(by_time, is_read=True)


def test_a_bucket_is_asked_of_the_table_by_its_event_time(case: Case) -> None:
    history = case.spark.read.parquet(f"{case.home}/table")
    cuts: list[Any] = [{"substream": ("part",), "offset": "offset"}, {"cut": 10**12}]
    for backfill in (described(history, "ts", bucket=60_000_000, **cut) for cut in cuts):
        seam = backfill.seam()
        for number in (0, 1, seam.buckets - 1):
            plan = backfill.of_bucket(seam, number)._jdf.queryExecution().executedPlan().toString()
            assert ("GreaterThanOrEqual(ts," in plan) == (number > 0)
            assert ("LessThan(ts," in plan) == (number < seam.buckets - 1 or backfill.cut is not None)


def test_buckets_have_as_many_rows_wherever_their_times_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkjet.plan.backfill.ROWS", 100)
    # A clock that was not set: most of the time between the first and the last row has none.
    seconds = F.when(F.col("id") == 0, 0).otherwise(1_700_000_000 + F.col("id"))
    history = spark.range(1000).select(F.timestamp_seconds(seconds).alias("ts"), F.col("id").alias("offset"))
    backfill = described(history, "ts", (), "offset")
    seam = backfill.seam()
    rows = [backfill.of_bucket(seam, number).count() for number in (0, 4, seam.buckets - 1)]
    assert (seam.buckets, sum(abs(count - 100) <= 10 for count in rows)) == (10, 3)


class Numbered(DataSource):
    """Events of partitions up to the offsets in a file, as a topic has them."""

    @classmethod
    def name(cls) -> str:
        return "numbered"

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema: object) -> SimpleDataSourceStreamReader:
        return NumberedReader(json.loads(self.options["first"]), Path(self.options["ends"]))


class NumberedReader(SimpleDataSourceStreamReader):
    def __init__(self, first: dict[str, int], ends: Path) -> None:
        self.first, self.ends = first, ends

    def initialOffset(self) -> dict[str, int]:
        return self.first

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = json.loads(self.ends.read_text())
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        found = [(int(part), offset) for part, last in end.items() for offset in range(start.get(part, 0), last)]
        times = (dt.datetime.fromtimestamp(1000 + offset - 120 * part, UTC) for part, offset in found)
        return iter([(time, part, offset, offset % 7) for time, (part, offset) in zip(times, found, strict=True)])


class Archived:
    """A stream, and a table without its offsets that a query writes from it."""

    def __init__(self, spark: SparkSession, home: Path, kind: str = "files", table: str = "") -> None:
        self.spark, self.home = spark, home
        self.kind, self.table = kind, table or str(home / "archive")
        spark.dataSource.register(Numbered)

    def live(self, first: str = '{"0": 0, "1": 0, "2": 0}') -> DataFrame:
        return self.spark.readStream.format("numbered").options(first=first, ends=str(self.home / "ends")).load()

    def extend(self, ends: dict[str, int]) -> None:
        """Let the stream go on up to some offsets."""
        self.home.joinpath("ends").write_text(json.dumps(ends))

    def archive(self, **ends: int) -> None:
        """Let the stream go on, and the query that writes the table."""
        self.extend({name[1:]: end for name, end in ends.items()})
        kept = sj.stream(self.live()).select("ts", "part", "v").writeStream.format(self.kind)
        # Not availableNow: of sources in Python Spark makes one batch of that, which may be an earlier one again.
        kept = kept.option("checkpointLocation", self.home / "archiving")
        query = kept.toTable(self.table) if self.kind == "iceberg" else kept.start(self.table)
        query.processAllAvailable()
        query.stop()

    def both(self, first: str = '{"0": 0, "1": 0, "2": 0}') -> sj.Stream:
        history = sj.written(self.kind, self.table)
        return sj.backfill(history, self.live(first), ("part", "offset"), "ts", bucket="5 minutes")

    def kept(self, stream: sj.Stream, home: str = "query") -> StreamWriter:
        writer = stream.select("ts", "part", "v").writeStream.format("files").trigger(availableNow=True)
        return writer.option("checkpointLocation", self.home / home).option("path", self.home / "out")

    def another(self) -> None:
        """Let another query write the same into the table."""
        writer = sj.stream(self.live()).select("ts", "part", "v").writeStream.format("files").trigger(availableNow=True)
        run(writer.option("checkpointLocation", self.home / "other").option("path", self.table))

    def begin(self) -> None:
        """Begin a backfill, and kill it in its history."""

        def ends(phase: sj.EpochPhase, epoch: int) -> None:
            if (phase, epoch) == (P.CLEAN, 1):
                raise KilledError

        with pytest.raises(KilledError):
            run(self.kept(self.both()).onEpochPhase(ends))

    def go_on(self, **ends: int) -> None:
        """Go on to the end of the stream, and find each of its rows once."""
        self.extend({name[1:]: end for name, end in ends.items()})
        run(self.kept(self.both()))
        rows = [events(self.spark, int(name[1:]), 0, end).select("ts", "part", "v") for name, end in ends.items()]
        found = sj.read_files(self.home / "out").select("ts", "part", "v")
        assert Counter(found.collect()) == Counter(row for each in rows for row in each.collect())

    def check(self, maintain: Callable[[], object] = lambda: None) -> None:
        """Kill a backfill in its history, let the archive go on, and find each row once."""
        self.archive(p0=300, p1=250)
        maintain()
        self.begin()
        # What is written now is not of the history that the query has begun with.
        self.archive(p0=350, p1=300, p2=10)
        maintain()
        newest = sj.written(self.kind, self.table)
        assert newest.at(newest.newest().version).count() == 660
        self.go_on(p0=400, p1=420, p2=50)


def test_commits_say_which_rows_a_table_without_offsets_has(spark: SparkSession, tmp_path: Path) -> None:
    case, restarts = Archived(spark, tmp_path), []

    def restart_too_late() -> None:
        # After the first restart: what followed the history has gone meanwhile.
        restarts.append(True)
        if restarts[1:]:
            with pytest.raises(sj.AnalysisError, match=r"up to 10 rows are in neither \(0: history ends at 299"):
                case.kept(case.both('{"0": 310, "1": 0, "2": 0}')).start()

    case.check(restart_too_late)


@pytest.mark.long
def test_a_table_whose_commits_do_not_say_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    case = Archived(spark, tmp_path)
    case.archive(p0=20, p1=10)
    with pytest.raises(sj.AnalysisError, match=r"up to 6 rows are in neither \(0: history ends at 19, .* begins at 26"):
        case.kept(case.both('{"0": 26, "1": 0}')).start()
    with pytest.raises(sj.AnalysisError, match="has read '1' up to 10, and the substreams of the stream by part are 0"):
        case.kept(case.both('{"0": 0}')).start()
    with pytest.raises(sj.AnalysisError, match="by offset, and the history has no column 'offset'"):
        case.kept(case.both().withWatermark("ts", 0, by="offset").dropDuplicates(["v"]), "new").start()
    history = sj.written("files", tmp_path / "archive")
    with pytest.raises(sj.AnalysisError, match="the history's commits record offsets"):
        sj.backfill(history, case.live(), dt.datetime(2026, 1, 1, tzinfo=UTC), "ts")
    with pytest.raises(sj.AnalysisError, match=r"written: there is no format 'detla'.*delta"):
        sj.written("detla", "x")
    cut = ("part", "offset")
    renamed = sj.backfill(history, case.live().withColumnRenamed("v", "w"), cut, "ts").select("ts", "part", "w")
    for stream, said in (
        (renamed.withColumnRenamed("w", "v"), "the history has no column 'w'"),
        (sj.backfill(sj.written("files", tmp_path / "none"), case.live(), cut, "ts"), "no commit of .* says up to"),
        # Rows have other names than the offsets: all of history came from the stream once more.
        (sj.backfill(history, case.live(), ("offset",), "ts"), "has read '0' up to 20, and the substreams .* by  are"),
        (sj.backfill(history, case.live(), ("v", "part", "offset"), "ts"), "has read '0' up to 20"),
    ):
        with pytest.raises(sj.AnalysisError, match=said):
            case.kept(stream).start()
    case.another()
    with pytest.raises(sj.AnalysisError, match="has rows of several writers"):
        case.kept(case.both()).start()


@pytest.mark.long
def test_the_table_is_read_that_the_query_has_begun_with(spark: SparkSession, tmp_path: Path) -> None:
    case = Archived(spark, tmp_path)
    case.archive(p0=300, p1=250)
    case.begin()
    for place in ("query", "out"):
        shutil.copytree(tmp_path / place, tmp_path / "copy" / place)
    # It is of several writers now, but not in the version that is read.
    case.another()
    case.go_on(p0=310, p1=250)
    for place in ("archive", "archiving"):
        shutil.rmtree(tmp_path / place)
    # What has been read is not looked for.
    case.go_on(p0=310, p1=250)
    for place in ("query", "out"):
        shutil.rmtree(tmp_path / place)
        shutil.copytree(tmp_path / "copy" / place, tmp_path / place)
    # Recreated by another query, whose epochs have the same numbers.
    case.archive(p0=350, p1=300)
    with pytest.raises(sj.RecoveryError, match=r"version .* of .*archive, which .* no longer be read: .* nothing"):
        case.kept(case.both()).start()


def test_buckets_are_by_time_or_of_a_million_rows() -> None:
    of: Any = None
    backfill = Backfill(of, {}, "ts", bucket=10)
    assert backfill._bounds(3, 31, 100) == [10, 20, 30]
    assert Backfill(of, {}, "ts")._bounds(7, 7, 5_000_000) == []
    assert Seam(None, 5, []).buckets == 1
    with pytest.raises(sj.AnalysisError, match="100000 are the most"):
        backfill._bounds(0, 10_000_000, 1)
