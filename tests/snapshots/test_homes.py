"""Homes that older versions have left: this version goes on from them, and nothing is lost or repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import Record
from sparkjet.snapshots.record_log import RecordLog
from tests.snapshots.homes.archives import HOMES, KINDS, unpack
from tests.snapshots.homes.shops import (
    BATCHES,
    GONE,
    INPUTS,
    PAUSE,
    QUIET,
    START,
    arrive,
    events,
    expected,
    found,
    outputs,
)  # fmt: skip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES = sorted(HOMES.glob("format-*/*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a home that was kept, with its outputs."""
    directory = tmp_path_factory.mktemp("kept")
    unpack(request.param, directory)
    return directory


def newest(root: Path) -> Record:
    found = RecordLog(DirectoryStore(root / "home" / "snapshots")).newest()
    assert found is not None
    return found[1]


def test_each_format_has_a_home_of_each_kind() -> None:
    formats = {path.parent.name for path in ARCHIVES}
    assert "format-2" in formats
    assert {(path.parent.name, path.name) for path in ARCHIVES} == {
        (name, f"{kind}.tar.xz") for name in formats for kind in KINDS
    }


def test_they_hold_all_that_a_record_can_hold(root: Path, request: pytest.FixtureRequest) -> None:
    """Otherwise the next test would say less than it seems to."""
    record = newest(root)
    assert len(record.aggregations) == 2
    for aggregation in record.aggregations.values():
        assert aggregation.deltas
        assert sum(aggregation.late.values()) == sum(aggregation.null_timestamps.values()) + 3 == 9
    till = record.watermarks.inputs[INPUTS["till"]]
    assert [INPUTS["till"] + name for name in till.retired] == [GONE]
    assert [INPUTS["till"] + name for name, each in till.frontier.members.items() if each.idle] == [QUIET]
    policies = {each.policy_type for one in record.watermarks.inputs.values() for each in one.substreams.values()}
    assert policies == {"LimitingLag", "LimitingLagAndDelay", "LimitingLagAndLull"}
    assert record.early_at
    assert record.spark is not None
    assert len(record.spark.sources) >= 3 * 6
    decided = "decided" in request.node.name
    assert {each.sink for each in record.transactions} == ({"results1", "results2", "late"} if decided else set())


@pytest.mark.crash
def test_a_kept_home_is_gone_on_from_exactly_once(spark: SparkSession, root: Path) -> None:
    before = newest(root)
    arrive(root, range(BATCHES))
    first, *others = outputs(spark, root, sj.ManualClock(START + BATCHES * PAUSE))
    query = sj.start(first.option("closeWindowsAtEnd", True).trigger(availableNow=True), *others)
    query.awaitTermination()

    assert found(spark, root) == expected()
    after = newest(root)
    assert (after.query, after.takeover) == (before.query, before.takeover + 1)
    # Counters go on too. Both results drop the same rows.
    assert query.lastProgress is not None
    dropped = Counter((INPUTS[name] + event["sub"], event["late"]) for name, event in events() if "late" in event)
    for name, each in query.lastProgress["substreams"].items():
        assert each["lateRows"] == 2 * dropped[name, "late"]
        assert each["nullTimestamps"] == 2 * dropped[name, "null_timestamp"]
    # Rows came of both since: of the one that was idle, and of the one that was retired, which is a new one.
    assert {GONE, QUIET} <= query.lastProgress["substreams"].keys()
