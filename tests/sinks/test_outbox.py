"""Sinks that publish after the decision: the same epoch always comes with the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import LostTransactionError
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.outbox_sink import OutboxSink
from sparkjet.sinks.protocol import Aborting, Handle, Unknown
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, crash_at, transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TestMemory(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
        sink = MemorySink("contract", spark)
        sink.attach(tmp_path / "outbox", spark)
        sink.check(spark.createDataFrame([], SCHEMA).schema)
        sink.create()
        return SinkUnderTest(
            sink,
            lambda: [tuple(row) for row in spark.table("contract").collect()],
            lambda: len(list((tmp_path / "outbox").glob("*/0*"))),
        )


def test_a_function_that_fails_is_called_again_with_the_same_epoch_and_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[int, list[tuple[str, int]]]] = []

    def store(rows: DataFrame, epoch: int) -> None:
        calls.append((epoch, sorted(tuple(row) for row in rows.collect())))
        if len(calls) == 1:
            raise ConnectionError("the database is away")

    sink = ForeachBatchSink(store)
    sink.attach(tmp_path / "outbox", spark)
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("b", 2)], SCHEMA), transaction(4))
    assert handle is not None
    with pytest.raises(ConnectionError):
        sink.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    assert calls == [(4, [("a", 1), ("b", 2)])] * 2


class Told(OutboxSink):
    """Fails at its first call, and notes of each whether it is a repetition."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""
        self.told.append(self.repeated)
        if len(self.told) == 1:
            raise ConnectionError("the database is away")


def test_a_sink_of_yours_is_told_of_repetitions(spark: SparkSession, tmp_path: Path) -> None:
    sink, successor = Told(), Told()
    sink.attach(tmp_path / "outbox", spark)
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    first, second, third = (sink.prepare(rows, transaction(epoch)) for epoch in (4, 5, 6))
    assert first is not None
    assert second is not None
    assert third is not None
    with pytest.raises(ConnectionError):
        sink.commit(first, lambda: None)
    for handle in (first, second):
        sink.commit(handle, lambda: None)
    assert sink.told == [False, True, False]
    # Another driver does not know whether this one has called it.
    successor.attach(tmp_path / "outbox", spark)
    with pytest.raises(ConnectionError):
        successor.commit(third, lambda: None)
    assert successor.told == [True]


def test_the_console_prints_epoch_and_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ConsoleSink(1)
    sink.attach(tmp_path / "outbox", spark)
    handle = sink.prepare(spark.createDataFrame([("a", 1), ("a", 1)], SCHEMA), transaction(2))
    assert handle is not None
    sink.commit(handle, lambda: None)
    printed = capsys.readouterr().out
    assert "Epoch: 2" in printed
    assert "only showing top 1 row" in printed


class Calls(ForeachBatchSink):
    """Records its calls."""

    def __init__(self, directory: Path, session: SparkSession) -> None:
        super().__init__(lambda rows, epoch: self.made.append((epoch, sorted(tuple(row) for row in rows.collect()))))
        self.made: list[tuple[int, list[tuple[str, int]]]] = []
        self.attach(directory, session)

    def decided(self, epoch: int, *numbers: int, takeover: int = 0) -> Handle:
        """Rows of an epoch in two files."""
        assert self._session is not None
        rows = self._session.createDataFrame([(f"k{n}", n) for n in numbers], SCHEMA).repartition(2)
        handle = self.prepare(rows, transaction(epoch, takeover=takeover))
        assert handle is not None
        return handle


@pytest.fixture
def calls(spark: SparkSession, tmp_path: Path) -> Calls:
    return Calls(tmp_path / "outbox", spark)


def box_of(calls: Calls, handle: Handle) -> Path:
    assert calls._directory is not None
    outbox = calls._directory.path
    assert outbox is not None
    return outbox / "results" / str(handle["box"])


def remove(box: Path) -> None:
    shutil.rmtree(box)


def empty(box: Path) -> None:
    for file in box.iterdir():
        file.unlink()


def remove_one(box: Path) -> None:
    min(box.iterdir()).unlink()


def truncate(box: Path) -> None:
    file = min(box.iterdir())
    file.write_bytes(file.read_bytes()[:-1])


def turn_a_bit(box: Path) -> None:
    file = min(box.iterdir())
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_rows_that_are_gone_are_lost_and_not_an_epoch_without_rows(calls: Calls) -> None:
    handle = calls.decided(4, *range(6))
    assert len(handle["files"]) == 2
    box = box_of(calls, handle)
    saved = box.with_name("saved")
    shutil.copytree(box, saved)
    for fault in (remove, empty, remove_one, truncate, turn_a_bit):
        fault(box)
        with pytest.raises(LostTransactionError, match=rf"Epoch 4 .*{box}.* 6 rows .*{box.parent}/delivered-"):
            calls.commit(handle, lambda: None)
        shutil.rmtree(box, ignore_errors=True)
        shutil.copytree(saved, box)
    assert calls.made == []
    calls.commit(handle, lambda: None)
    assert [epoch for epoch, _ in calls.made] == [4]


def test_a_file_that_vanishes_under_a_lenient_session_is_an_error_of_the_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As on an executor that does not see the directory, which the driver's check cannot detect."""

    class Late(Calls):
        def publish(self, rows: DataFrame, epoch: int) -> None:
            remove_one(tmp_path / "outbox" / "results" / str(transaction(epoch)))
            super().publish(rows, epoch)

    late = Late(tmp_path / "outbox", spark)
    handle = late.decided(4, *range(6))
    spark.conf.set("spark.sql.files.ignoreMissingFiles", value=True)
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            late.commit(handle, lambda: None)
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert late.made == []


def test_only_the_files_that_the_record_names_are_delivered(calls: Calls) -> None:
    """A task that was slower than its retry may still leave a file."""
    handle, other = calls.decided(4, 1, 2), calls.decided(5, 7)
    for file in box_of(calls, other).iterdir():
        shutil.copy(file, box_of(calls, handle) / f"part-99999-{file.name}")
    calls.commit(handle, lambda: None)
    assert calls.made == [(4, [("k1", 1), ("k2", 2)])]


def test_a_missing_box_counts_as_delivered_if_a_mark_says_so(calls: Calls, spark: SparkSession) -> None:
    first, second = calls.decided(4, 1), calls.decided(5, 2)
    for handle in (first, second):
        calls.commit(handle, lambda: None)
    again = Calls(box_of(calls, first).parents[1], spark)
    for handle in (first, second):
        again.commit(handle, lambda: None)
    assert again.made == []
    marks = list(box_of(calls, first).parent.iterdir())
    assert [mark.name for mark in marks] == [f"delivered-{second['box']}"]


def test_a_box_that_was_delivered_but_not_removed_is_not_delivered_again(calls: Calls) -> None:
    handle = calls.decided(4, 1)
    saved = box_of(calls, handle).with_name("saved")
    shutil.copytree(box_of(calls, handle), saved)
    calls.commit(handle, lambda: None)
    saved.rename(box_of(calls, handle))
    calls.commit(handle, lambda: None)
    assert [epoch for epoch, _ in calls.made] == [4]
    assert not box_of(calls, handle).exists()


def test_a_driver_that_slept_while_it_delivered_takes_no_mark_back(calls: Calls, spark: SparkSession) -> None:
    """It marks its own epoch long after its successor has marked a later one; both still count as delivered."""
    first = calls.decided(4, 1)
    successor = Calls(box_of(calls, first).parents[1], spark)
    second = successor.decided(5, 2, takeover=1)

    def meanwhile() -> None:
        successor.commit(first, lambda: None)
        successor.commit(second, lambda: None)

    calls.commit(first, meanwhile)
    for handle in (first, second):
        successor.commit(handle, lambda: None)
    assert [epoch for epoch, _ in successor.made] == [4, 5]


def test_an_epoch_that_is_run_again_with_other_rows_is_delivered(calls: Calls) -> None:
    """With at-least-once, an epoch may be published before its record, and have more rows the second time."""
    calls.commit(calls.decided(4, 1), lambda: None)
    calls.commit(calls.decided(4, 1, 2, takeover=1), lambda: None)
    assert calls.made == [(4, [("k1", 1)]), (4, [("k1", 1), ("k2", 2)])]


def test_a_crash_after_the_delivery_repeats_it_with_the_same_rows(calls: Calls) -> None:
    handle = calls.decided(4, 1)
    with pytest.raises(Exception, match=r"^$"):
        calls.commit(handle, crash_at(1))
    calls.commit(handle, lambda: None)
    assert calls.made == [(4, [("k1", 1)])] * 2


def test_an_attempt_that_failed_is_removed_at_once(calls: Calls) -> None:
    assert isinstance(calls, Aborting)
    handle, other = calls.decided(4, 1), calls.decided(5, 2)
    for _ in range(2):
        calls.abort(transaction(4))
    assert not box_of(calls, handle).exists()
    assert box_of(calls, other).exists()


def test_an_outbox_that_knows_a_later_epoch_than_the_record_names_it_and_the_way_out(calls: Calls) -> None:
    assert calls.published_after(transaction(3), None) is Unknown.UNKNOWN
    handle = calls.decided(7, 1)
    calls.commit(handle, lambda: None)
    assert calls.published_after(transaction(7), handle) is Unknown.UNKNOWN
    clause = calls.published_after(transaction(3), None)
    mark = box_of(calls, handle).with_name(f"delivered-{handle['box']}")
    assert isinstance(clause, str)
    assert "epoch 7 was delivered" in clause
    assert str(mark) in clause
    mark.unlink()
    assert calls.published_after(transaction(3), None) is Unknown.UNKNOWN


def test_foreign_names_in_the_outbox_are_left_alone(calls: Calls) -> None:
    handle = calls.decided(4, 1)
    foreign = [box_of(calls, handle).with_name(name) for name in (".nfs0001", ".snapshot")]
    foreign[0].write_text("")
    foreign[1].mkdir()
    (box_of(calls, handle).parents[1] / ".nfs0002").write_text("")
    calls.abort_orphans("", 1, [])
    assert not box_of(calls, handle).exists()
    assert all(path.exists() for path in foreign)
