"""A writer shows what Spark's has, and what is documented besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.readwriter import DataStreamWriter

import sparkjet as sj
from sparkjet.api.writer import StreamWriter, settings_of
from sparkjet.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

OURS = {"clock", "onEpochPhase"}
LACKING = {"clusterBy"}


@pytest.fixture
def writer(spark: SparkSession) -> StreamWriter:
    stream = sj.stream(spark.readStream.format("rate").load()).withWatermark("timestamp", "1 minute")
    return stream.groupBy(sj.window("timestamp", "1 minute")).count().writeStream


def public(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def test_a_writer_has_the_names_of_sparks(writer: StreamWriter) -> None:
    assert public(writer) == (public(DataStreamWriter) - LACKING) | OURS
    assert all(name in (StreamWriter.__doc__ or "") for name in OURS)


def test_each_method_changes_and_returns_the_writer(writer: StreamWriter) -> None:
    clock = ManualClock()

    def listener(phase: sj.EpochPhase, epoch: int) -> None:
        """Is only kept."""

    assert writer.format("files").option("path", "/out").options(header=True, sep=None) is writer
    assert writer.outputMode("Update").partitionBy("k").queryName("name").clock(clock).onEpochPhase(listener) is writer
    assert writer.trigger(processingTime="2 seconds") is writer
    settings = settings_of(writer)
    assert (settings.sink and settings.sink.name, settings.is_durable) == ("files", True)
    assert settings.options == {"path": "/out", "header": "true"}
    assert (settings.mode, settings.partition_by, settings.name) == ("update", ("k",), "name")
    assert (settings.clock, settings.listener) == (clock, listener)
    assert settings.trigger == {"processingTime": "2 seconds"}
    assert settings_of(writer.trigger(availableNow=True)).trigger == {"availableNow": True}
    assert settings_of(writer.trigger(availableNow=False)).trigger is None
    assert settings_of(writer.trigger(once=True)).trigger == {"availableNow": True}
    assert not settings_of(writer.foreachBatch(lambda rows, epoch: None)).is_durable


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"continuous": "1 second"}, "continuous is not supported.*Leave trigger"),
        ({"realTime": "5 minutes"}, "realTime is not supported.*Leave trigger"),
        ({"processingtime": "1 second"}, "no trigger 'processingtime'; did you mean \"processingTime\""),
        ({"processingTime": "soon"}, "soon"),
        ({"processingTime": "1 second", "availableNow": True}, "either processingTime"),
        ({"once": True, "availableNow": True}, "either processingTime"),
        ({"once": None}, "either processingTime"),
    ],
)
def test_a_trigger_that_is_not_supported_names_what_to_use(
    writer: StreamWriter, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=rf"^\[SPARKJET_ANALYSIS\] (trigger: |processingTime = ).*{named}"):
        writer.trigger(**given)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda w: w.outputMode(None), 'outputMode: there is no mode "None".*"append"'),
        (lambda w: w.queryName(5), "queryName: 5 is not a name"),
        (lambda w: w.queryName(" "), "queryName: ' ' is not a name"),
        (lambda w: w.trigger(processingTime=5), 'trigger: processingTime=5 is not text, as in processingTime="5 sec'),
        (lambda w: w.option(5, "x"), "option: 5 is not the name of an option"),
        (lambda w: w.partitionBy(None), "partitionBy: None is not the name of a column"),
        (lambda w: w.foreachBatch(5), "foreachBatch: 5 is not a function.*rows, epoch"),
    ],
)
def test_a_wrong_type_is_refused_at_its_line(
    writer: StreamWriter, change: Callable[[StreamWriter], object], named: str
) -> None:
    with pytest.raises(sj.AnalysisError, match=named):
        change(writer)


def test_formats_are_found_in_any_case(writer: StreamWriter) -> None:
    for given, found in {"Memory": "memory", "CONSOLE": "console", "Grid-Map": "grid-map", "JSON": "files"}.items():
        sink = settings_of(writer.format(given)).sink
        assert sink is not None
        assert sink.name == found


def test_the_function_of_foreach_batch_is_not_chosen_by_name(writer: StreamWriter) -> None:
    for name in ("foreach", "foreachBatch"):
        with pytest.raises(sj.AnalysisError, match=rf"give the function to {name}\("):
            writer.format(name)


def test_only_writers_can_be_started(writer: StreamWriter, spark: SparkSession) -> None:
    with pytest.raises(sj.AnalysisError, match="expected a writer, got DataFrame"):
        sj.start(spark.range(3))  # type: ignore[arg-type]
    with pytest.raises(sj.AnalysisError, match="expected a writer, got DataFrame"):
        sj.start(writer.format("console"), lateRows=spark.range(3))  # type: ignore[arg-type]
