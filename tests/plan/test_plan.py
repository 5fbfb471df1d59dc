from __future__ import annotations

from typing import TYPE_CHECKING

import sparkjet as sj
from sparkjet.plan.outputs import AggregationOutput, Rows
from sparkjet.plan.plan import Plan, plan_of
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
    aggregations = [(each._aggregation, rows) for each, rows in read]
    return plan_of(
        [
            AggregationOutput(f"out{number}", ConsoleSink(), "console", each, rows, each.shape(), lambda rows: rows)
            for number, (each, rows) in enumerate(aggregations)
        ]
    )


def test_aggregations_keep_the_names_that_are_in_stored_records(spark: SparkSession) -> None:
    plan = minutes_and_hours(spark)
    assert [aggregation.name for aggregation in plan.aggregations] == ["aggregation0", "aggregation1"]
    assert [output.aggregation.name for output in plan.of_aggregations] == [
        "aggregation1",
        "aggregation0",
        "aggregation0",
        "aggregation0",
    ]
    assert {name: part.get("reads") for name, part in plan.fingerprint.items() if name != "inputs"} == {
        "aggregation0": None,
        "aggregation1": "aggregation0",
    }


def test_a_plan_knows_who_reads_what(spark: SparkSession) -> None:
    plan = minutes_and_hours(spark)
    minutes, hours = plan.aggregations
    assert (plan.roots, hours.parent) == ([minutes], minutes)
    assert [plan.consumers(minutes), plan.consumers(hours)] == [3, 1]
    assert [plan.delivers_late_rows(minutes), plan.delivers_late_rows(hours)] == [True, False]
    assert {output.aggregation for output in plan.of_aggregations} == {minutes, hours}
