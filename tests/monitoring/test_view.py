"""The view of a run."""

from __future__ import annotations

import json

import msgspec
import pytest

from sparkjet.engine.progress_report import BackupReport, ProgressReport, SinkReport
from sparkjet.errors import SinkError
from sparkjet.monitoring.late_rows import newest_rows
from sparkjet.monitoring.runs import Run
from sparkjet.monitoring.view import details, sentence, summary
from tests.monitoring.reports import NOW, SECOND, report, substream

MINUTE = 60 * SECOND
RETIRE = (
    'If nothing more comes of it: query.retireSubstream("a"), or idleTimeout in withWatermark for all that are silent.'
)


def run_with(*reports: ProgressReport) -> Run:
    run = Run("query", "run", "flights", NOW - 10 * MINUTE)
    for number, each in enumerate(reports):
        run.history.add(each, NOW - 5 * MINUTE + number * SECOND)
    return run


STILL = " It has not moved for 5 min."


@pytest.mark.parametrize(
    ("substreams", "told", "advice"),
    [
        ({}, "Epoch 1 ended 5 min ago; the query has no watermark.", None),
        ({"a": substream(None, holds=True)}, "Epoch 1 ended 5 min ago; no row with an event time has come yet.", None),
        ({"a": substream(NOW)}, "Nothing holds the stream back: 1 substream level. Epoch 1 ended 5 min ago.", None),
        (
            {"a": substream(NOW), "b": substream(NOW), "c": substream(0, idle=True)},
            "Nothing holds the stream back: 2 substreams level, 1 idle. Epoch 1 ended 5 min ago.",
            None,
        ),
        (
            {"a": substream(NOW - 252 * SECOND), "b": substream(NOW)},
            "“a” holds the stream back by 4 min 12 s. It has not moved for 5 min.",
            RETIRE,
        ),
        (
            {"a": substream(NOW - 252 * SECOND, caught_up=False), "b": substream(NOW)},
            "“a” holds the stream back by 4 min 12 s. It has not moved for 5 min.",
            "It has rows that are not read yet: nothing is lost by waiting.",
        ),
        (
            {"a": substream(1, caught_up=False), "b": substream(9 * SECOND, held=(9 * SECOND, "a"))},
            "“a” holds the stream back by 9.0 s. 1 substream ahead of it waits (maxWatermarkDrift)." + STILL,
            "It has rows that are not read yet: nothing is lost by waiting.",
        ),
        (
            {"a": substream(1), "b": substream(1), "c": substream(2 * SECOND)},
            "“a” and 1 other hold the stream back by 2.0 s. It has not moved for 5 min.",
            RETIRE,
        ),
        (
            {"a": substream(None, holds=True), "b": substream(NOW)},
            "“a” holds the stream back: no row of it has come yet.",
            RETIRE,
        ),
        (
            # Retired, and late rows of it are counted still.
            {"a": substream(None), "b": substream(NOW)},
            "Nothing holds the stream back: 1 substream level. Epoch 1 ended 5 min ago.",
            None,
        ),
        (
            {"a": substream(None, holds=True), "b": substream(None, holds=True), "c": substream(NOW)},
            "“a” holds the stream back: no row of it has come yet, nor of 1 other.",
            RETIRE,
        ),
    ],
)
def test_who_holds_the_stream_back(substreams: dict[str, ProgressReport], told: str, advice: str | None) -> None:
    run = run_with(report(1, substreams))  # type: ignore[arg-type]
    assert sentence(run, NOW) == (told, advice)


def test_advice_can_be_copied() -> None:
    run = run_with(report(1, {'a "b"\\ü': substream(1), "c": substream(9 * SECOND)}))
    advice = sentence(run, NOW)[1]
    assert advice is not None
    assert 'query.retireSubstream("a \\"b\\"\\\\ü")' in advice


def test_a_substream_that_has_just_moved_needs_no_advice() -> None:
    run = run_with(report(1, {"a": substream(1), "b": substream(9 * SECOND)}))
    run.history.add(report(2, {"a": substream(2), "b": substream(9 * SECOND)}), NOW - SECOND)
    assert sentence(run, NOW) == ("“a” holds the stream back by 9.0 s.", None)


def test_starting_waiting_and_ending() -> None:
    run = run_with()
    assert sentence(run, NOW) == ("No epoch has ended since the start 10 min ago.", None)
    waits = [SinkReport("results", 7, {"epoch": 1})]
    run.history.add(report(2, sinks=waits), NOW)
    assert sentence(run, NOW)[0] == "1 decided transaction cannot be committed."
    # What waits for more epochs of a table is as it should be.
    run.history.add(report(3, sinks=[SinkReport("results", 7, {"epoch": 1, "waits": True})]), NOW)
    assert "cannot be committed" not in sentence(run, NOW)[0]
    run.end(NOW, None)
    assert (run.state, sentence(run, NOW + MINUTE)) == ("ended", ("The query ended 1 min ago.", None))


def test_a_failure_takes_one_line() -> None:
    run = run_with(report())
    run.end(NOW, SinkError("the disk is full\nsecond line"))
    assert run.state == "failed"
    assert sentence(run, NOW)[0] == "The query has failed. SinkError: [SPARKJET_SINK] the disk is full"
    run.end(NOW, SinkError())
    assert run.failure == "SinkError: [SPARKJET_SINK]"


def test_passwords_in_locations_are_not_shown() -> None:
    run = run_with(msgspec.structs.replace(report(), backup=BackupReport(1, "hdfs://ann:pw@nn/copy is full")))
    run.end(NOW, SinkError("hdfs://ann:pw@nn/out is full"))
    assert details(run, NOW)["backup"] == {"epoch": 1, "error": "hdfs://nn/copy is full"}
    assert run.failure == "SinkError: [SPARKJET_SINK] hdfs://nn/out is full"
    handle = {"directory": "hdfs://ann:pw@nn/late", "epoch": 1, "format": "parquet", "files": []}
    told = newest_rows(handle)
    assert (told["directory"], "pw" in str(told)) == ("hdfs://nn/late", False)


def test_a_failure_in_a_python_worker_names_what_it_has_raised() -> None:
    run = run_with(report())
    text = (
        "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "job.py", line 3, in check\nValueError: v is -1\n\nThe above exception was the direct cause of:\n\n'
        'Traceback (most recent call last):\n  File "worker.py", line 9, in run\n'
        "FunctionError: [SPARKJET_FUNCTION] check failed for the key ('u',): ValueError: v is -1\n\n"
        "JVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    run.end(NOW, RuntimeError(text))
    assert run.failure == (
        "RuntimeError: An exception was thrown from the Python worker: "
        "FunctionError: [SPARKJET_FUNCTION] check failed for the key ('u',): ValueError: v is -1"
    )
    assert run.condition == "SPARKJET_FUNCTION"


def test_a_run_ends_though_its_failure_no_longer_has_a_message() -> None:
    """py4j asks the JVM for the message of its errors."""

    class GoneError(RuntimeError):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    run = run_with(report())
    run.end(NOW, GoneError())
    assert (run.state, run.failure) == ("failed", "GoneError: no message")


def test_details_are_json_and_hold_nothing_of_a_sinks_own() -> None:
    sinks = [SinkReport("results", 7, {"epoch": 1, "target": "password=secret"})]
    run = run_with(report(1, {f"p{i}": substream(i) for i in range(50)}, sinks=sinks))
    text = json.dumps(details(run, NOW))
    assert "secret" not in text
    shown = json.loads(text)
    assert [each["name"] for each in shown["substreams"]] == [f"p{i}" for i in range(20)]
    assert shown["otherSubstreams"] == 30
    assert shown["transactions"] == [{"output": "results", "rows": 7, "epoch": 1}]
    assert shown.items() >= summary(run, NOW).items()
    assert json.dumps(details(run_with(), NOW))
