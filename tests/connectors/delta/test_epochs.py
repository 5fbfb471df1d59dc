"""Many epochs of a query in a Delta table: those that wait for others, copies of the home, and hundreds of them."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from sparkjet import EpochPhase
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.errors import CopiedHomeError, FencedError, RecoveryError
from sparkjet.sinks.commit_every import CommitEvery
from sparkjet.snapshots.copying import copy_newest
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import OTHER_RUN, RUN, transaction
from sparkjet.testing.stream_driver import StreamDriver
from tests.connectors.delta.reading import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Sink

SCHEMA = "k string, n long"


def driver(
    spark: SparkSession, home: Path, table: Path, every: int = 1, outputs: int = 1, duration: int | None = None
) -> StreamDriver:
    """A query without windows, whose outputs all go into one table."""
    gathers = CommitEvery(every, duration)
    sinks: list[Sink] = [DeltaSink(PosixDirectory(table), spark, commit_every=gathers) for _ in range(outputs)]
    return StreamDriver(spark, lambda rows: [rows] * outputs, SCHEMA, sinks=sinks, directory=home)


def numbers(table: Path) -> list[int]:
    return sorted(row["n"] for row in rows_of(table))


def test_epochs_wait_for_others_and_no_longer_than_until_the_next_start(delta: SparkSession, tmp_path: Path) -> None:
    table, home, copy = (tmp_path / name for name in ("t", "home", "copy"))
    query = driver(delta, home, table, every=3)
    query.process([("a", 1)])
    query.process([("a", 2)])
    assert numbers(table) == []
    # One without rows counts.
    query.process([])
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2], 1)
    told = json.loads(DeltaTable(table).history(1)[0]["userMetadata"])["sparkjet"]
    assert [told[name] for name in ("first", "epoch", "rows")] == [1, 2, 2]
    query.process([("a", 4)])
    with query.crash(at=EpochPhase.DECIDE):
        query.process([("a", 5)])
    copy_newest(PosixDirectory(home), PosixDirectory(copy))
    # The option may change.
    again = driver(delta, home, table, every=2)
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2, 4, 5], 2)
    again.process([("a", 6)])
    with again.crash(at=EpochPhase.COMMITTING):
        again.process([("a", 7)])
    last = driver(delta, home, table, every=100)
    last.process([("a", 8)])
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2, 4, 5, 6, 7], 3)
    # The end of a run commits what waits.
    last.stop()
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2, 4, 5, 6, 7, 8], 4)
    # A home of before that would use epochs again.
    with pytest.raises(RecoveryError, match=r"the log of .* has epoch 8"):
        driver(delta, copy, table)


def test_what_waits_is_committed_in_time_and_by_a_driver_and_its_successor_once(
    delta: SparkSession, tmp_path: Path
) -> None:
    table, home = tmp_path / "t", tmp_path / "home"
    query = driver(delta, home, table, every=9, duration=60_000_000)
    query.process([("a", 1)])
    for micros, visible in ((59_999_999, []), (1, [1])):
        query.clock.advance(micros)
        query.engine.settle(last=False)
        assert numbers(table) == visible
    for n in (2, 3):
        query.process([("a", n)])
    successor = driver(delta, home, table, every=9)
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2, 3], 2)
    successor.process([("a", 4)])
    # It has slept, and believes that they wait.
    with pytest.raises(FencedError):
        query.stop()
    assert (numbers(table), DeltaTable(table).version()) == ([1, 2, 3], 2)
    successor.stop()
    assert numbers(table) == [1, 2, 3, 4]


def test_a_copy_of_a_home_goes_on_if_the_other_has_only_committed_what_waited(
    delta: SparkSession, tmp_path: Path
) -> None:
    table, home, copy = (tmp_path / name for name in ("t", "home", "copy"))
    query = driver(delta, home, table, every=9)
    for n in (1, 2):
        query.process([("a", n)])
    copy_newest(PosixDirectory(home), PosixDirectory(copy))
    query.stop()
    again = driver(delta, copy, table, every=9)
    again.process([("a", 3)])
    again.stop()
    assert numbers(table) == [1, 2, 3]


def test_epochs_of_two_copies_are_distinguished_in_groups_too(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink = DeltaSink(PosixDirectory(tmp_path), delta)
    sink.check(rows.schema)
    sink.create()
    of = {
        run: [sink.prepare(rows, transaction(epoch, takeover=1, run=run, since=1)) for epoch in epochs]
        for run, epochs in {RUN: (2, 3, 5), OTHER_RUN: (2, 4, 6)}.items()
    }
    groups = {run: [handle for handle in handles if handle is not None] for run, handles in of.items()}
    sink.commit_all(groups[RUN], lambda: None)
    # The second is of an epoch that the first does not have, and none of them has one of the last alone.
    for some in (groups[OTHER_RUN], groups[OTHER_RUN][1:], groups[OTHER_RUN][2:]):
        with pytest.raises(CopiedHomeError, match="another copy"):
            sink.commit_all(some, lambda: None)
    assert (numbers(tmp_path), DeltaTable(tmp_path).version()) == ([1, 1, 1], 1)


# In CI, two outputs of Iceberg's do; that Delta's log tells them apart by name is in `test_delta.py`.
@pytest.mark.long
def test_two_outputs_of_one_query_go_into_one_table(delta: SparkSession, tmp_path: Path) -> None:
    table, home = tmp_path / "t", tmp_path / "home"
    query = driver(delta, home, table, every=2, outputs=2)
    for n in (1, 2, 3):
        query.process([("a", n)])
    assert numbers(table) == [1, 1, 2, 2]
    again = driver(delta, home, table, outputs=2)
    again.process([("a", 4)])
    assert numbers(table) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 20])
def test_hundreds_of_epochs(delta: SparkSession, tmp_path: Path, every: int) -> None:
    table, home, took = tmp_path / "t", tmp_path / "home", list[float]()
    query = driver(delta, home, table, every)
    for n in range(300):
        began = time.monotonic()
        query.process([("a", n)])
        took.append(time.monotonic() - began)
        if n % 100 == 50:
            query = driver(delta, home, table, every)
    query.stop()
    assert numbers(table) == [*range(300)]
    versions = DeltaTable(table).version()
    assert versions == 300 if every == 1 else 15 <= versions <= 18
    # By Kernel, after every tenth version: readers need not read the log from its beginning.
    newest = json.loads((table / "_delta_log" / "_last_checkpoint").read_text())["version"]
    assert versions - newest < 10 + 10 * (every > 1)
    shown = [f"{sum(took[n : n + 50]) / 50:.2f}" for n in range(0, 300, 50)]
    logging.getLogger(__name__).info("%d versions, seconds an epoch, by 50: %s", versions, " ".join(shown))
