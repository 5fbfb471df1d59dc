"""Upgrades of records: what becomes of one of an older format, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparkjet.errors import RecoveryError
from sparkjet.snapshots.record import FORMAT, Record, SessionSettings, SlidingSettings
from sparkjet.snapshots.upgrades import OLDEST
from sparkjet.time import InputTracker, SubstreamTracker, limiting_lag

LATER = 30


def of_format_2() -> dict[str, Any]:
    """Two inputs, of which ``b/`` is idle; a window over sessions."""

    def tracker(watermark: int, *, idle: bool) -> dict[str, Any]:
        substream = {
            "watermark": watermark, "silent_since": 5, "last_data_at": 5, "caught_up": None, "idle": idle,
            "policy_type": "LimitingLag", "policy": {"watermark": watermark},
        }  # fmt: skip
        output = {"emitted": watermark, "top": watermark, "idle": idle}
        return {"substreams": {"1": substream}, "retired": ["2"], "output": output, "started": 0, "now": 7}

    counters: dict[str, Any] = {"closed": 20, "deltas": [], "late": {"a/1": 3}, "null_timestamps": {}}
    return {
        "kind": "epoch", "query": "q", "takeover": 1, "run": "r", "epoch": 9, "clock": 7,
        "fingerprint": {
            "inputs": {"b/": ["ts"], "a/": ["ts"]},
            "stage0": {"reads": None, "keys": {"k": "string"}, "session window": [5, None]},
            "stage1": {"reads": "stage0", "keys": {"stage0": "string"}},
        },
        "watermarks": {
            "inputs": {"b/": tracker(10, idle=True), "a/": tracker(20, idle=False)},
            "coalescer": {
                "watermarks": [20, 10], "idle": [False, True], "done": [False, False],
                "emitted": 20, "top": 20, "all_idle": False, "idle_pending": False,
            },
            "now": 7,
        },
        "stages": {
            "stage0": {"settings": {"gap": 5, "max_duration": None}, **counters},
            "stage1": {"settings": {"size": 6, "step": 2, "offset": 0}, **counters},
        },
        "early_at": {}, "spark": None, "transactions": [], "overlap": False, "published": [], "format": 2,
    }  # fmt: skip


def decoded(record: object) -> Record:
    return Record.decode(json.dumps(record).encode(), "record 4")


def test_aggregations_have_their_names_of_today() -> None:
    record = decoded(of_format_2())
    assert record.format == FORMAT
    assert record.fingerprint == {
        "inputs": {"b/": ["ts"], "a/": ["ts"]},
        "stage0": {"reads": None, "keys": {"k": "string"}, "session window": [5, None]},
        "stage1": {"reads": "stage0", "keys": {"stage0": "string"}},
    }
    assert {name: each.settings for name, each in record.stages.items()} == {
        "stage0": SessionSettings(5, None),
        "stage1": SlidingSettings(6, 2, 0),
    }
    assert [(each.closed, each.late) for each in record.stages.values()] == [(20, {"a/1": 3})] * 2


def test_watermarks_go_on_where_they_were() -> None:
    inputs = InputTracker({prefix: SubstreamTracker(limiting_lag(0), idle_timeout=2) for prefix in ("b/", "a/")})
    inputs.restore(decoded(of_format_2()).watermarks)
    assert inputs.watermark == 20
    assert [(each.id, each.watermark, each.idle, each.holds) for each in inputs.progress()] == [
        ("b/1", 10, True, False),
        ("a/1", 20, False, True),
    ]
    # The substream of the other input is waited for again, from the watermark that it had.
    inputs.report("a/1", LATER, now=8)
    inputs.report("b/1", 15, now=8)
    assert inputs.advance(now=8).watermark is None
    inputs.report("b/1", LATER, now=8)
    assert inputs.advance(now=8).watermark == LATER
    # One that was retired still is.
    inputs.add("a/2", now=8)
    assert {each.id for each in inputs.progress()} == {"a/1", "b/1"}


def test_what_is_read_is_written_in_the_format_of_today() -> None:
    record = decoded(of_format_2())
    assert msgspec.json.decode(record.encode())["format"] == FORMAT
    assert Record.decode(record.encode(), "record 5") == record


@pytest.mark.parametrize(
    "path",
    ["stages", "fingerprint", "watermarks", "watermarks.coalescer.idle", "watermarks.inputs.a/.output", "epoch"],
)
@pytest.mark.parametrize("damage", [None, 7, [1]])
def test_a_damaged_one_is_refused_by_name(path: str, damage: object) -> None:
    record = of_format_2()
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
    with pytest.raises(RecoveryError, match=f"has format {FORMAT + 1}, .* up to {FORMAT}. Upgrade sparkjet"):
        decoded({**of_format_2(), "format": FORMAT + 1})
    with pytest.raises(RecoveryError, match=f"has format {OLDEST - 1}, .* from {OLDEST}. Start the query once with"):
        decoded({**of_format_2(), "format": OLDEST - 1})
