"""Alignment of partitions: its laws by simulation, without Spark, and what both sides say of an offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkjet as sj
from sparkjet.sources import alignment
from sparkjet.sources.alignment import Aligner, alignment_in, check_limited, file_of, held_back
from sparkjet.sources.backlog import limited

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
        held = held_back(self.backlog, self.reached, self.drift)
        ends = {each: self.position[each] if each in held.ahead else len(times) for each, times in self.topic.items()}
        before, self.position = self.position, limited(self.position, ends, self.rows)
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
        known = [reached[each] for each in backlog if each in reached]
        for each, ahead in held.ahead.items():
            assert ahead == reached[each] - min(known) > drift
            assert reached[held.slowest] == min(known)


@given(TOPIC, st.integers(0, 300), st.integers(1, 20))
def test_no_partition_is_further_ahead_than_the_drift_and_a_share(
    topic: dict[str, list[int]], drift: int, rows: int
) -> None:
    reading = Reading(topic, drift, rows)
    while reading.backlog:
        before, reached = dict(reading.position), reading.reached
        behind = [reached[each] for each in reading.backlog if each in reached]
        reading.batch()
        for each, times in topic.items():
            share = times[before[each] : reading.position[each]]
            if share and behind and each in reached:
                # Where it was before its share, it was within the limit.
                assert reached[each] <= min(behind) + drift
            # A share is at most what the limit of the batch gives to one partition.
            assert len(share) <= rows


def test_who_was_read_to_its_end_or_is_unknown_holds_nobody_and_is_not_held() -> None:
    reached = {"t/0": 0, "t/1": 500, "t/2": 900}
    assert held_back(["t/0", "t/1", "t/2"], reached, 300).ahead == {"t/1": 500, "t/2": 900}
    assert held_back(["t/1", "t/2"], reached, 300).ahead == {"t/2": 400}
    assert held_back(["t/2", "new"], reached, 300).ahead == {}
    assert held_back([], reached, 300).ahead == {}


def test_a_planner_goes_by_what_was_said_of_the_offset_where_it_begins() -> None:
    aligner = Aligner(300, alignment.place(), "sparkjet-kafka")
    first = {"source": "s", "offsets": {"t": {"0": 0, "1": 0}}, "watermarks": {}}
    held = aligner.held(first, ["t/0", "t/1"])
    assert held.ahead == {}
    end = aligner.described(first, {**first, "offsets": {"t": {"0": 5, "1": 5}}}, held)
    assert alignment_in(end) == {**alignment_in(end), "held": {}, "slowest": ""}
    with pytest.raises(sj.SourceError, match=r"sparkjet-kafka: maxWatermarkDrift .*nobody has said so.*sj\.stream"):
        aligner.held(end, ["t/0"])
    alignment.write(file_of(end), {"t/0": 400, "t/1": 0})
    held = aligner.held(end, ["t/0", "t/1"])
    assert (held.ahead, held.slowest) == ({"t/0": 400}, "t/1")
    after = aligner.described(end, {**first, "offsets": {"t": {"0": 5, "1": 9}}}, held)
    assert alignment_in(after) == {**alignment_in(end), "held": {"t/0": 400}, "slowest": "t/1"}
    # Without anything to read there is no batch, though nobody is held back now.
    same = {key: value for key, value in after.items() if key != alignment.KEY}
    assert aligner.described(after, same, alignment.Held()) == after


def test_another_query_has_other_files_for_the_same_positions() -> None:
    first = {"source": "s", "offsets": {"t": {"0": 0}}, "watermarks": {}}
    ends = [Aligner.described(first, {**first, "offsets": {"t": {"0": 5}}}, alignment.Held()) for _ in range(2)]
    assert file_of(ends[0]) != file_of(ends[1])


def test_it_needs_a_limit() -> None:
    check_limited(None, None, "maxOffsetsPerTrigger")
    check_limited(1, 1, "maxOffsetsPerTrigger")
    with pytest.raises(sj.AnalysisError, match=r"maxWatermarkDrift needs maxOffsetsPerTrigger.*100000"):
        check_limited(1, None, "maxOffsetsPerTrigger")
