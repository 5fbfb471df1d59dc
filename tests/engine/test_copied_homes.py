"""Two copies of one home that run at the same time: what one has published is never taken for the other's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.sinks import Sink
from sparkjet.sinks.files import FilesSink
from sparkjet.testing import CollectingSink, StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Homes that are lost or copied: a first run need not prove what becomes of them.
pytestmark = pytest.mark.crash

COPIED = "another copy of this home is running"


class Copies:
    """A query that has run for an epoch, and two drivers that go on from copies of its home."""

    def __init__(self, spark: SparkSession, place: Path, sink: Callable[[], Sink]) -> None:
        self._spark, self._place = spark, place
        before = self.driver("home", sink())
        before.process([(0,)])
        before.stop()
        shutil.copytree(place / "home", place / "copy")
        self.first, self.second = self.driver("home", sink()), self.driver("copy", sink())

    def driver(self, home: str, sink: Sink) -> StreamDriver:
        return StreamDriver(self._spark, lambda rows: rows, "n long", sinks=[sink], directory=self._place / home)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def copies(spark: SparkSession, tmp_path: Path, out: Path) -> Copies:
    return Copies(spark, tmp_path, lambda: FilesSink(out))


def published(out: Path) -> list[int]:
    return sorted(row["n"] for row in sj.read_files(str(out)).collect())


def visible(spark: SparkSession, out: Path) -> list[int]:
    return sorted(row["n"] for row in spark.read.parquet(str(out)).collect())


def test_the_same_epoch_is_published_by_one_of_them(spark: SparkSession, copies: Copies, out: Path) -> None:
    copies.first.process([(1,), (2,)])
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.second.process([(3,)])
    assert published(out) == visible(spark, out) == [0, 1, 2]
    # What the second one has decided is where it was, and the next start says the same.
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.second.restart()
    copies.first.process([(4,)])
    assert published(out) == [0, 1, 2, 4]


def test_one_that_has_gone_ahead_is_noticed(copies: Copies, out: Path) -> None:
    for number in (1, 2, 3):
        copies.first.process([(number,)])
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.second.process([(1,)])
    assert published(out) == [0, 1, 2, 3]


def test_so_is_one_whose_epoch_has_no_rows_in_the_other(copies: Copies, out: Path) -> None:
    copies.first.process([(1,)])
    copies.second.process([])
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.second.process([(1,)])
    assert published(out) == [0, 1]


def test_a_copy_of_a_running_query_has_a_later_takeover(spark: SparkSession, tmp_path: Path, out: Path) -> None:
    copies = Copies(spark, tmp_path, lambda: FilesSink(out))
    copies.second.restart()
    copies.second.process([(1,)])
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.first.process([(2,)])
    assert published(out) == [0, 1]


def test_they_are_distinguished_from_a_successor(copies: Copies, out: Path) -> None:
    """A takeover publishes what its predecessor has decided, and recognizes what it has published."""
    with copies.first.crash(at=EpochPhase.DECIDE):
        copies.first.process([(1,)])
    copies.first.restart()
    assert published(out) == [0, 1]
    with copies.first.crash(at=EpochPhase.COMMIT):
        copies.first.process([(2,)])
    copies.first.restart()
    copies.first.process([(3,)])
    assert published(out) == [0, 1, 2, 3]


def test_files_of_two_that_publish_at_once_are_not_mixed(spark: SparkSession, tmp_path: Path, out: Path) -> None:
    """The first one publishes between the files and the manifest entry of the second."""
    copies = Copies(spark, tmp_path, lambda: FilesSink(out))

    class Interrupted(FilesSink):
        def commit(self, handle, between):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            def first() -> None:
                if "first" in waiting:
                    waiting.remove("first")
                    copies.first.process([(1,), (2,)])

            return super().commit(handle, first)

    waiting = ["first"]
    second = copies.driver("copy", Interrupted(out))
    with pytest.raises(sj.SparkjetError, match=COPIED):
        second.process([(3,), (4,)])
    assert published(out) == visible(spark, out) == [0, 1, 2]


def test_the_collecting_sink_knows_them_too(spark: SparkSession, tmp_path: Path) -> None:
    sink = CollectingSink()
    copies = Copies(spark, tmp_path, lambda: sink)
    copies.first.process([(1,)])
    with pytest.raises(sj.SparkjetError, match=COPIED):
        copies.second.process([(2,)])
    assert [row.n for row in sink.rows()] == [0, 1]
