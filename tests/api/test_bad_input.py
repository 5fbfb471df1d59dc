"""Bad input: a clear error that names the value and the way out, before anything has started."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.api.writer import StreamWriter, settings_of
from tests.environment.session_settings import session_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

SCHEMA = "ts timestamp, k string, p string, v long, m map<string,int>, text string"


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Stream:
    (tmp_path / "in").mkdir()
    return sj.stream(spark.readStream.schema(SCHEMA).json(str(tmp_path / "in")))


@pytest.fixture
def watermarked(events: Stream) -> Stream:
    return events.withWatermark("ts", "10 seconds", by="p")


@pytest.fixture
def writer(watermarked: Stream, tmp_path: Path) -> StreamWriter:
    result = watermarked.groupBy(sj.window("ts", "1 minute"), "k").agg(F.count("*"))
    return (
        result.writeStream.format("files")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
    )


def test_something_else_than_a_dataframe_is_refused() -> None:
    with pytest.raises(sj.AnalysisError, match="got list"):
        sj.stream([1, 2])  # type: ignore[arg-type]


def test_spark_connect_is_refused_at_every_entry(spark: SparkSession) -> None:
    def of_connect(kind: type) -> Any:
        return type(kind.__name__, (kind,), {"__module__": "pyspark.sql.connect.column", "__new__": object.__new__})()

    rows, column, session = of_connect(object), of_connect(Column), of_connect(object)
    stream = sj.stream(spark.range(1))
    entries: list[Callable[[], Any]] = [
        lambda: sj.stream(rows),
        lambda: sj.read_once(rows),
        lambda: stream.join(rows, "id"),
        lambda: sj.register_sources(session),
        lambda: sj.window(column, "1 minute"),
        lambda: sj.session_window("ts", column),
        lambda: J.top_n(column, 1),
        lambda: stream.select(column),
        lambda: stream.where(column),
        lambda: stream.withColumn("x", column),
        lambda: stream.groupBy(column),
        lambda: stream.groupBy("id").agg(column),
    ]
    for entry in entries:
        with pytest.raises(sj.AnalysisError, match=r"belongs to Spark Connect.*classic session"):
            entry()


@pytest.mark.parametrize(
    ("made", "advice"),
    [
        ("timestamp_ntz'2026-01-01 00:00:00'", 'F.col("ts").cast("timestamp")'),
        pytest.param("date'2026-01-01'", 'F.col("ts").cast("timestamp")', marks=pytest.mark.long),
        pytest.param("'2026-01-01 00:00:00'", 'F.col("ts").cast("timestamp")', marks=pytest.mark.long),
        ("1767225600000L", 'F.timestamp_millis("ts")'),
        ("named_struct('at', timestamp'2026-01-01 00:00:00')", 'F.col("ts.at")'),
    ],
)
def test_the_conversion_to_a_timestamp_is_named_and_works(spark: SparkSession, made: str, advice: str) -> None:
    rows = sj.stream(spark.sql(f"SELECT {made} AS ts"))
    for refused in (
        lambda: rows.withWatermark("ts", "1 minute"),
        lambda: rows.groupBy(F.window("ts", "1 minute")),
    ):
        with pytest.raises(sj.AnalysisError, match=re.escape(advice)):
            refused()
    timed = rows.withColumn("ts", eval(advice, {"F": F})).withWatermark("ts", "1 minute")  # noqa: S307 - our own text
    found = timed.groupBy(F.window("ts", "1 minute")).count().select(F.unix_seconds("window.start")).toDF()
    assert found.collect()[0][0] == 1767225600


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda df: df.withWatermark("ts", "1 minute"), "Spark's withWatermark"),
        (lambda df: df.dropDuplicates(["k"]), "dropDuplicates"),
        (lambda df: df.groupBy("k").count(), "aggregation"),
        (lambda df: df.alias("a").join(df.alias("b"), "k"), "stream-stream join"),
    ],
)
def test_state_of_sparks_own_before_the_stream_is_refused(
    spark: SparkSession, tmp_path: Path, spoil: Callable[[Any], Any], named: str
) -> None:
    df = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    with pytest.raises(sj.AnalysisError, match=named):
        sj.stream(spoil(df))


def test_a_join_with_a_batch_dataframe_is_fine(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    assert "extra" in sj.stream(df.join(spark.sql("SELECT 'a' k, 1 extra"), "k")).columns


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"eventTime": "tz"}, "eventTime='tz' is not a column; did you mean \"ts\""),
        ({"eventTime": "v"}, "'v' is of type bigint, not timestamp"),
        ({"eventTime": "text"}, "'text' is of type string, not timestamp"),
        ({"by": "partition"}, "by='partition' is not a column"),
        ({"eventTime": 3}, "eventTime=3 is not the name of a column"),
        ({"policy": None}, "give one duration or policy, as in withWatermark\\('ts', \"10 seconds\""),
        ({"delayThreshold": "5 seconds"}, "give one duration or policy"),
        ({"policy": "-5 seconds"}, "-5 seconds"),
        ({"policy": "5 parsecs"}, "parsecs"),
        ({"policy": "1 month"}, "no fixed length"),
        ({"by": (), "substreams": ["a"]}, "needs by="),
        ({"substreams": "abc"}, "must be a list"),
        ({"idleTimeout": "0 seconds"}, "idleTimeout"),
    ],
)
def test_a_wrong_watermark_is_refused(events: Stream, arguments: dict[str, Any], named: str) -> None:
    settings = {"eventTime": "ts", "policy": "10 seconds", "by": "p", **arguments}
    with pytest.raises(sj.AnalysisError, match=named):
        events.withWatermark(settings.pop("eventTime"), settings.pop("policy"), **settings)


def test_a_second_watermark_is_refused(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="already has one"):
        watermarked.withWatermark("ts", "1 second")


@pytest.mark.parametrize(
    "window", [("ts", "0 seconds"), ("ts", "-1 minute"), ("ts", "1 minute", "0 seconds"), (3, "1 s")]
)
def test_a_wrong_window_is_refused(window: tuple[Any, ...]) -> None:
    with pytest.raises(sj.AnalysisError):
        sj.window(*window)


def test_sessions_need_a_watermark(events: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="need a watermark"):
        events.groupBy(sj.session_window("ts", "1 minute"))


def test_the_window_must_be_on_the_watermarked_column(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="'other' has no watermark"):
        watermarked.groupBy(sj.window("other", "1 minute"))


def test_a_map_cannot_be_a_key(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="'m' is of type map"):
        watermarked.groupBy(sj.window("ts", "1 minute"), "m")


def test_an_aggregate_that_cannot_be_combined_is_refused_with_the_nearest(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match=r"hll_sketch_agg\(v, 12\) cannot be combined.*approx_count_distinct"):
        watermarked.groupBy(sj.window("ts", "1 minute")).agg(F.hll_sketch_agg("v"))


def test_results_without_their_keys_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    session = session_with(spark, {"spark.sql.retainGroupColumns": "false"})
    events = sj.stream(session.readStream.schema(SCHEMA).json(str(tmp_path)))
    for grouped in (events.groupBy("k"), events.withWatermark("ts", 0).groupBy(sj.window("ts", "1 minute"))):
        with pytest.raises(sj.AnalysisError, match=r"agg: spark\.sql\.retainGroupColumns is false.*Set it to true"):
            grouped.count()


def test_a_missing_column_in_an_aggregate_is_named(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="'w'"):
        watermarked.groupBy(sj.window("ts", "1 minute")).agg(J.top_n("w", 1))


def test_a_constant_that_is_not_a_column_is_refused(events: Stream) -> None:
    constants: list[Any] = [5, "k"]
    for constant in constants:
        with pytest.raises(sj.AnalysisError, match=r"withColumn: 'x' is given .*, not a Column. Give F.col\(…\)"):
            events.withColumn("x", constant)
    with pytest.raises(sj.AnalysisError, match=r"withColumns: 'x' is given 5, not a Column"):
        events.withColumns({"x": constants[0]})


@pytest.mark.parametrize("nothing", [(), ({},)])
def test_an_aggregation_of_nothing_is_refused(watermarked: Stream, nothing: tuple[Any, ...]) -> None:
    for grouped in (watermarked.groupBy("k"), watermarked.groupBy(sj.window("ts", "1 minute"))):
        with pytest.raises(sj.AnalysisError, match="give at least one aggregate"):
            grouped.agg(*nothing)


def test_two_results_of_one_name_are_refused(watermarked: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match="two columns of the result are named 'k'"):
        watermarked.groupBy(sj.window("ts", "1 minute"), "k").agg(F.max("v").alias("k"))


def test_what_a_stream_does_not_offer_names_the_way(watermarked: Stream) -> None:
    with pytest.raises(AttributeError, match=r"Stream has no 'limit'. A stream has no first rows.*top_n"):
        watermarked.limit(3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda w: w.option("pth", "/x"), '"pth" is not an option.*did you mean "path"'),
        (lambda w: w.option("fileFormat", "avro"), "avro"),
        (lambda w: w.option("processingGuarantee", "twice"), "twice"),
        (lambda w: w.option("checkpointLocation", "s3a://b/ck"), 'checkpointLocation: Hadoop cannot open "s3a://b/ck"'),
        (lambda w: w.option("path", "nosuch://h/out"), 'path: Hadoop cannot open "nosuch://h/out": .*"nosuch"'),
        (lambda w: w.option("lateRowsPath", "s3a://b/late"), 'lateRowsPath: Hadoop cannot open "s3a://b/late": .*aws'),
        (lambda w: w.option("lateRowsPath", "gs://b/late"), "lateRowsPath"),
        (lambda w: w.option("path", "/proc/nowhere"), "path.*cannot hold decisions"),
        (lambda w: w.option("checkpointLocation", "/proc/nowhere"), "checkpointLocation.*cannot hold decisions"),
        (lambda w: w.partitionBy("city"), "no column 'city'"),
        (lambda w: w.partitionBy("window", "k", "count(1)"), "at least one column must stay"),
        (lambda w: w.option("fileFormat", "csv"), "csv cannot hold the nested column 'window'"),
        (lambda w: w.trigger(processingTime="1 second").option("closeWindowsAtEnd", True), "availableNow"),
        (lambda w: w.option("overlapEpochs", "maybe"), 'overlapEpochs="maybe" is not one of auto, true, false'),
        (lambda w: w.format("memory"), '"path" is not an option of format'),
        (
            lambda w: w.format("parquet").option("fileFormat", "csv"),
            'format\\("parquet"\\) contradicts fileFormat="csv"',
        ),
        (lambda w: w.format("csv"), "csv cannot hold the nested column 'window'"),
        (
            lambda w: w.format("text").partitionBy("k"),
            "text holds one column of strings, the rows have window struct.*count",
        ),
        (lambda w: w.format("json").option("path", None).partitionBy("city"), "no column 'city'"),
        (lambda w: w.foreach(3), "foreach: int is neither a function of a row nor an object with a method process"),
        (lambda w: w.foreachBatch(lambda rows: None), "foreachBatch: the function takes \\(rows\\)"),
        (
            lambda w: w.foreachBatch(lambda rows, epoch, info, more: None),
            "foreachBatch: .*Have it take \\(rows, epoch\\)",
        ),
        (lambda w: settled(w).foreach(threading.Lock().acquire), "cannot be sent to the executors: cannot pickle"),
        (lambda w: w.format("kafkaa"), "no sink"),
        (lambda w: w.outputMode("complete"), "append"),
        (lambda w: w.trigger(), "either processingTime"),
    ],
)
def test_wrong_settings_of_the_sink_are_refused_before_the_start(
    writer: StreamWriter, tmp_path: Path, change: Callable[[StreamWriter], StreamWriter], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=named):
        change(writer).start()
    assert not (tmp_path / "ck" / "spark").exists()
    assert not list((tmp_path / "ck").glob("snapshots/log/*"))


def test_a_query_without_a_home_is_refused(watermarked: Stream, tmp_path: Path) -> None:
    result = watermarked.groupBy(sj.window("ts", "1 minute")).count()
    with pytest.raises(sj.AnalysisError, match="checkpointLocation"):
        result.writeStream.format("files").start(str(tmp_path / "out"))
    with pytest.raises(sj.AnalysisError, match="queryName"):
        result.writeStream.format("memory").start()
    with pytest.raises(sj.AnalysisError, match="choose a sink"):
        result.writeStream.start()


def counted(stream: Stream) -> Any:
    """Numbers that are counted one by one, by a function of the user's, of a stream without a watermark."""
    numbers = sj.stream(stream.sparkSession.readStream.format("rate").load())
    return numbers.groupBy("value").applyInPandasWithState(iter, "n long", "n long", "update", "NoTimeout")


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (lambda r, s: sj.start(), "at least one writer"),
        (lambda r, s: sj.start(r.lateRows.writeStream.format("console")), "lateRows="),
        (lambda r, s: sj.start(table(r, "a"), lateRows=table(r, "b")), "result.lateRows.writeStream"),
        (lambda r, s: sj.start(table(r, "a"), table(r, "a")), "two outputs write to the table a"),
        (lambda r, s: sj.start(table(r, "a"), table(other(s), "b")), "different inputs"),
        (
            lambda r, s: sj.start(
                table(r, "a").option("statePartitions", 1), table(r, "b").option("statePartitions", 2)
            ),
            "different settings of statePartitions",
        ),
        (lambda r, s: sj.start(table(r, "a").option("earlyResultsPeriod", "1 second")), 'outputMode\\("update"\\)'),
        (lambda r, s: sj.start(table(r, "a").outputMode("update").option("earlyResultsPeriod", "soon")), "soon"),
        (
            lambda r, s: sj.start(
                table(r.withColumn("is_early", F.lit(1)), "a").outputMode("update").option("isEarly", True)
            ),
            "is_early",
        ),
        (lambda r, s: sj.start(table(r, "a").option("isEarly", True)), "isEarly: early rows need"),
        (lambda r, s: r.groupBy(sj.window("window", "1 hour")).count().lateRows, "never late for the next one"),
        (lambda r, s: counted(s).lateRows, "without a watermark no row is late. Call withWatermark"),
        (lambda r, s: r.groupBy(sj.window("ts", "1 hour")), "which is on 'window'"),
        (lambda r, s: s.union(s.drop("k")), "do not match"),
        (lambda r, s: s.unionByName(s.withColumnRenamed("k", "j")), "has a column 'j'"),
        (lambda r, s: s["tss"], "no column 'tss'; did you mean \"ts\""),
        (lambda r, s: s["_sparkjet_time"], "no column '_sparkjet_time'"),
        (lambda r, s: s.tss, 'did you mean "ts"'),
        (lambda r, s: s.withColumn("row", F.expr("_sparkjet_time + 1")), "columns of sparkjet's own"),
        (lambda r, s: s.where("_sparkjet_substream = 'a'"), "columns of sparkjet's own"),
        (lambda r, s: s.transform(id), "transform: the function returned int"),
        (lambda r, s: s.fillna({"_sparkjet_time": 0}), "is used by sparkjet"),
        (lambda r, s: s.withColumnRenamed("v", "_sparkjet_time"), "is used by sparkjet"),
        (lambda r, s: s.mapInPandas(iter, s.schema), "mapInPandas: .* Call it before withWatermark"),
        (lambda r, s: r.unpivot("window", "count", "n", "v").groupBy(sj.window("window", "1 hour")), "Group first"),
        (lambda r, s: s.unionByName(s.withColumn("extra", F.lit(1))), "'extra'"),
        (lambda r, s: s.alias("a").union(s.alias("a")), "both streams are called 'a'"),
        (lambda r, s: s.alias("a/b"), "without a slash"),
        (lambda r, s: s.alias(5), "alias: 5 must be a name"),
        (lambda r, s: s.select(1), "select: 1 is not a Column or the name of one"),
        (lambda r, s: s.where(True), 'where: True is not a condition: .*F.col\\("n"\\) > 0'),
        (lambda r, s: s.withColumns(["k"]), "withColumns: \\['k'\\] is not a dict"),
        (lambda r, s: s.withColumnsRenamed("k"), "withColumnsRenamed: 'k' is not a dict"),
        (lambda r, s: s.dropna(subset=3), "subset=3 is neither the name of a column nor a list"),
        (lambda r, s: s.join(s.sparkSession.range(1), how=5), "join: how=5 is not the name of a join"),
        (lambda r, s: s.alias("a").join(s.alias("b"), "k", 5), "join: how=5 is not the name of a join"),
        (lambda r, s: r.join(r, "window", 5), "join: how=5 is not the name of a join"),
        (lambda r, s: s.select(F.sum("v")), "select: an aggregation of all rows is never final.*call agg"),
        (lambda r, s: s.selectExpr("sum(v) / 2"), "select: an aggregation of all rows is never final.*call agg"),
        (lambda r, s: r.writeStream.toTable(None), "toTable: None is not the name of a table"),
        (lambda r, s: s.union(r), "expected a stream, got WindowedStream"),
        (lambda r, s: s.groupBy(sj.session_window("ts", F.col("v"))), "the gap v is of type bigint"),
        (lambda r, s: s.groupBy(sj.session_window("ts", "0 seconds")), "gapDuration"),
        (
            lambda r, s: s.groupBy(sj.session_window("ts", "1 second"), sj.window("ts", "1 second")),
            "expected one",
        ),
    ],
)
def test_wrong_plans_are_refused(
    watermarked: Stream, start: Callable[[WindowedStream, Stream], object], named: str
) -> None:
    result = watermarked.groupBy(sj.window("ts", "1 minute")).count()
    with pytest.raises((sj.AnalysisError, AttributeError), match=named):
        start(result, watermarked)


def settled(writer: StreamWriter) -> StreamWriter:
    """The writer without the option of files."""
    settings = settings_of(writer)
    options = {name: text for name, text in settings.options.items() if name != "path"}
    return StreamWriter(replace(settings, options=options))


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (
            lambda r, e, s: table(e, "a").option("closeWindowsAtEnd", True).trigger(availableNow=True).start(),
            "to close",
        ),
        (
            lambda r, e, s: at_end(table(s.groupBy("k").count(), "a").outputMode("update")),
            "no result of this query waits",
        ),
        (lambda r, e, s: at_end(table(r, "a").outputMode("complete")), "no result of this query waits"),
        (lambda r, e, s: at_end(table(s.dropDuplicates(["k", "ts"]), "a")), "no result of this query waits"),
        (
            lambda r, e, s: at_end(table(endless(s).groupBy("k").count(), "a").outputMode("update")),
            "no outer or anti join",
        ),
        (lambda r, e, s: table(s, "a").option("overlapEpochs", True).start(), "overlapEpochs: without windows"),
        (lambda r, e, s: table(s, "a").option("statePartitions", 2).start(), "there is no state"),
        (lambda r, e, s: table(s, "a").outputMode("update").option("earlyResultsPeriod", "1 s").start(), "is early"),
        (lambda r, e, s: sj.start(table(r, "a"), table(s, "b").option("lateRowsPath", "/late")), "lateRowsPath: with"),
        (
            lambda r, e, s: table(r, "a").option("lateRowsRetention", "7d").start(),
            "lateRowsRetention needs lateRowsPath",
        ),
        (lambda r, e, s: table(s, "a").option("deadLettersRetention", "7d").start(), "needs deadLettersPath, whose"),
        (
            lambda r, e, s: table(s, "a").outputMode("complete").start(),
            '"complete" is for the results of an aggregation',
        ),
        (lambda r, e, s: sj.start(table(r, "a"), lateRows=table(s, "b")), "lateRows=… takes writers of late rows"),
        (lambda r, e, s: sj.start(table(r, "a"), table(e, "b")), "before withWatermark.*Write both from what"),
        (
            lambda r, e, s: sj.start(table(own_gaps(s), "a"), table(own_gaps(s), "b"), table(e, "c")),
            "before withWatermark.*Write both from what",
        ),
        (lambda r, e, s: sj.start(table(r, "a"), table(s.alias("b").union(s.alias("c")), "b")), "different inputs"),
        (lambda r, e, s: sj.start(table(s, "a"), table(s.alias("b").union(s.alias("c")), "b")), "different inputs"),
        (lambda r, e, s: e.union(s), "only one of the streams has a watermark.*on the other one"),
        (lambda r, e, s: e.writeStream.format("files").start("/out"), "checkpointLocation"),
        (
            lambda r, e, s: table(e.withColumn("m", F.monotonically_increasing_id()), "a").start(),
            r"start: .*monotonically_increasing_id\(\) is not supported with streaming.*in foreachBatch",
        ),
    ],
)
def test_wrong_queries_without_windows_are_refused(
    events: Stream, watermarked: Stream, start: Callable[[WindowedStream, Stream, Stream], object], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=named):
        start(watermarked.groupBy(sj.window("ts", "1 minute")).count(), events, watermarked)


def test_a_substream_of_a_query_without_windows_cannot_be_retired(events: Stream) -> None:
    query = table(events, "no_substreams").start()
    with pytest.raises(sj.AnalysisError, match="without windows has no watermark"):
        query.retireSubstream("a")
    assert query.isActive
    query.stop()


def own_gaps(stream: Stream) -> WindowedStream:
    """Sessions whose rows have their own gaps."""
    gap = F.expr("if(k = 'a', interval '5' second, interval '9' second)")
    return stream.groupBy(sj.session_window("ts", gap)).count()


def at_end(writer: StreamWriter) -> object:
    """A query that is to emit what is open at the end of its input."""
    return writer.option("closeWindowsAtEnd", True).trigger(availableNow=True).start()


def endless(stream: Stream) -> Stream:
    """A stream joined with itself without a bound."""
    return stream.alias("a").join(stream.alias("b"), F.expr("a.k = b.k")).select("a.k")


def table(result: Any, name: str) -> StreamWriter:
    """A result on its way to a table of memory."""
    return result.writeStream.format("memory").queryName(name)


def other(stream: Stream) -> WindowedStream:
    """A result of another stream."""
    return stream.alias("b").union(stream.alias("c")).groupBy(sj.window("ts", "1 minute")).count()


def test_epochs_do_not_overlap_over_a_source_that_deletes_what_spark_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    cleaned = spark.readStream.schema(SCHEMA).option("cleanSource", "delete").json(str(tmp_path / "in"))
    stream = sj.stream(cleaned).withWatermark("ts", "10 seconds")
    writer = stream.groupBy(sj.window("ts", "1 minute")).agg(F.count("*")).writeStream.format("files")
    writer.options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "ck"), overlapEpochs=True)
    with pytest.raises(sj.AnalysisError, match=r"json with cleanSource=delete may delete it.*Leave the option out"):
        writer.start()
