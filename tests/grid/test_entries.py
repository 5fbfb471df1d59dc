"""A member's entries: like a dictionary whose values never change, within a limit of memory."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkjet_grid.contents import Content
from sparkjet_grid.entries import Entries, Key, key_of
from sparkjet_grid.errors import DifferentContentError, GridFullError
from tests.grid.batches import ROWS, rows_of

LIMIT = 20_000
KEYS = st.builds(Key, st.integers(0, 2), st.sampled_from(["a", "a/b", "a/c", "ab", "b/ä"]))
CONTENTS = st.builds(
    lambda count, start: Content.of(ROWS, [rows_of(count, start)]), st.integers(0, 200), st.integers(0, 1)
)


def store(entries: Entries, key: Key, content: Content) -> bool:
    """As a member does."""
    with entries.reserve() as room:
        room.take(content.size)
        return room.store(key, content)


class LikeADictionary(RuleBasedStateMachine):
    """Compares with a dictionary after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.entries, self.model = Entries(LIMIT), dict[Key, Content]()

    @rule(key=KEYS, content=CONTENTS)
    def put(self, key: Key, content: Content) -> None:
        before = dict(self.model)
        try:
            is_new = store(self.entries, key, content)
        except GridFullError:
            assert sum(each.size for each in before.values()) + content.size > LIMIT
        except DifferentContentError:
            assert before[key].digest != content.digest
        else:
            assert is_new == (key not in before)
            assert before.get(key, content).digest == content.digest
            self.model.setdefault(key, content)

    @rule(content=CONTENTS)
    def arrive_in_part(self, content: Content) -> None:
        with suppress(GridFullError), self.entries.reserve() as room:
            room.take(content.size)

    @rule(keys=st.lists(KEYS, max_size=3))
    def remove(self, keys: list[Key]) -> None:
        self.entries.remove(keys)
        self.model = {key: content for key, content in self.model.items() if key not in keys}

    @rule(prefix=st.sampled_from(["a", "a/", "b/", ""]))
    def remove_below(self, prefix: str) -> None:
        self.entries.remove_below(prefix)
        self.model = {key: content for key, content in self.model.items() if not key.name.startswith(prefix)}

    @rule(partition=st.integers(0, 2))
    def drop(self, partition: int) -> None:
        self.entries.drop(partition)
        self.model = {key: content for key, content in self.model.items() if key.partition != partition}

    @invariant()
    def is_the_same(self) -> None:
        assert self.entries.listed() == sorted(self.model.items(), key=lambda item: item[0])
        assert self.entries.used == sum(content.size for content in self.model.values()) <= LIMIT
        assert len(self.entries) == len(self.model)
        assert self.entries.partitions() == sorted({key.partition for key in self.model})
        assert self.entries.listed([0], "a/") == [
            item for item in self.entries.listed() if item[0].partition == 0 and item[0].name.startswith("a/")
        ]
        for key, content in self.model.items():
            assert self.entries.get(key) is content


TestLikeADictionary = LikeADictionary.TestCase


def test_what_does_not_fit_is_refused_before_it_is_kept() -> None:
    entries = Entries(10_000)
    held = Content.of(ROWS, [rows_of(100)])
    assert store(entries, Key(0, "a"), held)
    with pytest.raises(GridFullError, match=r"--max-memory: \d+ bytes more than the \d+ .* exceed 10000"):
        store(entries, Key(0, "b"), Content.of(ROWS, [rows_of(1000)]))
    assert entries.listed() == [(Key(0, "a"), held)]
    assert entries.used == held.size


def test_another_content_under_a_name_is_refused_and_the_first_stays() -> None:
    entries = Entries(100_000)
    first = Content.of(ROWS, [rows_of(1)])
    store(entries, Key(3, "a"), first)
    with pytest.raises(DifferentContentError, match='"a" with another content in partition 3'):
        store(entries, Key(3, "a"), Content.of(ROWS, [rows_of(1, start=7)]))
    assert entries.get(Key(3, "a")) is first
    assert not store(entries, Key(3, "a"), Content.of(ROWS, [rows_of(1)]))
    assert entries.used == first.size


def test_the_partition_of_a_name_is_the_same_everywhere() -> None:
    # The CRC-32 of "123456789", which every description of it gives.
    assert key_of("123456789", 1 << 32) == Key(0xCBF43926, "123456789")
    assert {key_of(f"home/{number}", 271).partition for number in range(5000)} == set(range(271))
