"""Windows are those of Spark, whatever their length, slide and offset."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.aggregates import built_in as J
from sparkjet.errors import AnalysisError
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream


def test_windows_are_those_of_spark(spark: SparkSession) -> None:
    chosen = random.Random(1)
    shapes = [(size, chosen.randint(1, size)) for size in (chosen.randint(1, 40) for _ in range(25))]
    shaped = [(size, step, chosen.randint(1 - step, step - 1)) for size, step in shapes]
    times = [chosen.randint(-100, 100) for _ in range(20)]
    rows = spark.createDataFrame([(time,) for time in times], "time long").withColumn("ts", F.timestamp_micros("time"))
    found = [
        rows.select(
            F.lit(number).alias("shape"),
            "time",
            F.window("ts", *(f"{length} microseconds" for length in shape)).alias("w"),
        )
        for number, shape in enumerate(shaped)
    ]
    spans = reduce(DataFrame.union, found).select("shape", "time", F.unix_micros("w.start"), F.unix_micros("w.end"))
    expected: set[tuple[int, ...]] = set()
    for number, shape in enumerate(shaped):
        window = sj.window("ts", *shape).grid
        for time in times:
            frame = window.grid.higher_frame(time)
            first = window.ends.higher_frame(frame - 1)
            ends = range(first, window.last_end(frame) + 1, window.step)
            expected |= {(number, time, window.start(end), end) for end in ends}
    assert {tuple(row) for row in spans.collect()} == expected


@pytest.mark.long
def test_a_stream_gives_the_windows_of_spark_with_frames_shorter_than_the_slide(spark: SparkSession) -> None:
    start = datetime(2026, 3, 1, 10, tzinfo=UTC)
    clicks = [(start + timedelta(seconds=13 * number), f"user {number % 3}", number) for number in range(60)]
    shape = "5 minutes", "2 minutes", "-30 seconds"

    def query(stream: sj.Stream) -> WindowedStream:
        timed = stream.withWatermark("ts", "1 minute")
        return timed.groupBy(sj.window("ts", *shape), "user").agg(J.count().alias("n"), J.max("v").alias("most"))

    schema = "ts timestamp, user string, v long"
    driver = StreamDriver(spark, query, schema)
    # The watermark moves from end to end of windows, which are not where others start.
    assert driver.plan.stages[0].stage.grid == (120_000_000, 30_000_000)
    for batch in range(0, 60, 15):
        driver.process(clicks[batch : batch + 15][::-1])
    driver.close_windows()
    batch = spark.createDataFrame(clicks, schema).groupBy(F.window("ts", *shape), "user")
    expected = batch.agg(F.count("*").alias("n"), F.max("v").alias("most"))
    assert sorted(map(tuple, driver.results())) == sorted(map(tuple, expected.collect()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1 minute", "2 minutes"), r"slideDuration '2 minutes' is longer than windowDuration '1 minute'.*where"),
        (("4 minutes", "2 minutes", "3 minutes"), r"startTime '3 minutes' must be shorter than .*\"1 minute\" gives"),
        (
            ("4 minutes", "2 minutes", "-2 minutes"),
            r"startTime '-2 minutes' must be shorter than the slide '2 minutes'",
        ),
        (("4 minutes", None, "-5 minutes"), r"shorter than the slide '4 minutes': \"3 minutes\" gives"),
    ],
)
def test_what_spark_refuses_is_refused_with_the_way_out(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        sj.window("ts", *arguments)
