from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import BufferingHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparkjet as sj
from sparkjet.api.interrupts import INTERRUPTS
from sparkjet.engine.phases import EpochPhase
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.turn import Turn
from sparkjet.query_log import about, current, logger
from sparkjet.storage import hadoop_directory
from sparkjet_grid.background import in_background
from sparkjet_grid.client import GridClient
from sparkjet_grid.log import logger as grids
from sparkjet_grid.putting import Putting
from sparkjet_grid.reader_leases import Lease


def test_a_line_names_its_query(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn("clicks")
    with caplog.at_level(logging.INFO, "sparkjet"):
        with about("100% of clicks"):
            logger.info("epoch %d", 7)
            logger.info("it has ended")
            with turn:
                logger.info("epoch %d", 8)
            with ThreadPoolExecutor(1, initializer=turn.enlist) as threads:
                threads.submit(logger.info, "epoch %d", 9).result()
            logger.info("epoch %d", 10)
        logger.info("epoch %d", 11)
    assert caplog.messages == [
        "query 100% of clicks: epoch 7",
        "query 100% of clicks: it has ended",
        "query clicks: epoch 8",
        "query clicks: epoch 9",
        "query 100% of clicks: epoch 10",
        "epoch 11",
    ]


def test_a_line_of_the_grid_names_the_query_too_and_hides_users(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparkjet"):
        with about("100% of clicks"):
            grids.info("member %s is gone", "grid://ann:pw@10.0.0.1")
        grids.info("member %d", 2)
    assert caplog.messages == ["query 100% of clicks: member grid://10.0.0.1 is gone", "member 2"]
    assert fields(caplog.records[0]) == ["100% of clicks", None, None, None]


@pytest.mark.logs_errors
def test_a_listener_to_sparkjets_log_hears_the_grid() -> None:
    # As the check does that fails a test during which an error is logged.
    heard = BufferingHandler(10)
    logging.getLogger("sparkjet").addHandler(heard)
    try:
        grids.error("member 2 has failed")
    finally:
        logging.getLogger("sparkjet").removeHandler(heard)
    assert [(each.name, each.getMessage()) for each in heard.buffer] == [("sparkjet.grid", "member 2 has failed")]


def fields(record: logging.LogRecord) -> list[Any]:
    return [vars(record)[name] for name in ("query", "epoch", "phase", "substream")]


def test_records_have_what_they_are_about_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    progress = EpochProgress(epoch=7, batch=3, late=Counter(b=2), null_timestamps=Counter(a=1))
    logger.warning("nothing yet")
    with about("clicks"):
        with progress.timed(EpochPhase.PREPARE), progress.timed(EpochPhase.COMMIT):
            logger.warning("refused")
        progress.count([])
        logger.warning("between epochs")
    assert [fields(each) for each in caplog.records] == [
        [None, None, None, None],
        ["clicks", 7, "commit", None],
        ["clicks", 7, None, ["a", "b"]],
        ["clicks", None, None, None],
    ]


def test_a_factory_of_the_users_may_have_fields_of_these_names(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*given: Any, **more: Any) -> logging.LogRecord:
        record = logging.LogRecord(*given, **more)
        vars(record)["query"] = "select 1"
        return record

    monkeypatch.setattr(logging, "_logRecordFactory", made)
    with about("clicks"):
        logger.warning("begun")
    assert fields(caplog.records[0])[0] == "clicks"


def test_passwords_in_uris_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with about("hdfs://ann:pw@nn/home"):
        logger.warning("%s is full (%d): %s", "s3a://KEY:SEC@RET@bucket/x", 3, OSError("jdbc:mysql://ann:pw@db/shop"))
        logger.warning("epoch %d", 7)
    first, second = caplog.records
    told = "s3a://bucket/x is full (3): jdbc:mysql://db/shop"
    assert first.getMessage() == f"query hdfs://nn/home: {told}"
    assert (second.getMessage(), second.args) == ("query hdfs://nn/home: epoch 7", (7,))
    assert fields(first)[0] == "hdfs://nn/home"


def test_threads_of_stores_and_grids_work_for_the_query_that_has_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str | None] = {}

    def noting(where: str) -> Any:
        def note(*_: Any) -> list[Any]:
            found[where] = current()
            return []

        return note

    monkeypatch.setattr(Putting, "_groups", lambda *_: [("member", [])])
    monkeypatch.setattr(Putting, "_put_group", noting("put"))
    monkeypatch.setattr(GridClient, "_verify", noting("verify"))
    monkeypatch.setattr(Lease, "_take", lambda *_: None)
    monkeypatch.setattr(Lease, "renew", lambda lease: noting("lease")() or lease.leave())
    nothing: Any = SimpleNamespace()
    state: Any = SimpleNamespace(version=1, rows=[SimpleNamespace(replicas=["member"])])
    held: Any = SimpleNamespace(partition=0, key="key")
    place: Any = SimpleNamespace(kind="map", leases=lambda holder: f"{holder}/")
    client = object.__new__(GridClient)
    client._contact = SimpleNamespace(is_replaced=lambda *_: False)  # type: ignore[assignment]
    directory: Any = SimpleNamespace(put=lambda *_: len(noting("probe")()), remove=lambda _: None)
    with about("clicks"):
        in_background(noting("get"), "grid-from-member").result(60)
        Putting(nothing)._put_once([], {})
        client.unheld([held], state)
        hadoop_directory._at_once(directory)
        lease = Lease(nothing, place, "reader", every=0.001)
    lease._thread.join(60)
    assert found == dict.fromkeys(("get", "put", "verify", "probe", "lease"), "clicks")


@pytest.mark.parametrize("name", ["clicks", None])
def test_every_line_of_a_query_names_it_or_its_home(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"ts": "2026-01-10 09:00:00", "p": "a"}\n{"p": "a"}')
    source = spark.readStream.schema("ts timestamp, p string").json(str(tmp_path / "in"))
    counts = sj.stream(source).withWatermark("ts", "1 minute", by="p").groupBy(sj.window("ts", "1 minute")).count()
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "home"))
    writer = writer.option("snapshotBackup", str(tmp_path / "copy")).option("snapshotBackupEvery", 1)
    with caplog.at_level(logging.INFO, "sparkjet"):
        query = (writer if name is None else writer.queryName(name)).trigger(availableNow=True).start()
        query.awaitTermination()
    assert {each.partition(": ")[0] for each in caplog.messages} == {f"query {name or tmp_path / 'home'}"}
    # At the start, in the epoch, and in a thread beside it.
    for said in ("not waited for", "rows without event time", "is in "):
        assert any(said in each for each in caplog.messages), said
    # What Ctrl-C would say.
    assert INTERRUPTS._names[query._supervisor] == (name or str(tmp_path / "home"))
    assert repr(query) == f"StreamingQuery[name: {name}, id: {query.id}, runId: {query.runId}, ended]"
    assert repr(counts) == "WindowedStream[window: struct<start:timestamp,end:timestamp>, count: bigint]"
