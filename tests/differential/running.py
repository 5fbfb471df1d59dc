"""Ways to run the query of a case: in a driver, in one batch, as a real stream of files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkjet as sj
from sparkjet import EpochPhase, ManualClock
from sparkjet.testing import StreamDriver
from tests.differential.cases import Case, Epoch
from tests.differential.moments import Moments
from tests.differential.oracle import Oracle
from tests.differential.outlets import OUTLETS, Collected, Found, TextSink, grid
from tests.differential.texts import texts
from tests.servers.delta import kernel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Outcome:
    """The outcome of a query."""

    results: list[Found | None]
    late: tuple[int, int] | None = None
    """How many rows are counted as late, and how many as without an event time; None where none are counted."""
    moments: Sequence[str] = ()
    """What came at another moment than it should, or stayed for too long."""


def driven(spark: SparkSession, case: Case, query: Any, oracle: Oracle) -> Outcome:
    """In a driver, with crashes."""
    del oracle
    sinks = [TextSink() for _ in range(case.results)]
    schemas = [each.schema for each in case.inputs]
    options = {**dict(case.options), "outputMode": case.mode}
    driver = StreamDriver(spark, query, schemas, sinks=sinks, clock=ManualClock(case.start), **options)
    moments = Moments(case, driver, sinks)
    for number, epoch in enumerate(case.epochs):
        if epoch.pause:
            # Nothing is polled beside the end of an epoch.
            driver.engine.join()
            driver.advance(epoch.pause)
        moments.begun(number)
        _process(driver, epoch)
        moments.ended(number)
    driver.engine.join()
    moments.ending()
    driver.close_windows()
    driver.engine.join()
    moments.closed()
    late = sum(driver.late_counts.values()), driver.engine.state.null_timestamps.total()
    return Outcome([sink.found() for sink in sinks], late, moments.lines)


def _process(driver: StreamDriver, epoch: Epoch) -> None:
    rows = [[event.record() for event in each] for each in epoch.rows]
    if epoch.then.isupper():
        with driver.crash(at=EpochPhase[epoch.then]):
            driver.process(*rows)
        driver.restart()
        driver.process()
        return
    driver.process(*rows)
    if epoch.then == "stop":
        driver.stop()
    if epoch.then:
        driver.restart()


def in_one_batch(spark: SparkSession, case: Case, query: Any, oracle: Oracle) -> Outcome:
    """All rows at once, as for a test of a query."""
    del spark, case
    found: list[Found | None] = []
    for result in query(*map(sj.stream, oracle.frames(oracle.all_rows()))):
        frame = result.toDF()
        found.append(Found(frame.schema, [texts(frame).collect()]))
    return Outcome(found)


def streamed(spark: SparkSession, case: Case, query: Any, oracle: Oracle) -> Outcome:
    """As a real stream: a file is an epoch, and the query ends after those that are followed by something."""
    del oracle
    with tempfile.TemporaryDirectory(prefix="sparkjet-differential-") as home:
        outlets = [OUTLETS[case.sink](Path(home)) for _ in range(case.results)]
        for number, epoch in enumerate(case.epochs):
            for side, (events, each) in enumerate(zip(epoch.rows, case.inputs, strict=True)):
                names = ["t", "sub", "n", *(f"v{place}" for place in range(len(each.columns)))]
                lines = [json.dumps(dict(zip(names, event.record(), strict=True))) for event in events]
                file = Path(home) / f"{side}" / f"{number}.json"
                file.parent.mkdir(exist_ok=True)
                file.write_text("\n".join(lines))
                os.utime(file, (number + 1, number + 1))
            last = number == len(case.epochs) - 1
            if epoch.then or last:
                _run(spark, case, query, outlets, Path(home), last=last)
        return Outcome([outlet.found() for outlet in outlets])


def _run(spark: SparkSession, case: Case, query: Any, outlets: list[Collected], home: Path, *, last: bool) -> None:
    if case.home == "grid" or case.sink == "grid journal":
        spark.conf.set("spark.sparkjet.grid.tokenFile", str(grid().token))
    if case.sink == "delta":
        for jar in kernel():
            spark.sql(f"ADD JAR '{jar}'")
    inputs = []
    for side, each in enumerate(case.inputs):
        reader = spark.readStream.schema(each.schema).option("maxFilesPerTrigger", 1)
        inputs.append(sj.stream(reader.json(str(home / f"{side}"))))
    every = [outlet.writer(result) for result, outlet in zip(query(*inputs), outlets, strict=True)]
    dead, writers = every[len(case.branches) :], every[: len(case.branches)]
    writers = [writer.outputMode(case.mode).trigger(availableNow=True) for writer in writers]
    if last and case.has_an_end:
        writers[0] = writers[0].option("closeWindowsAtEnd", True)
    if "isEarly" in dict(case.options):
        writers = [writer.option("isEarly", True) for writer in writers]
    if case.home == "grid":
        writers[0] = writers[0].option("snapshotStore", f"grid://{grid().address}").option("queryId", home.name)
    place = None if case.home == "grid" else str(home / "query")
    sj.start(*writers, deadLetters=dead, checkpointLocation=place).awaitTermination()
    for outlet in outlets:
        outlet.ended(spark)


RUNS: dict[str, Callable[[SparkSession, Case, Any, Oracle], Outcome]] = {
    "driver": driven,
    "batch": in_one_batch,
    "stream": streamed,
}
