from __future__ import annotations

from typing import TYPE_CHECKING

import sparkjet as sj
from sparkjet.plan.outputs import Rows, StageOutput
from sparkjet.plan.plan import Plan
from sparkjet.plan.planning import plan_of
from sparkjet.sinks.console import ConsoleSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def minutes_and_hours(spark: SparkSession) -> Plan:
    """Two outputs of the minutes, their late rows, and one of the hours over them."""
    source = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")
    stream = sj.stream(source).withWatermark("ts", "5 seconds")
    minutes = stream.groupBy(sj.window("ts", "1 minute")).count()
    hours = minutes.groupBy(sj.window("window", "1 hour")).count()
    read = [(hours, Rows.RESULTS), (minutes, Rows.RESULTS), (minutes, Rows.LATE), (minutes, Rows.RESULTS)]
    stages = [(each._stage, rows) for each, rows in read]
    return plan_of(
        [
            StageOutput(f"out{number}", ConsoleSink(), "console", each, rows, each.shape(), lambda rows: rows)
            for number, (each, rows) in enumerate(stages)
        ]
    )


def test_stages_keep_the_names_that_are_in_stored_records(spark: SparkSession) -> None:
    plan = minutes_and_hours(spark)
    assert [stage.name for stage in plan.stages] == ["stage0", "stage1"]
    assert [output.reads for output in plan.of_stages] == [
        "stage1",
        "stage0",
        "stage0",
        "stage0",
    ]
    assert {name: part.get("reads") for name, part in plan.fingerprint.items() if name != "inputs"} == {
        "stage0": None,
        "stage1": "stage0",
    }


def test_a_plan_knows_who_reads_what(spark: SparkSession) -> None:
    plan = minutes_and_hours(spark)
    minutes, hours = plan.stages
    assert [stage.feeds[0].parent for stage in plan.stages] == [None, minutes]
    assert [plan.consumers(stage.name) for stage in plan.stages] == [3, 1]
    assert [plan.delivers_late_rows(stage.name) for stage in plan.stages] == [True, False]
    assert {output.reads for output in plan.of_stages} == {minutes.name, hours.name}
