"""Members of a grid that are restarted one by one while a query runs: nothing is lost, and nothing twice (K15)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.cli.grid_operations import reform
from sparkjet_grid.access import Access
from sparkjet_grid.connections import Connections
from sparkjet_grid.messages import GetStatus, Status
from tests.faults.waiting import until
from tests.feed import START, Feed, rows
from tests.grid.processes import GridProcesses, MemberProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = 10_000
"""Event time of the row that closes all windows."""


# In CI members leave in order (`grid/test_leaving.py`), and machines die under queries (`crash/test_in_a_grid.py`).
@pytest.mark.long
@pytest.mark.timeout(600)
def test_members_are_restarted_one_by_one_under_a_query(spark: SparkSession, tmp_path: Path) -> None:
    feed, times = Feed(tmp_path / "in"), Counter[int]()

    def add(*of: int) -> None:
        feed.add(*rows(of, k="a"))
        times.update(time // 10 * 10 for time in of)

    def start(grid: GridProcesses) -> sj.StreamingQuery:
        stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
        windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
        writer = windows.writeStream.format("files").option("path", tmp_path / "out").option("queryId", "counts")
        addresses = ",".join(member.address for member in grid.members)
        return writer.option("snapshotStore", f"grid://{addresses}").start()

    (tmp_path / "grid").mkdir()
    with GridProcesses(tmp_path / "grid") as grid:
        spark.conf.set("spark.sparkjet.grid.tokenFile", str(grid.token))
        try:
            add(1, 2, 11)
            first = [*grid.members]
            query = start(grid)
            query.processAllAvailable()
            for number, member in enumerate(first, 2):
                # Some while the member leaves, some while it is away, and some for the one in its place.
                for time in range(3):
                    add(number * 20 + time, number * 20 - time)
                grid.restart(member)
                query.processAllAvailable()
                grid.settle()
            query.stop()
            assert query.exception() is None
            assert not {member.id for member in first} & {member.id for member in grid.members}
            # Whoever starts again finds everything with those that have never known the first ones.
            add(LAST)
            query = start(grid)
            query.processAllAvailable()
            query.stop()
        finally:
            spark.conf.unset("spark.sparkjet.grid.tokenFile")
    found = sj.read_files(str(tmp_path / "out")).select(F.unix_seconds("window.start") - START, "count").collect()
    del times[LAST]
    assert sorted(map(tuple, found)) == sorted(times.items())


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_query_goes_on_in_the_same_driver_and_workers_after_its_grid_was_re_formed(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "in")

    def run(member: MemberProcess) -> None:
        stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
        windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
        writer = windows.writeStream.format("files").option("path", tmp_path / "out").option("queryId", "counts")
        writer = writer.option("snapshotStore", f"grid://{member.address}").trigger(availableNow=True)
        writer.start().awaitTermination()

    (tmp_path / "grid").mkdir()
    with GridProcesses(tmp_path / "grid", backup_count=2) as grid:
        spark.conf.set("spark.sparkjet.grid.tokenFile", str(grid.token))
        try:
            feed.add(*rows((1, 2, 11), k="a"))
            survivor = grid.members[0]
            run(survivor)
            for member in grid.members[1:]:
                grid.end(member)
            access = Access(str(grid.token))
            connections = Connections(access)
            uri = access.uri_of(survivor.address)
            until(lambda: connections.ask(uri, GetStatus(), Status).frozen, "it to notice")
            connections.close()
            reform([survivor.address], access)
            feed.add(*rows((12, LAST), k="a"))
            # The same driver, and workers that have clients of the grid as it was.
            run(survivor)
        finally:
            spark.conf.unset("spark.sparkjet.grid.tokenFile")
    found = sj.read_files(str(tmp_path / "out")).select(F.unix_seconds("window.start") - START, "count").collect()
    assert sorted(map(tuple, found)) == [(0, 2), (10, 2)]
