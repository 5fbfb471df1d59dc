"""Alignment of partitions: its laws by simulation, without Spark, and what both sides say of an offset."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkjet as sj
from sparkjet.sources import alignment
from sparkjet.sources.alignment import Aligner, alignment_in, check_limited, file_of, held_back, shared

TIMES = st.lists(st.integers(0, 1000), max_size=30).map(sorted)
"""The event times of a partition."""
TOPIC = st.lists(TIMES, min_size=1, max_size=6).map(lambda all_of: {f"t/{n}": each for n, each in enumerate(all_of)})


class Reading:
    """A topic that is read in batches, with the watermarks that a lag of 0 would have."""

    def __init__(self, topic: Mapping[str, Sequence[int]], drift: int, rows: int) -> None:
        self.topic, self.drift, self.rows = topic, drift, rows
        self.position = dict.fromkeys(topic, 0)
        self.silent: set[str] = set()
        """Idle and retired ones, as of the engine."""

    @property
    def backlog(self) -> list[str]:
        return [each for each, position in self.position.items() if position < len(self.topic[each])]

    @property
    def reached(self) -> dict[str, int]:
        begun = {each: position for each, position in self.position.items() if position and each not in self.silent}
        return {each: self.topic[each][position - 1] for each, position in begun.items()}

    def batch(self) -> alignment.Held:
        """Read one batch as the source does."""
        backlog = {each: len(self.topic[each]) - self.position[each] for each in self.backlog}
        given, held = shared(backlog, self.reached, self.drift, self.rows)
        before, self.position = self.position, {each: at + given.get(each, 0) for each, at in self.position.items()}
        # With availableNow, Spark ends at the first batch that reads nothing.
        assert self.position != before
        return held


@given(TOPIC, st.integers(0, 300), st.integers(1, 20), st.data())
def test_all_is_read_in_the_end_whoever_is_silent(
    topic: dict[str, list[int]], drift: int, rows: int, data: st.DataObject
) -> None:
    reading = Reading(topic, drift, rows)
    while reading.backlog:
        reading.silent = set(data.draw(st.lists(st.sampled_from(sorted(topic)))))
        reading.batch()
    assert reading.position == {each: len(times) for each, times in topic.items()}


@given(TOPIC, st.integers(0, 300), st.integers(1, 20))
def test_the_budget_goes_to_those_behind(topic: dict[str, list[int]], drift: int, rows: int) -> None:
    reading = Reading(topic, drift, rows)
    while reading.backlog:
        before, backlog, reached = dict(reading.position), reading.backlog, reading.reached
        held = reading.batch()
        read = {each: reading.position[each] - before[each] for each in topic}
        # No partition starves that is not ahead of another one with rows to read.
        assert all(bool(read[each]) == (each not in held.ahead) for each in backlog)
        left = sum(len(topic[each]) - before[each] for each in backlog if each not in held.ahead)
        assert sum(read.values()) >= min(rows, left)
        for each, ahead in held.ahead.items():
            assert ahead == reached[each] - reached[held.slowest] > drift
            # Of those that are further behind, all there is was read.
            further = {one for one in backlog if reached.get(one, 1000) < reached[held.slowest]}
            assert all(reading.position[one] == len(topic[one]) for one in further)


@given(TOPIC, st.integers(0, 300), st.integers(1, 20))
def test_no_partition_is_further_ahead_than_the_drift_and_a_share(
    topic: dict[str, list[int]], drift: int, rows: int
) -> None:
    reading = Reading(topic, drift, rows)
    while reading.backlog:
        before, reached = dict(reading.position), reading.reached
        reading.batch()
        behind = [reached[each] for each in reading.backlog if each in reached]
        for each, times in topic.items():
            share = times[before[each] : reading.position[each]]
            if share and behind and each in reached:
                # Where it was before its share, it was within the limit.
                assert reached[each] <= min(behind) + drift
            # A share is at most what the limit of the batch gives to one partition.
            assert len(share) <= rows


@given(st.integers(2, 20), st.integers(0, 300))
def test_one_that_is_always_behind_does_not_starve_the_others(rows: int, drift: int) -> None:
    """As of a device whose clock is hours off: each batch finds a row of it."""
    reading = Reading({"slow": list(range(100)), "t/1": list(range(5000, 5100))}, drift, rows)
    times = dict(reading.topic)
    reading.position = dict.fromkeys(times, 1)
    for batch in range(2, 90):
        reading.topic = {"slow": times["slow"][:batch], "t/1": times["t/1"]}
        reading.batch() if reading.backlog else None
    assert reading.position == {"slow": 89, "t/1": min(100, 1 + 88 * (rows - 1))}


def test_a_batch_of_all_rows_holds_no_partition_back() -> None:
    assert shared({"t/0": 5, "t/1": 5}, {"t/0": 0, "t/1": 900}, 300, None) == ({"t/0": 5, "t/1": 5}, alignment.Held())


def test_a_partition_that_was_read_to_its_end_or_is_unknown_holds_nobody_and_is_not_held() -> None:
    reached = {"t/0": 0, "t/1": 500, "t/2": 900}
    assert held_back(["t/0", "t/1", "t/2"], reached, 300).ahead == {"t/1": 500, "t/2": 900}
    assert held_back(["t/1", "t/2"], reached, 300).ahead == {"t/2": 400}
    assert held_back(["t/2", "new"], reached, 300).ahead == {}
    assert held_back([], reached, 300).ahead == {}


def test_a_planner_goes_by_what_was_said_of_the_offset_where_it_begins() -> None:
    aligner = Aligner(300, alignment.place(), "sparkjet-kafka")
    first = {"source": "s", "offsets": {"t": {"0": 0, "1": 0}}, "watermarks": {}}
    given, held = aligner.shared(first, {"t/0": 9, "t/1": 9}, 10)
    assert (given, held.ahead) == ({"t/0": 5, "t/1": 5}, {})
    end = aligner.described(first, {**first, "offsets": {"t": {"0": 5, "1": 5}}}, held)
    assert alignment_in(end) == {**alignment_in(end), "held": {}, "slowest": ""}
    with pytest.raises(sj.SourceError, match=r"sparkjet-kafka: maxWatermarkDrift .*no file in .*sj\.stream"):
        aligner.shared(end, {"t/0": 4}, 10)
    alignment.write(file_of(end), {"t/0": 400, "t/1": 0})
    given, held = aligner.shared(end, {"t/0": 4, "t/1": 4}, 4)
    assert (given, held.ahead, held.slowest) == ({"t/1": 4}, {"t/0": 400}, "t/1")
    after = aligner.described(end, {**first, "offsets": {"t": {"0": 5, "1": 9}}}, held)
    assert alignment_in(after) == {**alignment_in(end), "held": {"t/0": 400}, "slowest": "t/1"}
    # Without anything to read there is no batch, though nobody is held back now.
    same = {key: value for key, value in after.items() if key != alignment.KEY}
    assert aligner.described(after, same, alignment.Held()) == after


def test_a_cleaner_of_temporary_files_ends_one_run_of_a_query_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "sparkjet-alignment-x"
    monkeypatch.setattr(alignment, "place", lambda: str(place))
    end = Aligner.described({"source": "s"}, {"source": "s", "offsets": {"t": {"0": 5}}}, alignment.Held())
    alignment.write(file_of(end), {"t/0": 5})
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    planner = Aligner(300, str(place), "sparkjet-kafka")
    assert planner.reached(end) == {"t/0": 5}
    shutil.rmtree(place)
    with pytest.raises(
        sj.SourceError, match=rf"{place}.*If it is one of sparkjet's.*start it again.*sparkjet-alignment-\*"
    ):
        planner.reached(end)
    alignment.write(file_of(end), {"t/0": 6})
    assert planner.reached(end) == {"t/0": 6}


def test_a_file_that_the_driver_cannot_write_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "full").write_text("no directory")
    monkeypatch.setattr(alignment, "place", lambda: str(tmp_path / "full"))
    with pytest.raises(sj.SourceError, match=rf"maxWatermarkDrift: the driver cannot say in {tmp_path}/full.*TMPDIR"):
        alignment.write("0", {})


def test_another_query_has_other_files_for_the_same_positions() -> None:
    first = {"source": "s", "offsets": {"t": {"0": 0}}, "watermarks": {}}
    ends = [Aligner.described(first, {**first, "offsets": {"t": {"0": 5}}}, alignment.Held()) for _ in range(2)]
    assert file_of(ends[0]) != file_of(ends[1])


def test_it_needs_a_limit() -> None:
    check_limited(None, None, "maxOffsetsPerTrigger")
    check_limited(1, 1, "maxOffsetsPerTrigger")
    with pytest.raises(sj.AnalysisError, match=r"maxWatermarkDrift needs maxOffsetsPerTrigger.*100000"):
        check_limited(1, None, "maxOffsetsPerTrigger")
