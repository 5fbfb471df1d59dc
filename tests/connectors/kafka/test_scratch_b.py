# mypy: ignore-errors
from __future__ import annotations
import json, time, shutil, os
from collections import Counter
from pathlib import Path
from typing import Any
import pytest
from pyspark.sql import functions as F
import sparkjet as sj
from sparkjet.sources import alignment
from tests.sources.feed import options, send_at, send
from tests.connectors.kafka.test_aligned import T0, MINUTE, EACH, BEHIND, skewed, stream, windows, progress_of

def started(df, tmp_path, fails_in=0, close=None, lag="0 seconds", **wm):
    def listener(phase, epoch):
        if epoch == fails_in and phase is sj.EpochPhase.PREPARE:
            raise ZeroDivisionError
    counts = sj.stream(df).withWatermark("timestamp", lag, **wm).groupBy(sj.window("timestamp", "10 minutes")).count()
    writer = counts.writeStream.format("files").option("path", str(tmp_path / "out")).option("fileFormat", "json")
    writer = writer.option("checkpointLocation", str(tmp_path / "home"))
    writer = writer.option("closeWindowsAtEnd", str(not fails_in if close is None else close).lower())
    return writer.onEpochPhase(listener).trigger(availableNow=True).start()

EXPECTED = {**dict.fromkeys(range(6), 10), **dict.fromkeys(range(36, 42), 20)}

@pytest.mark.logs_errors
def test_option_changed(spark, kafka, skewed, tmp_path):
    runs = [dict(), dict(maxWatermarkDrift="5 minutes"), dict(maxWatermarkDrift="3 hours", maxOffsetsPerTrigger="7"), dict(maxOffsetsPerTrigger="11"), dict(maxWatermarkDrift="1 second", maxOffsetsPerTrigger="20")]
    epoch = 0
    for n, given in enumerate(runs):
        last = n == len(runs) - 1
        query = started(stream(spark, kafka, skewed, **given), tmp_path, 0 if last else epoch + 3)
        try:
            assert query.awaitTermination(120)
        except ZeroDivisionError:
            pass
        for p in progress_of(query):
            epoch = p["epoch"]["number"]
            print(n, p["batchId"], p.sources[0].endOffset, {k: (v["heldBack"], v["heldBy"]) for k, v in p["substreams"].items()}, p["lateRows"]["total"])
        print("epoch", epoch)
    assert windows(tmp_path) == EXPECTED

def test_far_clock_and_null(spark, kafka, tmp_path):
    topic = kafka.topic(partitions=4)
    def put(p, *times):
        for t in times:
            send(kafka, topic, b"%s" % str(t).encode(), partition=p)
    ten = 10 * 365 * 86400 * 1000
    put(0, *(T0 + m * MINUTE for m in range(40)))
    put(1, T0 + ten, *(T0 + m * MINUTE for m in range(1, 40)))
    put(2, *("null" for m in range(40)))
    put(3, *(T0 + (m + 120) * MINUTE for m in range(40)))
    for drift in (None, "5 minutes"):
        given = {} if drift is None else {"maxWatermarkDrift": drift}
        df = stream(spark, kafka, topic, maxOffsetsPerTrigger="20", **given)
        when = F.udf(lambda v: None if v == b"null" else int(v), "long")
        df = df.withColumn("timestamp", F.timestamp_millis(when("value")))
        home = tmp_path / str(drift)
        query = started(df, home)
        assert query.awaitTermination(120)
        for p in progress_of(query):
            print(drift, p["batchId"], p.sources[0].endOffset, {k: (v["heldBack"], v["heldBy"]) for k, v in p["substreams"].items()}, p["lateRows"]["total"])
        print(sorted(windows(home).items()))

def test_cleaner(spark, kafka, skewed, tmp_path):
    df = stream(spark, kafka, skewed, maxWatermarkDrift="5 minutes")
    def listener(phase, epoch):
        if epoch == 2 and phase is sj.EpochPhase.PREPARE:
            shutil.rmtree(alignment.place())
    counts = sj.stream(df).withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "10 minutes")).count()
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "home")).onEpochPhase(listener)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    except Exception as e:
        print("ENDED", type(e), str(e)[:1500])
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    except Exception as e:
        print("ENDED AGAIN", type(e), str(e)[:1500])

def test_union_and_join(spark, kafka, tmp_path):
    a, b = kafka.topic(partitions=2), kafka.topic(partitions=2)
    for t in (a, b):
        for p in range(2):
            send_at(kafka, t, p, [T0 + (m + 100 * p) * MINUTE for m in range(40)])
    one = stream(spark, kafka, a, maxWatermarkDrift="5 minutes", maxOffsetsPerTrigger="10")
    two = stream(spark, kafka, b, maxWatermarkDrift="10 minutes", maxOffsetsPerTrigger="10")
    for kind in ("one watermark", "each", "join"):
        home = tmp_path / kind.replace(" ", "_")
        try:
            if kind == "one watermark":
                s = sj.stream(one.union(two)).withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "10 minutes")).count()
            elif kind == "each":
                s = sj.stream(one).withWatermark("timestamp", "0 seconds").union(sj.stream(two).withWatermark("timestamp", "0 seconds")).groupBy(sj.window("timestamp", "10 minutes")).count()
            else:
                l = sj.stream(one).withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "10 minutes")).agg(F.count("*").alias("n"))
                r = sj.stream(two).withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "10 minutes")).agg(F.count("*").alias("m"))
                s = l.join(r, "window").selectExpr("window", "n + m AS count")
            w = s.writeStream.format("files").option("path", str(home / "out")).option("fileFormat", "json").option("checkpointLocation", str(home / "home")).option("closeWindowsAtEnd", "true")
            q = w.trigger(availableNow=True).start()
            assert q.awaitTermination(120)
            for p in progress_of(q):
                print(kind, p["batchId"], [x.endOffset for x in p.sources], {k: (v["heldBack"], v["heldBy"]) for k, v in p["substreams"].items()}, p["lateRows"]["total"])
            print(kind, sorted(windows(home).items()))
        except Exception as e:
            print(kind, "FAILED", type(e), str(e)[:800])

def test_new_partitions_and_deleted_topic(spark, kafka, tmp_path):
    a, b = kafka.topic("al-" + str(os.getpid()) + "a", partitions=2), kafka.topic("al-" + str(os.getpid()) + "b", partitions=2)
    for p in range(2):
        send_at(kafka, a, p, [T0 + (m + 100 * p) * MINUTE for m in range(40)])
        send_at(kafka, b, p, [T0 + (m - 50 + 300 * p) * MINUTE for m in range(40)])
    df = stream(spark, kafka, f"{a},{b}", maxWatermarkDrift="5 minutes", maxOffsetsPerTrigger="20", failOnDataLoss="false")
    q = started(df, tmp_path, fails_in=3)
    try:
        q.awaitTermination(120)
    except ZeroDivisionError:
        pass
    for p in progress_of(q):
        print(1, p["batchId"], [x.endOffset for x in p.sources], {k: (v["heldBack"], v["heldBy"]) for k, v in p["substreams"].items()}, p["lateRows"]["total"])
    admin = kafka.admin()
    admin.delete_topics([b])[b].result()
    from confluent_kafka.admin import NewPartitions
    admin.create_partitions([NewPartitions(a, 3)])[a].result()
    time.sleep(2)
    send_at(kafka, a, 2, [T0 + (m + 60) * MINUTE for m in range(40)])
    q = started(stream(spark, kafka, f"{a}", maxWatermarkDrift="5 minutes", maxOffsetsPerTrigger="20", failOnDataLoss="false"), tmp_path)
    try:
        assert q.awaitTermination(120)
    except Exception as e:
        print("ENDED", str(e)[:900])
    for p in progress_of(q):
        print(2, p["batchId"], [x.endOffset for x in p.sources], {k: (v["heldBack"], v["heldBy"]) for k, v in p["substreams"].items()}, p["lateRows"]["total"])
    print(sorted(windows(tmp_path).items()))
