"""Upgrades of records: what becomes of one of an older format, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparkjet.errors import RecoveryError
from sparkjet.snapshots.record import (
    FORMAT,
    STEPS,
    EpochKind,
    Record,
    SavedStage,
    SessionSettings,
    SlidingSettings,
    upgraded,
)
from tests.snapshots.records import NO_WATERMARKS


def written() -> dict[str, Any]:
    """A window over sessions."""
    record = Record(
        kind=EpochKind.BATCH,
        query="q",
        takeover=1,
        run="r",
        epoch=9,
        fingerprint={"inputs": {"": ["ts"]}, "stage0": {"reads": None}, "stage1": {"reads": "stage0"}},
        clock=7,
        watermarks=NO_WATERMARKS,
        stages={
            f"stage{number}": SavedStage(settings, 20, [], {"a/1": 3}, {})
            for number, settings in enumerate((SessionSettings(5, None), SlidingSettings(6, 2, 0)))
        },
        early_at={},
        spark=None,
        transactions=[],
    )
    found = json.loads(record.encode())
    assert isinstance(found, dict)
    return found


def decoded(record: object) -> Record:
    return Record.decode(json.dumps(record).encode(), "record 4")


def test_each_step_makes_a_record_of_the_next_format() -> None:
    steps = {
        7: lambda record: {**record, "rows": record["count"]},
        8: lambda record: {name: value for name, value in record.items() if name != "count"},
    }
    old = {"count": 3, "format": 7}
    assert upgraded(old, 7, 9, steps) == {"rows": 3, "format": 9}
    assert upgraded({"count": 4, "rows": 4, "format": 8}, 8, 9, steps) == {"rows": 4, "format": 9}
    assert old == {"count": 3, "format": 7}
    for damaged in ({"format": 7}, {"count": 3, "format": 6}):
        with pytest.raises(msgspec.ValidationError, match=r"an entry of format [67] is missing or of another type"):
            upgraded(damaged, damaged["format"], 9, steps)


def test_there_is_a_step_from_each_format_to_the_next() -> None:
    assert sorted(STEPS) == list(range(min(STEPS, default=FORMAT), FORMAT))


def test_what_is_read_is_written_in_the_format_of_today() -> None:
    record = decoded(written())
    assert msgspec.json.decode(record.encode())["format"] == FORMAT
    assert Record.decode(record.encode(), "record 5") == record
    assert {name: each.settings for name, each in record.stages.items()} == {
        "stage0": SessionSettings(5, None),
        "stage1": SlidingSettings(6, 2, 0),
    }
    assert [(each.closed, each.late) for each in record.stages.values()] == [(20, {"a/1": 3})] * 2


@pytest.mark.parametrize(
    "path",
    [
        "stages",
        "fingerprint",
        "watermarks",
        "watermarks.coalescer.frontier",
        "watermarks.inputs..frontier",
        "epoch",
    ],
)
@pytest.mark.parametrize("damage", [None, 7, [1]])
def test_a_damaged_one_is_refused_by_name(path: str, damage: object) -> None:
    record = written()
    *parents, last = path.split(".")
    entry = record
    for name in parents:
        entry = entry[name]
    if damage is None:
        del entry[last]
    else:
        entry[last] = "x" if path == "epoch" else damage
    with pytest.raises(RecoveryError, match="record 4 is not a record that this version can read"):
        decoded(record)


def test_a_format_that_is_too_old_or_too_new_is_refused_with_the_way_out() -> None:
    oldest = min(STEPS, default=FORMAT)
    with pytest.raises(RecoveryError, match=f"has format {FORMAT + 1}, .* up to {FORMAT}. Upgrade sparkjet"):
        decoded({**written(), "format": FORMAT + 1})
    with pytest.raises(RecoveryError, match=f"has format {oldest - 1}, .* from {oldest}. Start the query once with"):
        decoded({**written(), "format": oldest - 1})
