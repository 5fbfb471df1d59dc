"""From markers a reader has the watermark of the last epoch that it has read to its end; of writers, the least."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.connectors.kafka.progress_topic import key_of
from sparkjet.connectors.kafka.writer_markers import ProgressTopics, Told, WriterMarkers
from sparkjet.errors import SourceError
from sparkjet.time import MIN, least_carried
from tests.time.laws import law

PARTITIONS = [("t", 0), ("t", 1)]
WATERMARKS = st.one_of(st.just(MIN), st.none(), st.integers(0, 50))
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), WATERMARKS), max_size=6)
READS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)


def marker(epoch: int, watermark: int | None, **ends: list[int]) -> bytes:
    told = {"version": 1, "epoch": epoch, "name": "n", "run": "r", "rows": 1, "ends": ends, "watermark": watermark}
    return json.dumps(told).encode()


@law
@given(STEPS, STEPS, READS)
def test_each_partition_has_the_progress_of_all_its_writers_up_to_its_position(
    one: list[Any], other: list[Any], reads: list[tuple[int, int]]
) -> None:
    markers, told = WriterMarkers(), []
    for name, steps in (("one", one), ("other", other)):
        ends = [0, 0]
        epochs = []
        for epoch, (first, second, watermark) in enumerate(steps):
            ends = [ends[0] + first, ends[1] + second]
            markers.take([(key_of("q", name), marker(epoch, watermark, t=ends))])
            epochs.append((ends, watermark))
        told += [epochs] if epochs else []
    position = [0, 0]
    # Positions do not go back, so what nobody asks for again may be forgotten.
    for read in reads:
        position = [at + more for at, more in zip(position, read, strict=True)]
        expected = {}
        for number in (0, 1):
            last = [[mark for ends, mark in epochs if ends[number] <= position[number]][-1:] for epochs in told]
            if told and all(each and each[0] != MIN for each in last):
                expected["t", number] = least_carried(each[0] for each in last)
        assert markers.watermarks(dict(zip(PARTITIONS, position, strict=True))) == expected


def test_what_is_not_a_marker_of_epochs_says_nothing() -> None:
    markers = WriterMarkers()
    part = key_of("q", "results", 3)
    markers.take([("somebody's", b"x"), ("[1]", b"x"), ("{}", b"x"), (part, marker(1, 5)), ("7", None)])
    assert markers.told == {}
    markers.take([(key_of("q", "results"), marker(1, 30, t=[3])), (key_of("q", "late"), marker(1, None, other=[0]))])
    # That of another topic does not count here; nor has a partition an end that was made later.
    assert markers.watermarks({("t", 0): 3, ("t", 1): 0}) == {("t", 0): 30}
    markers.take([(key_of("q", "results"), None)])
    assert markers.watermarks({("t", 0): 3}) == {}


def test_what_was_read_is_forgotten() -> None:
    markers = WriterMarkers({"w": [Told({"t": [n]}, n, n) for n in range(1, 9)]})
    markers.watermarks({("t", 0): 6, ("other", 0): 0})
    assert [each.epoch for each in markers.told["w"]] == [6, 7, 8]


class Brokers:
    """Answers what a cluster does."""

    def topics(self) -> dict[str, list[int]]:
        return {"t": [0]}


def test_a_progress_topic_that_is_not_there_is_named() -> None:
    topics = ProgressTopics(["progress"], Brokers(), {"bootstrap.servers": "127.0.0.1:1"}, 1.0)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r'progressTopic: there is no topic "progress".*its name is in the writer'):
        topics.watermarks({("t", 0): 1})
