"""State as its users see it: the rows of each operator against Spark's batch over the rows that were read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.api import sources
from sparkjet.cli import main
from sparkjet.connectors.state.data_source import StateDataSource
from sparkjet.engine.shown_state import _variable
from sparkjet.engine.state_reader import StateReader
from sparkjet.errors import AnalysisError, RecoveryError
from sparkjet.monitoring.recorded import report_of
from sparkjet.plan.recorded_stages import _missing
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.pins import Pins
from sparkjet.storage.schemes import directory_at
from tests.feed import SCHEMA, START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

    from sparkjet.api.query import StreamingQuery

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.interpreted, pytest.mark.crash]

SLIDING, SESSIONS, KEYS, PAIRS, VISITS, TOTALS = (f"stage{number}" for number in range(6))


class Visits(StatefulProcessor):
    """A variable of each kind, one of them with a TTL, and a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "v long")
        self.all = handle.getListState("all", "v long")
        self.by = handle.getMapState("by", "p string", "n long")
        self.brief = handle.getValueState("brief", "v long", ttlDurationMs=1)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.v,))
            self.brief.update((row.v,))
            self.all.appendValue((row.v,))
            self.by.updateValue((row.p,), (row.v,))
        self.handle.registerTimer(4_000_000_000_000)
        yield Row(k=key[0])

    def close(self) -> None:
        pass


def values() -> list[Column]:
    """Aggregates of windows; Columns need a session."""
    into = (F.max("ts") - F.col("w.start")).alias("into")
    ratio = (F.sum("v") / F.count("*")).alias("ratio")
    return [F.sum("v").alias("sum"), ratio, into, F.approx_count_distinct("p").alias("ps")]


def of_sessions() -> list[Column]:
    return [F.percentile("v", 0.5).alias("median"), F.collect_list("p").alias("ps"), F.max_by("p", "v").alias("most")]


def writers(spark: SparkSession, feed: Feed, other: Feed) -> list[Any]:
    """An operator of each kind."""
    events = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").alias("e")
    answers = sj.stream(other.read(spark)).withWatermark("ts", "5 seconds")
    answers = answers.select(F.col("ts").alias("at"), F.col("k").alias("answered"), "v")
    near = F.expr("k = answered AND at BETWEEN ts AND ts + INTERVAL 1 MINUTE")
    streams = [
        events.groupBy(sj.window("ts", "20 seconds", "10 seconds").alias("w"), F.upper("k").alias("K")).agg(*values()),
        events.groupBy("k", F.session_window("ts", "7 seconds").alias("s")).agg(*of_sessions()),
        events.dropDuplicates(["k", "j"]),
        events.select("ts", "k", "p").join(answers, near),
        events.groupBy("k").transformWithState(Visits(), "k string", "append", "ProcessingTime"),
    ]
    rolling = events.groupBy("k").agg(F.avg("v").alias("mean"), F.min("ts").alias("first")).writeStream
    plain = [each.writeStream for each in streams]
    return [each.format("noop").trigger(availableNow=True) for each in (*plain, rolling.outputMode("update"))]


FIRST = rows([1, 2, 12], k="a", j=1, v=1, p="x"), rows([3], k="b", j=2, v=2, p="y"), rows([3], k=None, j=2, v=5, p="y")
SECOND = rows([18, 21], k="a", j=1, v=3, p="x"), rows([20], k="c", v=4, p="z"), rows([-30], k="b", j=2, v=9, p="y")
"""The last row is late."""
ANSWERS = rows([2, 13], k="a", v=7), rows([90], k="b", v=8)
REACHED = {"first": (7, 8), None: (16, 85)}
"""The watermarks of both streams, by the pin."""


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A query with an operator of each kind that has ended two epochs, of which the first is pinned."""
    place = tmp_path_factory.mktemp("state")
    feed, other = Feed(place / "in"), Feed(place / "other")
    for batch, answers in zip((FIRST, SECOND), ANSWERS, strict=True):
        feed.add(*(row for each in batch for row in each))
        other.add(*answers)

    def pin(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.COMMIT and epoch == 1:
            Pins(DirectoryStore(place / "home" / "snapshots")).put("first", 0)

    first, *others = writers(spark, feed, other)
    query = sj.start(first.onEpochPhase(pin), *others, checkpointLocation=str(place / "home"))
    query.awaitTermination()
    return place


@dataclass(frozen=True)
class Read:
    """The state as a reader sees it, and the rows that were read so far."""

    home: Path
    events: DataFrame
    answers: DataFrame
    pin: str | None

    def rows(self, operator: str, **options: Any) -> list[Any]:
        return found(sj.read_state(self.home / "home", operator, pin=self.pin, **options))


@pytest.fixture(params=["first", None])
def read(request: pytest.FixtureRequest, spark: SparkSession, home: Path) -> Read:
    def batch(name: str) -> DataFrame:
        files = sorted(map(str, (home / name).glob("*.json")))
        return spark.read.schema(SCHEMA).json(files[:1] if request.param else files)

    return Read(home, batch("in"), batch("other"), request.param)


def found(rows: DataFrame) -> list[Any]:
    """Rows in an order, with their types beside them."""
    return [rows.drop("watermark").dtypes, *sorted(map(repr, rows.drop("watermark").collect()))]


def second(number: int) -> datetime:
    return datetime.fromtimestamp(START + number, timezone.utc).replace(tzinfo=None)


def test_open_windows_have_the_values_that_they_would_have_if_they_closed_now(read: Read) -> None:
    sliding = read.events.groupBy(F.window("ts", "20 seconds", "10 seconds").alias("w"), F.upper("k").alias("K"))
    reached = F.lit(second(REACHED[read.pin][0]))
    assert read.rows(SLIDING) == found(sliding.agg(*values()).where(F.col("w.end") > reached))
    shown = sj.read_state(read.home / "home", SLIDING, pin=read.pin).select("watermark").distinct()
    assert shown.collect() == [(second(REACHED[read.pin][0]),)]


@pytest.mark.parametrize("read", [None], indirect=True)
def test_open_sessions(read: Read) -> None:
    sessions = read.events.groupBy("k", F.session_window("ts", "7 seconds").alias("s")).agg(*of_sessions())
    assert read.rows(SESSIONS) == found(sessions.where(F.col("s.end") >= F.lit(second(REACHED[read.pin][0]))))


@pytest.mark.parametrize("read", [None], indirect=True)
def test_keys_of_rolling_aggregates_and_of_duplicates(read: Read) -> None:
    rolling = read.events.groupBy("k").agg(F.avg("v").alias("mean"), F.min("ts").alias("first"))
    assert read.rows(TOTALS) == found(rolling)
    keys = read.events.select("k", "j", F.lit(None).cast("timestamp").alias("expires")).distinct()
    assert read.rows(KEYS) == found(keys)


def test_rows_that_wait_for_those_of_the_other_stream(read: Read) -> None:
    # A left row is needed until the right watermark has passed it by a minute, a right one until the left has.
    left, right = REACHED[read.pin]
    events = read.events.select("ts", "k", "p").where(F.col("ts") >= F.lit(second(right - 60)))
    answers = read.answers.select(F.col("ts").alias("at"), F.col("k").alias("answered"), "v")
    answers = answers.where(F.col("at") >= F.lit(second(left)))
    if read.pin is None:
        assert read.rows(PAIRS, joinSide="left") == found(events)
        assert read.rows(PAIRS, joinSide="right") == found(answers)
    sides = [F.lit("left").alias("side"), F.lit("right").alias("side")]
    one = events.select(sides[0], F.col("ts").alias("event_time"), F.struct("*").alias("left"))
    other = answers.select(sides[1], F.col("at").alias("event_time"), F.struct("*").alias("right"))
    assert read.rows(PAIRS) == found(one.unionByName(other, allowMissingColumns=True))


def test_variables_and_timers_of_functions(read: Read) -> None:
    visits = sj.read_state(read.home / "home", VISITS, pin=read.pin)
    kinds = {"k": "string", "last": "struct<v:bigint>", "all": "array<struct<v:bigint>>"}
    kinds |= {"by": "map<struct<p:string>,struct<n:bigint>>", "brief": kinds["last"], "timers": "array<timestamp>"}
    assert dict(visits.dtypes) == kinds
    by_key = {row.k: row for row in visits.collect()}
    values = {
        row.k: row.vs
        for row in read.events.groupBy("k").agg(F.sort_array(F.collect_list("v"))).toDF("k", "vs").collect()
    }
    assert {key: sorted(each.v for each in row["all"]) for key, row in by_key.items()} == values
    last = {"first": 1, None: 3}[read.pin]
    a = by_key["a"]
    assert (a.last.v, a.by, a.timers) == (last, {Row(p="x"): Row(n=last)}, [datetime(2096, 10, 2, 7, 6, 40)])
    # For a millisecond by the clock of the epoch: what is of the epoch before has expired.
    assert a.brief.v == last
    assert (by_key[None].brief is None) == (read.pin is None)


def test_what_has_outlived_its_ttl_is_left_out(spark: SparkSession) -> None:
    entry = (
        "named_struct('key', named_struct('p', id), 'value', named_struct('v', id), 'expires', IF(id < 4, id, NULL))"
    )
    entries = spark.range(1, 5).select(F.expr(entry).alias("value"), F.expr("array(value)").alias("map"))
    [*values] = entries.select(_variable(entries.schema["value"], 2)).collect()
    assert [row[0] and row[0].v for row in values] == [None, None, 3, 4]
    [*maps] = entries.select(_variable(entries.schema["map"], 2)).collect()
    assert [row[0] for row in maps] == [{}, {}, {Row(p=3): Row(v=3)}, {Row(p=4): Row(v=4)}]
    lists = entries.select(F.expr("array(named_struct('value', value.value, 'expires', value.expires))").alias("list"))
    assert [row[0] for row in lists.select(_variable(lists.schema["list"], 2)).collect()] == [
        [],
        [],
        [Row(v=3)],
        [Row(v=4)],
    ]


def test_the_numbers_of_the_page_and_of_the_command_agree(
    spark: SparkSession, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = StateReader(directory_at(str(home / "home"), "home", lambda: spark))
    assert main(["state", str(home / "home"), "--json"]) == 0
    told = {each["operator"]: each for each in json.loads(capsys.readouterr().out)}
    kinds = ["windows", "sessions", "duplicates", "join", "function", "rolling"]
    assert [each["kind"] for each in told.values()] == kinds == [*reader.operators.values()]
    report = report_of(reader.record)
    windows = reader.rows(spark, SLIDING)
    assert told[SLIDING]["rows"] == windows.count()
    assert report.open_windows == windows.select("w").distinct().count() == told[SLIDING]["openWindows"]
    assert report.snapshot.entries == sum(each["storedRows"] for each in told.values())
    # Of four keys one has changed in the second epoch, and one is new; with so few, all are written again.
    assert (told[TOTALS]["rows"], told[TOTALS]["storedRows"]) == (4, 4)


def test_a_format_gives_the_same_rows(spark: SparkSession, home: Path) -> None:
    sj.register_sources(spark)
    reading = spark.read.format("sparkjet-state").option("operatorId", VISITS).option("pin", "first")
    assert found(reading.load(str(home / "home"))) == found(sj.read_state(home / "home", VISITS, pin="first"))


def test_the_format_says_what_the_driver_has_to_say(
    spark: SparkSession, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(**options: str) -> DataSource:
        return sources._bound(StateDataSource, spark)({"path": str(home / "home"), **options})

    with pytest.raises(AnalysisError, match="the query has 6 operators"):
        source().schema()
    with pytest.raises(AnalysisError, match=re.escape('"operator" is not an option of format("sparkjet-state")')):
        source(operator=KEYS).schema()
    with pytest.raises(AnalysisError, match="epoch must be a positive whole number"):
        source(epoch="now").schema()
    with pytest.raises(AnalysisError, match=re.escape("but the given schema is struct<>. Leave schema(…) out")):
        source(operatorId=KEYS).reader(StructType()).partitions()
    read = source(operatorId=KEYS).reader(source(operatorId=KEYS).schema())
    monkeypatch.setattr(sources, "_MOST_BYTES", 10)
    with pytest.raises(
        AnalysisError, match=re.escape("pass through the driver, which takes 0 MB at most. sj.read_state(")
    ):
        read.partitions()
    monkeypatch.undo()
    monkeypatch.setattr(sources, "_PART_BYTES", 10)
    parts = read.partitions()
    assert len(parts) > 1
    found = [row for part in parts for batch in read.read(part) for row in batch.to_pylist()]
    assert len(found) == sj.read_state(home / "home", KEYS).count()


@pytest.mark.long
def test_operators_of_other_shapes(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that are columns, or kept forever; no keys; gaps of rows, cut sessions; windows over windows; pivots."""
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 12], k="a", j=4, v=1), *rows([3], k="b", j=9, v=2))
    feed.add(*rows([14, 21], k="a", j=4, v=3), *rows([19], k="b", j=9, v=2))
    batch = spark.read.schema(SCHEMA).json(str(tmp_path / "in"))
    plain = sj.stream(feed.read(spark))
    events = plain.withWatermark("ts", "5 seconds")
    ten, gap = F.window("ts", "10 seconds"), F.format_string("%d seconds", "j")
    into = [F.sum("v").alias("sum"), (F.max("ts") - F.col("w.start")).alias("into")]
    highest = F.reverse(F.array_sort(F.collect_list("v")))
    queries = {
        "column": events.withColumn("w", ten).groupBy("w", "k").agg(*into),
        "keyless": events.groupBy(ten).agg(J.top_n("v", 2).alias("top"), F.max("v").alias("most")),
        "gaps": events.groupBy("k", sj.session_window("ts", gap)).count(),
        "cut": events.groupBy("k", sj.session_window("ts", "8 seconds", maxDuration="10 seconds")).count(),
        "pivoted": events.groupBy(ten).pivot("k", ["a", "b"]).agg(F.sum("v")),
        "below": events.groupBy(ten, "k").agg(F.count("*").alias("n")),
    }
    queries["above"] = queries["below"].groupBy(sj.window("window", "20 seconds"), "k").agg(F.sum("n").alias("n"))
    kept = {
        "kept": plain.groupBy(F.window("ts", "20 seconds", "10 seconds"), "k").sum("v"),
        "all": plain.groupBy().count(),
    }
    shown: dict[str, DataFrame] = {}
    for number, each in enumerate((queries, kept)):
        home = str(tmp_path / f"home{number}")
        writers = [one.writeStream.outputMode("update" if each is kept else "append") for one in each.values()]
        started = [one.format("noop").trigger(availableNow=True) for one in writers]
        sj.start(*started, checkpointLocation=home).awaitTermination()
        reader = StateReader(directory_at(home, "home", lambda: spark))
        # In the order in which the stages are planned, which is that of their outputs.
        shown |= zip(each, [reader.rows(spark, name) for name in reader.operators], strict=True)
    reached = F.lit(second(16))
    assert found(shown["column"]) == found(
        batch.groupBy(ten.alias("w"), "k").agg(*into).where(F.col("w.end") > reached)
    )
    keyless = batch.groupBy(ten).agg(F.slice(highest, 1, 2).alias("top"), F.max("v").alias("most"))
    assert found(shown["keyless"]) == found(keyless.where(F.col("window.end") > reached))
    gaps = batch.groupBy("k", F.session_window("ts", gap)).count()
    assert found(shown["gaps"]) == found(gaps.where(F.col("session_window.end") >= reached))
    cut = shown["cut"].select("k", (F.unix_seconds("session_window.end") - START).alias("end"), "count")
    assert sorted(map(tuple, cut.collect())) == [("a", 22, 3), ("b", 27, 1)]
    assert (shown["pivoted"].columns, shown["pivoted"].count()) == (["window", "watermark"], 2)
    assert sorted(map(tuple, shown["above"].select("k", "n").collect())) == [("a", 2), ("b", 1)]
    assert found(shown["kept"]) == found(batch.groupBy(F.window("ts", "20 seconds", "10 seconds"), "k").sum("v"))
    assert shown["all"].collect() == [(7,)]


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, AnalysisError, f"has 6 operators. Name one as operatorId: {SLIDING} (windows), "),
    ({"operatorId": "stage9"}, AnalysisError, 'operatorId="stage9" is not an operator of the query; did you mean'),
    ({"operatorId": KEYS, "pin": "frist"}, AnalysisError, 'there is no pin "frist"; did you mean'),
    ({"operatorId": KEYS, "pin": "first", "epoch": 1}, AnalysisError, "exclude each other"),
    ({"operatorId": KEYS, "epoch": 7}, AnalysisError, "the state of epoch 7 is no longer there"),
    ({"operatorId": KEYS, "joinSide": "left"}, AnalysisError, f"of a join; {KEYS} is: duplicates"),
    ({"operatorId": PAIRS, "joinSide": "top"}, AnalysisError, "it is left or right"),
    ({"operatorId": 3}, AnalysisError, "operatorId: 3 is not text"),
    ({"operatorId": KEYS, "epoch": "1"}, AnalysisError, "epoch: '1' is not a number"),
]


@pytest.mark.parametrize(("options", "kind", "told"), REFUSED)
def test_what_cannot_be_read_is_refused(
    home: Path, spark: SparkSession, options: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=re.escape(told)):
        sj.read_state(home / "home", **options)


def counted(spark: SparkSession, place: Path, *more: Any, **options: Any) -> StreamingQuery:
    """Windows that stay open."""
    stream = sj.stream(Feed(place / "in").read(spark)).withWatermark("ts", "0 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.sum("v").alias("v"), *more)
    settings = {"checkpointLocation": str(place / "home"), **options}
    query = counts.writeStream.format("noop").options(**settings).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_record_that_is_replaced_while_it_is_read_is_given_up_for_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2], k="a", v=1))
    counted(spark, tmp_path)
    reader = StateReader(directory_at(str(tmp_path / "home"), "home", lambda: spark))
    # The first window closes, and nothing needs its rows.
    feed.add(*rows([100, 101], k="a", v=3))
    counted(spark, tmp_path)
    first = {delta.name for stage in reader.record.stages.values() for delta in stage.deltas}
    assert not first & set(DirectoryStore(tmp_path / "home" / "snapshots").names())
    assert reader.rows(spark).select("v").collect() == [(6,)]
    assert reader.record.epoch == 2
    with pytest.raises(AnalysisError, match="the state of epoch 1 is no longer there"):
        sj.read_state(tmp_path / "home", epoch=1)
    # What is lost of the newest record is an error, and not looked for forever.
    shutil.rmtree(tmp_path / "home" / "snapshots" / "state")
    with pytest.raises(RecoveryError, match="missing"):
        sj.read_state(tmp_path / "home")


def test_results_that_sql_has_no_words_for_are_left_out(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    largest = sj.AggregateOperation(
        accumulate={"most": F.max("v")},
        create={"most": F.lit(None).cast("long")},
        combine=lambda one, other: {"most": F.greatest(one["most"], other["most"])},
        finish=lambda found: found["most"],
    )
    Feed(tmp_path / "in").add(*rows([1, 2, 11], k="a", v=1))
    counted(spark, tmp_path, largest.alias("largest"))
    shown = sj.read_state(tmp_path / "home")
    assert (shown.columns, shown.count()) == (["window", "k", "watermark"], 1)
    assert "stage0: its results are not shown, only keys and windows: [PARSE_SYNTAX_ERROR]" in caplog.text
    # As of a Python function: found out before Spark's analysis, which would log an error.
    assert _missing(["sum(v) / 2", "top_n(v, 2)", "an_udf(v)"], spark) == "there is no function an_udf here"


def test_a_query_without_state_and_a_place_without_a_query_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    Feed(tmp_path / "in").add(*rows([1], k="a", v=1))
    counted(spark, tmp_path)
    store = DirectoryStore(tmp_path / "home" / "snapshots")
    slot, record = store.slots()[-1], json.loads(store.read(store.slots()[-1]))
    store.put(slot + 1, json.dumps({**record, "stages": {}}).encode())
    with pytest.raises(RecoveryError, match="has no state at epoch 1"):
        sj.read_state(tmp_path / "home")
    with pytest.raises(RecoveryError, match="contains no record of a query"):
        sj.read_state(tmp_path / "in")


KINDS = {
    "boolean": "id = 1",
    "tinyint": "CAST(id AS tinyint)",
    "smallint": "CAST(id AS smallint)",
    "int": "CAST(id AS int)",
    "float": "CAST(id AS float)",
    "double": "CAST(id AS double)",
    "decimal": "CAST(id AS decimal(38, 18))",
    "string": "concat('é', id)",
    "collated": "concat('É', id) COLLATE UNICODE_CI",
    "binary": "CAST(concat('é', id) AS binary)",
    "date": "date_add(DATE '2026-01-01', CAST(id AS int))",
    "timestamp": "timestamp_micros(id)",
    "timestamp_ntz": "timestamp_ntz '0001-01-01 00:00:00.000001'",
    "months": "make_ym_interval(1, CAST(id AS int))",
    "days": "make_dt_interval(1, CAST(id AS int))",
    "array": "array(id, NULL)",
    "struct": "struct(id AS `a b`, array(struct(id AS x)) AS `c.d`)",
    "odd `name`": "id",
}
"""SQL of a value of each type that can be a key."""


def texts(rows: DataFrame) -> list[Any]:
    """As :func:`found`, of types for which Python has no values."""
    names = ["`" + name.replace("`", "``") + "`" for name in rows.columns]
    return [rows.dtypes, *found(rows.select(*(F.col(each).cast("string") for each in names)))[1:]]


def test_types_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 2], k="a", v=1))
    feed.add(*rows([2], k="b", v=1))

    def typed(frame: Any) -> Any:
        columns = [F.expr(text).alias(name) for name, text in KINDS.items()]
        return frame.withColumn("id", F.col("id") % 2).select(*columns)

    def settled(frame: Any) -> Any:
        quoted = ["`" + name.replace("`", "``") + "`" for name in KINDS]
        grouped = frame.groupBy(*map(F.col, quoted))
        return grouped.agg(*(F.max(each).alias(f"max {each}") for each in quoted), F.collect_list(quoted[-1]))

    stream = typed(sj.stream(feed.read(spark)))
    outputs = [settled(stream).writeStream.outputMode("update"), stream.dropDuplicates().writeStream]
    writers = [each.format("noop").trigger(availableNow=True) for each in outputs]
    sj.start(*writers, checkpointLocation=str(tmp_path / "home")).awaitTermination()
    batch = typed(spark.read.schema(SCHEMA).json(str(tmp_path / "in")))
    reader = StateReader(directory_at(str(tmp_path / "home"), "home", lambda: spark))
    by_kind = {kind: name for name, kind in reader.operators.items()}
    assert texts(reader.rows(spark, by_kind["rolling"])) == texts(settled(batch))
    assert texts(reader.rows(spark, by_kind["duplicates"]).drop("expires")) == texts(batch.distinct())
    # As a record without a row of it says them, too.
    for name in reader.operators:
        assert reader.empty(spark, name).dtypes == reader.rows(spark, name).dtypes
