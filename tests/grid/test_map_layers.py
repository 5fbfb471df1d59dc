"""Layers of a map: a version of a partition has the rows that a dict per epoch has, whatever was merged since."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import (
    EXPIRES,
    GONE,
    GROWTH,
    HASH,
    found,
    layer_schema,
    merged,
    still_there,
    to_merge,
    visible,
)

ROWS = pa.schema([("k", pa.string()), ("n", pa.int32()), ("v", pa.int64())])
KEYS, KINDS = ("k", "n"), ("text", "integer")
SCHEMA = layer_schema(ROWS)

Key = tuple[str, int]
Change = tuple[Key, int | None, int | None]
"""A key, its new value or None where it is deleted, and how long it lasts."""


def layer(changes: Sequence[Change], clock: int) -> pa.Table:
    rows = [
        {
            HASH: hash_of(text_of(key, KINDS)),
            GONE: value is None,
            EXPIRES: None if lasts is None else clock + lasts,
            "k": key[0],
            "n": key[1],
            "v": value,
        }
        for key, value, lasts in changes
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def as_dict(table: pa.Table) -> dict[Key, int]:
    return {(row["k"], row["n"]): row["v"] for row in table.to_pylist()}


KEY = st.tuples(st.sampled_from(["", "a", "b", "1:", "ä"]), st.integers(0, 3))
CHANGE = st.tuples(KEY, st.none() | st.integers(0, 99), st.none() | st.integers(1, 5))
EPOCHS = st.lists(st.tuples(st.integers(0, 3), st.lists(CHANGE, max_size=8)), max_size=12)


@given(EPOCHS)
def test_each_version_has_the_rows_that_a_dict_of_its_epoch_has(
    epochs: list[tuple[int, list[Change]]],
) -> None:
    rows: dict[Key, tuple[int, int | None]] = {}
    layers: list[pa.Table] = []
    versions: list[tuple[list[pa.Table], int, dict[Key, int]]] = []
    clock = 0
    for passed, changes in epochs:
        clock += passed
        delta = merged([layer(changes, clock)], KEYS, clock, is_oldest=False)
        count = to_merge(delta.num_rows, [each.num_rows for each in layers])
        new = merged([delta, *layers[:count]], KEYS, clock, is_oldest=count == len(layers))
        layers = [new, *layers[count:]]
        for key, value, lasts in reversed(changes):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value, None if lasts is None else clock + lasts
        there = {key: value for key, (value, until) in rows.items() if until is None or until > clock}
        versions.append((layers, clock, there))
    # At the end: what was merged later has changed nothing for those that read an older one.
    for version, now, there in versions:
        assert as_dict(visible(merged(version, KEYS, now, is_oldest=True), now)) == there
        assert one_by_one(version, now, [*there, ("missing", 1), ("a", 0)]) == {
            **dict.fromkeys([("missing", 1), ("a", 0)]), **there
        }  # fmt: skip


def one_by_one(layers: Sequence[pa.Table], clock: int, keys: Sequence[Key]) -> dict[Key, Any]:
    """The row that a search finds of each key: that of the newest layer that has it."""
    answer: dict[Key, Any] = {}
    for key in keys:
        text = text_of(key, KINDS)
        answer[key] = None
        for table in layers:
            places, rows = found([table.to_batches()], KEYS, [[(0, hash_of(text), text)]])
            if rows is not None and rows.num_rows:
                places, rows = still_there(places, rows, clock)
                assert len(places) == rows.num_rows
                answer[key] = rows.column("v")[0].as_py() if places else None
                break
    return answer


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60))
def test_layers_stay_few_as_each_is_larger_than_the_next_newer_one(deltas: list[int]) -> None:
    layers: list[int] = []
    for delta in deltas:
        count = to_merge(delta, layers)
        layers = [delta + sum(layers[:count]), *layers[count:]]
        assert all(older > GROWTH * newer for newer, older in itertools.pairwise(layers))


@given(st.lists(CHANGE, max_size=20))
def test_of_rows_of_one_key_the_first_counts(changes: list[Change]) -> None:
    table = layer(changes, 0)
    kept = {(row["k"], row["n"]): row["v"] for row in merged([table], KEYS, 0, is_oldest=False).to_pylist()}
    assert kept == {key: value for key, value, _ in reversed(changes)}


def test_keys_of_one_hash_are_distinguished() -> None:
    table = layer([(("a", 1), 1, None), (("b", 2), 2, None)], 0)
    same = table.set_column(0, SCHEMA.field(HASH), pa.array([7, 7], pa.int64()))
    batches = merged([same], KEYS, 0, is_oldest=True).to_batches()
    wanted = [(5, 7, text_of(("c", 2), KINDS)), (6, 7, text_of(("b", 2), KINDS))]
    places, rows = found([batches], KEYS, [wanted])
    assert places == [6]
    assert rows is not None
    assert rows.column("n").to_pylist() == [2]


@pytest.mark.parametrize("start", [0, 3])
def test_a_slice_is_searched_where_it_begins(start: int) -> None:
    table = merged([layer([((f"k{n}", n), n, None) for n in range(9)], 0)], KEYS, 0, is_oldest=True)
    [batch] = table.to_batches()
    part = batch.slice(start)
    for row, values in enumerate(part.to_pylist()):
        text = text_of((values["k"], values["n"]), KINDS)
        places, found_rows = found([[part]], KEYS, [[(row, hash_of(text), text)]])
        assert places == [row]
        assert found_rows is not None
        assert found_rows.to_pylist() == [part.slice(row, 1).to_pylist()[0]]
