"""Versions of journals against a list of rows for each partition, without members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet_grid.connections import Fetched
from sparkjet_grid.contents import Digest
from sparkjet_grid.entries import Key
from sparkjet_grid.journal_store import Appending
from sparkjet_grid.journal_version import (
    MOST_PROGRESS,
    PROGRESS,
    Appended,
    Chunk,
    FullError,
    JournalVersion,
    Retention,
    following,
    thinned,
    to_merge,
)
from sparkjet_grid.messages import Held
from sparkjet_grid.places import JournalPlace
from sparkjet_grid.putting import NewEntry

PARTITIONS = 3
EMPTY = JournalVersion(
    number=0,
    epoch=0,
    clock=0,
    watermark=None,
    query="q",
    output="results",
    run="",
    keys=(),
    arrow_schema=b"",
    spark_schema="",
    ends=(0,) * PARTITIONS,
    chunks=((),) * PARTITIONS,
    progress=(),
)
epochs = st.lists(st.tuples(st.lists(st.integers(0, 30), min_size=3, max_size=3), st.integers(0, 20)), max_size=40)
"""Of each epoch the numbers of rows of the partitions, and how much later it is than the one before."""


@dataclass
class Model:
    """A journal as lists: of each partition all rows that ever were, as (epoch, clock)."""

    version: JournalVersion = EMPTY
    mergeable: int = 1000
    rows: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    names: Counter[str] = field(default_factory=Counter)

    def append(self, counts: list[int], elapsed: int) -> JournalVersion:
        base = self.version
        epoch, clock = base.epoch + 1, base.clock + elapsed
        appended = []
        for partition, count in enumerate(counts):
            if count:
                there = base.chunks[partition]
                taken = there[len(there) - to_merge(count, [chunk.entry for chunk in there], self.mergeable) :]
                rows = count + sum(chunk.entry.rows for chunk in taken)
                held = Held(partition, f"{partition}-{epoch}", rows, rows, "")
                first = taken[0] if taken else Chunk(base.ends[partition], epoch, epoch, clock, held)
                chunk = Chunk(first.first, first.first_epoch, epoch, clock, held)
                appended.append(Appended(partition, count, len(taken), chunk))
                self.rows[partition] += [(epoch, clock)] * count
        return following(msgspec.structs.replace(base, number=epoch, epoch=epoch, clock=clock), appended)

    def check(self) -> None:
        version = self.version
        for partition, rows in enumerate(self.rows):
            assert version.ends[partition] == len(rows)
            chunks = version.chunks[partition]
            place = version.base(partition)
            for chunk in chunks:
                # Without a hole, and each says what it has.
                assert chunk.first == place
                place = chunk.end
                assert (chunk.first_epoch, chunk.last_epoch) == (rows[chunk.first][0], rows[place - 1][0])
                assert chunk.clock == rows[place - 1][1]
            assert place == len(rows)
            # Seven in a row are merged unless one is twice as large as what is newer.
            assert self.mergeable < 1000 or len(chunks) <= 7 * (2 + len(rows).bit_length())


@given(epochs)
def test_offsets_have_no_hole_and_belong_to_one_row_forever(given_epochs: list[tuple[list[int], int]]) -> None:
    model = Model()
    for counts, elapsed in given_epochs:
        model.version = model.append(counts, elapsed)
        model.check()
        assert model.version.base(0) == 0


@given(epochs, st.integers(1, 200), st.integers(1, 60))
def test_what_is_retained_is_young_or_fits_and_the_newest_epoch_stays(
    given_epochs: list[tuple[list[int], int]], size: int, age: int
) -> None:
    model, retention = Model(), Retention(size, age, 10_000)
    for counts, elapsed in given_epochs:
        before = model.version
        model.version = version = retention.kept(model.append(counts, elapsed), dict)
        model.check()
        for partition in range(PARTITIONS):
            assert version.base(partition) >= before.base(partition)
            assert version.ends[partition] - version.base(partition) >= counts[partition]
            for chunk in version.chunks[partition]:
                assert chunk.clock >= version.clock - age
        old = [chunk for each in version.chunks for chunk in each if chunk.last_epoch < version.epoch]
        assert version.size <= size or not old


@given(epochs, st.lists(st.integers(0, 40), min_size=3, max_size=3), st.booleans())
def test_readers_hold_what_they_need_up_to_the_limit(
    given_epochs: list[tuple[list[int], int]], lags: list[int], waits: bool
) -> None:
    model, retention = Model(mergeable=5), Retention(1, 0, 300, waits=waits)
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    for counts, elapsed in given_epochs:
        version = model.append(counts, elapsed)
        kept = kept_or_full(retention, version, offsets)
        if isinstance(kept, FullError):
            held = sum(map(len, model.rows)) - sum(offsets.values())
            assert (waits, kept.size > 300, kept.readers) == (True, True, {"r": held})
            # The reader goes on, and so does the writer.
            offsets = dict(enumerate(version.ends))
            kept = retention.kept(version, partial(dict, r=offsets))
        model.version = version = kept
        model.check()
        bases = {partition: version.base(partition) for partition in range(PARTITIONS)}
        if waits:
            assert all(bases[partition] <= offset for partition, offset in offsets.items())
        assert version.size <= 300
        offsets = {each: max(offsets[each], version.ends[each] - lags[each]) for each in offsets}


def kept_or_full(retention: Retention, version: JournalVersion, offsets: dict[int, int]) -> JournalVersion | FullError:
    try:
        return retention.kept(version, partial(dict, r=offsets))
    except FullError as full:
        return full


@pytest.mark.parametrize("waits", [True, False])
def test_an_epoch_that_is_larger_than_the_limit_is_not_a_readers_fault(waits: bool) -> None:
    model = Model()
    model.version = model.append([5, 0, 0], 0)
    with pytest.raises(FullError) as caught:
        Retention(1, None, 20, waits=waits).kept(model.append([10, 11, 0], 0), lambda: {"r": {0: 0}})
    assert caught.value.readers == {}


def test_only_readers_of_earlier_epochs_are_said_to_hold_them() -> None:
    model = Model(mergeable=0)
    model.version = model.append([5, 0, 5], 0)
    # The second has read all that is visible; the third was of a journal with more partitions.
    readers = {"r": {0: 0}, "up": {0: 5, 2: 5}, "old": {7: 3}}
    with pytest.raises(FullError) as caught:
        Retention(1, None, 12).kept(model.append([8, 0, 0], 0), lambda: readers)
    assert caught.value.readers == {"r": 13}


@dataclass
class Memory:
    """A client of one partition that keeps entries in memory."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    rows: tuple[int, ...] = (0,)

    def state(self) -> Memory:
        return self

    def key(self, name: str) -> Key:
        return Key(0, name)

    def entry(self, name: str, schema: pa.Schema, batches: list[pa.RecordBatch], partition: int) -> NewEntry:
        return NewEntry(Key(partition, name), schema, batches)

    def put(self, entries: list[NewEntry]) -> list[Held]:
        for each in entries:
            self.tables[each.key.name] = pa.Table.from_batches(each.batches, each.schema)
        return [Held(0, each.key.name, each.rows, sum(each.sizes), "") for each in entries]

    def get(self, entries: list[Held]) -> list[Fetched]:
        found = [(held.key, self.tables[held.name]) for held in entries]
        return [Fetched(key, table.schema, table.to_batches(), Digest()) for key, table in found]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=80), st.integers(2, 6))
def test_progress_is_bounded_and_its_watermarks_are_none_that_came_later(counts: list[int], most: int) -> None:
    appended = [sum(counts[: place + 1]) for place in range(len(counts))]
    rows = [{"epoch": place, "watermark": 10 * place, "ends": [end]} for place, end in enumerate(appended, 1)]
    kept = thinned(pa.Table.from_pylist(rows, PROGRESS), most).to_pylist()
    assert 1 <= len(kept) <= most
    assert kept[-1] == rows[-1]
    assert [each for each in rows if each in kept] == kept
    # Where nothing has to go, only epochs go that were followed by one with the same ends.
    if len(set(appended)) <= most:
        assert {each["ends"][0] for each in kept} == set(appended)


@pytest.mark.parametrize("rows", [lambda _: 1, lambda _: 0, lambda epoch: epoch % 3 == 0], ids=["all", "none", "some"])
def test_a_journal_that_goes_on_forever_has_a_bounded_number_of_progress_rows(
    rows: Callable[[int], int],
) -> None:
    client, version = Memory(), EMPTY
    for epoch in range(1, 6 * MOST_PROGRESS):
        ends = (version.ends[0] + rows(epoch), *version.ends[1:])
        version = msgspec.structs.replace(version, number=epoch, epoch=epoch, watermark=epoch, ends=ends)
        appending = Appending(client, JournalPlace("j"), f"1-{epoch}-0", version, epoch, 0)  # type: ignore[arg-type]
        version = appending.with_progress(version)
        named = {chunk.entry.name for chunk in version.progress}
        client.tables = {name: table for name, table in client.tables.items() if name in named}
        # Seven of each size, and what is being merged.
        assert len(version.progress) <= 7 * 5
        assert sum(chunk.entry.rows for chunk in version.progress) <= 8 * 2 * MOST_PROGRESS
    told = [row for chunk in version.progress for row in client.tables[chunk.entry.name].to_pylist()]
    assert [row["epoch"] for row in told] == sorted(row["epoch"] for row in told)
    assert told[-1] == {"epoch": version.epoch, "watermark": version.watermark, "ends": [*version.ends]}


def test_what_is_merged_follows_from_rows_and_not_from_their_bytes() -> None:
    client, version = Memory(), EMPTY
    for epoch in range(1, 601):
        appending = Appending(client, JournalPlace("j"), f"1-{epoch}-0", version, epoch, 0)  # type: ignore[arg-type]
        appended = appending.append({0: pa.table({"text": [f"{epoch:0100}"]})})
        version = following(msgspec.structs.replace(version, number=epoch, epoch=epoch), appended)
    # 600 = 512 + 64 + 3 * 8: of a row that is merged whenever there are seven chunks, each is written 15 times.
    assert [chunk.entry.rows for chunk in version.chunks[0]] == [512, 64, 8, 8, 8]
    texts = [row for chunk in version.chunks[0] for row in client.tables[chunk.entry.name]["text"].to_pylist()]
    assert [*map(int, texts)] == [*range(1, 601)]
