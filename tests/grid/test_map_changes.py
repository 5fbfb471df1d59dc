"""A journal of changes against a dict for each epoch, without members: its changes are the map."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet_grid.entries import Key
from sparkjet_grid.errors import GridError
from sparkjet_grid.finding import Found
from sparkjet_grid.journal_store import Appending
from sparkjet_grid.journal_version import EPOCH, JournalVersion, following
from sparkjet_grid.map_changes import NEW, OLD, Changes, _one
from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import EXPIRES, GONE, HASH, found, layer_schema, merged, visible
from sparkjet_grid.map_store import MapStore
from sparkjet_grid.map_store import following as following_layers
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held, Lookup
from sparkjet_grid.places import JournalPlace, MapPlace
from tests.grid.maps import ROWS
from tests.grid.test_journal_version import EMPTY, Memory

COUNT, PARTITIONS = 5, 3
CHANGES = pa.schema([ROWS.field("k"), pa.field(OLD, pa.struct(ROWS)), pa.field(NEW, pa.struct(ROWS))])
FIRST = MapVersion(
    number=0,
    epoch=0,
    clock=0,
    watermark=None,
    query="q",
    output="results",
    run="",
    keys=("k",),
    arrow_schema=ROWS.serialize().to_pybytes(),
    spark_schema="",
    partitions=COUNT,
    layers={},
)


class Members(Memory):
    """Memory that finds rows in layers, and knows of partitions."""

    def put(self, entries: list) -> list[Held]:  # type: ignore[type-arg]
        held = super().put(entries)
        return [
            msgspec.structs.replace(each, partition=of.key.partition) for each, of in zip(held, entries, strict=True)
        ]

    def find(self, columns: list[str], lookups: list[Lookup]) -> list[Found]:
        rows = []
        for lookup in lookups:
            left = lookup.keys
            for name in lookup.layers:
                batches = self.tables[name].to_batches()
                places, there = found([batches], columns, [left])
                if there is not None:
                    rows.append(Found(places, there))
                left = [each for each in left if each[0] not in places]
        return rows


@dataclass
class Writer:
    """A map with a journal of its changes, and what both are to have.

    Attributes:
        client: Where they are.
        map: The newest version.
        journal: The newest version of the other.
        rows: Of each key the value, and when it expires.
    """

    client: Members = field(default_factory=Members)
    map: MapVersion = FIRST
    journal: JournalVersion = EMPTY
    rows: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)

    def write(self, changes: dict[str, int | None], now: int, lasts: int | None, *, sweeps: bool) -> None:
        base, epoch = self.map, self.map.epoch + 1
        clock = now if sweeps or base.expiry is None or base.expiry[0] > now else base.clock
        expires = None if lasts is None else now + lasts
        deltas: dict[int, list[dict[str, object]]] = {each: [] for each in range(COUNT)} if sweeps else {}
        for key, value in changes.items():
            hash_ = hash_of(text_of([key], ["text"]))
            row: dict[str, object] = {HASH: hash_, GONE: value is None, EXPIRES: expires, "k": key, "n": value}
            # The first of two counts.
            other = {**row, GONE: False, "n": -1}
            deltas.setdefault(hash_ % COUNT, []).extend([row, other])
        tables = {each: pa.Table.from_pylist(rows, layer_schema(ROWS)) for each, rows in deltas.items()}
        name = f"1-{epoch}-0"
        appending = Appending(self.client, JournalPlace("j"), name, self.journal, epoch, clock)  # type: ignore[arg-type]
        store = MapStore(self.client, MapPlace("m"))  # type: ignore[arg-type]
        writing = Changes(
            store,
            base if base.number else None,
            ["k"],
            CHANGES,
            clock,
            sweeps=sweeps,
            appending=appending,
            partitions=PARTITIONS,
        )
        # In two goes, as where a task has many rows.
        parts = [dict(each) for each in ([*tables.items()][:2], [*tables.items()][2:])]
        changed = [writing.write(name, part) for part in parts]
        written = [each for part in changed for each in part.written]
        expiry = base.expiry_at(clock)
        if sweeps:
            seen = [time for part in changed if part.expiry is not None for time in part.expiry]
            expiry = (min(seen), max(seen)) if seen else None
        if written and expires is not None:
            expiry = min(expires, *(expiry or [expires])), max(expires, *(expiry or [expires]))
        layers = following_layers(base, written)
        self.map = msgspec.structs.replace(base, number=epoch, epoch=epoch, clock=clock, layers=layers, expiry=expiry)
        ends = msgspec.structs.replace(self.journal, number=epoch, epoch=epoch)
        self.journal = following(ends, [each for part in changed for each in part.appended])
        self.rows |= {key: (value, expires) for key, value in changes.items()}

    @property
    def expected(self) -> dict[str, int]:
        """The rows that exist by the clock of the newest version."""
        return {
            key: value
            for key, (value, expires) in self.rows.items()
            if value is not None and (expires is None or expires > self.map.clock)
        }

    @property
    def shown(self) -> dict[str, int]:
        """The rows that readers of the map see."""
        rows = []
        for layers in self.map.layers.values():
            tables = [self.client.tables[layer.name] for layer in layers]
            rows += visible(merged(tables, ["k"], self.map.clock, is_oldest=True), self.map.clock).to_pylist()
        return {row["k"]: row["n"] for row in rows}

    @property
    def changes(self) -> list[dict[str, Any]]:
        """All changes, by partition and offset."""
        chunks = [chunk for each in self.journal.chunks for chunk in each]
        return [row for chunk in chunks for row in self.client.tables[chunk.entry.name].to_pylist()]


_epochs = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 3), max_size=5),
        st.integers(0, 6),
        st.none() | st.integers(1, 9),
        st.booleans(),
    ),
    max_size=12,
)
"""Of each epoch what changes, how much later it is, how long its rows last, and whether expired ones are looked for."""


@given(_epochs)
def test_the_changes_up_to_each_epoch_are_its_map_and_each_is_there_once(
    epochs: list[tuple[dict[str, int | None], int, int | None, bool]],
) -> None:
    writer, now = Writer(), 0
    shown: list[dict[str, int]] = [{}]
    for changes, elapsed, lasts, sweeps in epochs:
        now += elapsed
        writer.write(changes, now, lasts, sweeps=sweeps and writer.map.number > 0)
        assert writer.shown == writer.expected
        shown.append(writer.shown)
    all_changes = writer.changes
    for epoch, after in enumerate(shown[1:], 1):
        before = shown[epoch - 1]
        of_epoch = [row for row in all_changes if row[EPOCH] == epoch]
        assert len({row["k"] for row in of_epoch}) == len(of_epoch)
        folded = dict(before)
        for row in of_epoch:
            old, new = row[OLD], row[NEW]
            assert old == ({"k": row["k"], "n": before[row["k"]]} if row["k"] in before else None)
            assert (old, new) != (None, None)
            assert new is None or new["k"] == row["k"]
            folded.pop(row["k"], None)
            if new is not None:
                folded[row["k"]] = new["n"]
        assert folded == after
    where: dict[str, int] = {}
    for partition, chunks in enumerate(writer.journal.chunks):
        for chunk in chunks:
            for row in writer.client.tables[chunk.entry.name].to_pylist():
                assert where.setdefault(row["k"], partition) == partition


def test_a_key_of_the_map_is_looked_for_in_its_partition() -> None:
    writer = Writer()
    writer.write({"a": 1, "b": 2}, 0, None, sweeps=False)
    assert writer.client.key("a") == Key(0, "a")
    writer.write({"a": None, "b": 3, "c": None}, 1, None, sweeps=False)
    assert [
        (row["k"], row[OLD], row[NEW]) for row in sorted(writer.changes[-4:], key=lambda row: (row[EPOCH], row["k"]))
    ] == [
        ("a", None, {"k": "a", "n": 1}),
        ("b", None, {"k": "b", "n": 2}),
        ("a", {"k": "a", "n": 1}, None),
        ("b", {"k": "b", "n": 2}, {"k": "b", "n": 3}),
    ]


def test_more_text_than_one_batch_has_room_for_is_refused_rather_than_left_out() -> None:
    """Rows of a partition after its first two gigabytes were left out of its changes."""
    size = 1100 << 20
    # Memory that nobody touches takes none.
    text = pa.py_buffer(mmap.mmap(-1, size))
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("2i", 0, size)), text])
    table = pa.Table.from_batches([pa.record_batch([column], ["k"])] * 2)
    with pytest.raises(GridError, match="more than 2 GB in one column"):
        _one(table)
