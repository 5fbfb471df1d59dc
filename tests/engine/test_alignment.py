"""The engine's messages to planners of aligned sources, and how long it keeps which files; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkjet.engine.alignment import Alignment, HeldBack
from sparkjet.engine.caught_up import caught_up
from sparkjet.plan.inputs import Input, WatermarkSettings, tracker_of
from sparkjet.sources import alignment
from sparkjet.time import InputTracker, limiting_lag


def an_input(prefix: str = "", *by: str, lag: int = 0, idle: int | None = None) -> Input:
    columns = by or ("topic", "partition")
    return Input(prefix, WatermarkSettings("ts", limiting_lag(lag), columns, idle_timeout=idle, partitions=True), 1)


def offset(reader: str = "r", **ends: int) -> str:
    said = {"reader": reader, "held": {"t/0": 400}, "slowest": "t/1"}
    return json.dumps({"source": "s", "offsets": {"t": ends}, "watermarks": {}, "alignment": said})


def reaching(inputs: list[Input], **times: int) -> InputTracker:
    tracker = tracker_of(inputs, [None] * len(inputs))
    for each in inputs:
        for name, time in times.items():
            tracker.report(f"{each.prefix}t/{name.removeprefix('p')}", time, now=0)
    tracker.advance(now=0)
    return tracker


def said(text: str) -> dict[str, int] | None:
    path = Path(alignment.place()) / alignment.file_of(json.loads(text))
    return json.loads(path.read_text()) if path.exists() else None


def tell(told: Alignment, inputs: list[Input], ends: list[str], tracker: InputTracker) -> None:
    told.look(inputs, ends)
    told.tell(tracker)


@pytest.fixture
def told() -> Iterator[Alignment]:
    made = Alignment()
    yield made
    made.close()


def test_it_says_how_far_each_partition_has_come_that_is_neither_new_nor_idle_nor_retired(told: Alignment) -> None:
    one, end = an_input(idle=10), offset(**{"0": 5, "1": 5, "2": 0, "3": 9})
    tracker = reaching([one], p0=400, p1=7, p3=3)
    tracker.add("t/2", now=0)
    tell(told, [one], [end], tracker)
    assert said(end) == {"t/0": 400, "t/1": 7, "t/3": 3}
    tracker.retire("t/1", now=5)
    tracker.report("t/0", 500, now=5)
    tracker.advance(now=12)
    # After a tick, with the offsets of the last batch.
    told.tell(tracker)
    assert said(end) == {"t/0": 500}


def test_of_two_inputs_of_one_source_the_one_that_has_come_least_far_decides(told: Alignment) -> None:
    inputs, end = [an_input("a/", lag=50), an_input("b/")], offset(**{"0": 5})
    tell(told, inputs, [end], reaching(inputs, p0=400))
    assert said(end) == {"t/0": 350}
    assert told.held == {"a/t/0": HeldBack(400, "a/t/1"), "b/t/0": HeldBack(400, "b/t/1")}


def test_a_file_stays_while_its_epoch_may_be_run_again(told: Alignment) -> None:
    one = an_input()
    tracker, ends = reaching([one], p0=400), [offset(**{"0": number}) for number in range(4)]
    for end in ends:
        tell(told, [one], [end], tracker)
        told.tell(tracker)
    assert [said(end) is not None for end in ends] == [False, False, True, True]
    # A fork begins with the same offset, and ends before.
    fork = Alignment()
    tell(fork, [one], ends[-1:], tracker)
    fork.close()
    assert [said(end) is not None for end in ends] == [False, False, True, True]
    told.close()
    assert not any(map(said, ends))


def test_a_queue_is_a_substream_by_its_name_whatever_that_is(told: Alignment) -> None:
    one = an_input("", "queue")
    tracker = tracker_of([one], [None])
    for name, time in {"a/orders": 400, "returns": 7}.items():
        tracker.report(name, time, now=0)
    tracker.advance(now=0)
    decided = {"reader": "r", "held": {"a/orders": 393}, "slowest": "returns"}
    end = {"queues": {"a/orders": 5, "returns": 2}, "receiver": "/run/receiver", "alignment": decided}
    tell(told, [one], [json.dumps(end)], tracker)
    assert said(json.dumps(end)) == {"a/orders": 400, "returns": 7}
    assert told.held == {"a/orders": HeldBack(393, "returns")}
    # What is decided names queues too, and is no position.
    progress = {
        "endOffset": end,
        "latestOffset": {"queues": {"a/orders": 5, "returns": 3}, "receiver": "/run/receiver"},
    }
    assert caught_up([one], [progress], ["a/orders", "returns"]) == {"a/orders": True, "returns": False}


def test_other_offsets_are_left_alone(told: Alignment) -> None:
    one = an_input()
    plain = [
        '{"t": {"0": 5}}',
        "-",
        '{"alignment": {"0": 5}}',
        '{"source": "s", "offsets": {"0": 1}, "watermarks": {}}',
    ]
    for end in plain:
        tell(told, [one], [end], reaching([one], p0=1))
        assert told.held == {}
    assert not any(said(end) for end in plain if end != "-")


@pytest.mark.parametrize("timeout", ["idle_timeout", "substream_timeout"])
def test_a_substream_that_is_held_back_is_neither_idle_nor_retired(told: Alignment, timeout: str) -> None:
    settings = WatermarkSettings("ts", limiting_lag(0), ("topic", "partition"), partitions=True)
    one = Input("", replace(settings, **{timeout: 10}), 1)
    tracker = reaching([one], p0=400, p1=0)
    told.look([one], [offset(**{"0": 5, "1": 5})])
    for now in range(5, 100, 5):
        # The source does not say whether it has been read to its end.
        tracker.report("t/1", now, now)
        for each in told.held:
            tracker.hold(each, now)
        tracker.advance(now)
        assert [(each.id, each.idle) for each in tracker.progress()] == [("t/0", False), ("t/1", False)]
    if timeout == "idle_timeout":
        # A batch takes long, and between two of them the clock ticks.
        before = tracker.snapshot()
        for caught_up, is_idle in ((None, True), (told.unread, False)):
            tracker.advance(120, caught_up)
            assert [each.idle for each in tracker.progress() if each.id == "t/0"] == [is_idle]
            tracker.restore(before)
    # Silence counts from when it is no longer held.
    tracker.report("t/1", 1000, now=104)
    assert tracker.advance(now=104).watermark == 400
    tracker.report("t/1", 1000, now=105)
    assert tracker.advance(now=105).watermark == 1000
