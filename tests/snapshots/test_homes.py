"""Homes that older versions have left: this version goes on from them, and nothing is lost or repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow.parquet import read_schema

import sparkjet as sj
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import (
    FORMAT,
    STEPS,
    DeduplicationSettings,
    FunctionSettings,
    JoinSettings,
    Record,
    RollingSettings,
)
from sparkjet.snapshots.record_log import RecordLog
from tests.parameters import mostly_crash
from tests.snapshots.homes import operators, queues
from tests.snapshots.homes.archives import HOMES, KINDS, archive, unpack
from tests.snapshots.homes.shops import (
    BATCHES,
    GONE,
    INPUTS,
    PAUSE,
    QUIET,
    RECORDED,
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
OF_OPERATORS = [path for path in ARCHIVES if path.name.startswith("operators")]
OF_QUEUES = [path for path in ARCHIVES if path.name.startswith("queues")]
OF_SHOPS = [path for path in ARCHIVES if path not in {*OF_OPERATORS, *OF_QUEUES}]


def _name(path: Path) -> str:
    return f"{path.parent.name}-{path.name.partition('.')[0]}"


def _unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept")
    unpack(request.param, directory)
    return directory


@pytest.fixture(params=OF_SHOPS, ids=_name)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a home of windows that was kept, with its outputs."""
    return _unpacked(request, tmp_path_factory)


@pytest.fixture(params=OF_OPERATORS, ids=_name)
def other_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the other operators."""
    return _unpacked(request, tmp_path_factory)


def newest(root: Path) -> Record:
    found = RecordLog(DirectoryStore(root / "home" / "snapshots")).newest()
    assert found is not None
    return found[1]


def test_each_format_has_a_home_of_each_kind() -> None:
    formats = {path.parent.name for path in ARCHIVES}
    oldest = min(STEPS, default=FORMAT)
    assert formats == {f"format-{number}" for number in range(oldest, FORMAT + 1)}
    for query, paths, first in (
        ("shops", OF_SHOPS, oldest),
        ("operators", OF_OPERATORS, oldest),
        ("queues", OF_QUEUES, oldest),
    ):
        assert {(path.parent.name, path.name) for path in paths} == {
            (f"format-{number}", archive(query, kind)) for number in range(first, FORMAT + 1) for kind in KINDS
        }


def test_they_hold_all_that_a_record_can_hold(root: Path, request: pytest.FixtureRequest) -> None:
    """Otherwise the next test would say less than it seems to."""
    record = newest(root)
    assert len(record.stages) == 2
    for stage in record.stages.values():
        assert stage.deltas
        assert sum(stage.late.values()) == sum(stage.null_timestamps.values()) + 3 == 9
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


# In CI, a query that was stopped in order goes on in `versions/test_homes.py`.
@pytest.mark.parametrize("root", mostly_crash(OF_SHOPS, quick=(), name=_name, crash=OF_SHOPS[:1]), indirect=True)
def test_a_query_continues_from_a_kept_home_exactly_once(spark: SparkSession, root: Path) -> None:
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


def test_they_hold_state_of_all_other_operators(other_root: Path, request: pytest.FixtureRequest) -> None:
    """Otherwise the next test would say less than it seems to."""
    record = newest(other_root)
    settings = [type(stage.settings) for stage in record.stages.values()]
    assert settings == [JoinSettings, DeduplicationSettings, FunctionSettings, FunctionSettings, RollingSettings]
    for stage in record.stages.values():
        assert stage.deltas
    join = record.stages["stage0"]
    assert isinstance(join.settings, JoinSettings)
    assert join.settings.watermarks[0] < join.settings.watermarks[1]
    state = other_root / "home" / "snapshots" / "state"
    columns = [read_schema(next((state / delta.name).rglob("*.parquet"))).names for delta in join.deltas]
    assert {name for each in columns for name in each if name.endswith("_time")} == {"left_time", "right_time"}
    decided = "decided" in request.node.name
    assert {each.sink for each in record.transactions} == (
        {"results1", "results2", "results4", "results5"} if decided else set()
    )


@pytest.mark.parametrize(
    "other_root", mostly_crash(OF_OPERATORS, quick=(), name=_name, crash=OF_OPERATORS[:1]), indirect=True
)
def test_other_operators_continue_from_a_kept_home_exactly_once(spark: SparkSession, other_root: Path) -> None:
    before = newest(other_root)
    operators.arrive(other_root, range(BATCHES))
    first, *others = operators.outputs(spark, other_root, sj.ManualClock(START + BATCHES * PAUSE))
    query = sj.start(first.option("closeWindowsAtEnd", True).trigger(availableNow=True), *others)
    query.awaitTermination()

    assert operators.found(spark, other_root) == operators.expected()
    after = newest(other_root)
    assert (after.query, after.takeover) == (before.query, before.takeover + 1)


@pytest.mark.parametrize("kept", mostly_crash(OF_QUEUES, quick=OF_QUEUES[:1], name=_name))
@pytest.mark.crash
def test_a_kept_home_of_queues_drops_what_is_delivered_again(spark: SparkSession, kept: Path, tmp_path: Path) -> None:
    unpack(kept, tmp_path)
    record = newest(tmp_path)
    assert list(record.queues) == ["0"]
    # Those that were decided, acknowledged or not, and new ones.
    queues.arrive(tmp_path, range(RECORDED - 1, BATCHES))
    [writer] = queues.outputs(spark, tmp_path, sj.ManualClock(START + BATCHES * PAUSE))
    writer.trigger(availableNow=True).start().awaitTermination()
    every = [message for batch in range(BATCHES) for message in queues.messages(batch)]
    assert queues.found(tmp_path) == Counter(every)
    assert not [file for queue in queues.QUEUES for file in (tmp_path / "feed" / queue).iterdir()]
